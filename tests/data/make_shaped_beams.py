#!/usr/bin/env python3
"""Writes shaped_beams.json: transformers' beam search and beam sampling with processors, filters, masks and stop strings,
over the golden checkpoints and the tables of beams.json. Written with transformers 5.24.

Beam sampling draws with torch.multinomial, whose numbers nobody else has. Here it draws with Troupe's instead: first the
beam, by the mass that its tokens have left, then the token, by weights in units of 2^-40 of the beam's likeliest
(runtime/techniques/beams/beam_draws.hpp). All else is transformers'.

`allowed`: m, r: after a token `last`, an id may follow unless (7 * id + last) % m == r.
`letters`: a token of a table is written as the letter of its id; `stop` looks at the letters.
"""

import json
import pathlib
import random

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig, StoppingCriteria

import make_beams as tables

HERE = pathlib.Path(__file__).parent
GOLDEN = ["llama-gqa", "llama-mha-tied", "llama-mqa-rope3", "mistral-swa", "qwen2", "qwen3"]
WORD = 0xFFFFFFFF


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & WORD, (a >> 32) ^ c[3] ^ k[1], a & WORD]
        k = [(k[0] + 0x9E3779B9) & WORD, (k[1] + 0xBB67AE85) & WORD]
    return c


class Draws:
    """Takes torch.multinomial's place during one search."""

    def __init__(self, seed, prompt_tokens, vocab):
        self.seed, self.position, self.vocab = seed, prompt_tokens, vocab
        self.nearest = 1.0  # to another choice

    def __call__(self, probabilities, num_samples):
        left = probabilities[0].double().view(-1, self.vocab)
        rows = []
        for row in left:
            scaled = row / row.max() if row.max() > 0 else row
            rows.append([round(x * 2**40) for x in scaled.tolist()])
        tops = [row.max().item() for row in left]
        chosen = []
        for draw in range(num_samples):
            masses = [top * sum(row) / 2**40 for top, row in zip(tops, rows)]
            if sum(masses) <= 0:
                break
            words = philox(
                [self.position & WORD, self.position >> 32, 0, draw + 1], [self.seed & WORD, self.seed >> 32]
            )
            uniform = (((words[2] << 32 | words[3]) >> 12) + 0.5) * 2.0**-52
            offset = uniform * sum(masses)
            beam = 0
            while beam + 1 < len(rows) and offset >= masses[beam]:
                offset -= masses[beam]
                beam += 1
            self.nearest = min(self.nearest, abs(offset) / sum(masses), abs(offset - masses[beam]) / sum(masses))
            total = sum(rows[beam])
            place = (words[0] << 32 | words[1]) * total >> 64
            token = 0
            while place >= rows[beam][token]:
                place -= rows[beam][token]
                token += 1
            self.nearest = min(self.nearest, (rows[beam][token] - place) / total, (place + 1) / total)
            chosen.append(beam * self.vocab + token)
            rows[beam][token] = 0
        # Tokens without probability: as good as none.
        spare = (i for i in range(probabilities.shape[1]) if probabilities[0, i] == 0)
        while len(chosen) < num_samples:
            chosen.append(next(spare))
        self.position += 1
        return torch.tensor([chosen])


class Letters(StoppingCriteria):
    def __init__(self, stops, prompt_tokens):
        self.stops, self.prompt_tokens = stops, prompt_tokens

    def __call__(self, input_ids, scores, **kwargs):
        texts = ["".join(chr(97 + t) for t in ids[self.prompt_tokens :]) for ids in input_ids.tolist()]
        return torch.tensor([any(stop in text for stop in self.stops) for text in texts])


def draw_settings(rng, vocab, sampled):
    """A few of what a request may say."""
    case = {}
    if rng.random() < 0.35:
        case["repetition_penalty"] = rng.choice([0.8, 1.1, 1.5])
    if rng.random() < 0.35:
        case["logit_bias"] = [[rng.randrange(vocab), rng.choice([-2.5, -1.0, 1.5, 3.0])] for _ in range(3)]
        case["logit_bias"] = sorted({i: b for i, b in case["logit_bias"]}.items())
    if rng.random() < 0.25:
        case["no_repeat_ngram_size"] = rng.choice([1, 2, 3])
    if rng.random() < 0.25:
        case["bad_words"] = [[rng.randrange(vocab) for _ in range(rng.choice([1, 2]))] for _ in range(2)]
    if rng.random() < 0.3:
        case["allowed"] = [rng.choice([3, 4, 5]), rng.randrange(3)]
    if sampled:
        case["seed"] = rng.randrange(1 << 62)
        if rng.random() < 0.6:
            case["temperature"] = rng.choice([0.5, 0.7, 1.3, 2.0])
        for name, values in {
            "top_k": [3, 8, 20],
            "top_p": [0.6, 0.9, 0.97],
            "min_p": [0.02, 0.1],
            "epsilon_cutoff": [0.01, 0.05],
        }.items():
            if rng.random() < 0.35:
                case[name] = rng.choice(values)
    return case


def run(model, case, prompt, stops=None, tokenizer=None, pad=0):
    given = {k: case[k] for k in ("repetition_penalty", "no_repeat_ngram_size", "temperature", "top_k", "top_p", "min_p", "epsilon_cutoff") if k in case}
    if "logit_bias" in case:
        given["sequence_bias"] = [[[i], b] for i, b in case["logit_bias"]]
    if "bad_words" in case:
        given["bad_words_ids"] = case["bad_words"]
    if "min_tokens" in case:
        given["min_new_tokens"] = case["min_tokens"]
    sampled = "seed" in case
    config = GenerationConfig(
        num_beams=case["num_beams"],
        num_return_sequences=case["num_beams"],
        max_new_tokens=case["max_tokens"],
        length_penalty=case["length_penalty"],
        early_stopping=case["early_stopping"],
        eos_token_id=case["eos"],
        pad_token_id=pad,
        do_sample=sampled,
        output_scores=True,
        return_dict_in_generate=True,
        **({"top_k": 0} | given if sampled else given),
    )
    more = {}
    if "allowed" in case:
        m, r = case["allowed"]
        vocab = model.config.vocab_size
        more["prefix_allowed_tokens_fn"] = lambda _, ids: [i for i in range(vocab) if (7 * i + int(ids[-1])) % m != r]
    if stops and tokenizer:
        config.stop_strings = stops
        more["tokenizer"] = tokenizer
    elif stops:
        more["stopping_criteria"] = [Letters(stops, len(prompt))]
    ids = torch.tensor([prompt])
    plain = torch.multinomial
    draws = Draws(case.get("seed", 0), len(prompt), model.config.vocab_size)
    try:
        torch.multinomial = draws
        out = model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=config, use_cache=tokenizer is not None, **more)
    finally:
        torch.multinomial = plain
    if draws.nearest < 1e-5:
        return None  # the arithmetic would decide
    sequences = []
    for i, (whole, score) in enumerate(zip(out.sequences.tolist(), out.sequences_scores.tolist())):
        if score < -1e8:
            continue
        length = int((out.beam_indices[i] >= 0).sum())
        sequences.append({"ids": whole[len(prompt) : len(prompt) + length], "score": round(score, 6)})
    return sequences


def of_tables(rng):
    models = [tables.Table(tables.TableConfig(), **t).eval() for t in tables.make_tables()]
    cases = []
    while len(cases) < 160:
        sampled = rng.random() < 0.5
        case = tables.settings(rng, False) | draw_settings(rng, tables.VOCAB - 1, sampled)
        if any([end] in case.get("bad_words", []) for end in case["eos"]):
            continue  # transformers never forbids an EOS as a bad word
        stops = None
        if rng.random() < 0.4:
            case["stop"] = stops = ["".join(chr(97 + rng.randrange(tables.VOCAB - 1)) for _ in range(rng.choice([1, 2, 2]))) for _ in range(6)]
            case.pop("min_tokens", None)  # transformers looks at stop strings before them
        found = run(models[case["table"]], case, case["prompt"], stops, pad=tables.PAD)
        if found:
            cases.append(case | {"sequences": found})
    return cases


def of_golden(rng):
    result = {}
    for name in GOLDEN:
        folder = HERE / "golden" / name
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        tokenizer = AutoTokenizer.from_pretrained(folder)
        expected = json.loads((folder / "expected.json").read_text())
        eos = model.generation_config.eos_token_id
        eos = eos if isinstance(eos, list) else [eos]
        prompts = [case["ids"] for case in expected["cases"] if "beam" in case]
        cases = []
        for number in range(8):
            sampled = number % 2 == 1
            case = {
                "prompt": prompts[number % len(prompts)],
                "num_beams": rng.choice([2, 3, 4]),
                "max_tokens": 10,
                "length_penalty": rng.choice([0.0, 1.0]),
                "early_stopping": rng.choice([False, True]),
                "eos": eos,
            } | draw_settings(rng, model.config.vocab_size, sampled)
            if number >= 4:
                best = run(model, case, case["prompt"])
                text = tokenizer.decode(best[0]["ids"]) if best else ""
                if len(text) > 5 and text.isascii():
                    case["stop"] = [text[3:5], text[-2:]]
            found = run(model, case, case["prompt"], case.get("stop"), tokenizer)
            if found:
                cases.append(case | {"sequences": found})
        result[name] = cases
    return result


def main():
    rng = random.Random(23)
    found = {"tables": of_tables(rng), "golden": of_golden(rng)}
    lines = ['"tables": [\n' + ",\n".join(json.dumps(c) for c in found["tables"]) + "\n]"]
    lines.append(
        '"golden": {\n'
        + ",\n".join(f'"{n}": [\n' + ",\n".join(json.dumps(c) for c in cs) + "\n]" for n, cs in found["golden"].items())
        + "\n}"
    )
    (HERE / "shaped_beams.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(transformers.__version__, len(found["tables"]), {n: len(c) for n, c in found["golden"].items()})


if __name__ == "__main__":
    main()
