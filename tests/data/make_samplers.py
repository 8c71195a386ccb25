#!/usr/bin/env python3
"""Writes samplers.json: what transformers' processors make of rows of logits (torch and transformers from PyPI).

Logits and scores are in units of 1/65536. `kept`: the ids that can still be chosen.
"""

import json
import pathlib
import random

import torch
from transformers.generation.logits_process import (
    EpsilonLogitsWarper,
    EtaLogitsWarper,
    MinPLogitsWarper,
    NoBadWordsLogitsProcessor,
    NoRepeatNGramLogitsProcessor,
    SequenceBiasLogitsProcessor,
    TypicalLogitsWarper,
)

FILE = pathlib.Path(__file__).with_name("samplers.json")
random.seed(7)


def row(vocab, spread):
    return [round(random.gauss(0, spread) * 65536) for _ in range(vocab)]


def scores_of(logits):
    return torch.tensor([logits], dtype=torch.float64) / 65536


def kept_of(scores):
    return [i for i, x in enumerate(scores[0].tolist()) if x != float("-inf")]


def main():
    cases = []
    for op, make, values in [
        ("typical_p", lambda v: TypicalLogitsWarper(mass=v), [0.1, 0.2, 0.5, 0.9, 0.95]),
        ("epsilon_cutoff", EpsilonLogitsWarper, [0.0003, 0.003, 0.02, 0.2]),
        ("eta_cutoff", lambda v: EtaLogitsWarper(v), [0.0003, 0.003, 0.02, 0.2]),
        ("min_p", MinPLogitsWarper, [0.01, 0.1, 0.5]),
    ]:
        for value in values:
            for vocab, spread in [(16, 1), (100, 3), (100, 0.3)]:
                logits = row(vocab, spread)
                scores = make(value)(torch.zeros((1, 1), dtype=torch.long), scores_of(logits))
                cases.append({"op": op, "value": value, "logits": logits, "kept": kept_of(scores)})
    for n in [1, 2, 3, 4]:
        for length in [0, 1, 5, 40]:
            history = [random.randrange(5) for _ in range(length)]
            logits = row(8, 1)
            ids = torch.tensor([history], dtype=torch.long)
            scores = NoRepeatNGramLogitsProcessor(n)(ids, scores_of(logits)) if length else scores_of(logits)
            cases.append(
                {"op": "no_repeat_ngram_size", "value": n, "logits": logits, "history": history, "kept": kept_of(scores)}
            )
    for _ in range(12):
        history = [random.randrange(4) for _ in range(10)]
        words = [[random.randrange(6) for _ in range(random.randint(1, 3))] for _ in range(5)]
        words = [list(w) for w in dict.fromkeys(tuple(w) for w in words)]
        logits = row(8, 1)
        ids = torch.tensor([history], dtype=torch.long)
        scores = NoBadWordsLogitsProcessor(words)(ids, scores_of(logits).float())
        cases.append({"op": "bad_words", "words": words, "logits": logits, "history": history, "kept": kept_of(scores)})
        biases = [[w, random.randint(-8, 8) / 4] for w in words]
        scores = SequenceBiasLogitsProcessor(biases)(ids, scores_of(logits).float())
        cases.append(
            {
                "op": "sequence_bias",
                "biases": biases,
                "logits": logits,
                "history": history,
                "scores": [round(x * 65536) for x in scores[0].tolist()],
            }
        )
    FILE.write_text("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]\n")


main()
