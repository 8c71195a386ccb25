#!/usr/bin/env python3
"""What one key that floods does to others with the same rights.

    tests/bench/fairness.py --model SmolLM2-135M-Instruct-Q4_K_M.gguf

Each of --keys keys keeps --streams streams of short completions going. One of them floods besides, in each of the ways of
FLOODS. Every flood is measured in turns with the same seconds without it, on one server, --rounds times.

- tokens/s: tokens of answers that a key got in its streams (what the flood itself brings is not counted here).
- left: the least of the other keys' tokens/s with the flood over those without it, medians over rounds.
- Jain's index, (sum x)^2 / (n sum x^2), of x = tokens/s with the flood over tokens/s without it. The flooder's x counts
  all its tokens of prompts and answers, also the flood's, as the server counts them when requests end, but no more than the
  mean of the others: an equal part. So it is below 1 if the others differ, or the flooder gets less than they do. What
  it gets beyond its part, `flooder got` has: its tokens/s over those of the mean of the other keys, by the same count.
- between tokens, TTFT: of the other keys' streams; a first token that had not come when the window ended counts as if it
  came then.
- beyond: by how much the slowest TTFT of the others is longer than the median one without the flood.

Needs nothing but Python."""

import argparse
import asyncio
import json
import multiprocessing
import pathlib
import random
import statistics
import sys
import tempfile
import time

from asking import ask, get, head_of, metric
from load import machine, words
from servers_in_turn import ROOT, percentile, serving


def long_prompts(chance, model):
    return "/v1/completions", {"prompt": words(1800, chance.random()), "max_tokens": 4}


def small_requests(chance, model):
    return "/v1/completions", {"prompt": words(8, chance.random()), "max_tokens": 2, "ignore_eos": True}


def guides(chance, model):
    """Each has a schema of its own, which must be compiled."""
    def name():
        return "".join(chance.choice("abcdefghij") for _ in range(10))
    fields = {name(): chance.choice(({"type": "string", "pattern": f"^[a-z]{{2,{chance.randrange(3, 30)}}}-[0-9]+$"},
                                     {"type": "integer", "minimum": chance.randrange(1000), "maximum": 100000},
                                     {"enum": [name() for _ in range(20)]},
                                     {"type": "array", "items": {"type": "number"}, "maxItems": 20})) for _ in range(40)}
    schema = {"type": "object", "properties": fields, "required": list(fields)[::2], "additionalProperties": False}
    return "/v1/completions", {"prompt": words(8, chance.random()), "max_tokens": 8, "guided_json": schema}


def embeddings(chance, model):
    return "/v1/embeddings", {"input": [words(200, chance.random()) for _ in range(32)]}


def tokenising(chance, model):
    return "/tokenize", {"prompt": " ".join([words(4000, chance.random())] * 20)}


def many_choices(chance, model):
    return "/v1/completions", {"prompt": words(8, chance.random()), "max_tokens": 200, "n": 64, "temperature": 1,
                               "ignore_eos": True}


# name: a request, how many of them at once
FLOODS = {"long prompts (1,800 words, 16 at once)": (long_prompts, 16),
          "many small ones (256 at once)": (small_requests, 256),
          "guides (a schema each, 64 at once)": (guides, 64),
          "embeddings (32 of 200 words each, 16 at once)": (embeddings, 16),
          "tokenising (500 KB each, 32 at once)": (tokenising, 32),
          "8 requests with n: 64": (many_choices, 8)}


# -- the flood, in a process of its own --------------------------------------------------------------------------------

async def send_for_ever(port, model, key, make, chance, answered):
    # Few different ones, made before: a client that makes them would compete with the server for the cores.
    made = []
    for _ in range(8):
        path, body = make(chance, model)
        made.append((path, json.dumps({"model": model, **body})))
    number = 0
    while True:
        path, body = made[number % len(made)]
        # Not cached: each is another one.
        body = body.replace('{"model"', f'{{"user": "{chance.random()}", "model"', 1).replace(
            '"prompt": "', f'"prompt": "{words(3, chance.random())} ', 1).encode()
        number += 1
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head_of(path, body, key) + body)
            head = await reader.read(64)
            while await reader.read(1 << 20):
                pass
            writer.close()
            status = int(head.split()[1])
        except (OSError, IndexError, ValueError):
            status = 0
        answered[0 if status == 200 else 1] += 1
        if status != 200:
            await asyncio.sleep(0.05)


def flood(port, model, key, name, seed, answered):
    make, at_once = FLOODS[name]

    async def all_at_once():
        await asyncio.gather(*(send_for_ever(port, model, key, make, random.Random(f"{seed} {i}"), answered)
                               for i in range(at_once)))
    asyncio.run(all_at_once())


# -- the keys' streams -------------------------------------------------------------------------------------------------

async def keep_asking(port, model, key, options, chance, until, answers):
    while time.perf_counter() < until:
        answer = await ask(port, {"model": model, "prompt": words(options.prompt, chance.random()),
                                  "max_tokens": options.generate}, key, into=answers)
        if answer.status != 200:
            await asyncio.sleep(0.05)


def streams(port, model, options, seed):
    """The answers of each key, and the window in which they are counted."""
    begin = time.perf_counter()
    since, until = begin + options.settle, begin + options.settle + options.seconds
    answers = [[] for _ in range(options.keys)]

    async def all_keys():
        tasks = [asyncio.create_task(keep_asking(port, model, f"secret{key}", options, random.Random(f"{seed} {key} {i}"), until,
                                                 answers[key]))
                 for key in range(options.keys) for i in range(options.streams)]
        done, unfinished = await asyncio.wait(tasks, timeout=until - time.perf_counter())
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
        for task in done:
            task.result()
    asyncio.run(all_keys())
    return answers, since, until


def served(port, options):
    """Tokens of prompts and answers that the server has counted for each key."""
    lines = [line for line in get(port, "/metrics", "secret0").splitlines()
             if line.startswith(("troupe_key_prompt_tokens_total", "troupe_key_generated_tokens_total"))]
    return [sum(float(line.rsplit(" ", 1)[1]) for line in lines if f'"key{key}"' in line) for key in range(options.keys)]


def window(port, model, options, seed, name=None):
    """Figures of one window; with the flood `name`."""
    flooder = options.keys - 1
    answered = multiprocessing.Array("q", 2, lock=False)
    process = None
    before = served(port, options)
    if name:
        process = multiprocessing.Process(target=flood, args=(port, model, f"secret{flooder}", name, seed, answered), daemon=True)
        process.start()
    try:
        answers, since, until = streams(port, model, options, seed)
    finally:
        if process:
            process.terminate()
            process.join()
    while metric(port, "troupe_requests_in_flight", "secret0"):
        time.sleep(0.1)
    counted = [after - then for after, then in zip(served(port, options), before)]
    whole = [[a for a in of_key if a.status == 200] for of_key in answers]
    rates = [sum(a.tokens(since, until) for a in of_key) / options.seconds for of_key in whole]
    others = [a for of_key in whole[:flooder] for a in of_key if since <= a.sent]
    return {"rates": rates, "counted": counted, "answered": list(answered),
            "gaps": [gap for a in others for gap in a.gaps], "ttfts": [a.ttft if a.first else until - a.sent for a in others],
            "refused": sum(a.status != 200 for of_key in answers[:flooder] for a in of_key)}


# -- figures -----------------------------------------------------------------------------------------------------------

def jain(values):
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values))


def figures_of(pairs):
    """Medians over rounds of (without, with)."""
    rows = []
    for without, with_ in pairs:
        others = [after / before for before, after in zip(without["rates"][:-1], with_["rates"][:-1])]
        got = with_["counted"][-1] / statistics.mean(with_["counted"][:-1])
        own = min(1, got) * statistics.mean(others)
        rows.append({"left": min(others), "jain": jain([*others, own]), "got": got,
                     "own": with_["rates"][-1] / without["rates"][-1],
                     "gap_before": percentile(without["gaps"], 0.99), "gap": percentile(with_["gaps"], 0.99),
                     "ttft_before": percentile(without["ttfts"], 0.99), "ttft": percentile(with_["ttfts"], 0.99),
                     "beyond": max(with_["ttfts"], default=float("nan")) - statistics.median(without["ttfts"]),
                     "answered": with_["answered"][0], "refused": with_["answered"][1], "others_refused": with_["refused"]})
    return {key: statistics.median(row[key] for row in rows) for key in rows[0]}


def table(found, options):
    lines = [f"{machine()}, {pathlib.Path(options.model).stem}, `{options.common}`, {options.keys} keys with {options.streams} streams "
             f"each of {options.prompt} words and {options.generate} tokens, windows of {options.seconds:g} s, medians of {options.rounds} rounds",
             "", "| flood of one key | flood's requests answered, refused | Jain's index | left of the others' tokens/s | of the flooder's "
             "own streams | flooder got | between tokens, p99 without, with | TTFT p99 without, with | slowest TTFT beyond | others refused |",
             "|---|---|---|---|---|---|---|---|---|---|"]
    for name, row in found.items():
        lines.append(f"| {name} | {row['answered']:.0f}, {row['refused']:.0f} | {row['jain']:.3f} | {row['left']:.2f} | {row['own']:.2f} | {row['got']:.1f} | "
                     f"{1e3 * row['gap_before']:.0f}, {1e3 * row['gap']:.0f} ms | {row['ttft_before']:.2f}, {row['ttft']:.2f} s | "
                     f"{row['beyond']:.2f} s | {row['others_refused']:.0f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--troupe", type=pathlib.Path, default=ROOT / "build" / "release" / "troupe")
    parser.add_argument("--model", default=str(ROOT / "examples" / "storyteller" / "model"))
    parser.add_argument("--common", default="--kv-cache 512MiB --speculate off --max-context 2560", help="flags of the server")
    parser.add_argument("--flood", action="append", help="only those whose name contains this")
    parser.add_argument("--keys", type=int, default=4)
    parser.add_argument("--streams", type=int, default=2, help="of each key")
    parser.add_argument("--prompt", type=int, default=32, help="words")
    parser.add_argument("--generate", type=int, default=48, help="tokens")
    parser.add_argument("--seconds", type=float, default=10, help="of a window")
    parser.add_argument("--settle", type=float, default=2, help="seconds before a window that are not counted")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    chosen = [name for name in FLOODS if not options.flood or any(part in name for part in options.flood)]
    with tempfile.TemporaryDirectory() as folder:
        keys = pathlib.Path(folder) / "keys"
        keys.write_text("".join(f"key{key}=secret{key}\n" for key in range(options.keys)))
        with serving(options, f"--api-keys {keys}") as port:
            model = json.loads(get(port, "/v1/models", "secret0"))["data"][0]["id"]
            pairs = {name: [] for name in chosen}
            for round_ in range(options.rounds):
                for name in chosen:
                    # In turns, and which is first changes.
                    both = [window(port, model, options, f"{round_} {name} {which}", which)
                            for which in ((None, name) if round_ % 2 == 0 else (name, None))]
                    pairs[name].append(both if round_ % 2 == 0 else both[::-1])
                    print(f"round {round_ + 1}, {name}: {figures_of(pairs[name][-1:])}", file=sys.stderr, flush=True)
    if options.json:
        print(json.dumps({"machine": machine(), "runs": pairs}))
    else:
        print(table({name: figures_of(runs) for name, runs in pairs.items()}, options))


if __name__ == "__main__":
    main()
