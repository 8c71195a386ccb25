#!/usr/bin/env python3
"""Writes tiny_families/: random checkpoints of a few kB, one or more for each family that ../shared's reference
checkpoints do not cover, and of multimodal models. Each has expected.json with token ids and the logits at some
positions, computed in float32 over the stored weights. Needs torch and transformers 5.

usage: make_family_models.py OUT [NAME...]
"""
import json
import pathlib
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, Mistral4ForCausalLM

COMMON = dict(vocab_size=48, hidden_size=16, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=128, bos_token_id=0, eos_token_id=1, pad_token_id=None)
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
LATENT = dict(num_key_value_heads=4, kv_lora_rank=12, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=10)
LENGTH = 40
# Of layers of which the last two read K and V of earlier ones: the two before are of both kinds, as llama.cpp expects.
LAST_OF_BOTH = ["sliding_attention"] * 3 + ["full_attention", "sliding_attention", "full_attention"]
GREEDY = {"gemma3n"}  # these also have what follows greedily
# Encoders of images as small as they may be.
SIGHT = dict(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2, image_size=8, patch_size=4)
QWEN_SIGHT = dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=2, temporal_patch_size=2,
                  spatial_merge_size=2)
AXES = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 1, 1]}

# Of the text; the rest of the configuration.
MULTIMODAL = {
    "mistral3": ("mistral3", dict(model_type="mistral", head_dim=8, sliding_window=None),
                 dict(vision_config=dict(SIGHT, model_type="pixtral", head_dim=4), tie_word_embeddings=False)),
    "llava": ("llava", dict(model_type="llama"),
              dict(vision_config=dict(SIGHT, model_type="clip_vision_model", projection_dim=8))),
    "smolvlm": ("smolvlm", dict(model_type="llama", hidden_size=32),
                dict(vision_config=SIGHT, scale_factor=2, tie_word_embeddings=True)),
    "qwen2-vl": ("qwen2_vl", dict(hidden_size=32, rope_parameters=AXES),
                 dict(vision_config=dict(QWEN_SIGHT, embed_dim=8, hidden_size=32, mlp_ratio=1))),
    "qwen2.5-vl": ("qwen2_5_vl", dict(hidden_size=32, use_sliding_window=True, sliding_window=9, max_window_layers=1,
                                      rope_parameters=AXES | {"rope_type": "yarn", "factor": 4.0,
                                                              "original_max_position_embeddings": 32}),
                   dict(vision_config=dict(QWEN_SIGHT, out_hidden_size=32, window_size=8, fullatt_block_indexes=[0]))),
    "qwen3-vl": ("qwen3_vl", dict(head_dim=8, rope_parameters=AXES | {"mrope_interleaved": True}),
                 dict(vision_config=dict(QWEN_SIGHT, out_hidden_size=16, num_position_embeddings=16,
                                         deepstack_visual_indexes=[0]), tie_word_embeddings=True)),
    "qwen3-vl-moe": ("qwen3_vl_moe", dict(head_dim=8, rope_parameters=AXES, num_experts=4, num_experts_per_tok=2,
                                          moe_intermediate_size=12, mlp_only_layers=[1]),
                     dict(vision_config=dict(QWEN_SIGHT, out_hidden_size=16, num_position_embeddings=16,
                                             deepstack_visual_indexes=[0]))),
    "glm4v": ("glm4v", dict(hidden_size=32, num_attention_heads=2, num_key_value_heads=1,
                            rope_parameters=AXES | {"partial_rotary_factor": 0.5}),
              dict(vision_config=dict(depth=1, hidden_size=8, intermediate_size=8, num_heads=2, image_size=8,
                                      patch_size=4, out_hidden_size=32))),
}

MODELS = {
    "gemma": ("gemma", dict(head_dim=8)),
    "gemma3-scaled": ("gemma3_text", dict(head_dim=8, query_pre_attn_scalar=10, sliding_window=7, num_hidden_layers=3,
                                          layer_types=["sliding_attention", "full_attention", "sliding_attention"],
                                          rope_parameters={"full_attention": {"rope_type": "linear", "factor": 4.0,
                                                                              "rope_theta": 100000.0},
                                                           "sliding_attention": PLAIN})),
    "phi": ("phi", dict(hidden_size=32)),
    "phi3-longrope": ("phi3", dict(hidden_size=32, original_max_position_embeddings=16, sliding_window=19,
                                   rope_parameters={"rope_type": "longrope", "rope_theta": 10000.0,
                                                    "partial_rotary_factor": 0.75, "short_factor": [1.0, 1.1, 1.5],
                                                    "long_factor": [1.2, 2.5, 7.0]})),
    "qwen2-moe": ("qwen2_moe", dict(num_experts=6, num_experts_per_tok=2, moe_intermediate_size=12,
                                    shared_expert_intermediate_size=12, decoder_sparse_step=2)),
    "granitemoe": ("granitemoe", dict(num_local_experts=5, num_experts_per_tok=3, embedding_multiplier=3.0,
                                      logits_scaling=2.0, residual_multiplier=0.7, attention_multiplier=0.4)),
    "olmo3": ("olmo3", dict(num_hidden_layers=4, sliding_window=9, max_position_embeddings=96, rope_parameters={
        "full_attention": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24,
                           "rope_theta": 5000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}})),
    "starcoder2": ("starcoder2", dict(sliding_window=11)),
    "stablelm": ("stablelm", dict(hidden_size=32, use_qkv_bias=True)),
    "stablelm-parallel": ("stablelm", dict(hidden_size=32, use_parallel_residual=True)),
    "glm": ("glm", dict(head_dim=8)),
    "glm4": ("glm4", dict(head_dim=12)),
    "nemotron": ("nemotron", dict(hidden_size=32, head_dim=8)),
    "falcon": ("falcon", dict()),
    "falcon-new": ("falcon", dict(new_decoder_architecture=True, num_kv_heads=2, bias=True)),
    "falcon-alibi": ("falcon", dict(alibi=True, multi_query=False, parallel_attn=False, bias=True, hidden_size=24,
                                    num_attention_heads=6)),
    "gpt-neox-sequential": ("gpt_neox", dict(use_parallel_residual=False, hidden_size=32)),
    "gpt2-wide": ("gpt2", dict(n_embd=16, n_layer=2, n_head=2, n_inner=20, n_positions=64)),
    "deepseek-v2-lite": ("deepseek_v2", dict(LATENT, q_lora_rank=None, n_routed_experts=6, num_experts_per_tok=2,
                                             moe_intermediate_size=12, first_k_dense_replace=1, topk_method="greedy",
                                             rope_parameters={"rope_type": "yarn", "factor": 4.0, "mscale": 0.707,
                                                              "mscale_all_dim": 0.707, "rope_theta": 10000.0,
                                                              "original_max_position_embeddings": 16})),
    "deepseek-v2": ("deepseek_v2", dict(LATENT, q_lora_rank=10, n_routed_experts=6, num_experts_per_tok=2,
                                        moe_intermediate_size=12, topk_method="group_limited_greedy", n_group=3,
                                        topk_group=2, routed_scaling_factor=3.0, n_shared_experts=1)),
    "deepseek-v3": ("deepseek_v3", dict(LATENT, q_lora_rank=10, n_routed_experts=8, num_experts_per_tok=3,
                                        moe_intermediate_size=12, first_k_dense_replace=1, n_group=4, topk_group=2,
                                        rope_parameters={"rope_type": "yarn", "factor": 4.0, "mscale": 1.0,
                                                         "mscale_all_dim": 1.0, "rope_theta": 10000.0,
                                                         "beta_fast": 32, "beta_slow": 1,
                                                         "original_max_position_embeddings": 16})),
    "deepseek-wide": ("deepseek_v3", dict(num_key_value_heads=4, kv_lora_rank=512, qk_nope_head_dim=6, q_lora_rank=None,
                                          qk_rope_head_dim=64, v_head_dim=6, num_hidden_layers=1, n_routed_experts=2,
                                          first_k_dense_replace=1, n_group=1, topk_group=1, num_experts_per_tok=1)),
}

# Of 2025 and 2026; behind the others, whose seeds are their numbers.
LATER = {
    "cohere": ("cohere", dict(hidden_size=32, num_hidden_layers=2, logit_scale=0.5)),
    "arcee": ("arcee", dict(hidden_size=32)),
    "seed-oss": ("seed_oss", dict(head_dim=8, attention_out_bias=True)),
    "ministral3": ("ministral3", dict(head_dim=8, rope_parameters={
        "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 16, "rope_theta": 10000.0,
        "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.5})),
    "ernie4.5": ("ernie4_5", dict(head_dim=8, use_bias=True)),
    "ernie4.5-moe": ("ernie4_5_moe", dict(hidden_size=32, moe_num_experts=6, moe_k=2, moe_intermediate_size=12,
                                          moe_num_shared_experts=2, num_hidden_layers=3)),
    "hunyuan": ("hunyuan_v1_dense", dict(head_dim=8, rope_parameters={"rope_type": "dynamic", "alpha": 50.0,
                                                                      "factor": 1.0, "rope_theta": 10000.0})),
    "hunyuan-moe": ("hunyuan_v1_moe", dict(head_dim=8, num_experts=4, moe_topk=2)),
    "apertus": ("apertus", dict(hidden_size=32, rope_parameters=dict(
        PLAIN, rope_type="llama3", factor=8.0, original_max_position_embeddings=16, low_freq_factor=1.0,
        high_freq_factor=4.0))),
    "minimax-m2": ("minimax_m2", dict(head_dim=8, num_local_experts=6, num_experts_per_tok=2,
                                      rope_parameters=PLAIN | {"partial_rotary_factor": 0.5})),
    "dots1": ("dots1", dict(head_dim=8, n_routed_experts=6, n_shared_experts=1, num_experts_per_tok=2, n_group=2,
                            topk_group=1, moe_intermediate_size=12, first_k_dense_replace=1, norm_topk_prob=True,
                            routed_scaling_factor=1.5, num_hidden_layers=3)),
    "mistral4": ("mistral4", dict(LATENT, q_lora_rank=10, n_routed_experts=6, num_experts_per_tok=2,
                                  moe_intermediate_size=12, n_group=2, topk_group=1, n_shared_experts=1,
                                  rope_parameters={
                                      "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16,
                                      "rope_theta": 10000.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
                                      "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.5})),
    "exaone4-full": ("exaone4", dict(hidden_size=32, sliding_window=None, layer_types=["full_attention"] * 2)),
    "glm4-moe-grouped": ("glm4_moe", dict(head_dim=8, n_routed_experts=8, n_shared_experts=2, num_experts_per_tok=3,
                                          n_group=4, topk_group=2, moe_intermediate_size=12, first_k_dense_replace=1,
                                          use_qk_norm=False, routed_scaling_factor=2.0)),
    "llama4": ("llama4_text", dict(head_dim=8, num_local_experts=4, num_experts_per_tok=2, intermediate_size_mlp=20,
                                   num_hidden_layers=4, interleave_moe_layer_step=2, attention_chunk_size=12,
                                   floor_scale=10, attn_scale=0.4)),
    "gemma4": ("gemma4_text", dict(head_dim=8, global_head_dim=12, num_hidden_layers=6, num_kv_shared_layers=2,
                                   hidden_size_per_layer_input=6, vocab_size_per_layer_input=48, sliding_window=7,
                                   use_double_wide_mlp=True, final_logit_softcapping=20.0,
                                   layer_types=LAST_OF_BOTH)),
    "gemma4-keys": ("gemma4_text", dict(head_dim=8, global_head_dim=12, num_hidden_layers=3, sliding_window=7,
                                        num_key_value_heads=4, num_global_key_value_heads=2, attention_k_eq_v=True,
                                        hidden_size_per_layer_input=0, vocab_size_per_layer_input=48,
                                        layer_types=["sliding_attention", "full_attention", "full_attention"])),
    "gemma4-experts": ("gemma4_text", dict(head_dim=8, global_head_dim=12, num_hidden_layers=3, sliding_window=7,
                                           hidden_size_per_layer_input=0, vocab_size_per_layer_input=48,
                                           enable_moe_block=True, num_experts=6, top_k_experts=2,
                                           moe_intermediate_size=12, layer_types=["sliding_attention"] * 2 +
                                           ["full_attention"])),
    "cohere-normed": ("cohere", dict(hidden_size=32, use_qk_norm=True, logit_scale=0.5)),
    "gemma3n": ("gemma3n_text", dict(head_dim=8, num_hidden_layers=6, num_kv_shared_layers=2, altup_num_inputs=3,
                                     altup_active_idx=1, laurel_rank=5, hidden_size_per_layer_input=6,
                                     vocab_size_per_layer_input=40, sliding_window=7, final_logit_softcapping=20.0,
                                     intermediate_size=[24] * 4 + [40] * 2,
                                     activation_sparsity_pattern=[0.5, 0.0, 0.9, 0.0, 0.7, 0.0],
                                     layer_types=["sliding_attention", "sliding_attention", "full_attention"] * 2)),
    "gptj": ("gptj", dict(hidden_size=32, n_embd=32, n_layer=2, n_head=4, n_inner=24, n_positions=128, rotary_dim=4)),
    "gpt-bigcode": ("gpt_bigcode", dict(hidden_size=32, n_embd=32, n_layer=2, n_head=4, n_inner=24, n_positions=64)),
    "gpt-bigcode-heads": ("gpt_bigcode", dict(n_embd=16, n_layer=2, n_head=2, num_attention_heads=2, n_positions=64,
                                              multi_query=False)),
    "mpt": ("mpt", dict(hidden_size=24, d_model=24, n_layers=2, n_heads=6, num_attention_heads=6, max_seq_len=128,
                        attn_config=dict(clip_qkv=0.8))),
    "internlm3": ("internlm3", dict(head_dim=8, attention_bias=True, mlp_bias=True,
                                    rope_parameters=PLAIN | {"rope_type": "dynamic", "factor": 6.0})),
    "granite-swa": ("granite_swa", dict(hidden_size=32, num_hidden_layers=5, sliding_window=7, embedding_multiplier=3.0,
                                        logits_scaling=2.0, residual_multiplier=0.7, attention_multiplier=0.4,
                                        layer_rope_theta=[50000.0, 10000.0, 0, 10000.0, 50000.0])),
    "solar-open": ("solar_open", dict(head_dim=8, n_routed_experts=8, n_shared_experts=1, num_experts_per_tok=3,
                                      n_group=2, topk_group=1, moe_intermediate_size=12, routed_scaling_factor=1.5)),
    "phimoe": ("phimoe", dict(hidden_size=32, num_local_experts=4, num_experts_per_tok=2, router_jitter_noise=0.2,
                              attention_bias=True, lm_head_bias=True)),
    "olmoe": ("olmoe", dict(num_key_value_heads=4, num_experts=6, num_experts_per_tok=2)),
    "axk1": ("axk1", dict(LATENT, q_lora_rank=10, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=12,
                          mlp_layer_types=["dense", "sparse"], n_group=4, topk_group=2, rope_parameters=PLAIN)),
    "laguna": ("laguna", dict(
        head_dim=8, num_hidden_layers=3, layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        sliding_window=9, num_attention_heads_per_layer=[6, 4, 6], num_experts=6, num_experts_per_tok=2,
        moe_intermediate_size=12, shared_expert_intermediate_size=10, moe_routed_scaling_factor=1.5,
        moe_router_logit_softcapping=0.7)),
    "laguna-elements": ("laguna", dict(head_dim=8, gating="per-element", num_experts=4, num_experts_per_tok=2,
                                       moe_intermediate_size=12, shared_expert_intermediate_size=10)),
    "longcat-flash": ("longcat_flash", dict(
        LATENT, q_lora_rank=10, head_dim=4, num_layers=2, num_hidden_layers=4, ffn_hidden_size=24, moe_topk=3,
        n_routed_experts=5, zero_expert_num=4, expert_ffn_hidden_size=12, routed_scaling_factor=2.0,
        rope_parameters=PLAIN)),
    "hy-v4": ("hy_v4", dict(
        LATENT, q_lora_rank=10, num_hidden_layers=3, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=12,
        swiglu_limit=0.5, index_topk=14, index_head_dim=8, index_n_heads=16, indexer_types=["full", "full", "shared"],
        hc_mult=3, rope_parameters=PLAIN)),
    "minimax-m3": ("minimax_m3_vl_text", dict(
        head_dim=8, rope_parameters=PLAIN | {"partial_rotary_factor": 0.5}, num_hidden_layers=3,
        num_local_experts=4, num_experts_per_tok=2, intermediate_size=12, dense_intermediate_size=20,
        shared_intermediate_size=10, swiglu_limit=1.5, index_n_heads=2, index_head_dim=6, index_block_size=5,
        index_topk_blocks=3, layer_types=["full_attention", "minimax_m3_sparse", "minimax_m3_sparse"],
        mlp_layer_types=["dense", "sparse", "sparse"])),
}

# Behind all others.
LATER_MULTIMODAL = {
    "exaone4.5": ("exaone4_5", dict(model_type="exaone4", head_dim=8, num_hidden_layers=3, sliding_window=7,
                                    layer_types=["sliding_attention", "sliding_attention", "full_attention"]),
                  dict(vision_config=dict(QWEN_SIGHT, out_hidden_size=16, window_size=8, fullatt_block_indexes=[0],
                                          num_key_value_heads=1))),
}


def logits_of(model, ids):
    """Returns the logits of each position, as the last one of a sequence: LongRoPE rotates all of it by its length."""
    with torch.no_grad():
        return torch.stack([model(torch.tensor([ids[:n + 1]]), use_cache=False).logits[0, -1] for n in range(len(ids))])


def greedy_case(model, ids):
    """As in the reference checkpoints of ../shared: the logits behind ids, and what follows greedily."""
    case = {"ids": ids, "greedy": {"ids": [], "margins": [], "logprobs": []}}
    given = list(ids)
    for _ in range(20):
        with torch.no_grad():
            last = model(torch.tensor([given]), use_cache=False).logits[0, -1]
        case.setdefault("last_logits", [round(x, 5) for x in last.tolist()])
        best, second = last.topk(2).values.tolist()
        token = int(last.argmax())
        case["greedy"]["ids"].append(token)
        case["greedy"]["margins"].append(round(best - second, 5))
        case["greedy"]["logprobs"].append(round(last.log_softmax(-1)[token].item(), 5))
        given.append(token)
    return case


def transpose_experts(file):
    tensors = load_file(file)
    save_file({name: t.transpose(1, 2).contiguous() if ".experts." in name else t for name, t in tensors.items()},
              file, metadata={"format": "pt"})


def pair_neighbours(file, heads, keys):
    """Hunyuan 4's as published: transformers turns halves of what turns, and published files have neighbours."""
    tensors = load_file(file)
    turned = keys["qk_rope_head_dim"]
    neighbours = torch.arange(turned).reshape(2, -1).t().flatten()
    for name, t in tensors.items():
        of = {"q_b_proj": heads, "kv_a_proj_with_mqa": 1, "wq_b": keys["index_n_heads"], "wk": 1, "k_norm": 1}
        if of := of.get(name.split(".")[-2]):
            rows = t.reshape(of, -1, *t.shape[1:])
            tensors[name] = torch.cat([rows[:, :-turned], rows[:, -turned:][:, neighbours]], 1).reshape(t.shape)
    save_file(tensors, file, metadata={"format": "pt"})


def drop_null_experts(file, routed):
    """LongCat's, which transformers gives matrices that it does not use; published files have none."""
    tensors = load_file(file)
    save_file({name: t for name, t in tensors.items()
               if ".experts." not in name or int(name.split(".experts.")[1].split(".")[0]) < routed},
              file, metadata={"format": "pt"})


def main(out, names):
    models = {name: (kind, COMMON | keys, AutoModelForCausalLM) for name, (kind, keys) in MODELS.items()}
    multimodal = lambda kind, text, around: (kind, dict(around, text_config=COMMON | text), AutoModelForImageTextToText)
    models |= {name: multimodal(*what) for name, what in MULTIMODAL.items()}
    models |= {name: (kind, COMMON | keys, AutoModelForCausalLM) for name, (kind, keys) in LATER.items()}
    models |= {name: multimodal(*what) for name, what in LATER_MULTIMODAL.items()}
    for number, (name, (kind, keys, auto)) in enumerate(models.items()):
        if names and name not in names:
            continue
        torch.manual_seed(number)
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        config = AutoConfig.for_model(kind, **keys)
        # transformers has Mistral 4 as a part of Mistral 3 only.
        auto = Mistral4ForCausalLM if kind == "mistral4" else auto
        model = auto(config) if kind == "mistral4" else auto.from_config(config)
        for key, weight in model.named_parameters():
            norm = ("norm" in key or "ln_" in key) and key.endswith("weight")
            torch.nn.init.normal_(weight, mean=1.0 if norm else 0.0, std=0.3)
        for key, buffer in model.named_buffers():
            if key.endswith("e_score_correction_bias"):
                torch.nn.init.normal_(buffer, std=0.2)
            if key.endswith("layer_scalar"):
                torch.nn.init.normal_(buffer, mean=1.0, std=0.2)
        model.to(torch.float16 if number % 2 else torch.float32).save_pretrained(folder)
        if kind == "qwen3_vl_moe":  # as its authors store experts
            transpose_experts(folder / "model.safetensors")
        for file in folder.iterdir():
            file.chmod(0o644)
        (folder / "generation_config.json").unlink(missing_ok=True)
        # transformers 5.23's eager attention adds Falcon's ALiBi twice.
        attention = "sdpa" if keys.get("alibi") else "eager"
        model = auto.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention).eval()
        ids = torch.randint(2, 48, (LENGTH,), generator=torch.Generator().manual_seed(number)).tolist()
        logits = logits_of(model, ids)
        assert logits.std() > 0.2, f"{name} is too flat to notice mistakes: {logits.std()}"
        positions = [0, 5, 15, 20, LENGTH - 1]
        expected = {"ids": ids, "positions": positions,
                    "logits": [[round(x, 5) for x in logits[p].tolist()] for p in positions]}
        if name in GREEDY:
            expected["cases"] = [greedy_case(model, ids[:n]) for n in (3, 11, 29)]
        if kind == "longcat_flash":
            drop_null_experts(folder / "model.safetensors", keys["n_routed_experts"])
        if kind == "hy_v4":
            pair_neighbours(folder / "model.safetensors", keys["num_attention_heads"], keys)
        (folder / "expected.json").write_text(json.dumps(expected) + "\n")
        print(name, float(logits.std()))


if len(sys.argv) < 2:
    sys.exit(__doc__)
main(pathlib.Path(sys.argv[1]), sys.argv[2:])
