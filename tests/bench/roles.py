#!/usr/bin/env python3
"""Measures what long prompts do to streams that are being answered. Each server, one per set of flags, decodes a number
of streams; long prompts arrive beside them at fixed times, each with a short answer. Servers take turns. Prints the median
over rounds: the longest time between two tokens of a stream and its 99th percentile, the time to the first token of the
prompts and from there to the second, and tokens per second.

    tests/bench/roles.py --flags "" --flags "--roles prefill:1,decode:1" --rounds 5

With --phases the load is one-sided: first prompts with answers of two tokens, then answers to short prompts, then prompts
again, a few clients at a time; it prints the seconds of each phase, and how often roles changed.

Needs PyPI's websockets (tests/e2e/requirements.txt)."""

import argparse
import asyncio
import json
import random
import re
import time
import urllib.request

import websockets

from servers_in_turn import add_arguments, medians_of, percentile, serving


async def drive(port, options, seed):
    """Returns the seconds between tokens of streams, to first tokens of prompts, from these to the second ones, and the
    tokens of answers while prompts were arriving, with the seconds that took."""
    chance = random.Random(seed)
    gaps, first, second, sent, last, counted = [], [], [], {}, {}, {}
    begun = None  # when the first prompt was sent: all streams are under way
    tokens = 0
    async with websockets.connect(f"ws://127.0.0.1:{port}/v1/ws", max_size=None) as socket:
        async def ask(name, prompt, answer):
            sent[name] = time.perf_counter()
            await socket.send(json.dumps({
                "type": "generate", "id": name, "prompt": [chance.randrange(10, 250) for _ in range(prompt)],
                "max_tokens": answer, "ignore_eos": True, "temperature": 0}))

        async def send_prompts():
            nonlocal begun
            begun = time.perf_counter()
            for number in range(options.prompts):
                await ask(f"p{number}", options.prompt, options.answer)
                await asyncio.sleep(options.interval)

        for number in range(options.streams):
            await ask(f"s{number}", 16, options.context - 32)
        sender, ended = None, 0
        while ended < options.prompts:
            event = json.loads(await socket.recv())
            now = time.perf_counter()
            name = event.get("id")
            if event["type"] == "token":
                count = len(event["token_ids"])
                if begun is not None:
                    tokens += count
                    if name[0] == "s":
                        gaps.append(now - last[name])
                    elif name not in last:
                        first.append(now - sent[name])
                    elif counted[name] == 1:
                        second.append(now - last[name])
                last[name] = now
                counted[name] = counted.get(name, 0) + count
                if sender is None and len(counted) == options.streams and min(counted.values()) >= options.warm:
                    sender = asyncio.create_task(send_prompts())
            else:
                assert event["type"] == "done", event
                assert name[0] == "p", "a stream ended before the last prompt: give it more --context, or fewer --prompts"
                ended += 1
        seconds = time.perf_counter() - begun
        await sender
    return gaps, first, second, tokens / seconds


async def drive_phases(port, options, seed):
    """The seconds of each phase."""
    chance = random.Random(seed)
    async with websockets.connect(f"ws://127.0.0.1:{port}/v1/ws", max_size=None) as socket:
        async def phase(requests, clients, prompt, answer):
            begun, sent, ended = time.perf_counter(), 0, 0
            while ended < requests:
                while sent < requests and sent - ended < clients:
                    sent += 1
                    await socket.send(json.dumps({
                        "type": "generate", "id": f"{begun}-{sent}", "max_tokens": answer, "ignore_eos": True,
                        "temperature": 0, "prompt": [chance.randrange(10, 250) for _ in range(prompt)]}))
                event = json.loads(await socket.recv())
                assert event["type"] in ("token", "done"), event
                ended += event["type"] == "done"
            return time.perf_counter() - begun

        await phase(2, 2, options.prompt, 8)  # what steps cost is measured
        return [await phase(options.prompts, 4, options.prompt, 2),
                await phase(options.answers, options.streams, 16, options.answer),
                await phase(options.prompts, 4, options.prompt, 2)]


def measure_phases(flags, options, seed):
    with serving(options, flags) as port:
        seconds = asyncio.run(drive_phases(port, options, seed))
        counters = counters_of(port)
    return {"prompts_s": seconds[0], "answers_s": seconds[1], "prompts_again_s": seconds[2], "all_s": sum(seconds),
            "changes": counters.get("troupe_role_changes_total", 0)}


def print_phases(medians, first):
    for flags, row in medians.items():
        print(f"{flags or 'one executor':44} prompts {row['prompts_s']:6.1f} s, answers {row['answers_s']:6.1f} s, prompts again "
              f"{row['prompts_again_s']:6.1f} s, all {row['all_s']:6.1f} s ({medians[first]['all_s'] / row['all_s']:.2f} times as fast "
              f"as the first), {row['changes']:.0f} changes of role")


def counters_of(port):
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics").read().decode()
    found = re.findall(r"^(troupe_(?:moves|role_changes|kv_sent|kv_blocks_sent|kv_chains)\w*)(?:\{[^}]*\})? (\S+)$", text, re.M)
    sums = {}
    for name, value in found:
        sums[name] = sums.get(name, 0) + float(value)
    return sums


def measure(flags, options, seed):
    with serving(options, flags) as port:
        asyncio.run(drive(port, argparse.Namespace(**{**vars(options), "prompts": 1, "warm": 4}), seed + 1000))
        gaps, first, second, rate = asyncio.run(drive(port, options, seed))
        counters = counters_of(port)
    return {"longest_ms": 1e3 * max(gaps), "itl_p99_ms": 1e3 * percentile(gaps, 0.99),
            "itl_p50_ms": 1e3 * percentile(gaps, 0.5), "ttft_p50_ms": 1e3 * percentile(first, 0.5),
            "ttft_max_ms": 1e3 * max(first), "second_p50_ms": 1e3 * percentile(second, 0.5),
            "second_max_ms": 1e3 * max(second, default=float("nan")), "tokens_per_s": rate,
            "moved": counters.get("troupe_moves_total", 0)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, model="synthetic:llama-135m", common="--quantize int8 --speculate off", rounds=3)
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--warm", type=int, default=20, help="tokens of each stream before the first prompt")
    parser.add_argument("--prompt", type=int, default=2000, help="tokens")
    parser.add_argument("--answer", type=int, default=16, help="tokens behind each prompt")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--interval", type=float, default=3, help="seconds between prompts")
    parser.add_argument("--context", type=int, default=2048, help="tokens of a stream")
    parser.add_argument("--phases", action="store_true", help="first prompts, then answers, then prompts")
    parser.add_argument("--answers", type=int, default=96, help="of the phase of answers, with --phases")
    options = parser.parse_args()

    medians = medians_of(options, measure_phases if options.phases else measure)
    if medians is None:
        return
    if options.phases:
        return print_phases(medians, options.flags[0])
    for flags, row in medians.items():
        print(f"{flags or 'one executor':28} between tokens p50 {row['itl_p50_ms']:5.0f} p99 {row['itl_p99_ms']:5.0f} longest "
              f"{row['longest_ms']:5.0f} ms   TTFT p50 {row['ttft_p50_ms']:6.0f} max {row['ttft_max_ms']:6.0f} ms, then "
              f"{row['second_p50_ms']:5.0f} (max {row['second_max_ms']:5.0f}) ms   {row['tokens_per_s']:6.1f} tokens/s, "
              f"{row['moved']:.0f} moved")
    first = medians[options.flags[0]]
    for flags in options.flags[1:]:
        ratios = {key: medians[flags][key] / first[key] for key in first if key != "moved" and first[key]}
        print(f"{flags:28} of the first: " + ", ".join(f"{key} {ratio:.2f}" for key, ratio in ratios.items()))


main()
