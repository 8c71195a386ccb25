#!/usr/bin/env python3
"""Measures the time between tokens of running streams while prompts arrive. Starts one server after the other, one per
set of flags, under the same Poisson arrivals. Prints the median over rounds of time to first token, time between tokens
and tokens per second for each set.

    tests/bench/latency.py --rate 0.4 --requests 24 --flags "--step-tokens 512" --flags "--step-tokens 64"

Needs PyPI's websockets (tests/e2e/requirements.txt)."""

import argparse
import asyncio
import json
import pathlib
import random
import re
import shlex
import statistics
import subprocess
import time
import urllib.error
import urllib.request

import websockets

ROOT = pathlib.Path(__file__).resolve().parents[2]


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


async def drive(port, options, seed):
    """Sends requests at Poisson arrivals.

    Returns the times to first token, the times between tokens (both in seconds), the number of tokens and the duration.
    """
    chance = random.Random(seed)
    sent, last, first, gaps = {}, {}, [], []
    tokens = 0
    begin = time.perf_counter()
    async with websockets.connect(f"ws://127.0.0.1:{port}/v1/ws", max_size=None) as socket:
        async def send():
            for number in range(options.requests):
                await asyncio.sleep(chance.expovariate(options.rate))
                prompt = [chance.randrange(10, 250) for _ in range(options.prompt)]
                sent[str(number)] = time.perf_counter()
                await socket.send(json.dumps({
                    "type": "generate", "id": str(number), "prompt": prompt, "max_tokens": options.generate,
                    "ignore_eos": True, "temperature": 0}))

        sender = asyncio.create_task(send())
        running = options.requests
        while running:
            event = json.loads(await socket.recv())
            now = time.perf_counter()
            name = event.get("id")
            if event["type"] == "token":
                count = len(event["token_ids"])
                tokens += count
                if name in last:
                    gaps += [(now - last[name]) / count] * count
                else:
                    first.append(now - sent[name])
                last[name] = now
            else:
                assert event["type"] == "done", event
                running -= 1
        await sender
    return first, gaps, tokens, time.perf_counter() - begin


def measure(flags, options, seed):
    server = subprocess.Popen([str(options.troupe), "serve", "--port", "0", "--quiet", "--model", options.model,
                               *shlex.split(options.common), *shlex.split(flags)], stdout=subprocess.PIPE, text=True)
    try:
        port = int(re.search(r":(\d+)", server.stdout.readline()).group(1))
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health").close()
                break
            except urllib.error.HTTPError:
                time.sleep(0.2)
        first, gaps, tokens, seconds = asyncio.run(drive(port, options, seed))
    finally:
        server.terminate()
        server.wait()
    return {"ttft_p50_ms": 1e3 * percentile(first, 0.5), "ttft_p99_ms": 1e3 * percentile(first, 0.99),
            "itl_p50_ms": 1e3 * percentile(gaps, 0.5), "itl_p99_ms": 1e3 * percentile(gaps, 0.99),
            "itl_max_ms": 1e3 * max(gaps), "tokens_per_s": tokens / seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--troupe", type=pathlib.Path, default=ROOT / "build" / "release" / "troupe")
    parser.add_argument("--model", default="synthetic:llama-1b")
    parser.add_argument("--common", default="--quantize int8", help="flags for every server")
    parser.add_argument("--flags", action="append", required=True, help="flags for one server; repeat to compare")
    parser.add_argument("--rate", type=float, default=0.4, help="requests per second")
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--prompt", type=int, default=512, help="tokens")
    parser.add_argument("--generate", type=int, default=64, help="tokens")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()

    runs = {flags: [] for flags in options.flags}
    for round_ in range(options.rounds):
        for flags in options.flags:
            runs[flags].append(measure(flags, options, options.seed + round_))
    medians = {flags: {key: statistics.median(run[key] for run in all_) for key in all_[0]}
               for flags, all_ in runs.items()}
    if options.json:
        print(json.dumps({"runs": runs, "medians": medians}))
        return
    for flags, row in medians.items():
        print(f"{flags:28} TTFT p50 {row['ttft_p50_ms']:6.0f} p99 {row['ttft_p99_ms']:6.0f} ms   "
              f"between tokens p50 {row['itl_p50_ms']:5.0f} p99 {row['itl_p99_ms']:5.0f} max {row['itl_max_ms']:5.0f} ms   "
              f"{row['tokens_per_s']:6.1f} tokens/s")


main()
