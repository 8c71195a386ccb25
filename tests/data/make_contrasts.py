#!/usr/bin/env python3
"""Writes contrasts.json: greedy answers of contrastive decoding and DoLa, with PyTorch and transformers' models.

Contrastive decoding is that of O'Brien and Lewis 2023: (1 + beta) * expert - beta * amateur among the tokens whose expert
logit is at least the largest + log(alpha). By "MODEL/AMATEUR", cases: `ids`, `alpha`, `beta`, and the greedy `answer` with
its `margins` (the highest score less the second, and, where that is less, the least distance of a logit to the bound).

DoLa (Chuang et al. 2023) is that of transformers' custom_generate/dola, but the layer is chosen for each row, not for a
batch, and a model's logit scale and cap are part of its head. By model, cases: `ids`, `layers`, the `answer` with the
`logprobs` of the model's own distribution, `chosen` layers, and `margins` as above, 0 where two layers are as far.
"""

import json
import math
import pathlib

import torch
import torch.nn.functional as F
import transformers

HERE = pathlib.Path(__file__).resolve().parent
STRENGTHS = ((0.1, 0.5), (0.3, 1.0), (0.01, 2.0))
TOKENS = 24


def load(name):
    return transformers.AutoModelForCausalLM.from_pretrained(
        HERE / name if "/" in name else HERE / "golden" / name, dtype=torch.float32, attn_implementation="eager").eval()


def prompts_of(name, count=3):
    folder = HERE / name if "/" in name else HERE / "golden" / name
    cases = json.loads((folder / "expected.json").read_text())["cases"]
    return [case["ids"][:70] for case in cases[:count]]


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


def layers_named(word, config):
    """transformers' ranges."""
    count = config.num_hidden_layers
    start = 0 if not config.tie_word_embeddings else 2 if count > 2 else 1 if count == 2 else 0
    if word == "low":
        return [start] if start == count // 2 else list(range(start, count // 2 if count <= 40 else 20, 2))
    return list(range(count // 2 if count <= 40 else count - 20, count, 2))


def head(model, states):
    logits = model.get_output_embeddings()(states).float() / getattr(model.config, "logits_scaling", 1)
    cap = getattr(model.config, "final_logit_softcapping", None)
    return torch.tanh(logits / cap) * cap if cap else logits


def divergences(final, inner):
    """Of each row of `inner` from `final`; transformers takes means over the vocabulary, which are small by its size."""
    average = 0.5 * (F.softmax(final, -1) + F.softmax(inner, -1))
    of_final = F.kl_div(F.log_softmax(final, -1).expand_as(inner), average, reduction="none").mean(-1)
    of_inner = F.kl_div(F.log_softmax(inner, -1), average, reduction="none").mean(-1)
    return 0.5 * (of_final + of_inner) * final.shape[-1]


def layer_contrast(final, inner):
    """DoLa's scores with relative_top, which row of `inner` is taken, and how certain both are."""
    index, certain = 0, math.inf
    if len(inner) > 1:
        far = divergences(final, inner)
        index, best = far.argmax().item(), torch.topk(far, 2).values
        certain = math.inf if best[0] - best[1] > 1e-4 else 0
    own, other = final.log_softmax(-1), inner[index].log_softmax(-1)
    bound = own.max() + math.log(0.1)
    return torch.where(own < bound, -math.inf, own - other), index, min(certain, (own - bound).abs().min().item())


def by_layers(model, ids, layers):
    numbers = layers_named(layers, model.config) if isinstance(layers, str) else layers
    chosen, finals = [], []

    def scores_of(text):
        with torch.no_grad():
            output = model(torch.tensor([text]), output_hidden_states=True)
            inner = head(model, torch.stack([output.hidden_states[k][0, -1] for k in numbers]))
        finals.append(output.logits[0, -1].float())
        scores, index, margin = layer_contrast(finals[-1], inner)
        chosen.append(numbers[index])
        return scores, margin

    found = greedily(model, ids, scores_of)
    logprobs = [round(row.log_softmax(-1)[token].item(), 6) for row, token in zip(finals, found["answer"])]
    return {"ids": ids, "layers": layers, **found, "logprobs": logprobs, "chosen": chosen}


def layer_rows():
    """Single rows: `final`, `inner`, and from these the `divergences`, the layer taken and the `scores`."""
    rows = []
    for seed in range(4):
        random = torch.Generator().manual_seed(seed)
        final = (torch.randn(40, generator=random) * 3).round(decimals=4)
        inner = (torch.randn(1 + seed, 40, generator=random) * (1 + 2 * seed)).round(decimals=4)
        scores, index, _ = layer_contrast(final.double(), inner.double())
        rows.append({"final": [round(x, 4) for x in final.tolist()],
                     "inner": [[round(x, 4) for x in row] for row in inner.tolist()],
                     "divergences": divergences(final.double(), inner.double()).tolist(), "index": index,
                     "scores": [None if x == -math.inf else x for x in scores.tolist()]})
    return rows


def main():
    result = {"amateurs": {}, "layers": {}, "layer_rows": layer_rows()}
    for name in ("golden/llama-gqa", "families/granite", "families/gemma2", "families/gemma3"):
        model = load(name)
        everything = list(range(model.config.num_hidden_layers))
        result["layers"][name] = [by_layers(model, ids, layers) for ids in prompts_of(name, 2)
                                  for layers in ("low", "high", everything)]
    for name, other in (("qwen3", "qwen2"), ("qwen2", "qwen3")):
        expert, amateur = load(name), load(other)
        result["amateurs"][f"{name}/{other}"] = [
            contrasted(expert, amateur, ids, alpha, beta) for ids in prompts_of(name) for alpha, beta in STRENGTHS]
    (HERE / "contrasts.json").write_text(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
