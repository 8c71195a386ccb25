#!/usr/bin/env python3
"""Writes beams.json: beam searches by transformers over tables of logits, with ends of every kind.

Run it twice, in any order: with transformers 5.12 (beam search) and with 4.56 (the last with diverse beam search).
A table has the logits that follow each token, `first`, plus those that follow the token before, `second`, in units of
1/65536. `sequences`: best first, with what ended them, if anything did.
"""

import json
import pathlib
import random

import torch
import transformers
from transformers import GenerationConfig, GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutputWithPast

VOCAB = 24
PAD = VOCAB - 1  # never likely: transformers penalises it where a group has ended
FILE = pathlib.Path(__file__).with_name("beams.json")


class TableConfig(PretrainedConfig):
    model_type = "table"

    def __init__(self, vocab_size=VOCAB, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.num_hidden_layers = self.hidden_size = self.num_attention_heads = 1


class Table(PreTrainedModel, GenerationMixin):
    config_class = TableConfig

    def __init__(self, config, first, second):
        super().__init__(config)
        self.first = torch.nn.Parameter(torch.tensor(first, dtype=torch.float32) / 65536)
        self.second = torch.nn.Parameter(torch.tensor(second, dtype=torch.float32) / 65536)

    def forward(self, input_ids, attention_mask=None, **kwargs):
        logits = self.first[input_ids]
        logits[:, 1:] += self.second[input_ids[:, :-1]]
        return CausalLMOutputWithPast(logits=logits)

    def prepare_inputs_for_generation(self, input_ids, **kwargs):
        return {"input_ids": input_ids}


def make_tables():
    rng = random.Random(7)

    def matrix(spread):
        return [[PAD_LOGIT if t == PAD else round(rng.gauss(0, spread) * 65536) for t in range(VOCAB)] for _ in range(VOCAB)]

    PAD_LOGIT = -30 * 65536
    return [{"first": matrix(1.5), "second": matrix(0.7)} for _ in range(3)]


def settings(rng, diverse):
    groups = rng.choice([2, 3, 4]) if diverse else 1
    case = {
        "table": rng.randrange(3),
        "prompt": [rng.randrange(VOCAB - 1) for _ in range(rng.randrange(1, 4))],
        "num_beams": groups * rng.choice([1, 2, 3]) if diverse else rng.choice([2, 3, 4, 6, 8]),
        "max_tokens": rng.choice([1, 2, 4, 7, 12]),
        "length_penalty": rng.choice([-1.0, 0.0, 0.6, 1.0, 2.0]),
        "early_stopping": rng.choice([False, True, "never"]),
        # Whatever ended a sequence, diverse beam search writes the first EOS id.
        "eos": sorted(rng.sample(range(VOCAB - 1), 1 if diverse else rng.choice([1, 2, 3, 6]))),
    }
    if diverse:
        case["num_beam_groups"] = groups
        case["diversity_penalty"] = rng.choice([0.3, 1.0, 2.5])
    if rng.random() < 0.3:
        case["min_tokens"] = min(3, case["max_tokens"])
    return case


def run(model, case):
    config = GenerationConfig(
        num_beams=case["num_beams"],
        num_return_sequences=case["num_beams"],
        max_new_tokens=case["max_tokens"],
        length_penalty=case["length_penalty"],
        early_stopping=case["early_stopping"],
        eos_token_id=case["eos"],
        pad_token_id=PAD,
        do_sample=False,
        use_cache=False,
        output_scores=True,
        return_dict_in_generate=True,
    )
    if "min_tokens" in case:
        config.min_new_tokens = case["min_tokens"]
    if "num_beam_groups" in case:
        config.num_beam_groups = case["num_beam_groups"]
        config.diversity_penalty = case["diversity_penalty"]
    prompt = torch.tensor([case["prompt"]])
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), generation_config=config)
    sequences = []
    for ids, score in zip(out.sequences.tolist(), out.sequences_scores.tolist()):
        ids = ids[len(case["prompt"]):]
        end = next((i for i, t in enumerate(ids) if t in case["eos"]), len(ids) - 1)
        assert all(t == PAD for t in ids[end + 1:]), ids
        sequences.append({"ids": ids[:end + 1], "score": round(score, 6)})
    return sequences


def main():
    diverse = hasattr(GenerationMixin, "_group_beam_search")
    rng = random.Random(11 if diverse else 5)
    tables = make_tables()
    models = [Table(TableConfig(), **t).eval() for t in tables]
    cases = []
    for _ in range(60 if diverse else 120):
        case = settings(rng, diverse)
        cases.append(case | {"sequences": run(models[case["table"]], case)})
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    found |= {"tables": tables, "diverse" if diverse else "beams": cases}
    lines = [f'"tables": {json.dumps(tables)}']
    for kind in ("beams", "diverse"):
        lines.append(f'"{kind}": [\n' + ",\n".join(json.dumps(c) for c in found.get(kind, [])) + "\n]")
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    ended = sum(s["ids"][-1] in c["eos"] for c in cases for s in c["sequences"])
    print(transformers.__version__, len(cases), "cases,", ended, "sequences of", sum(len(c["sequences"]) for c in cases), "end by EOS")


if __name__ == "__main__":
    main()
