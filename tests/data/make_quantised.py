"""Writes small checkpoints in the formats of GPTQ and AWQ, and quantised.json with their expected values and logits.
Needs numpy and, for make_gguf.py, the gguf package. Usage:

    python make_quantised.py quantised

The checkpoints are one-layer llamas with random 4-bit codes, zeros and scales, packed here according to the definitions
of the formats. quantised.json has some values of each matrix, and the logits after a few tokens, computed with inputs
of matrices rounded to int8.
"""

import json
import sys
from pathlib import Path

import numpy as np
from make_gguf import forward

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # the output that each nibble of a word holds
SHAPES = {
    "self_attn.q_proj": (128, 128), "self_attn.k_proj": (64, 128), "self_attn.v_proj": (64, 128),
    "self_attn.o_proj": (128, 128), "mlp.gate_proj": (128, 128), "mlp.up_proj": (128, 128), "mlp.down_proj": (128, 128),
}  # fmt: skip
CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 128, "num_hidden_layers": 1,
    "intermediate_size": 128, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 128, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default"},
    "vocab_size": 32, "tie_word_embeddings": True, "hidden_act": "silu", "eos_token_id": 0,
}  # fmt: skip
CASES = {
    "gptq-g32-sym": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": True},
    "gptq-g64": {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": False, "sym": False},
    "gptq-g128-v2": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False, "sym": False, "checkpoint_format": "gptq_v2"},
    "gptq-g32-act-order": {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True, "sym": False},
    "gptq-whole-mislabelled": {"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": False, "sym": True},
    "awq-g32": {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"},
    "awq-g128": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"},
    "gptq-g64-act-order": {"quant_method": "gptq", "bits": 4, "group_size": 64, "desc_act": True, "sym": False},
    "gptq-g128-act-order": {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": True},
    "awq-g64": {"quant_method": "awq", "bits": 4, "group_size": 64, "zero_point": True, "version": "gemm"},
    "gptq-2-bits": {"quant_method": "gptq", "bits": 2, "group_size": 64, "desc_act": False, "sym": False},
    "gptq-3-bits": {"quant_method": "gptq", "bits": 3, "group_size": 64, "desc_act": False, "sym": True},
    "gptq-3-bits-act-order": {"quant_method": "gptq", "bits": 3, "group_size": 32, "desc_act": True, "sym": False, "checkpoint_format": "gptq_v2"},
    "gptq-8-bits": {"quant_method": "gptq", "bits": 8, "group_size": 128, "desc_act": False, "sym": True},
    "gptq-8-bits-asymmetric": {"quant_method": "gptq", "bits": 8, "group_size": 32, "desc_act": False, "sym": False},
}  # fmt: skip
FFN = {"gptq-g128-act-order": 256}  # two groups in down_proj; 128 in the other cases


def bit_words(codes, bits):
    """Packs the bits of the last axis one after another into int32s: 10 2/3 codes of 3 bits in each."""
    ones = (codes[..., None].astype(np.uint32) >> np.arange(bits, dtype=np.uint32)) & 1
    grouped = ones.reshape(*codes.shape[:-1], -1, 32)
    return (grouped << np.arange(32, dtype=np.uint32)).sum(-1).astype(np.uint32).view(np.int32)


def words(codes, order=range(8)):
    """Packs each eight neighbours of the last axis into an int32, `order[i]` in nibble i."""
    grouped = codes.reshape(*codes.shape[:-1], -1, 8).astype(np.uint32)
    return sum(grouped[..., order[i]] << np.uint32(4 * i) for i in range(8)).astype(np.uint32).view(np.int32)


def quantised(random, name, config, rows, cols):
    """Returns a random matrix [outputs, inputs]: stored tensors, exact values, and the values that Troupe keeps."""
    group = cols if config["group_size"] < 0 else config["group_size"]
    groups = cols // group
    bits = config["bits"]
    codes = random.integers(0, 1 << bits, (rows, cols))
    zeros = np.full((rows, groups), 1 << (bits - 1)) if config.get("sym") else random.integers(1, 1 << bits, (rows, groups))
    scales = ((0.5 + random.random((rows, groups))) * (0.02 if bits <= 4 else 0.001)).astype(np.float16)
    order = np.arange(cols) // group
    if config.get("desc_act"):
        order = random.permutation(order)
    values = scales.astype(np.float64)[:, order] * (codes - zeros[:, order])
    if config["quant_method"] == "awq":
        stored = {"qweight": words(codes.T, AWQ_ORDER), "qzeros": words(zeros.T, AWQ_ORDER)}
    elif bits != 4:
        less = 0 if config.get("checkpoint_format") == "gptq_v2" else 1
        stored = {"qweight": np.ascontiguousarray(bit_words(codes, bits).T), "qzeros": bit_words((zeros - less).T, bits),
                  "g_idx": order.astype(np.int32)}
    else:
        exact_zeros = config.get("checkpoint_format") == "gptq_v2" or "mislabelled" in name
        stored = {"qweight": np.ascontiguousarray(words(codes).T), "qzeros": words((zeros if exact_zeros else zeros - 1).T)}
        if "whole" not in name:
            stored["g_idx"] = order.astype(np.int32)
    kept = values  # except that matrices kept in blocks have their minima in f16
    if bits == 8 and not config.get("sym"):
        kept = values.astype(np.float16)
    elif not config.get("desc_act") and not config.get("sym"):
        kept = (scales.astype(np.float64)[:, order] * codes) + (-scales * zeros).astype(np.float16).astype(np.float64)[:, order]
    return stored | {"scales": np.ascontiguousarray(scales.T)}, values, kept


def write_safetensors(file, tensors):
    names = {"int32": "I32", "float16": "F16"}
    header, data = {}, b""
    for name, values in tensors.items():
        raw = np.ascontiguousarray(values).tobytes()
        header[name] = {"dtype": names[values.dtype.name], "shape": list(values.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}  # fmt: skip
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    file.write_bytes(len(text).to_bytes(8, "little") + text + data)


def main():
    out = Path(sys.argv[1])
    expected = {}
    for seed, (name, quantisation) in enumerate(CASES.items()):
        random = np.random.default_rng(seed)
        ffn = FFN.get(name, 128)
        config = CONFIG | {"intermediate_size": ffn}
        shapes = SHAPES | {"mlp.gate_proj": (ffn, 128), "mlp.up_proj": (ffn, 128), "mlp.down_proj": (128, ffn)}
        folder = out / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "config.json").write_text(json.dumps(config | {"quantization_config": quantisation}, indent=1) + "\n")
        floats = {"model.embed_tokens.weight": random.standard_normal((32, 128))}
        for norm in ("model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"):
            floats[norm + ".weight"] = 1 + 0.1 * random.standard_normal(128)
        stored = {n: v.astype(np.float16) for n, v in floats.items()}
        held = dict(stored)
        samples = {}
        for short, (rows, cols) in shapes.items():
            stem = "model.layers.0." + short
            parts, values, held[stem + ".weight"] = quantised(random, name, quantisation, rows, cols)
            stored |= {f"{stem}.{part}": v for part, v in parts.items()}
            picked = [[int(r), int(c)] for r, c in zip(random.integers(0, rows, 24), random.integers(0, cols, 24))]
            samples[stem + ".weight"] = [[r, c, float(values[r, c])] for r, c in picked]
        write_safetensors(folder / "model.safetensors", stored)
        ids = random.integers(0, 32, 20).tolist()
        # Matrices that are not kept in blocks are multiplied as floats, like the tied head. With desc_act, these are
        # the ones with several groups: in a single group the order of inputs does not matter.
        plain = (["down_proj"] if ffn == 256 else ["proj"] if quantisation.get("desc_act") or "8-bits-asym" in name else []) + ["embed"]
        expected[name] = {"samples": samples, "ids": ids, "logits": forward(config, held, ids, floats=plain)}
    (out / "quantised.json").write_text(json.dumps(expected) + "\n")


main()
