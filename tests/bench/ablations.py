#!/usr/bin/env python3
"""Measures techniques of the field, each on and off in turns of one run, beside what was published of them.

    tests/bench/ablations.py --out bench/ablations                      synthetic shapes: nothing to download
    tests/bench/ablations.py --real SmolLM2-135M-Instruct.Q4_1.gguf --text book.txt     and what needs a trained model
    tests/bench/ablations.py --only "prefix sharing" --rounds 3

Writes table.md, results.json and ablations.svg (with matplotlib). Some techniques cannot be switched off; then "off" is the
nearest thing that flags, requests or `troupe_kernel_bench` can do, which the table says. Needs troupe, and for attention
troupe_kernel_bench, for guesses troupe_bench_tools, in build/release (`--build`).
"""

import argparse
import asyncio
import json
import random
import re
import shlex
import statistics
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import load
import speculation as kinds_of_text

ROOT = Path(__file__).resolve().parents[2]
KV_BYTES_PER_TOKEN = {"synthetic:llama-135m": 30 * 2 * 3 * 64 * 2}  # layers, K and V, heads, dimensions, bf16
TECHNIQUES = []


class Missing(Exception):
    """What a technique needs is not there."""


def technique(name, claim, claimed, on, off, only_real=False):
    """`claimed`: the published ratio, or None. The function returns the values (off, on, unit), larger is better, and may
    add a remark."""
    def add(function):
        TECHNIQUES.append({"name": name, "claim": claim, "claimed": claimed, "on": on, "off": off, "real": only_real,
                           "measure": function})
        return function
    return add


# -- tools -------------------------------------------------------------------------------------------------------------

def output_of(options, *arguments, program="troupe"):
    command = [str(options.build / program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"{shlex.join(command)}: {done.stderr.strip().splitlines()[-1:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def server(options, *flags, model=None):
    return load.Server("Troupe", [str(options.troupe), "serve", "--model", model or options.model, "--port", "{port}", "--quiet",
                                  "--threads", str(options.threads), "--quantize", "int8", *map(str, flags)])


def has_flag(options, flag):
    help_ = subprocess.run([str(options.troupe), "serve", "--help-all"], capture_output=True, text=True).stdout
    return re.search(rf"\s{flag}\b", help_) is not None


def request(prompt, generate, at=0.0, seed=0):
    return {"at": at, "prompt": load.words(prompt, seed), "tokens": prompt, "generate": generate}


def served(options, flags, requests, model=None):
    """Seconds until all requests were answered, with their records."""
    with server(options, *flags, model=model) as started:
        name = started.model()
        asyncio.run(load.replay(started.url, name, [request(16, 4, seed="warm")]))
        records = asyncio.run(load.replay(started.url, name, requests))
    if failed := [record["error"] for record in records if "error" in record]:
        raise Missing(f"a request failed: {failed[0]}")
    return max(record["end"] for record in records), records


def rate(records, seconds):
    return sum(record.get("completion_tokens", len(record["times"])) for record in records) / seconds


def mixed_lengths(count, seed):
    chance = random.Random(seed)
    return [request(chance.randrange(32, 257), chance.randrange(16, 129), seed=f"{seed} {i}") for i in range(count)]


# -- memory ------------------------------------------------------------------------------------------------------------

@technique("paging", "of KV memory reserved by the longest answer possible, 20 to 38 % holds tokens, of pages 96 % "
           "(vLLM, SOSP 2023); 2 to 4 times the requests", 2.0, "blocks of 16 tokens; all of the memory for up to 64 sequences",
           "the same memory for 8 sequences, each of which could reach the longest context")
def paging(options, remarks):
    context, slots = 1024, 8
    memory = KV_BYTES_PER_TOKEN["synthetic:llama-135m"] * context * slots
    requests = mixed_lengths(48, options.seed)
    flags = ["--max-context", context, "--kv-cache", memory, "--no-prefix-cache", "--speculate", "off"]
    off, _ = served(options, [*flags, "--max-sequences", slots], requests, "synthetic:llama-135m")
    with server(options, *flags, "--max-sequences", 64, model="synthetic:llama-135m") as started:
        name, shares = started.model(), []
        begin = time.perf_counter()

        async def watch():
            records = asyncio.create_task(load.replay(started.url, name, requests))
            lengths = {}
            while not records.done():
                await asyncio.sleep(0.1)
                with await asyncio.to_thread(urllib.request.urlopen, started.url.removesuffix("/v1") + "/metrics") as answer:
                    text = answer.read().decode()
                seen = {key: float(value) for key, value in re.findall(r"^(troupe_\w+)(?:\{[^}]*\})? (\S+)$", text, re.M)}
                if blocks := seen.get("troupe_kv_blocks_in_use"):
                    lengths[time.perf_counter() - begin] = (blocks, seen.get("troupe_sequences_running", 0))
            return records.result(), lengths

        records, samples = asyncio.run(watch())
    on = max(record["end"] for record in records)
    for at, (blocks, running) in samples.items():
        held = sum(r["tokens"] + sum(t <= at for t in record["times"]) for r, record in zip(requests, records)
                   if record["times"] and record["times"][0] <= at < record["end"])
        if running and held:
            shares.append((held / (running * context), held / (16 * blocks)))
    if shares:
        remarks.append(f"of reserved contexts {100 * statistics.mean(a for a, _ in shares):.0f} % would hold tokens, of blocks "
                       f"{100 * statistics.mean(min(b, 1) for _, b in shares):.0f} % do")
    return len(requests) / off, len(requests) / on, "requests/s"


@technique("prefix sharing", "up to 6.4 times the throughput (RadixAttention, SGLang 2024); 1.7 to 3.6 times for shared prompts "
           "(vLLM)", 3.6, "prefix cache", "--no-prefix-cache")
def prefix_sharing(options, remarks):
    requests = [request(64, 16, seed=f"own {i}") for i in range(24)]
    common = load.words(1024, "common")
    for one in requests:
        one.update(prompt=common + " " + one["prompt"], tokens=1088)
    flags = ["--max-context", 2048, "--speculate", "off"]
    off, without = served(options, [*flags, "--no-prefix-cache"], requests)
    on, with_ = served(options, flags, requests)
    first = [statistics.median(record["times"][0] for record in records) for records in (without, with_)]
    remarks.append(f"time to first token {first[0]:.2f} s without, {first[1]:.2f} s with")
    return len(requests) / off, len(requests) / on, "requests/s"


# -- attention ---------------------------------------------------------------------------------------------------------

def of_kernel_bench(options, name):
    program = options.build / "troupe_kernel_bench"
    if not program.exists():
        raise Missing("troupe_kernel_bench is not built")
    device = output_of(options, "bench", "model", "--model", "synthetic:llama-135m", "--prompt", 8, "--generate", 2, "--repeat",
                       1, "--json")[0]["device"].split(", ")[1]
    done = subprocess.run([str(program), str(options.threads), device, "techniques"], capture_output=True, text=True, check=True)
    found = {line["technique"]: line for line in map(json.loads, done.stdout.splitlines())}[name]
    return 1e3 / found["without_us"], 1e3 / found["with_us"], "calls/ms"


@technique("Hydragen", "attention of a batch with a shared prefix up to 16 times as fast, generation up to 32 times (2024, A100s)",
           16, "32 sequences read 2,048 common tokens once", "each reads its own copy")
def hydragen(options, remarks):
    return of_kernel_bench(options, "hydragen")


@technique("partitioned decode attention", "up to 8 times faster generation at long contexts (Flash-Decoding, 2023: 108 "
           "multiprocessors)", 8, "one sequence of 32,768 tokens and one KV head, on all threads", "on the one thread that would "
           "have it")
def partitioned(options, remarks):
    remarks.append(f"no more than {options.threads} is possible with {options.threads} threads")
    return of_kernel_bench(options, "partitioned decode")


@technique("tiled attention", "2 to 4 times as fast as three passes through memory (FlashAttention, 2022, A100)", 3,
           "one pass over tiles", "the same products, with all scores written, normalised and read again")
def tiled(options, remarks):
    return of_kernel_bench(options, "tiled attention")


# -- scheduling --------------------------------------------------------------------------------------------------------

@technique("chunked prefill with piggybacked decodes", "decoding up to 10 times as fast, end to end 1.33 times (Sarathi, 2023, "
           "LLaMA-13B on an A6000)", 10, "tokens of 12 streams in the steps that read a prompt of 2,048 tokens",
           "the same tokens in steps of their own")
def sarathi(options, remarks):
    streams, prompt = 12, 2048
    with server(options, "--max-context", 4096, "--no-prefix-cache", "--speculate", "off", "--step-tokens", 256) as started:
        name = started.model()

        async def measure():
            await load.replay(started.url, name, [request(16, 4, seed="warm")])
            alone = (await load.replay(started.url, name, [request(prompt, 2, seed="alone")]))[0]["times"][0]
            crowd = [request(32, 220, seed=f"stream {i}") for i in range(streams)]
            running = asyncio.create_task(load.replay(started.url, name, crowd))
            await asyncio.sleep(3)
            beside = (await load.replay(started.url, name, [request(prompt, 2, seed="beside")]))[0]["times"][0]
            return alone, beside, await running

        alone, beside, records = asyncio.run(measure())
    gaps = [b - a for record in records for a, b in zip(record["times"], record["times"][1:])]
    plain = statistics.median(gaps)  # of a step without prompts
    during = sum(gap > 2 * plain for gap in gaps)  # tokens of steps that also read the prompt
    if not during or beside <= alone:
        remarks.append("decoding beside the prompt cost nothing that could be measured")
        return 1, 1, "of its own step"
    marginal, own = (beside - alone) / during, plain / streams
    separate = alone + during * own
    remarks.append(f"a decoded token costs {1e3 * own:.1f} ms in steps of its own and {1e3 * marginal:.1f} ms beside the prompt; "
                   f"prompt and tokens together take 1/{separate / beside:.2f} of the time of both apart")
    return 1e-3 / own, 1e-3 / marginal, "tokens/ms"


@technique("measured step budget", "up to 2.3 times the effective throughput (Dynamic SplitFuse, DeepSpeed-FastGen 2023)", 2.3,
           "--step-tokens auto", "--step-tokens 4096: whole prompts in one step")
def step_budget(options, remarks):
    options_of_load = argparse.Namespace(requests=24, rate=options.rate, prompt=128, generate=32, shared=0)
    requests = load.make_load("mixed", options_of_load, options.seed)
    limits = argparse.Namespace(ttft=4.0, tpot=0.0)
    flags = ["--max-context", 4096, "--no-prefix-cache", "--speculate", "off"]
    results = []
    for step in (4096, "auto"):
        _, records = served(options, [*flags, *(["--step-tokens", step] if step != "auto" else [])], requests)
        results.append(records)
    gaps = [sorted(b - a for record in records for a, b in zip(record["times"], record["times"][1:])) for records in results]
    limits.tpot = 3 * gaps[1][len(gaps[1]) // 2]  # three times an ordinary step

    def longest(record):
        return max((b - a for a, b in zip(record["times"], record["times"][1:])), default=0)
    good = [sum(record["times"][0] <= limits.ttft and longest(record) <= limits.tpot for record in records) for records in results]
    remarks.append(f"longest gaps {1e3 * gaps[0][-1]:.0f} ms without, {1e3 * gaps[1][-1]:.0f} ms with; good: first token within "
                   f"{limits.ttft:g} s, no gap above {1e3 * limits.tpot:.0f} ms")
    seconds = [max(record["end"] for record in records) for records in results]
    return max(good[0], 0.5) / seconds[0], max(good[1], 0.5) / seconds[1], "good requests/s"


@technique("continuous batching", "2 to 23 times the throughput of static batches (Orca, OSDI 2022; Anyscale 2023)", 8,
           "32 requests of various lengths, as places become free", "in batches of 8, each until its longest answer ends")
def continuous(options, remarks):
    chance = random.Random(options.seed)
    requests = [request(32, min(256, int(chance.expovariate(1 / 48)) + 4), seed=f"{i}") for i in range(32)]
    with server(options, "--max-context", 512, "--max-sequences", 8, "--speculate", "off", "--no-prefix-cache") as started:
        name = started.model()

        async def measure():
            await load.replay(started.url, name, [request(16, 4, seed="warm")])
            off = 0.0
            for first in range(0, len(requests), 8):
                off += max(record["end"] for record in await load.replay(started.url, name, requests[first:first + 8]))
            return off, max(record["end"] for record in await load.replay(started.url, name, requests))
        off, on = asyncio.run(measure())
    tokens = sum(one["generate"] for one in requests)
    mean = tokens / len(requests)
    longest = statistics.mean(max(one["generate"] for one in requests[i:i + 8]) for i in range(0, 32, 8))
    remarks.append(f"answers of {mean:.0f} tokens in the mean, the longest of a batch {longest:.0f}: at best {longest / mean:.1f}, "
                   "if steps of fewer rows took as long")
    return tokens / off, tokens / on, "tokens/s"


# -- guesses -----------------------------------------------------------------------------------------------------------

def of_speculation(options, source, remarks, *more):
    line = output_of(options, "bench", "speculate", "--source", source, "--generate", 96, "--repeat", options.rounds, "--threads",
                     options.threads, "--json", *more, program="troupe_bench_tools")[0]
    if tried := line["accepted"] + line["rejected"]:
        remarks.append(f"{100 * line['accepted'] / tried:.0f} % of {tried} guesses kept")
    return line["without_tps"], line["with_tps"], "tokens/s"


@technique("speculation", "2 to 3 times (Leviathan et al. 2023, acceptance 0.6 to 0.8)", 2.5,
           "an oracle that guesses right with probability 0.8", "--speculate off")
def speculation(options, remarks):
    return of_speculation(options, "0.8", remarks, "--model", options.model, "--quantize", "int8")


COPY = ("Correct the spelling of this text and repeat all of it: The engine is made of actors that pass mesages to each other. "
        "The scheduler plans a step, the executor runs it, and the sampler chooses the next token of each sequence. The engine is "
        "made of actors")


def of_text(source, text):
    def measure(options, remarks):
        return of_speculation(options, source, remarks, "--model", options.real, "--text", text)
    return measure


# What guesses gain depends on the text more than on the technique.
for where, text in {"a text repeated": COPY, "a story": kinds_of_text.TEXTS["story"], "code edited": kinds_of_text.TEXTS["code"]}.items():
    technique(f"n-gram guesses, {where}", "2 to 4 times where answers copy (prompt lookup decoding, 2023)", 2.4, "--speculate ngram",
              "--speculate off", only_real=True)(of_text("ngram", text))
    technique(f"lookahead, {where}", "1.5 to 2.3 times (Fu et al. 2024)", 1.8, "--speculate lookahead", "--speculate off",
              only_real=True)(of_text("lookahead", text))


# -- numbers -----------------------------------------------------------------------------------------------------------

def rates(options, *flags, batch=1, prompt=32, generate=24):
    return output_of(options, "bench", "model", "--model", options.model, "--threads", options.threads, "--batch", batch, "--prompt",
                     prompt, "--generate", generate, "--repeat", options.rounds, "--json", *flags)[0]["decode_tps"]


def perplexities(options, remarks, flag, values):
    if not options.text:
        return
    found = []
    for value in values:
        line = output_of(options, "bench", "perplexity", "--model", options.perplexity_model, "--text", options.text, "--threads",
                         options.threads, flag, value, "--json")[0]
        found.append(f"{value} {line['perplexity']:.3f}")
    remarks.append(f"perplexity of {Path(options.perplexity_model).name}: " + ", ".join(found))


def of_kv_heads(options, count, remarks):
    context = 8000
    line = output_of(options, "bench", "model", "--model", f"synthetic:llama-1b+kv{count}", "--threads", options.threads, "--quantize",
                     "int8", "--batch", 1, "--prompt", context, "--generate", 24, "--repeat", 1, "--json")[0]
    bytes_ = 16 * 2 * count * 64 * 2 * context  # layers, K and V, dimensions, bf16
    remarks.append(f"{count}: {bytes_ / 2**20:.0f} MiB of cache at {context:,} tokens, {line['decode_tps']:.1f} tokens/s")
    return line["decode_tps"]


@technique("shared KV heads", "a cache smaller by heads / KV heads (MQA 2019, GQA 2023)", None, "2 KV heads for 32 heads, 1 B parameters "
           "in int8, 8,000 tokens", "8 KV heads")
def kv_heads(options, remarks):
    eight, two, _ = (of_kv_heads(options, count, remarks) for count in (8, 2, 1))
    return eight, two, "tokens/s"


@technique("8-bit weights", "half of the bytes of 16 bits, so up to 2 times (LLM.int8(), SmoothQuant 2022: 1.5)", 2,
           "--quantize int8", "bf16")
def int8(options, remarks):
    perplexities(options, remarks, "--quantize", ("none", "int8", "int4"))
    return rates(options), rates(options, "--quantize", "int8"), "tokens/s, batch 1"


@technique("4-bit weights", "3.2 to 4.5 times (GPTQ 2022), 3.2 times (AWQ 2023)", 3.2, "--quantize int4", "bf16")
def int4(options, remarks):
    return rates(options), rates(options, "--quantize", "int4"), "tokens/s, batch 1"


@technique("8-bit KV cache", "half of the bytes of 16 bits; 2.35 to 3.47 times the throughput with 2 bits (KIVI 2024)", 2,
           "--kv-dtype int8, 8 sequences of 1,536 tokens", "--kv-dtype bf16")
def kv8(options, remarks):
    perplexities(options, remarks, "--kv-dtype", ("bf16", "int8", "fp8"))
    flags = ("--quantize", "int4")
    return (rates(options, *flags, "--kv-dtype", "bf16", batch=8, prompt=1536, generate=8),
            rates(options, *flags, "--kv-dtype", "int8", batch=8, prompt=1536, generate=8), "tokens/s, batch 8")


@technique("activation sparsity", "1.53 to 1.8 times at 40 to 50 % without training (TEAL 2024), 2 times with ReLU (Deja Vu 2023)",
           1.8, "--sparsity 0.9 of the inputs of down projections", "dense, bf16")
def sparsity(options, remarks):
    remarks.append("down projections are a third of the weights: 1.29 is possible at 90 %")
    return rates(options), rates(options, "--sparsity", "0.9"), "tokens/s, batch 1"


# -- several executors -------------------------------------------------------------------------------------------------

def two_of(options, flags, count):
    requests = [request(128, 48, seed=f"{i}") for i in range(count)]
    seconds, records = served(options, ["--max-context", 512, "--speculate", "off", *flags], requests, "synthetic:llama-135m")
    return rate(records, seconds)


@technique("replicas", "throughput in proportion to the machines (data parallelism)", None, "--replicas 2 of one thread each",
           "one of two threads")
def replicas(options, remarks):
    remarks.append("both read their weights through the same memory, and a step has half of the threads")
    return two_of(options, [], 16), two_of(options, ["--replicas", 2], 16), "tokens/s"


@technique("roles", "4.5 times the goodput (DistServe, OSDI 2024), 1.4 times the throughput (Splitwise 2024)", 4.5,
           "one replica reads prompts, the other decodes", "two replicas that do both")
def roles(options, remarks):
    if not has_flag(options, "--roles"):
        raise Missing("this program knows no roles")
    return two_of(options, ["--replicas", 2], 16), two_of(options, ["--roles", options.roles_value], 16), "tokens/s"


@technique("microbatches", "pipelines that are never empty (GPipe 2019)", None, "stages with microbatches", "stages without")
def microbatches(options, remarks):
    if not has_flag(options, "--microbatches"):
        raise Missing("there are no microbatches yet")
    return (two_of(options, shlex.split(options.stage_flags) + ["--microbatches", 1], 16),
            two_of(options, shlex.split(options.stage_flags) + ["--microbatches", 2], 16), "tokens/s")


# -- results -----------------------------------------------------------------------------------------------------------

def table(results, options):
    lines = [f"{load.machine()}, {options.threads} threads, {options.model} unless stated, medians of {options.rounds} rounds.", "",
             "| technique | published | off | on | off, on | ratio | |", "|---|---|---|---|---|---|---|"]
    for one in results:
        if "why" in one:
            lines.append(f"| {one['name']} | {one['claim']} | {one['off']} | {one['on']} | – | – | not measured: {one['why']} |")
            continue
        lines.append(f"| {one['name']} | {one['claim']} | {one['off']} | {one['on']} | {one['without']:.3g}, {one['with']:.3g} "
                     f"{one['unit']} | **{one['ratio']:.2f}** | {'; '.join(one['remarks'])} |")
    return "\n".join(lines) + "\n"


def plot(results, options):
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    shown = [one for one in results if "ratio" in one][::-1]
    figure, axis = plt.subplots(figsize=(8, 0.4 * len(shown) + 1.2))
    for row, one in enumerate(shown):
        axis.barh(row, one["ratio"] - 1, left=1, color="C0" if one["ratio"] >= 1 else "C3", height=0.5,
                  label="measured" if row == 0 else None)
        if one["claimed"]:
            axis.plot(one["claimed"], row, "D", color="black", markersize=5, label="published" if row == 0 else None)
    axis.set(yticks=range(len(shown)), yticklabels=[one["name"] for one in shown], xscale="log", xlabel="on / off",
             title=load.machine())
    axis.axvline(1, color="grey", linewidth=0.8)
    axis.set_xticks([0.5, 1, 2, 4, 8, 16], ["0.5", "1", "2", "4", "8", "16"])
    axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(options.out / "ablations.svg")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build" / "release")
    parser.add_argument("--model", default="synthetic:llama-135m", help="for what random weights can show")
    parser.add_argument("--real", help="a trained model, for guesses")
    parser.add_argument("--text", help="a text, for perplexity")
    parser.add_argument("--perplexity-model", default=str(ROOT / "examples/storyteller/model"), help="with floating-point weights")
    parser.add_argument("--roles-value", default="prefill:1,decode:1")
    parser.add_argument("--stage-flags", default="--stages 2")
    parser.add_argument("--only", action="append", help="the name of a technique; any number")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=2.0, help="requests per second, for the step budget")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("bench/ablations"))
    options = parser.parse_args()
    options.troupe = options.build / "troupe"
    known = [one["name"] for one in TECHNIQUES]
    if unknown := set(options.only or []) - set(known):
        parser.error(f"there is no technique {unknown}; there are {', '.join(known)}")
    options.out.mkdir(parents=True, exist_ok=True)

    results = []
    for one in TECHNIQUES:
        if options.only and one["name"] not in options.only:
            continue
        row = {key: value for key, value in one.items() if key != "measure"}
        try:
            if one["real"] and not options.real:
                raise Missing("needs a trained model (--real)")
            runs, remarks = [], []
            for _ in range(1 if one["name"].startswith(("speculation", "n-gram guesses", "lookahead")) else options.rounds):
                remarks = []
                runs.append(one["measure"](options, remarks))
            ratios = [on / off for off, on, _ in runs]
            row |= {"without": statistics.median(off for off, _, _ in runs), "with": statistics.median(on for _, on, _ in runs),
                    "ratio": statistics.median(ratios), "ratios": ratios, "unit": runs[0][2], "remarks": remarks}
            print(f"{one['name']}: {row['ratio']:.2f} ({', '.join(f'{r:.2f}' for r in ratios)})", file=sys.stderr, flush=True)
        except Missing as why:
            row["why"] = str(why)
            print(f"{one['name']}: not measured, {why}", file=sys.stderr, flush=True)
        results.append(row)
    (options.out / "results.json").write_text(json.dumps({"machine": load.machine(), "results": results}, indent=1) + "\n")
    (options.out / "table.md").write_text(table(results, options))
    print(table(results, options))
    try:
        plot(results, options)
    except ModuleNotFoundError:
        print("no plot: matplotlib is not installed", file=sys.stderr)


if __name__ == "__main__":
    main()
