#!/usr/bin/env python3
"""Writes pairs.json: transformers' classifier-free guidance.

Run with transformers 5 and torch. `scores`: two rows of logits, and what UnbatchedClassifierFreeGuidanceLogitsProcessor
makes of them at a scale. By checkpoint, cases: `ids`, `negative` (null: none given), `scale`, and the greedy `answer`
with its `margins` (the highest score less the second).
"""

import json
import pathlib

import torch
import transformers
from transformers.generation.logits_process import UnbatchedClassifierFreeGuidanceLogitsProcessor

HERE = pathlib.Path(__file__).resolve().parent
SCALES = (0.5, 1.5, 3.0)
TOKENS = 24


def scores():
    torch.manual_seed(7)
    cases = []
    for scale in (0.0, 0.5, 1.5, 7.0):
        prompted, unprompted = torch.randn(12) * 3, torch.randn(12) * 3
        process = UnbatchedClassifierFreeGuidanceLogitsProcessor(scale, None)
        process.get_unconditional_logits = lambda ids, row=unprompted: row[None, None, :]
        made = process(torch.tensor([[1]]), prompted[None, :])[0]
        cases.append({"scale": scale, "prompted": prompted.tolist(), "unprompted": unprompted.tolist(),
                      "scores": [round(x, 5) for x in made.tolist()]})
    return cases


def guided(model, ids, negative, scale):
    prompt = torch.tensor([ids])
    more = {}
    if negative is not None:  # without masks transformers gives the negative prompt a wrong one
        given = torch.tensor([negative])
        more = {"negative_prompt_ids": given, "negative_prompt_attention_mask": torch.ones_like(given)}
    with torch.no_grad():
        made = model.generate(prompt, attention_mask=torch.ones_like(prompt), guidance_scale=scale, max_new_tokens=TOKENS,
                              do_sample=False, return_dict_in_generate=True, output_scores=True, **more)
    best = [torch.topk(row[0], 2).values for row in made.scores]
    return {"ids": ids, "negative": negative, "scale": scale, "answer": made.sequences[0, len(ids):].tolist(),
            "margins": [round((b[0] - b[1]).item(), 5) for b in best]}


def answers_of(folder):
    expected = json.loads((folder / "expected.json").read_text())
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    first, second = (case["ids"] for case in expected["cases"][:2])
    longest = max((case["ids"] for case in expected["cases"]), key=len)[:70]
    return [guided(model, first, negative, scale) for scale in SCALES for negative in (longest, second, None)]


def main():
    result = {"scores": scores(), "answers": {}}
    for name in ("llama-gqa", "qwen3", "mistral-swa"):
        result["answers"][name] = answers_of(HERE / "golden" / name)
    (HERE / "pairs.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
