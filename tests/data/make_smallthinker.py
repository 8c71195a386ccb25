#!/usr/bin/env python3
"""Writes SmallThinker's checkpoints of tiny_families/. transformers has no such model, so this computes one, by what
its authors published (PowerInfer/SmallThinker-21BA3B-Instruct and -4BA0.6B-Instruct: configuration and modelling code).
expected.json is as make_family_models.py writes it. Needs torch and safetensors.

usage: make_smallthinker.py OUT [NAME...]
"""
import json
import pathlib
import sys

import torch
import torch.nn.functional as F
from safetensors.torch import save_file

COMMON = dict(model_type="smallthinker", architectures=["SmallThinkerForCausalLM"], vocab_size=48, hidden_size=16,
              num_attention_heads=4, num_key_value_heads=2, head_dim=8, moe_ffn_hidden_size=12,
              moe_num_primary_experts=4, moe_num_active_primary_experts=2, max_position_embeddings=128,
              rms_norm_eps=1e-6, rope_scaling=None, sliding_window_size=7, norm_topk_prob=True, bos_token_id=0,
              eos_token_id=1, torch_dtype="float32")
MODELS = {
    # As the larger one: every fourth layer sees all and does not rotate.
    "smallthinker": dict(num_hidden_layers=5, rope_layout=[0, 1, 1, 1, 0], sliding_window_layout=[0, 1, 1, 1, 0],
                         rope_theta=10000.0, moe_primary_router_apply_softmax=False, tie_word_embeddings=False),
    # As the smaller one: all see all and rotate. Weights of experts by softmax.
    "smallthinker-softmax": dict(num_hidden_layers=2, rope_layout=[1, 1], sliding_window_layout=[0, 0],
                                 rope_theta=1500000.0, moe_primary_router_apply_softmax=True,
                                 tie_word_embeddings=True),
}
LENGTH = 40


def make_weights(config, seed):
    draws = torch.Generator().manual_seed(seed)
    hidden, dim = config["hidden_size"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    ffn, experts = config["moe_ffn_hidden_size"], config["moe_num_primary_experts"]
    weights = {}

    def add(name, *shape):
        mean = 1.0 if len(shape) == 1 else 0.0
        weights[name + ".weight"] = mean + 0.3 * torch.randn(shape, generator=draws)

    add("model.embed_tokens", config["vocab_size"], hidden)
    add("model.norm", hidden)
    if not config["tie_word_embeddings"]:
        add("lm_head", config["vocab_size"], hidden)
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        add(layer + "input_layernorm", hidden)
        add(layer + "post_attention_layernorm", hidden)
        add(layer + "self_attn.q_proj", heads * dim, hidden)
        add(layer + "self_attn.k_proj", kv_heads * dim, hidden)
        add(layer + "self_attn.v_proj", kv_heads * dim, hidden)
        add(layer + "self_attn.o_proj", hidden, heads * dim)
        add(layer + "block_sparse_moe.primary_router", experts, hidden)
        for e in range(experts):
            expert = f"{layer}block_sparse_moe.experts.{e}."
            add(expert + "up", ffn, hidden)
            add(expert + "gate", ffn, hidden)
            add(expert + "down", hidden, ffn)
    return weights


def rms_norm(x, weight, eps):
    return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)


def rotate(x, theta):
    """x: [heads, tokens, dim]; element i turns with i + dim / 2."""
    half = x.shape[-1] // 2
    rates = theta ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = torch.arange(x.shape[1], dtype=torch.float32)[:, None] * rates
    first, second = x[..., :half], x[..., half:]
    return torch.cat([first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()], -1)


def attend(config, weights, layer, i, x):
    tokens, dim = len(x), config["head_dim"]
    q, k, v = ((x @ weights[f"{layer}self_attn.{name}_proj.weight"].T).view(tokens, -1, dim).transpose(0, 1)
               for name in "qkv")
    if config["rope_layout"][i]:
        q, k = rotate(q, config["rope_theta"]), rotate(k, config["rope_theta"])
    group = len(q) // len(k)
    k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    back = torch.arange(tokens)[:, None] - torch.arange(tokens)[None, :]
    unseen = back < 0
    if config["sliding_window_layout"][i]:
        unseen |= back >= config["sliding_window_size"]
    scores = (q @ k.transpose(1, 2) / dim ** 0.5).masked_fill(unseen, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(0, 1).reshape(tokens, -1) @ weights[layer + "self_attn.o_proj.weight"].T


def mix(config, weights, layer, routed_by, x):
    """The router reads what the layer got, not what attention made of it."""
    logits = routed_by @ weights[layer + "block_sparse_moe.primary_router.weight"].T
    best, chosen = logits.topk(config["moe_num_active_primary_experts"], -1)
    if config["moe_primary_router_apply_softmax"]:
        factors = best.softmax(-1)
    else:
        factors = best.sigmoid()
        factors = factors / factors.sum(-1, keepdim=True)
    result = torch.zeros_like(x)
    for row in range(len(x)):
        for e, factor in zip(chosen[row].tolist(), factors[row]):
            up, gate, down = (weights[f"{layer}block_sparse_moe.experts.{e}.{name}.weight"]
                              for name in ("up", "gate", "down"))
            result[row] += factor * (down @ (F.relu(gate @ x[row]) * (up @ x[row])))
    return result


def logits_of(config, weights, ids):
    eps = config["rms_norm_eps"]
    x = weights["model.embed_tokens.weight"][torch.tensor(ids)]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        got = x
        x = got + attend(config, weights, layer, i, rms_norm(got, weights[layer + "input_layernorm.weight"], eps))
        x = x + mix(config, weights, layer, got, rms_norm(x, weights[layer + "post_attention_layernorm.weight"], eps))
    head = weights["model.embed_tokens.weight" if config["tie_word_embeddings"] else "lm_head.weight"]
    return rms_norm(x, weights["model.norm.weight"], eps) @ head.T


def greedy_case(config, weights, ids):
    case = {"ids": ids, "greedy": {"ids": [], "margins": [], "logprobs": []}}
    given = list(ids)
    for _ in range(20):
        last = logits_of(config, weights, given)[-1]
        case.setdefault("last_logits", [round(x, 5) for x in last.tolist()])
        best, second = last.topk(2).values.tolist()
        token = int(last.argmax())
        case["greedy"]["ids"].append(token)
        case["greedy"]["margins"].append(round(best - second, 5))
        case["greedy"]["logprobs"].append(round(last.log_softmax(-1)[token].item(), 5))
        given.append(token)
    return case


def main(out, names):
    for seed, (name, keys) in enumerate(MODELS.items()):
        if names and name not in names:
            continue
        config = COMMON | keys
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        weights = make_weights(config, seed)
        save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
        ids = torch.randint(2, 48, (LENGTH,), generator=torch.Generator().manual_seed(seed)).tolist()
        logits = logits_of(config, weights, ids)
        assert logits.std() > 0.2, f"{name} is too flat to notice mistakes: {logits.std()}"
        positions = [0, 5, 15, 20, LENGTH - 1]
        expected = {"ids": ids, "positions": positions,
                    "logits": [[round(x, 5) for x in logits[p].tolist()] for p in positions],
                    "cases": [greedy_case(config, weights, ids[:n]) for n in (3, 11, 29)]}
        (folder / "expected.json").write_text(json.dumps(expected) + "\n")
        print(name, float(logits.std()))


if len(sys.argv) < 2:
    sys.exit(__doc__)
main(pathlib.Path(sys.argv[1]), sys.argv[2:])
