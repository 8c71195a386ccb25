#!/usr/bin/env python3
"""Writes embeddings.json: transformers' hidden states behind the final norm, pooled, for the golden checkpoints.

Run with transformers 5 and torch. By checkpoint: `ids`, and the `mean`, `last` and `cls` of the states, not normalised.
"""

import json
import pathlib

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent


def embeddings_of(folder):
    expected = json.loads((folder / "expected.json").read_text())
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    cases = []
    for case in expected["cases"][:2]:
        ids = case["ids"]
        with torch.no_grad():
            states = model(torch.tensor([ids])).last_hidden_state[0].double()
        pooled = {"mean": states.mean(0), "last": states[-1], "cls": states[0]}
        cases.append({"ids": ids, **{name: [round(x, 6) for x in v.tolist()] for name, v in pooled.items()}})
    return cases


def main():
    models = sorted(path.name for path in (HERE / "golden").iterdir() if path.is_dir())
    result = {name: embeddings_of(HERE / "golden" / name) for name in models}
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(cases)}" for name, cases in result.items())
    (HERE / "embeddings.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
