#!/usr/bin/env python3
"""Writes tiny_encoders/: random encoders of a few kB, some with a head for classification. Each has expected.json with
token ids, where the second text begins, the last hidden states of some positions, and the scores, computed in float32
over the stored weights. Needs torch and transformers 5.

usage: make_encoders.py OUT [NAME...]
"""
import json
import pathlib
import shutil
import sys

import tokenizers
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

COMMON = dict(vocab_size=48, hidden_size=16, intermediate_size=24, num_hidden_layers=3, num_attention_heads=4,
              max_position_embeddings=64, pad_token_id=0)
LENGTH = 40
SECOND = 17  # where the second text begins

MODELS = {
    "bert": ("bert", dict(), AutoModel),
    "bert-ranker": ("bert", dict(num_labels=1), AutoModelForSequenceClassification),
    "xlm-roberta": ("xlm-roberta", dict(pad_token_id=1, type_vocab_size=1), AutoModel),
    "xlm-roberta-ranker": ("xlm-roberta", dict(pad_token_id=1, type_vocab_size=1, num_labels=1),
                           AutoModelForSequenceClassification),
    "modernbert": ("modernbert", dict(local_attention=8, num_hidden_layers=4), AutoModel),
    "modernbert-ranker": ("modernbert", dict(local_attention=8, num_labels=1, classifier_pooling="mean"),
                          AutoModelForSequenceClassification),
    "nomic": ("nomic_bert", dict(), AutoModel),
    "embedding-gemma": ("gemma3_text", dict(
        head_dim=8, num_key_value_heads=2, query_pre_attn_scalar=10, sliding_window=8, use_bidirectional_attention=True,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"]), AutoModel),
    "qwen3-ranker": ("qwen3", dict(head_dim=8, num_key_value_heads=2, num_labels=1, tie_word_embeddings=True),
                     AutoModelForSequenceClassification),
    "jina-v3": ("jina_embeddings_v3", dict(pad_token_id=1, type_vocab_size=1), AutoModel),
}


def write_tokenizer(folder):
    """A WordPiece tokenizer of letters, whose pairs have token types."""
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz", *(f"##{c}" for c in "abcdefghijklmnopq")]
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece({t: i for i, t in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(tokens[:5])
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.decoder = tokenizers.decoders.WordPiece()
    tokenizer.save(str(folder / "tokenizer.json"))


def main(out, names):
    for number, (name, (kind, keys, auto)) in enumerate(MODELS.items()):
        if names and name not in names:
            continue
        torch.manual_seed(100 + number)
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        model = auto.from_config(AutoConfig.for_model(kind, **COMMON | keys))
        for key, weight in model.named_parameters():
            norm = "norm" in key.lower() and key.endswith("weight")
            torch.nn.init.normal_(weight, mean=1.0 if norm else 0.0, std=0.3)
        model.to(torch.float16 if number % 2 else torch.float32).save_pretrained(folder)
        if kind == "bert":
            write_tokenizer(folder)
        if name == "bert":
            (folder / "1_Pooling").mkdir()
            (folder / "1_Pooling/config.json").write_text(json.dumps({"word_embedding_dimension": 16,
                                                                      "pooling_mode_mean_tokens": True}) + "\n")
            (folder / "modules.json").write_text(json.dumps(
                [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
                 for i, (path, kind) in enumerate([("", "Transformer"), ("1_Pooling", "Pooling"),
                                                   ("2_Normalize", "Normalize")])]) + "\n")
            (folder / "config_sentence_transformers.json").write_text(json.dumps(
                {"prompts": {"query": "q: ", "document": ""}, "default_prompt_name": None}) + "\n")
            (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 48, "do_lower_case": false}\n')
        for file in folder.glob("**/*.*"):
            file.chmod(0o644)
        model = auto.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
        ids = torch.randint(2, 48, (LENGTH,), generator=torch.Generator().manual_seed(number)).tolist()
        given = {"input_ids": torch.tensor([ids])}
        typed = kind in ("bert", "nomic_bert")
        if typed:
            given["token_type_ids"] = torch.tensor([[int(i >= SECOND) for i in range(LENGTH)]])
        with torch.no_grad():
            result = model(**given, output_hidden_states=True)
        hidden = result.hidden_states[-1][0] if auto is not AutoModel else result.last_hidden_state[0]
        if kind == "modernbert" and auto is not AutoModel:
            hidden = model.model(**given).last_hidden_state[0]
        assert hidden.std() > 0.2, f"{name} is too flat to notice mistakes: {hidden.std()}"
        positions = [0, 5, 15, SECOND, 20, LENGTH - 1]
        expected = {"ids": ids, "second": SECOND if typed else 0, "positions": positions,
                    "hidden": [[round(x, 5) for x in hidden[p].tolist()] for p in positions]}
        if auto is not AutoModel:
            expected["score"] = round(torch.sigmoid(result.logits[0, 0]).item(), 6)
        (folder / "expected.json").write_text(json.dumps(expected) + "\n")
        print(name, float(hidden.std()), expected.get("score"))


if len(sys.argv) < 2:
    sys.exit(__doc__)
main(pathlib.Path(sys.argv[1]), sys.argv[2:])
