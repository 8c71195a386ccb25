#!/usr/bin/env python3
"""Writes rope.json: configurations in the spellings of transformers 4 and 5, with the inverse frequencies and attention
factors that transformers computes. Needs torch and transformers 5.

usage: make_rope.py > rope.json
"""
import json

import torch
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

# name, head_dim, max_position_embeddings, theta, scaling as in rope_scaling, sequence lengths to compute for
CASES = [
    ("default", 64, 4096, 10000.0, None, [1]),
    ("default, large base", 128, 4096, 1000000.0, None, [1]),
    ("linear", 32, 2048, 10000.0, {"rope_type": "linear", "factor": 8.0}, [1]),
    ("linear, fractional", 16, 2048, 500000.0, {"rope_type": "linear", "factor": 2.5}, [1]),
    ("dynamic", 64, 256, 10000.0, {"rope_type": "dynamic", "factor": 2.0}, [1, 256, 257, 300, 1024]),
    ("dynamic, small heads", 6, 16, 10000.0, {"rope_type": "dynamic", "factor": 4.0}, [16, 17, 40]),
    ("llama 3.1", 128, 131072, 500000.0,
     {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}, [1]),
    ("llama 3.2", 64, 131072, 500000.0,
     {"rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 8192}, [1]),
    ("llama3 without an original length", 32, 64, 10000.0,
     {"rope_type": "llama3", "factor": 4.0, "low_freq_factor": 2.0, "high_freq_factor": 6.0}, [1]),
    ("yarn of Qwen 2.5", 128, 32768, 1000000.0,
     {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}, [1]),
    ("yarn without an original length", 64, 4096, 10000.0, {"rope_type": "yarn", "factor": 16.0}, [1]),
    ("yarn without a factor", 64, 16384, 10000.0,
     {"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 4096}, [1]),
    ("yarn with an attention factor", 32, 8192, 10000.0,
     {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 4096, "attention_factor": 0.75}, [1]),
    ("yarn with both scales", 64, 163840, 10000.0,
     {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 1.0,
      "mscale_all_dim": 0.707, "beta_fast": 32, "beta_slow": 1}, [1]),
    ("yarn with one scale", 64, 163840, 10000.0,
     {"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 0.707}, [1]),
    ("yarn, not truncated", 64, 131072, 150000.0,
     {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False}, [1]),
    ("yarn, other betas", 96, 8192, 10000.0,
     {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048, "beta_fast": 16.0,
      "beta_slow": 2.5}, [1]),
    ("yarn, tiny context", 8, 64, 10000.0,
     {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}, [1]),
    ("yarn that shrinks", 16, 64, 10000.0,
     {"rope_type": "yarn", "factor": 0.5, "original_max_position_embeddings": 64}, [1]),
]


def main():
    cases = []
    for name, head_dim, positions, theta, scaling, lengths in CASES:
        sizes = {"model_type": "llama", "vocab_size": 64, "hidden_size": head_dim * 2, "intermediate_size": 64,
                 "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": positions,
                 "head_dim": head_dim}
        new = sizes | {"rope_parameters": {"rope_theta": theta} | (scaling or {"rope_type": "default"})}
        old_scaling = dict(scaling) if scaling else None
        if old_scaling and old_scaling["rope_type"] in ("linear", "dynamic"):  # these use a still older key
            old_scaling["type"] = old_scaling.pop("rope_type")
        old = sizes | {"rope_theta": theta, "rope_scaling": old_scaling}
        config = LlamaConfig(**{k: v for k, v in json.loads(json.dumps(new)).items() if k != "model_type"})
        for length in lengths:
            if scaling is None:
                from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
                inv_freq, factor = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
            else:
                init = ROPE_INIT_FUNCTIONS[scaling["rope_type"]]
                inv_freq, factor = init(config, torch.device("cpu"), seq_len=torch.tensor(length))
            cases.append({"name": name, "config": new, "old_config": old, "head_dim": head_dim, "length": length,
                          "attention_factor": factor, "inv_freq": [float(f"{x:.9g}") for x in inv_freq.tolist()]})
    print('{"cases": [\n' + ",\n".join(json.dumps(c) for c in cases) + "\n]}")


main()
