#!/usr/bin/env python3
"""A server that is asked for twice what it can bear: goodput, predicted waits against real ones, and expired work.

    tests/bench/overload.py --model SmolLM2-135M-Instruct-Q4_K_M.gguf

In each of --rounds rounds, on servers of their own and with the same requests (--prompt words, 16 to 96 tokens):

1. Capacity: twice as many clients as there are slots, each of which asks again at once: tokens/s of answers.
2. Overload with --max-wait: requests arrive at random, at twice the rate of those that were answered in 1, whatever becomes
   of them. Goodput: tokens/s, within the window, of answers that became whole and whose first token came within --max-wait
   and a second. Where something else uses the machine, tokens of a second of the server's CPU time, in 1 and in 2, say more.
3. The same arrivals without --max-wait, so that waits grow up to the length of the run.

Predictions: a refused request tells what it would have waited (`predicted_wait_ms`) and then does not wait. So in 2 and 3
every --probe'th request is sent twice: the first, with a `ttft_timeout` of 50 ms, is refused for a wait that is longer, with
the prediction; the second, right behind it and else the same, waits. Its real wait is what the server's ledger has as
`queue`, and its client's time to the first token. Those below 100 ms are left out. If the second one is refused by --max-wait,
there is nothing to compare.

Expired work: every third request of 3 has a `ttft_timeout` of 3 s. Of those that got 504 the server's ledger tells whether any
prompt was computed; and at the start of 3, when no length of an answer is known and no wait is foreseen, requests
whose deadline passes in the queue must leave `troupe_prefill_rows_total` as it is.

Needs nothing but Python."""

import argparse
import asyncio
import json
import pathlib
import random
import statistics
import sys
import time

from asking import ask, get, metric
from load import machine, words
from servers_in_turn import ROOT, percentile, serving


def request(model, options, seed):
    chance = random.Random(seed)
    return {"model": model, "prompt": words(options.prompt, chance.random()), "max_tokens": chance.randrange(16, 97)}


async def cpu_between(port, since, until):
    """Seconds of CPU time that the server takes."""
    took = []
    for at in (since, until):
        await asyncio.sleep(max(0, at - time.perf_counter()))
        took.append(await asyncio.to_thread(metric, port, "process_cpu_seconds_total"))
    return took[1] - took[0]


async def capacity(port, model, options, seed):
    """(tokens, requests) a second, and tokens a second of CPU time, counted in the middle of the run."""
    begin = time.perf_counter()
    since, until = begin + options.settle, begin + options.settle + options.seconds
    answers = []

    async def client(number):
        count = 0
        while time.perf_counter() < until:
            answers.append(await ask(port, request(model, options, f"{seed} {number} {count}")))
            count += 1
    cpu, *_ = await asyncio.gather(cpu_between(port, since, until), *(client(i) for i in range(2 * options.slots)))
    ended = sum(since <= a.end < until for a in answers)
    tokens = sum(a.tokens(since, until) for a in answers)
    return tokens / options.seconds, ended / options.seconds, tokens / cpu


async def arrivals(port, model, options, rate, seed, deadlines):
    """Figures of requests at random times. `deadlines`: every third has one."""
    chance = random.Random(seed)
    begin = time.perf_counter()
    since, until = begin + options.settle, begin + options.settle + options.seconds
    answers, pairs, expired, tasks = [], [], [], []

    async def one(number):
        body = request(model, options, f"{seed} {number}")
        if deadlines and number % 3 == 1:
            body["ttft_timeout"] = 3
        predicted = None
        if number % options.probe == 0:
            probe = await ask(port, {**body, "ttft_timeout": 0.05})
            if probe.status == 429 and probe.error.get("param") == "ttft_timeout":
                predicted = probe.error["predicted_wait_ms"]
        answer = await ask(port, body, id=f"{seed}-{number}")
        answers.append(answer)
        if answer.status == 504 or (predicted is not None and predicted >= 100 and answer.first):
            # What has just ended is told at once: not later, when it may be forgotten.
            spent = json.loads(await asyncio.to_thread(get, port, f"/v1/requests/{seed}-{number}"))["spent_ms"]
            if answer.status == 504:
                expired.append(spent.get("prefill", 0))
            else:
                pairs.append((predicted, spent.get("queue", 0), 1e3 * answer.ttft))

    cpu = asyncio.create_task(cpu_between(port, since, until))
    number = 0
    while True:
        await asyncio.sleep(max(0, begin - time.perf_counter()))
        if begin >= until:
            break
        tasks.append(asyncio.create_task(one(number)))
        number += 1
        begin += chance.expovariate(rate)
    await asyncio.gather(*tasks)
    in_window = [a for a in answers if since <= a.sent < until]
    good = [a for a in in_window if a.status == 200 and a.first and a.ttft <= options.max_wait + 1]
    soon = [a for a in answers if a.status == 200 and a.first and a.ttft <= options.max_wait + 1]
    tokens = sum(a.tokens(since, until) for a in soon)
    return {"goodput": tokens / options.seconds, "by_cpu": tokens / await cpu, "good": len(good) / len(in_window),
            "refused": sum(a.status == 429 for a in in_window) / len(in_window),
            "too_late": sum(a.status == 504 for a in in_window) / len(in_window),
            "ttft_p99": percentile([a.ttft for a in good], 0.99), "gap_p99": percentile([g for a in good for g in a.gaps], 0.99),
            "pairs": pairs, "expired": expired}


async def expire_unforeseen(port, model, options):
    """(requests that got 504 in the queue, rows of prompts that were computed meanwhile)"""
    long = [asyncio.create_task(ask(port, {**request(model, options, f"long {i}"), "max_tokens": 300})) for i in range(options.slots)]
    while metric(port, "troupe_sequences_running") < options.slots:
        await asyncio.sleep(0.05)
    await asyncio.sleep(0.3)  # until their prompts are computed
    before = metric(port, "troupe_prefill_rows_total")
    late = await asyncio.gather(*(ask(port, {"model": model, "prompt": words(3, i), "max_tokens": 4, "ttft_timeout": 0.4}) for i in range(20)))
    rows = metric(port, "troupe_prefill_rows_total") - before
    await asyncio.gather(*long)
    return sum(a.status == 504 for a in late), rows


def off(pairs, which):
    """Median and 90th percentile of |predicted - real| / real."""
    errors = [abs(pair[0] - pair[which]) / pair[which] for pair in pairs if pair[which] >= 100]
    return percentile(errors, 0.5), percentile(errors, 0.9)


def measure(options, seed):
    with serving(options, "") as port:
        model = json.loads(get(port, "/v1/models"))["data"][0]["id"]
        expired = asyncio.run(expire_unforeseen(port, model, options))
        tokens, requests, by_cpu = asyncio.run(capacity(port, model, options, f"{seed}a"))
    with serving(options, f"--max-wait {options.max_wait:g}s") as port:
        asyncio.run(capacity(port, model, options, f"{seed}b"))  # as a server that has run for a while
        limited = asyncio.run(arrivals(port, model, options, 2 * requests, f"{seed}c", False))
    with serving(options, "") as port:
        again, _, by_cpu_again = asyncio.run(capacity(port, model, options, f"{seed}d"))
        endless = asyncio.run(arrivals(port, model, options, 2 * requests, f"{seed}e", True))
    return {"capacity": statistics.mean((tokens, again)), "by_cpu": statistics.mean((by_cpu, by_cpu_again)), "spread": max(tokens, again) / min(tokens, again), "limited": limited,
            "endless": endless, "expired": expired}


def table(runs, options):
    def median(of):
        return statistics.median(of(run) for run in runs)

    def errors(name):
        pairs = [pair for run in runs for pair in run[name]["pairs"]]
        queue, first = off(pairs, 1), off(pairs, 2)
        return (f"{100 * queue[0]:.0f}, {100 * queue[1]:.0f} % of the time in the queue; {100 * first[0]:.0f}, {100 * first[1]:.0f} % of TTFT "
                f"({len(pairs)} pairs; predicted {percentile([p[0] for p in pairs], 0.5) / 1e3:.1f} s in the median, "
                f"real {percentile([p[1] for p in pairs], 0.5) / 1e3:.1f})")
    limited, late = lambda key: median(lambda run: run["limited"][key]), [x for run in runs for x in run["endless"]["expired"]]
    return "\n".join([
        f"{machine()}, {pathlib.Path(options.model).stem}, `{options.common}`, {options.slots} slots, prompts of {options.prompt} words, "
        f"windows of {options.seconds:g} s, medians of {options.rounds} rounds",
        "", "| | | aim |", "|---|---|---|",
        f"| capacity | {median(lambda run: run['capacity']):.0f} tokens/s (two measurements of a round differ by "
        f"{100 * (median(lambda run: run['spread']) - 1):.0f} %) | |",
        f"| goodput at twice the load, `--max-wait {options.max_wait:g}s` | {median(lambda run: run['limited']['goodput'] / run['capacity']):.2f} "
        "of capacity | 0.9 |",
        f"| the same by tokens a second of CPU time | {median(lambda run: run['limited']['by_cpu'] / run['by_cpu']):.2f} | |",
        f"| of the requests | {100 * limited('good'):.0f} % good, {100 * limited('refused'):.0f} % refused | |",
        f"| TTFT p99 of the good ones | {limited('ttft_p99'):.2f} s | |",
        f"| between tokens, p99 | {1e3 * limited('gap_p99'):.0f} ms | 120 |",
        f"| predicted waits are off by (median, p90), `--max-wait {options.max_wait:g}s` | {errors('limited')} | 20 % |",
        f"| without `--max-wait` | {errors('endless')} | 20 % |",
        f"| expired in the queue, unforeseen | {sum(run['expired'][0] for run in runs)} requests, "
        f"{sum(run['expired'][1] for run in runs):.0f} rows of prompts computed meanwhile | 0 rows |",
        f"| expired under load | {len(late)} requests, of which {sum(x > 0 for x in late)} had begun | |"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--troupe", type=pathlib.Path, default=ROOT / "build" / "release" / "troupe")
    parser.add_argument("--model", default=str(ROOT / "examples" / "storyteller" / "model"))
    parser.add_argument("--common", default="--kv-cache 512MiB --speculate off --max-context 1024", help="flags of the server")
    parser.add_argument("--slots", type=int, default=16, help="--max-sequences of the server")
    parser.add_argument("--max-wait", type=float, default=2, help="seconds")
    parser.add_argument("--prompt", type=int, default=64, help="words")
    parser.add_argument("--probe", type=int, default=4, help="every so manieth request is sent twice")
    parser.add_argument("--seconds", type=float, default=15, help="of a window")
    parser.add_argument("--settle", type=float, default=4, help="seconds before a window that are not counted")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.common += f" --max-sequences {options.slots}"
    runs = []
    for round_ in range(options.rounds):
        runs.append(measure(options, round_))
        print(f"round {round_ + 1}: {runs[-1]['limited']['goodput'] / runs[-1]['capacity']:.2f} of capacity", file=sys.stderr, flush=True)
    print(json.dumps({"machine": machine(), "runs": runs}) if options.json else table(runs, options))


if __name__ == "__main__":
    main()
