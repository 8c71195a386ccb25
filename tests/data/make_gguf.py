"""Writes the GGUF files of this folder, and gguf.json with their expected logits. Needs gguf and numpy. Usage:

    python make_gguf.py golden gguf

blocks.gguf       random blocks of each quantised type, and their values (`TYPE.f32`) according to the gguf package
llama3-q8_0.gguf  golden/llama-mqa-rope3 with weights in Q8_0 and its rope scaling as `rope_freqs.weight`
qwen2-bf16.gguf   golden/qwen2, unchanged
mixed.gguf        a random one-layer llama whose matrices have different types
spm-vocab.gguf    the vocabulary of golden/mistral-swa as a SentencePiece model, without tensors

`--all` writes every golden checkpoint as F32 instead, for comparisons with other programs.
"""

import argparse
import json
import math
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf import GGUFWriter
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize

OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
INNER = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
PRE = {"llama-gqa": "llama-bpe", "llama-mha-tied": "gpt-2", "llama-mqa-rope3": "llama-bpe", "qwen2": "qwen2", "qwen3": "qwen2"}


def gguf_name(name):
    stem, suffix = name.rsplit(".", 1)
    if stem in OUTER:
        return f"{OUTER[stem]}.{suffix}"
    _, _, layer, rest = stem.split(".", 3)
    return f"blk.{layer}.{INNER[rest]}.{suffix}"


def read_safetensors(file):
    """Returns the tensors of a file as float32."""
    raw = file.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    result = {}
    for name, entry in json.loads(raw[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        data = raw[8 + length + begin : 8 + length + end]
        if entry["dtype"] == "BF16":
            values = (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
        else:
            values = np.frombuffer(data, {"F32": np.float32, "F16": np.float16}[entry["dtype"]]).astype(np.float32)
        result[name] = values.reshape(entry["shape"])
    return result


def interleaved(rows, heads):
    """Reorders the rows of q or k as the llama architecture expects: the halves of a head alternate."""
    shape = rows.shape
    return rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape)


def llama3_divisors(rope, dim):
    frequencies = 1 / rope["rope_theta"] ** (np.arange(0, dim, 2) / dim)
    low = rope["original_max_position_embeddings"] / rope["low_freq_factor"]
    high = rope["original_max_position_embeddings"] / rope["high_freq_factor"]
    result = []
    for f in frequencies:
        length = 2 * math.pi / f
        if length < high:
            result.append(1)
        elif length > low:
            result.append(rope["factor"])
        else:
            smooth = (rope["original_max_position_embeddings"] / length - rope["low_freq_factor"]) / (
                rope["high_freq_factor"] - rope["low_freq_factor"]
            )
            result.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(result, np.float32)


def write_config(w, config):
    dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    w.add_context_length(config["max_position_embeddings"])
    w.add_embedding_length(config["hidden_size"])
    w.add_block_count(config["num_hidden_layers"])
    w.add_feed_forward_length(config["intermediate_size"])
    w.add_head_count(config["num_attention_heads"])
    w.add_head_count_kv(config["num_key_value_heads"])
    w.add_key_length(dim)
    w.add_value_length(dim)
    w.add_layer_norm_rms_eps(config["rms_norm_eps"])
    w.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    w.add_rope_dimension_count(dim)
    w.add_vocab_size(config["vocab_size"])
    if config.get("sliding_window"):
        w.add_sliding_window(config["sliding_window"])
    return dim


def write_tokenizer(w, folder, config):
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    model, added = tokenizer["model"], {t["id"]: t for t in tokenizer["added_tokens"]}
    tokens = [f"[PAD{i}]" for i in range(config["vocab_size"])]
    types = [5] * len(tokens)
    for text, i in model["vocab"].items():
        tokens[i], types[i] = text, 1
    for i, token in added.items():
        tokens[i], types[i] = token["content"], 3 if token["special"] else 4
    if folder.name in PRE:
        w.add_tokenizer_model("gpt2")
        w.add_tokenizer_pre(PRE[folder.name])
        w.add_token_list(tokens)
        w.add_token_types(types)
        w.add_token_merges([" ".join(m) for m in model["merges"]])
        w.add_add_bos_token(config["bos_token_id"] is not None and folder.name != "llama-mha-tied")
    else:
        w.add_tokenizer_model("llama")
        scores = [-1e6 - i for i in range(len(tokens))]
        for rank, pair in enumerate(model["merges"]):
            scores[model["vocab"]["".join(pair)]] = float(-rank)
        for i, text in enumerate(tokens):
            if text.startswith("<0x"):
                types[i], scores[i] = 6, 0.0
        types[model["vocab"]["<unk>"]] = 2
        w.add_token_list(tokens)
        w.add_token_scores(scores)
        w.add_token_types(types)
        w.add_unk_token_id(model["vocab"]["<unk>"])
        w.add_add_bos_token(True)
        w.add_add_space_prefix(True)
    if config["bos_token_id"] is not None:
        w.add_bos_token_id(config["bos_token_id"])
    w.add_eos_token_id(config["eos_token_id"])
    w.add_chat_template((folder / "chat_template.jinja").read_text())


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def write_model(file, folder, matrix_type, with_tensors=True):
    """Writes a golden checkpoint. Returns its configuration and the dequantised weights under Hugging Face's names."""
    config = json.loads((folder / "config.json").read_text())
    architecture = {"mistral": "llama"}.get(config["model_type"], config["model_type"])
    w = GGUFWriter(file, architecture)
    dim = write_config(w, config)
    write_tokenizer(w, folder, config)
    held = {}
    for name, values in read_safetensors(folder / "model.safetensors").items() if with_tensors else ():
        stored = T.F32 if values.ndim == 1 else matrix_type
        data = quantize(values, stored)
        held[name] = dequantize(data, stored).reshape(values.shape)
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            heads = config["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
            data = interleaved(data, heads)
        w.add_tensor(gguf_name(name), data, raw_dtype=stored)
    if with_tensors and config["rope_parameters"]["rope_type"] == "llama3":
        w.add_tensor("rope_freqs.weight", llama3_divisors(config["rope_parameters"], dim))
    finish(w)
    return config, held


def rounded_to_int8(x):
    """Rounds inputs as quantised matrices do: 32 inputs share a scale."""
    groups = x.reshape(*x.shape[:-1], -1, 32)
    scale = np.abs(groups).max(-1, keepdims=True) / 127
    return (np.rint(groups / np.where(scale == 0, 1, scale)) * scale).reshape(x.shape)


def forward(config, weights, ids, divisors=None, floats=()):
    """Returns the logits of the last token, computed in float64. All matrices except `floats` are quantised."""
    dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    get = lambda name: weights[name].astype(np.float64)
    linear = lambda x, name: (x if any(f in name for f in floats) else rounded_to_int8(x)) @ get(name).T
    norm = lambda x, name: x / np.sqrt((x * x).mean(-1, keepdims=True) + config["rms_norm_eps"]) * get(name)
    frequencies = 1 / config["rope_parameters"]["rope_theta"] ** (np.arange(0, dim, 2) / dim)
    angles = np.arange(len(ids))[:, None] * (frequencies if divisors is None else frequencies / divisors)
    cos, sin = np.cos(angles)[:, None], np.sin(angles)[:, None]

    def rotated(x):
        a, b = x[..., : dim // 2], x[..., dim // 2 :]
        return np.concatenate([a * cos - b * sin, b * cos + a * sin], -1)

    x = get("model.embed_tokens.weight")[ids]
    hidden_future = np.triu(np.full((len(ids), len(ids)), -np.inf), 1)
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        h = norm(x, p + "input_layernorm.weight")
        q, k, v = (
            linear(h, f"{p}self_attn.{n}_proj.weight").reshape(len(ids), -1, dim) for n in "qkv"
        )
        q, k = rotated(q), rotated(k)
        k, v = (np.repeat(t, heads // kv_heads, 1) for t in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(dim) + hidden_future
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        attended = np.einsum("hqk,khd->qhd", scores / scores.sum(-1, keepdims=True), v).reshape(len(ids), -1)
        x = x + linear(attended, p + "self_attn.o_proj.weight")
        h = norm(x, p + "post_attention_layernorm.weight")
        gate, up = linear(h, p + "mlp.gate_proj.weight"), linear(h, p + "mlp.up_proj.weight")
        x = x + linear(gate / (1 + np.exp(-gate)) * up, p + "mlp.down_proj.weight")
    head = "lm_head.weight" if "lm_head.weight" in weights else "model.embed_tokens.weight"
    return linear(norm(x, "model.norm.weight")[-1], head).round(5).tolist()


QUANTISED = [T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.Q4_K, T.Q5_K, T.Q6_K,
             T.Q2_K, T.Q3_K, T.IQ4_NL, T.IQ4_XS, T.MXFP4,
             T.NVFP4, T.Q1_0, T.TQ1_0, T.TQ2_0, T.IQ1_S, T.IQ1_M, T.IQ2_XXS, T.IQ2_XS, T.IQ2_S, T.IQ3_XXS, T.IQ3_S]  # fmt: skip
F16_FIELDS = {T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208],
              T.Q2_K: [80, 82], T.Q3_K: [108], T.IQ4_NL: [0], T.IQ4_XS: [0], T.MXFP4: [],
              T.NVFP4: [], T.Q1_0: [0], T.TQ1_0: [52], T.TQ2_0: [64], T.IQ1_S: [0], T.IQ1_M: [], T.IQ2_XXS: [0],
              T.IQ2_XS: [0], T.IQ2_S: [0], T.IQ3_XXS: [0], T.IQ3_S: [0]}  # fmt: skip


def random_blocks(random, kind, rows, columns, scale):
    """Returns blocks of random bits. Only their f16 fields are valid numbers, normally distributed around zero."""
    weights, size = GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (rows * columns // weights, size), np.uint8)
    for at in F16_FIELDS[kind]:
        blocks[:, at : at + 2] = (random.standard_normal(len(blocks)) * scale).astype(np.float16).view(np.uint8).reshape(-1, 2)
    return blocks.reshape(rows, -1)


def weights_of(blocks, kind):
    if kind != T.Q1_0:
        return dequantize(blocks, kind)
    blocks = blocks.reshape(-1, 18)  # gguf-py names the type, but does not read it
    scales = np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)
    bits = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little")
    return scales * (2 * bits.astype(np.float32) - 1)


def write_blocks(file):
    random = np.random.default_rng(1)
    w = GGUFWriter(file, "none")
    for kind in QUANTISED:
        count = 5 * GGML_QUANT_SIZES[kind][0]
        blocks = random_blocks(random, kind, 1, count, 0.1)
        if kind == T.MXFP4:
            blocks[0, :: GGML_QUANT_SIZES[kind][1]] = [0, 1, 2, 120, 250]  # exponents, two of subnormal scales
        elif kind == T.IQ1_M:
            blocks[0, 55 :: GGML_QUANT_SIZES[kind][1]] &= 0xBF  # the byte with the scale's exponent: a number below 2
        elif kind != T.NVFP4:
            tiny = F16_FIELDS[kind][0]
            blocks[0, tiny : tiny + 2] = [3, 0]  # a subnormal scale
        w.add_tensor(kind.name, blocks, raw_dtype=kind)
        w.add_tensor(f"{kind.name}.f32", weights_of(blocks, kind).reshape(1, count))
    finish(w)


def write_mixed(file):
    random = np.random.default_rng(2)
    config = {
        "max_position_embeddings": 512, "hidden_size": 256, "num_hidden_layers": 1, "intermediate_size": 256,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-5,
        "rope_parameters": {"rope_theta": 10000.0}, "vocab_size": 128,
    }  # fmt: skip
    matrices = {
        "model.embed_tokens": (T.Q6_K, 128, 256, 0.001), "lm_head": (T.Q5_K, 128, 256, 0.0002),
        "model.layers.0.self_attn.q_proj": (T.Q4_K, 128, 256, 0.0005),
        "model.layers.0.self_attn.k_proj": (T.Q8_0, 64, 256, 0.002),
        "model.layers.0.self_attn.v_proj": (T.F16, 64, 256, 0.1),
        "model.layers.0.self_attn.o_proj": (T.Q5_0, 256, 128, 0.01),
        "model.layers.0.mlp.gate_proj": (T.Q4_0, 256, 256, 0.02),
        "model.layers.0.mlp.up_proj": (T.Q4_1, 256, 256, 0.02),
        "model.layers.0.mlp.down_proj": (T.Q5_1, 256, 256, 0.005),
    }  # fmt: skip
    w = GGUFWriter(file, "llama")
    write_config(w, config)
    held = {}
    for name, (kind, rows, columns, scale) in matrices.items():
        if kind == T.F16:
            data = (random.standard_normal((rows, columns)) * scale).astype(np.float16)
        else:
            data = random_blocks(random, kind, rows, columns, scale)
        held[name + ".weight"] = dequantize(data, kind).reshape(rows, columns)
        heads = {"q_proj": 4, "k_proj": 2}.get(name.rsplit(".", 1)[-1])
        w.add_tensor(gguf_name(name + ".weight"), interleaved(data, heads) if heads else data, raw_dtype=kind)
    for name in ("model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"):
        held[name + ".weight"] = (1 + 0.1 * random.standard_normal(256)).astype(np.float32)
        w.add_tensor(gguf_name(name + ".weight"), held[name + ".weight"])
    finish(w)
    return config, held


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("golden", type=Path)
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--all", action="store_true")
    options = arguments.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.all:
        for folder in sorted(f for f in options.golden.iterdir() if f.is_dir()):
            write_model(options.out / f"{folder.name}-f32.gguf", folder, T.F32)
        return
    write_blocks(options.out / "blocks.gguf")
    write_model(options.out / "qwen2-bf16.gguf", options.golden / "qwen2", T.BF16)
    write_model(options.out / "spm-vocab.gguf", options.golden / "mistral-swa", T.F32, with_tensors=False)
    folder = options.golden / "llama-mqa-rope3"
    config, held = write_model(options.out / "llama3-q8_0.gguf", folder, T.Q8_0)
    cases = json.loads((folder / "expected.json").read_text())["cases"]
    ids = max((c["ids"] for c in cases), key=len)[:200]
    divisors = llama3_divisors(config["rope_parameters"], config["head_dim"])
    expected = {"llama3-q8_0": {"ids": ids, "logits": forward(config, held, ids, divisors)}}
    config, held = write_mixed(options.out / "mixed.gguf")
    ids = np.random.default_rng(3).integers(0, 128, 50).tolist()
    # If gate and up have different formats, both are multiplied as floats.
    floats = ("v_proj", "gate_proj", "up_proj")
    expected["mixed"] = {"ids": ids, "logits": forward(config, held, ids, floats=floats)}
    (options.out / "gguf.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main()
