"""Prints Markdown tables of what sparsity costs and gains.

    python3 tests/bench/sparsity.py build/release/troupe pruning --model FOLDER --text TEST --calibration TEXT
    python3 tests/bench/sparsity.py build/release/troupe decode
    python3 tests/bench/sparsity.py build/release/troupe threshold --model MODEL --text TEST

`pruning`: perplexity of a folder with 2 of every 4 weights, by each law. `decode`: tokens per second of a 1 B shape with
such weights against dense bf16. `threshold`: perplexity with --attention-threshold. Speeds alternate, medians of --rounds runs; bytes are counted.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr[-600:]}{done.stdout[-300:]}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def perplexity(options, model, *flags):
    context = ["--context", options.context] if options.context else []
    return run(options.troupe, "bench", "perplexity", "--model", model, "--text", options.text, "--json", *context, *flags)[0]


def decode(options, model, batch):
    flags = ["--batch", batch, "--prompt", 16, "--generate", options.generate, "--repeat", 2, "--json"]
    threads = ["--threads", options.threads] if options.threads else []
    return run(options.troupe, "bench", "model", "--model", model, *flags, *threads)[0]


def pruning(options):
    print("| weights | perplexity | of dense | bits per weight |\n|---|---|---|---|")
    exact = perplexity(options, options.model)["perplexity"]
    print(f"| dense | {exact:.2f} | 1 | |")
    with tempfile.TemporaryDirectory() as folder:
        for law in "magnitude", "wanda", "sparsegpt":
            out = Path(folder) / law
            seen = [] if law == "magnitude" else ["--text", options.calibration, "--windows", options.windows]
            said = run(options.troupe, "quantize", "--model", options.model, "--sparsity", "2:4", "--prune-by", law, "--out", out,
                       "--json", *seen)[0]
            found = perplexity(options, out)["perplexity"]
            print(f"| 2 of 4, {law} | {found:.2f} | {found / exact:.2f} | {said['bits_per_weight']:.1f} |", flush=True)


def alternate(options, first, second, batch):
    a, b = [], []
    for _ in range(options.rounds):
        a.append(decode(options, first, batch))
        b.append(decode(options, second, batch))
    ratio = statistics.median(y["decode_tps"] / x["decode_tps"] for x, y in zip(a, b))
    return a[-1], b[-1], ratio


def decode_table(options):
    print("| batch | MB per step: dense, 2 of 4 | tokens/s: dense, 2 of 4 | ratio |\n|---|---|---|---|")
    for batch in options.batches:
        a, b, ratio = alternate(options, "synthetic:llama-1b", "synthetic:llama-1b@pruned", batch)
        print(f"| {batch} | {a['decode_bytes_per_step'] / 1e6:.0f}, {b['decode_bytes_per_step'] / 1e6:.0f} "
              f"| {a['decode_tps']:.1f}, {b['decode_tps']:.1f} | {ratio:.2f} |", flush=True)


def threshold(options):
    exact = perplexity(options, options.model)
    print(f"| --attention-threshold | perplexity | difference |\n|---|---|---|\n| 0 | {exact['perplexity']:.4f} | |")
    for power in 16, 12, 10, 8, 6, 4:
        found = perplexity(options, options.model, "--attention-threshold", 2.0**-power)["perplexity"]
        print(f"| 2^-{power} | {found:.4f} | {100 * (found / exact['perplexity'] - 1):+.3f} % |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe")
    parser.add_argument("what", choices=["pruning", "decode", "threshold"])
    parser.add_argument("--model", default=Path(__file__).resolve().parents[2] / "examples/storyteller/model")
    parser.add_argument("--text")
    parser.add_argument("--calibration")
    parser.add_argument("--context", type=int)
    parser.add_argument("--windows", type=int, default=128)
    parser.add_argument("--batches", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2, 4, 8])
    parser.add_argument("--generate", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int)
    options = parser.parse_args()
    {"pruning": pruning, "decode": decode_table, "threshold": threshold}[options.what](options)


main()
