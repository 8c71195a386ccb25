#!/usr/bin/env python3
"""Writes tiny/: random checkpoints of a few kB for features that the golden ones do not cover. Each has its
configuration in the spellings of transformers 5 (config.json) and 4 (config.v4.json), and expected.json with token ids
and the logits at some positions, computed in float32 over the stored weights. Needs torch and transformers 5.

usage: make_tiny_models.py OUT
"""
import json
import pathlib
import shutil
import sys

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

COMMON = dict(vocab_size=48, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=128, bos_token_id=0, eos_token_id=1, pad_token_id=None)
LENGTH = 40

MODELS = {
    "llama-bias": (LlamaConfig, dict(attention_bias=True, mlp_bias=True, head_dim=6), "float32", "1MB"),
    "llama-linear": (LlamaConfig, dict(num_key_value_heads=1, tie_word_embeddings=True, hidden_size=24,
                                       rope_parameters={"rope_type": "linear", "factor": 2.5, "rope_theta": 10000.0}),
                     "bfloat16", "6KB"),
    "llama-dynamic": (LlamaConfig, dict(max_position_embeddings=16, head_dim=8, rope_parameters={
        "rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}), "float32", "1MB"),
    "llama-yarn": (LlamaConfig, dict(num_attention_heads=2, num_key_value_heads=2, head_dim=16, rope_parameters={
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "rope_theta": 10000.0}),
                   "float16", "1MB"),
    "mistral-llama3": (MistralConfig, dict(num_attention_heads=3, num_key_value_heads=3, head_dim=10, sliding_window=None,
                                           rope_parameters={
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 16, "rope_theta": 500.0}), "float32", "1MB"),
    "qwen2-window": (Qwen2Config, dict(hidden_size=18, num_attention_heads=3, num_key_value_heads=1, num_hidden_layers=3,
                                       use_sliding_window=True, sliding_window=5, max_window_layers=1), "float32", "1MB"),
    "qwen3-window": (Qwen3Config, dict(head_dim=12, attention_bias=True, num_hidden_layers=3, use_sliding_window=True,
                                       sliding_window=17, max_window_layers=0, tie_word_embeddings=True,
                                       layer_types=["sliding_attention", "full_attention", "sliding_attention"]),
                     "bfloat16", "1MB"),
}


def old_spelling(config):
    """Returns the configuration in transformers 4's spelling."""
    old = dict(config)
    old["torch_dtype"] = old.pop("dtype")
    rope = dict(old.pop("rope_parameters"))
    old["rope_theta"] = rope.pop("rope_theta")
    kind = rope.pop("rope_type")
    old["rope_scaling"] = None if kind == "default" else {
        ("type" if kind in ("linear", "dynamic", "yarn") else "rope_type"): kind} | rope
    old["transformers_version"] = "4.47.0"
    if old["model_type"] == "qwen2":
        del old["layer_types"]  # transformers 4 has max_window_layers instead
    return old


def logits_of(model, ids):
    """Returns the logits of each position. Runs token by token, so that dynamic scaling sees the sequence grow; what it
    gives beyond the original context is not tested, as models end there."""
    rows, cache = [], None
    with torch.no_grad():
        for token in ids:
            out = model(torch.tensor([[token]]), past_key_values=cache, use_cache=True)
            cache = out.past_key_values
            rows.append(out.logits[0, -1])
    return torch.stack(rows)


def main(out):
    for number, (name, (kind, changes, dtype, shard)) in enumerate(MODELS.items()):
        torch.manual_seed(number)
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        model = AutoModelForCausalLM.from_config(kind(**(COMMON | changes)))
        for key, weight in model.named_parameters():
            torch.nn.init.normal_(weight, mean=1.0 if "norm" in key else 0.0, std=0.3)
        model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size=shard)
        for file in folder.iterdir():
            file.chmod(0o644)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.v4.json").write_text(json.dumps(old_spelling(config), indent=2) + "\n")
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        ids = torch.randint(2, 48, (LENGTH,), generator=torch.Generator().manual_seed(number)).tolist()
        logits = logits_of(model, ids)
        assert logits.std() > 0.3, "too flat to notice mistakes"
        positions = [0, 5, 15, 20, LENGTH - 1]
        (folder / "expected.json").write_text(json.dumps({
            "ids": ids, "positions": positions,
            "logits": [[round(x, 5) for x in logits[p].tolist()] for p in positions]}) + "\n")


if len(sys.argv) != 2:
    sys.exit(__doc__)
main(pathlib.Path(sys.argv[1]))
