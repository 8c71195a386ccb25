#!/usr/bin/env python3
"""Writes tiny_mtp/: checkpoints of a few kB with layers of multi-token prediction, one for each way of storing them.
Models and layers were trained a little on one walk through the tokens, so that their guesses are sometimes right.
expected.json has the guesses' logits, by vLLM's rules in float32: the row of token i + 1 reads the normed state of token
i; the row behind them reads what the last one gave. Needs torch and transformers 5.24.

usage: make_mtp_models.py OUT [NAME...]
"""
import json
import pathlib
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

COMMON = dict(vocab_size=48, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=128, bos_token_id=0, eos_token_id=1, pad_token_id=None)
DELTA = dict(head_dim=8, linear_key_head_dim=6, linear_value_head_dim=10, linear_num_key_heads=2,
             linear_num_value_heads=4)
EXPERTS = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=12, shared_expert_intermediate_size=12)
NEMOTRON = dict(head_dim=8, mamba_num_heads=4, mamba_head_dim=8, n_groups=2, ssm_state_size=6, chunk_size=8,
                n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=12,
                moe_shared_expert_intermediate_size=10, routed_scaling_factor=1.5)
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
LENGTH = 40

# Configuration; what is different in one of the layers alone; how they are stored, and counted in config.json.
MODELS = {
    "deepseek-v3": ("deepseek_v3", dict(num_key_value_heads=4, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4,
                                        v_head_dim=10, q_lora_rank=10, n_routed_experts=8, num_experts_per_tok=3,
                                        n_shared_experts=1, n_group=4, topk_group=2, moe_intermediate_size=12,
                                        first_k_dense_replace=1),
                    dict(num_hidden_layers=1, first_k_dense_replace=0), "layer", "num_nextn_predict_layers"),
    "glm4-moe": ("glm4_moe", dict(head_dim=8, n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=2, n_group=1,
                                  topk_group=1, moe_intermediate_size=12, first_k_dense_replace=1, use_qk_norm=True),
                 dict(num_hidden_layers=1, first_k_dense_replace=0), "layer", "num_nextn_predict_layers"),
    "qwen3-5": ("qwen3_5_text", dict(DELTA, layer_types=["linear_attention", "full_attention"],
                                     tie_word_embeddings=True),
                dict(num_hidden_layers=1, layer_types=["full_attention"]), "qwen", "mtp_num_hidden_layers"),
    "qwen3-next": ("qwen3_next", dict(DELTA, **EXPERTS, layer_types=["linear_attention", "full_attention"]),
                   dict(num_hidden_layers=1, layer_types=["full_attention"]), "qwen", "num_nextn_predict_layers"),
    "nemotron-h": ("nemotron_h", dict(NEMOTRON, layers_block_type=["linear_attention", "moe", "full_attention"]),
                   dict(layers_block_type=["full_attention", "moe"]), "nemotron", "num_nextn_predict_layers"),
}


class Predictor(torch.nn.Module):
    """The layers, a model of their own without embedding and head, and what is around them."""

    def __init__(self, model, tail, chains_norm):
        super().__init__()
        norm = lambda: type(model.model.norm_f if hasattr(model.model, "norm_f") else model.model.norm)(  # noqa: E731
            model.config.hidden_size, eps=getattr(model.config, "rms_norm_eps", None) or model.config.layer_norm_epsilon)
        self.enorm, self.hnorm, self.norm = norm(), norm(), norm()
        self.joined = torch.nn.Linear(2 * model.config.hidden_size, model.config.hidden_size, bias=False)
        self.tail, self.chains_norm = tail, chains_norm
        for name in ("norm", "norm_f"):
            if hasattr(tail.model, name):
                setattr(tail.model, name, torch.nn.Identity())

    def forward(self, model, tokens, states):
        embedded = model.get_input_embeddings()(tokens)
        x = self.joined(torch.cat([self.enorm(embedded), self.hnorm(states)], dim=-1))
        last = self.tail.model(inputs_embeds=x, use_cache=False).last_hidden_state
        normed = self.norm(last)
        return model.lm_head(normed), normed if self.chains_norm else last


def state_of(model, ids):
    return model.model(input_ids=ids, use_cache=False).last_hidden_state


def randomise(module):
    for key, weight in module.named_parameters():
        norm = "norm" in key and key.endswith("weight")
        torch.nn.init.normal_(weight, mean=1.0 if norm else 0.0, std=0.2)
    for key, buffer in module.named_buffers():
        if key.endswith("e_score_correction_bias"):
            torch.nn.init.normal_(buffer, std=0.2)


def train(model, predictor, walk):
    parts = torch.nn.ModuleList([model, predictor])
    optimiser = torch.optim.Adam(parts.parameters(), lr=1e-2)
    for _ in range(120):
        ids = torch.stack([torch.roll(walk, int(n))[:LENGTH] for n in torch.randint(0, len(walk), (8,))])
        states = state_of(model, ids)
        own = model.lm_head(states)
        guessed, _ = predictor(model, ids[:, 1:], states[:, :-1])
        loss = torch.nn.functional.cross_entropy(own[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss = loss + torch.nn.functional.cross_entropy(guessed[:, :-1].flatten(0, 1), ids[:, 2:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return float(loss)


def stored_names(stored, layers, tail):
    """The tensors of the layers, of a model that was saved alone, under the names of a whole checkpoint."""
    own = {"layer": f"model.layers.{layers}.", "qwen": "mtp.layers.0.", "nemotron": "mtp.layers."}[stored]
    for name, tensor in tail.items():
        for prefix in ("model.layers.", "backbone.layers."):
            if name.startswith(prefix):
                rest = name[len(prefix):]
                yield own + (rest if stored == "nemotron" else rest.split(".", 1)[1]), tensor


def around_names(stored, layers, predictor):
    first = f"model.layers.{layers}."
    names = {"layer": [first + "enorm", first + "hnorm", first + "eh_proj", first + "shared_head.norm"],
             "qwen": ["mtp.pre_fc_norm_embedding", "mtp.pre_fc_norm_hidden", "mtp.fc", "mtp.norm"],
             "nemotron": ["mtp.layers.0.enorm", "mtp.layers.0.hnorm", "mtp.layers.0.eh_proj",
                          "mtp.layers.1.final_layernorm"]}[stored]
    for name, part in zip(names, (predictor.enorm, predictor.hnorm, predictor.joined, predictor.norm)):
        yield name + ".weight", part.weight.detach().clone()


def main(out, names):
    for number, (name, (kind, keys, alone, stored, counted)) in enumerate(MODELS.items()):
        if names and name not in names:
            continue
        torch.manual_seed(2000 + number)
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        whole = COMMON | keys
        if "layers_block_type" in keys:
            whole.pop("num_hidden_layers")
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **whole), attn_implementation="eager")
        tail = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **(whole | alone)),
                                                attn_implementation="eager")
        predictor = Predictor(model, tail, stored != "layer")
        randomise(torch.nn.ModuleList([model, predictor]))
        if stored == "qwen":  # whose norms multiply by 1 + weight
            for key, weight in torch.nn.ModuleList([model, predictor]).named_parameters():
                if "norm" in key and "linear_attn" not in key:
                    weight.data -= 1
        walk = torch.randperm(46, generator=torch.Generator().manual_seed(number)) + 2
        loss = train(model, predictor, walk)
        model.save_pretrained(folder)
        tensors = load_file(folder / "model.safetensors")
        with tempfile.TemporaryDirectory() as other:
            tail.save_pretrained(other)
            layers = len(keys.get("layers_block_type", ())) or 2
            tensors |= dict(stored_names(stored, layers, load_file(pathlib.Path(other) / "model.safetensors")))
        tensors |= dict(around_names(stored, layers, predictor))
        if stored == "layer":  # as published ones repeat them
            tensors[f"model.layers.{layers}.embed_tokens.weight"] = model.get_input_embeddings().weight.detach().clone()
            tensors[f"model.layers.{layers}.shared_head.head.weight"] = model.lm_head.weight.detach().clone()
        save_file({k: t.contiguous() for k, t in tensors.items()}, folder / "model.safetensors",
                  metadata={"format": "pt"})
        config = json.loads((folder / "config.json").read_text())
        config[counted] = 1
        if stored == "nemotron":
            config["mtp_hybrid_override_pattern"] = "*E"
        (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
        for file in folder.iterdir():
            file.chmod(0o644)
        (folder / "generation_config.json").unlink(missing_ok=True)
        tokens = [chr(c) for c in range(ord("0"), ord("0") + 47)] + ["01"]
        (folder / "tokenizer.json").write_text(json.dumps({
            "version": "1.0", "added_tokens": [], "normalizer": None, "pre_tokenizer": BYTES, "post_processor": None,
            "decoder": BYTES, "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)}, "merges": [["0", "1"]]}}))
        model.eval(), predictor.eval()
        noise = torch.randint(2, 48, (LENGTH // 2,), generator=torch.Generator().manual_seed(number))
        ids = torch.cat([walk[:LENGTH // 2], noise])[None]
        with torch.no_grad():
            states = state_of(model, ids)
            logits, chain = predictor(model, ids[:, 1:], states[:, :-1])
            best = logits[:, -1:].argmax(-1)
            chained, _ = predictor(model, torch.cat([ids[:, 1:], best], 1), torch.cat([states[:, :-1], chain[:, -1:]], 1))
        positions = [0, 5, 15, 20, LENGTH - 2]
        (folder / "expected.json").write_text(json.dumps({
            "ids": ids[0].tolist(), "positions": positions,
            "logits": [[round(x, 5) for x in logits[0, p].tolist()] for p in positions],
            "guess": int(best), "chained": [round(x, 5) for x in chained[0, -1].tolist()],
            "walk": walk.tolist()}) + "\n")
        print(name, "loss", round(loss, 3), "deviation", float(logits.std()))


if len(sys.argv) < 2:
    sys.exit(__doc__)
main(pathlib.Path(sys.argv[1]), sys.argv[2:])
