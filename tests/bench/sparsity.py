"""Prints Markdown tables of what sparsity costs and gains.

    python3 tests/bench/sparsity.py build/release/troupe pruning --model FOLDER --text TEST --calibration TEXT
    python3 tests/bench/sparsity.py build/release/troupe decode
    python3 tests/bench/sparsity.py build/release/troupe threshold --model MODEL --text TEST
    python3 tests/bench/sparsity.py build/release/troupe long --model MODEL --text BOOK --context 32000

`pruning`: perplexity of a folder with 2 of every 4 weights, by each law. `decode`: tokens per second of a 1 B shape with
such weights against dense bf16. `threshold`: perplexity with --attention-threshold. `long`:
milliseconds a token behind the first --context tokens of a text with it, of servers that take turns. Speeds alternate, medians of --rounds runs; bytes are counted.
"""

import argparse
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
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


def post(port, path, body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=7200))


def long(options):
    """Decoding behind a prompt that each server computes once and then finds in its cache."""
    powers, threads = (None, 12, 10, 8), ["--threads", str(options.threads)] if options.threads else []
    servers = {}
    for power in powers:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        flags = ["--attention-threshold", str(2.0**-power)] if power else []
        servers[power] = port, subprocess.Popen(
            [options.troupe, "serve", "--model", str(options.model), "--port", str(port), "--no-page", "--kv-cache", "1GiB",
             "--speculate", "off", "--request-timeout", "7200", *threads, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for port, _ in servers.values():
            while True:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/health").close()
                    break
                except OSError:
                    time.sleep(0.2)
        port = servers[None][0]
        ids = post(port, "/tokenize", {"prompt": Path(options.text).read_text()})["tokens"][:options.context]
        name = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models"))["data"][0]["id"]

        def seconds(power, tokens):
            start = time.monotonic()
            post(servers[power][0], "/v1/completions",
                 {"model": name, "prompt": ids, "max_tokens": tokens, "temperature": 0, "ignore_eos": True})
            return time.monotonic() - start

        prefill = {power: seconds(power, 2) for power in powers}
        rates = {power: [] for power in powers}
        for _ in range(options.rounds + 1):
            for power in powers:
                short = seconds(power, 2)
                rates[power].append((seconds(power, 34) - short) / 32 * 1000)
        print(f"| --attention-threshold | prefill of {len(ids)} tokens | ms per token | ratio |\n|---|---|---|---|")
        middle = {power: statistics.median(rates[power][1:]) for power in powers}  # the first round warms up
        for power in powers:
            print(f"| {f'2^-{power}' if power else 0} | {prefill[power]:.1f} s | {middle[power]:.1f} | {middle[power] / middle[None]:.2f} |")
    finally:
        for _, process in servers.values():
            process.terminate()
        for _, process in servers.values():
            process.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe")
    parser.add_argument("what", choices=["pruning", "decode", "threshold", "long"])
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
    {"pruning": pruning, "decode": decode_table, "threshold": threshold, "long": long}[options.what](options)


main()
