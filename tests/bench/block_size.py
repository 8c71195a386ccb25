#!/usr/bin/env python3
"""Prints a Markdown table: which share of the positions in KV blocks hold tokens, for answers of 10, 100 and 1,000 tokens.

    tests/bench/block_size.py build/release/troupe

For 16, the size that there is, the share is also measured: troupe_kv_slots_used by 16 troupe_kv_blocks_in_use, each 50 ms
while a server answers 16 requests at once, without a prefix cache. For all sizes it is computed: of the same requests, over
all lengths that each has on its way from its prompt to its end.
"""

import argparse
import asyncio
import random
import re
import sys
import urllib.request

import load

SIZES = (4, 8, 16, 32, 64)
ANSWERS = (10, 100, 1000)
MODEL = "synthetic:llama-135m"


def computed(requests, size):
    """Positions held by blocks held, over all steps of all requests."""
    tokens = blocks = 0
    for one in requests:
        for length in range(one["tokens"], one["tokens"] + one["generate"]):
            tokens += length
            blocks += -(-length // size)
    return tokens / (size * blocks)


async def measured(started, requests):
    name, used, held = started.model(), 0.0, 0.0
    running = asyncio.create_task(load.replay(started.url, name, requests))
    while not running.done():
        await asyncio.sleep(0.05)
        with await asyncio.to_thread(urllib.request.urlopen, started.url.removesuffix("/v1") + "/metrics") as answer:
            seen = dict(re.findall(r"^(troupe_kv_\w+) (\S+)$", answer.read().decode(), re.M))
        used += float(seen["troupe_kv_slots_used"])
        held += 16 * float(seen["troupe_kv_blocks_in_use"])
    for record in running.result():
        if "error" in record:
            sys.exit(f"a request failed: {record['error']}")
    return used / held


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe")
    parser.add_argument("--prompt", type=int, nargs=2, default=(16, 256), help="prompts have from so many to so many tokens")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    command = [options.troupe, "serve", "--model", MODEL, "--port", "{port}", "--quiet", "--threads", str(options.threads),
               "--quantize", "int8", "--max-context", "2048", "--max-sequences", "16", "--speculate", "off", "--no-prefix-cache"]
    chance = random.Random(options.seed)
    print(f"Prompts of {options.prompt[0]} to {options.prompt[1]} tokens, 16 requests at once.\n")
    print("| answers of | " + " | ".join(f"blocks of {size}" for size in SIZES) + " | of 16, measured |")
    print("|---" * (len(SIZES) + 2) + "|")
    for answer in ANSWERS:
        requests = []
        for i in range(16):
            tokens = chance.randint(*options.prompt)
            requests.append({"at": 0.0, "prompt": load.words(tokens, f"{answer} {i}"), "tokens": tokens, "generate": answer})
        shares = " | ".join(f"{100 * computed(requests, size):.1f} %" for size in SIZES)
        with load.Server("Troupe", command) as started:
            share = asyncio.run(measured(started, requests))
        print(f"| {answer:,} tokens | {shares} | {100 * share:.1f} % |", flush=True)


if __name__ == "__main__":
    main()
