#!/usr/bin/env python3
"""Writes random checkpoints of a few kB of families with recurrent layers to tiny_families/, as make_family_models.py
does for others. Needs torch and transformers 5.24. (The biases of lfm2-adjusted were added to what it wrote, with logits
by a program in numpy that gave transformers' logits without them.)

usage: make_recurrent_models.py OUT [NAME...]
"""
import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

COMMON = dict(vocab_size=48, hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=128, bos_token_id=0, eos_token_id=1, pad_token_id=None)
MAMBA = dict(mamba_n_heads=4, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=6, mamba_expand=2, mamba_chunk_size=8)
DELTA = dict(head_dim=8, linear_key_head_dim=6, linear_value_head_dim=10, linear_num_key_heads=2,
             linear_num_value_heads=4, layer_types=["linear_attention", "full_attention", "linear_attention"])
EXPERTS = dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=12)
LENGTH = 40
# What a layer of Mamba adds is small beside the residual else; transformers' own chunked and recurrent forms of the others
# differ by 4e-4 else.
SPREADS = {"mamba": 0.5, "falcon-mamba": 0.5, "olmo-hybrid-rotated": 0.2, "bailing-hybrid": 0.2, "zamba2": 0.15}

MODELS = {
    "qwen3-5-moe": ("qwen3_5_moe_text", dict(DELTA, **EXPERTS, shared_expert_intermediate_size=12)),
    "lfm2-adjusted": ("lfm2", dict(layer_types=["conv", "full_attention", "conv"], block_multiple_of=8,
                                   block_auto_adjust_ff_dim=True, conv_L_cache=4, conv_bias=True)),
    "lfm2-moe": ("lfm2_moe", dict(EXPERTS, layer_types=["conv", "full_attention", "conv"], num_dense_layers=1)),
    "granite-hybrid-dense": ("granitemoehybrid", dict(
        MAMBA, num_local_experts=0, shared_intermediate_size=20, position_embedding_type="rope",
        layer_types=["linear_attention", "full_attention", "linear_attention"], embedding_multiplier=3.0,
        logits_scaling=2.0, residual_multiplier=0.7, attention_multiplier=0.4)),
    "nemotron-h-moe": ("nemotron_h", dict(
        head_dim=8, mamba_num_heads=4, mamba_head_dim=8, n_groups=2, ssm_state_size=6, chunk_size=8,
        layers_block_type=["linear_attention", "moe", "full_attention", "mlp"], n_routed_experts=6,
        num_experts_per_tok=2, moe_intermediate_size=12, moe_shared_expert_intermediate_size=10,
        routed_scaling_factor=1.5)),
    "falcon-h1": ("falcon_h1", dict(
        MAMBA, mamba_d_ssm=32, mamba_rms_norm=False, embedding_multiplier=2.0, lm_head_multiplier=0.6,
        key_multiplier=0.8, attention_in_multiplier=1.3, attention_out_multiplier=0.7, ssm_in_multiplier=1.1,
        ssm_out_multiplier=0.9, ssm_multipliers=[0.9, 1.2, 0.8, 1.3, 0.7], mlp_multipliers=[0.8, 0.6])),
    "falcon-h1-normed": ("falcon_h1", dict(MAMBA, mamba_d_ssm=32, mamba_rms_norm=True, mamba_norm_before_gate=True)),
    "bamba": ("bamba", dict(MAMBA, attn_layer_indices=[1], hidden_size=16)),
    "mamba2": ("mamba2", dict(num_heads=4, head_dim=8, state_size=6, n_groups=2, chunk_size=8)),
    "kimi-linear": ("kimi_linear", dict(
        EXPERTS, num_key_value_heads=4, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=10,
        linear_head_dim=8, linear_num_heads=2, layer_types=["linear_attention", "full_attention", "linear_attention"],
        mlp_layer_types=["dense", "sparse", "sparse"], n_shared_experts=1)),
    "mamba": ("mamba", dict(state_size=6, expand=3, time_step_rank=3, use_bias=True, tie_word_embeddings=False)),
    "falcon-mamba": ("falcon_mamba", dict(state_size=8, hidden_size=20, mixer_rms_eps=1e-3, use_conv_bias=False)),
    "jamba": ("jamba", dict(mamba_d_state=6, mamba_dt_rank=3, mamba_conv_bias=True, attn_layer_period=3,
                            attn_layer_offset=1, num_experts=4, num_hidden_layers=4)),
    "olmo-hybrid": ("olmo_hybrid", dict(DELTA, rope_parameters={"rope_type": "default", "rope_theta": None})),
    "olmo-hybrid-rotated": ("olmo_hybrid", dict(
        linear_num_key_heads=4, num_hidden_layers=4, rope_parameters={"rope_type": "default", "rope_theta": 5000.0})),
    "bailing-hybrid": ("bailing_hybrid", dict(
        EXPERTS, num_key_value_heads=4, head_dim=8, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4,
        v_head_dim=10, layer_types=["linear_attention", "full_attention", "linear_attention"],
        mlp_layer_types=["dense", "sparse", "sparse"], n_shared_experts=1, n_group=2, topk_group=1,
        routed_scaling_factor=1.5)),
    "zamba2": ("zamba2", dict(
        mamba_d_state=6, mamba_ngroups=2, n_mamba_heads=4, chunk_size=8, num_hidden_layers=6, num_mem_blocks=2,
        num_key_value_heads=4, adapter_rank=5, use_shared_attention_adapter=True,
        layers_block_type=["hybrid", "hybrid", "linear_attention", "hybrid", "linear_attention", "hybrid"])),
    "inkling": ("inkling_text", dict(
        head_dim=8, swa_head_dim=6, swa_num_attention_heads=8, swa_num_key_value_heads=4, sliding_window_size=9, d_rel=3,
        rel_extent=12, log_scaling_n_floor=10, log_scaling_alpha=0.5, conv_kernel_size=3, moe_intermediate_size=12,
        layer_types=["hybrid", "hybrid_sliding", "hybrid_sliding"], mlp_layer_types=["sparse", "dense", "sparse"],
        n_routed_experts=5, num_experts_per_tok=2, n_shared_experts=2, route_scale=1.5,
        logits_mup_width_multiplier=0.5)),
}


def restore_convolutions(folder, whole):
    """OLMo Hybrid's as published, one for each of q, k and v, or `whole`. transformers 5.24 writes three parts of a third."""
    file = folder / "model.safetensors"
    tensors = load_file(file)
    for stem in sorted(name[:-len("q_conv1d.weight")] for name in tensors if name.endswith("q_conv1d.weight")):
        together = torch.cat([tensors.pop(f"{stem}{part}_conv1d.weight") for part in "qkv"])
        if whole:
            tensors[stem + "conv1d.weight"] = together
            continue
        sizes = [len(tensors[f"{stem}{part}_proj.weight"]) for part in "qkv"]
        for part, rows in zip("qkv", together.split(sizes)):
            tensors[f"{stem}{part}_conv1d.weight"] = rows.contiguous()
    save_file(tensors, file, {"format": "pt"})


def logits_of(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids]), use_cache=False).logits[0]


def main(out, names):
    for number, (name, (kind, keys)) in enumerate(MODELS.items()):
        if names and name not in names:
            continue
        torch.manual_seed(1000 + number)
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **(COMMON | keys)))
        for key, weight in model.named_parameters():
            norm = "norm" in key and key.endswith("weight")
            torch.nn.init.normal_(weight, mean=1.0 if norm else 0.0, std=SPREADS.get(name, 0.3))
        for key, buffer in model.named_buffers():
            if key.endswith(("e_score_correction_bias", "expert_bias")):
                torch.nn.init.normal_(buffer, std=0.2)
        model.to(torch.float16 if number % 2 else torch.float32).save_pretrained(folder)
        if kind == "olmo_hybrid":
            restore_convolutions(folder, whole=name.endswith("rotated"))
        for file in folder.iterdir():
            file.chmod(0o644)
        (folder / "generation_config.json").unlink(missing_ok=True)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        ids = torch.randint(2, 48, (LENGTH,), generator=torch.Generator().manual_seed(number)).tolist()
        logits = logits_of(model, ids)
        assert logits.std() > 0.2, f"{name} is too flat to notice mistakes: {logits.std()}"
        positions = [0, 5, 15, 20, LENGTH - 1]
        (folder / "expected.json").write_text(json.dumps({
            "ids": ids, "positions": positions,
            "logits": [[round(x, 5) for x in logits[p].tolist()] for p in positions]}) + "\n")
        print(name, float(logits.std()))


if len(sys.argv) < 2:
    sys.exit(__doc__)
main(pathlib.Path(sys.argv[1]), sys.argv[2:])
