#!/usr/bin/env python3
"""Measures the time between tokens of running streams while prompts arrive. Starts one server after the other, one per
set of flags, under the same Poisson arrivals. Prints the median over rounds of time to first token, time between tokens
and tokens per second for each set.

    tests/bench/latency.py --rate 0.4 --requests 24 --flags "--step-tokens 512" --flags "--step-tokens 64"

Needs PyPI's websockets (tests/e2e/requirements.txt)."""

import argparse
import asyncio
import json
import random
import time

import websockets

from servers_in_turn import add_arguments, medians_of, percentile, serving


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
    with serving(options, flags) as port:
        first, gaps, tokens, seconds = asyncio.run(drive(port, options, seed))
    return {"ttft_p50_ms": 1e3 * percentile(first, 0.5), "ttft_p99_ms": 1e3 * percentile(first, 0.99),
            "itl_p50_ms": 1e3 * percentile(gaps, 0.5), "itl_p99_ms": 1e3 * percentile(gaps, 0.99),
            "itl_max_ms": 1e3 * max(gaps), "tokens_per_s": tokens / seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, model="synthetic:llama-1b", common="--quantize int8", rounds=1)
    parser.add_argument("--rate", type=float, default=0.4, help="requests per second")
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--prompt", type=int, default=512, help="tokens")
    parser.add_argument("--generate", type=int, default=64, help="tokens")
    options = parser.parse_args()

    medians = medians_of(options, measure)
    if medians is None:
        return
    for flags, row in medians.items():
        print(f"{flags:28} TTFT p50 {row['ttft_p50_ms']:6.0f} p99 {row['ttft_p99_ms']:6.0f} ms   "
              f"between tokens p50 {row['itl_p50_ms']:5.0f} p99 {row['itl_p99_ms']:5.0f} max {row['itl_max_ms']:5.0f} ms   "
              f"{row['tokens_per_s']:6.1f} tokens/s")


main()
