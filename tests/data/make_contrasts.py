#!/usr/bin/env python3
"""Writes contrasts.json: greedy answers of contrastive decoding, with PyTorch and transformers' models.

Contrastive decoding is that of O'Brien and Lewis 2023: (1 + beta) * expert - beta * amateur among the tokens whose expert
logit is at least the largest + log(alpha). By "MODEL/AMATEUR", cases: `ids`, `alpha`, `beta`, and the greedy `answer` with
its `margins` (the highest score less the second, and, where that is less, the least distance of a logit to the bound).
"""

import json
import math
import pathlib

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
STRENGTHS = ((0.1, 0.5), (0.3, 1.0), (0.01, 2.0))
TOKENS = 24


def load(name):
    return transformers.AutoModelForCausalLM.from_pretrained(
        HERE / "golden" / name, dtype=torch.float32, attn_implementation="eager").eval()


def prompts_of(name):
    cases = json.loads((HERE / "golden" / name / "expected.json").read_text())["cases"]
    return [case["ids"][:70] for case in cases[:3]]


def ends_of(model):
    ends = model.generation_config.eos_token_id
    return ends if isinstance(ends, list) else [ends]


def greedily(model, ids, scores_of):
    """The answer by `scores_of(all ids)`, which returns scores and a margin of what they are made of."""
    text, margins = list(ids), []
    while len(text) - len(ids) < TOKENS:
        scores, margin = scores_of(text)
        best = torch.topk(scores, 2).values
        margins.append(round(min((best[0] - best[1]).item(), margin), 5))
        text.append(scores.argmax().item())
        if text[-1] in ends_of(model):
            break
    return {"answer": text[len(ids):], "margins": margins}


def last_logits(model, text):
    with torch.no_grad():
        return model(torch.tensor([text])).logits[0, -1]


def contrasted(expert, amateur, ids, alpha, beta):
    def scores_of(text):
        e, a = last_logits(expert, text), last_logits(amateur, text)
        bound = e.max() + math.log(alpha)
        scores = torch.where(e >= bound, (1 + beta) * e - beta * a, -math.inf)
        return scores, (e - bound).abs().min().item()

    return {"ids": ids, "alpha": alpha, "beta": beta, **greedily(expert, ids, scores_of)}


def main():
    result = {"amateurs": {}}
    for name, other in (("qwen3", "qwen2"), ("qwen2", "qwen3")):
        expert, amateur = load(name), load(other)
        result["amateurs"][f"{name}/{other}"] = [
            contrasted(expert, amateur, ids, alpha, beta) for ids in prompts_of(name) for alpha, beta in STRENGTHS]
    (HERE / "contrasts.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
