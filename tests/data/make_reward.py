#!/usr/bin/env python3
"""Writes tiny_reward/: a reward model of a few kB that likes one letter, for searches whose value is "model".

A LlamaForSequenceClassification with one layer over bytes. Attention is even (queries and keys are zero) and reads of each
token whether it is the letter, so the score of a text grows with the share of its tokens that are. Its chat template
writes <ROLE> ahead of each message.

usage: make_reward.py OUT
"""
import json
import pathlib
import sys

import numpy as np
from make_scripted import byte_pieces, write_safetensors

LIKED = "o"
HIDDEN = 8
EOS = "<|endoftext|>"


def main(out):
    pieces = byte_pieces() + [EOS]
    embedding = np.zeros((len(pieces), HIDDEN), np.float32)
    embedding[:, 0] = embedding[:, 3] = 1
    embedding[pieces.index(LIKED), [1, 3]] = 1, 0  # as long as the others, so that the norm leaves all alike
    seen = np.zeros((HIDDEN, HIDDEN), np.float32)  # [outputs, inputs]
    seen[2, 1] = 1
    zeros, ones = np.zeros((HIDDEN, HIDDEN), np.float32), np.ones(HIDDEN, np.float32)
    score = np.zeros((1, HIDDEN), np.float32)
    score[0, 2], score[0, 0] = 2, -2
    layer = "model.layers.0."
    out.mkdir(parents=True, exist_ok=True)
    write_safetensors(out / "model.safetensors", {
        "model.embed_tokens.weight": embedding, "model.norm.weight": ones,
        layer + "input_layernorm.weight": ones, layer + "post_attention_layernorm.weight": ones,
        layer + "self_attn.q_proj.weight": zeros, layer + "self_attn.k_proj.weight": zeros,
        layer + "self_attn.v_proj.weight": seen, layer + "self_attn.o_proj.weight": np.eye(HIDDEN, dtype=np.float32),
        layer + "mlp.gate_proj.weight": zeros, layer + "mlp.up_proj.weight": zeros,
        layer + "mlp.down_proj.weight": zeros, "score.weight": score})
    dump = lambda name, value: (out / name).write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")
    dump("config.json", {
        "architectures": ["LlamaForSequenceClassification"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": HIDDEN, "intermediate_size": HIDDEN, "num_hidden_layers": 1, "num_attention_heads": 1,
        "num_key_value_heads": 1, "head_dim": HIDDEN, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0, "vocab_size": len(pieces), "tie_word_embeddings": False, "dtype": "float16",
        "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "bos_token_id": None, "eos_token_id": 256})
    dump("tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": EOS,
                                   "clean_up_tokenization_spaces": False})
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    dump("tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": 256, "content": EOS, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True}],
        "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {text: id for id, text in enumerate(byte_pieces())}, "merges": []}})
    (out / "chat_template.jinja").write_text(
        "{% for message in messages %}<{{ message.role }}>{{ message.content }}{% endfor %}")


if len(sys.argv) != 2:
    sys.exit(__doc__)
main(pathlib.Path(sys.argv[1]))
