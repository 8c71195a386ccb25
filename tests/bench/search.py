#!/usr/bin/env python3
"""Tree search: tokens a second by how many simulations run side by side, and how likely what it finds is beside greedy
choices and beams. Alternates, and reports medians.

    tests/bench/search.py --troupe build/release/troupe --model MODEL [--common "--threads 2"]
"""

import argparse
import json
import shlex
import socket
import statistics
import subprocess
import time
import urllib.request


class Server:
    def __init__(self, troupe, model, flags):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.process = subprocess.Popen(
            [troupe, "serve", "--model", model, "--port", str(self.port), *shlex.split(flags)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{self.url}/health")
                return
            except OSError:
                time.sleep(0.5)
        raise SystemExit("the server does not start")

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def complete(self, **body):
        request = urllib.request.Request(
            f"{self.url}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def generated(self):
        with urllib.request.urlopen(f"{self.url}/metrics") as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("troupe_generated_tokens_total"):
                    return float(line.split()[-1])
        raise SystemExit("/metrics has no troupe_generated_tokens_total")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--troupe", default="build/release/troupe")
    parser.add_argument("--model", required=True)
    parser.add_argument("--common", default="", help="flags of the server")
    parser.add_argument("--prompt", default="Once upon a time, a fox")
    parser.add_argument("--max-tokens", type=int, default=24)
    parser.add_argument("--simulations", type=int, default=64)
    parser.add_argument("--parallel", default="1,4,8,16,32")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    widths = [int(width) for width in options.parallel.split(",")]
    server = Server(options.troupe, options.model, options.common)
    try:
        plain = {"prompt": options.prompt, "max_tokens": options.max_tokens, "ignore_eos": True}
        greedy = server.complete(**plain, temperature=0, logprobs=0)["choices"][0]
        print(f"greedy: log-probability {sum(greedy['logprobs']['token_logprobs']):.2f}")
        for beams in (4, 16):
            found = server.complete(**plain, num_beams=beams, length_penalty=0)["choices"][0]
            print(f"{beams} beams: {found['cumulative_logprob']:.2f}")
        rates = {width: [] for width in widths}
        found = {}
        for _ in range(options.rounds):
            for width in widths:
                search = {"simulations": options.simulations, "parallel": width}
                before, start = server.generated(), time.monotonic()
                answer = server.complete(**plain, temperature=0, search=search)
                seconds = time.monotonic() - start
                rates[width].append((server.generated() - before) / seconds)
                found[width] = answer["choices"][0]["cumulative_logprob"]
        print("side by side  tokens/s  against one  log-probability")
        one = statistics.median(rates[widths[0]])
        for width in widths:
            rate = statistics.median(rates[width])
            print(f"{width:12}  {rate:8.1f}  {rate / one:11.2f}  {found[width]:15.2f}")
    finally:
        server.process.terminate()
        server.process.wait()


if __name__ == "__main__":
    main()
