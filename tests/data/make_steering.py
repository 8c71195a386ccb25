#!/usr/bin/env python3
"""Writes steering.json: what transformers' decoders make of steering vectors, by hooks behind their layers.

Run with transformers 5, torch and numpy. By checkpoint:
- `steered`: `ids`; the vector that `first` to `last` add to their output, of `strength`, whose values are those of
  `direction`; `last_logits` behind the prompt.
- `contrast`: `positive` and `negative`, lists of ids; of each layer the `mean` difference of the hidden states of their
  last tokens, and the first principal component (`pca`) of the pairs' differences, about zero.
"""

import json
import pathlib

import numpy as np
import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
MODELS = {"golden/llama-gqa": "model.layers", "golden/qwen3": "model.layers", "families/opt": "model.decoder.layers"}


def direction(layer, hidden):
    """Exact in f32."""
    return torch.tensor([((layer * 7 + i * 13) % 11 - 5) / 8 for i in range(hidden)], dtype=torch.float32)


def layers_of(model, path):
    for name in path.split("."):
        model = getattr(model, name)
    return model


def hooked(layers, of_layer):
    def hook(index):
        def call(_module, _inputs, output):
            tail = () if torch.is_tensor(output) else output[1:]
            state = of_layer(index, output if torch.is_tensor(output) else output[0])
            return state if torch.is_tensor(output) else (state, *tail)

        return call

    return [layer.register_forward_hook(hook(i)) for i, layer in enumerate(layers)]


def run(model, layers, ids, of_layer):
    hooks = hooked(layers, of_layer)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, -1]
    for h in hooks:
        h.remove()
    return logits


def last_states(model, layers, ids):
    states = {}

    def keep(index, state):
        states[index] = state[0, -1].double().numpy().copy()
        return state

    run(model, layers, ids, keep)
    return [states[i] for i in range(len(layers))]


def numbers(values, digits):
    return [round(float(x), digits) for x in values]


def case_of(folder, path):
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager").eval()
    layers = layers_of(model, path)
    hidden = model.config.hidden_size
    ids = json.loads((folder / "expected.json").read_text())["cases"][0]["ids"][:40]
    steered = []
    for strength, first, last in ((0.5, 0, len(layers) - 1), (-1.25, 1, 1), (0.75, len(layers) - 1, len(layers) - 1)):
        def add(index, state):
            return state + strength * direction(index, hidden) if first <= index <= last else state

        logits = run(model, layers, ids, add)
        steered.append({"ids": ids, "strength": strength, "first": first, "last": last,
                        "last_logits": numbers(logits, 5)})
    positive = [[5 + (p * 31 + i * 17) % 300 for i in range(4 + p)] for p in range(5)]
    negative = [[310 + (p * 29 + i * 23) % 300 for i in range(6 + p)] for p in range(5)]
    states = [[last_states(model, layers, p) for p in prompts] for prompts in (positive, negative)]
    mean, pca = [], []
    for layer in range(len(layers)):
        a, b = (np.array([s[layer] for s in side]) for side in states)
        mean.append(numbers(a.mean(0) - b.mean(0), 6))
        component = np.linalg.svd(a - b, full_matrices=False)[2][0]
        pca.append(numbers(component if ((a - b) @ component).sum() >= 0 else -component, 6))
    return {"steered": steered,
            "contrast": {"positive": positive, "negative": negative, "mean": mean, "pca": pca}}


def main():
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(case_of(HERE / name, path))}" for name, path in MODELS.items())
    (HERE / "steering.json").write_text("{\n" + lines + "\n}\n")


if __name__ == "__main__":
    main()
