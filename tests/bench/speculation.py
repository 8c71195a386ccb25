#!/usr/bin/env python3
"""Acceptance and speed of each method of speculation on three kinds of text: a story, code to be edited, and a list that
repeats itself; with guesses that branch and in one line, at each temperature. Runs `troupe_bench_tools bench speculate`, which
alternates with and without guesses, and prints one table.

    tests/bench/speculation.py --tools build/release/troupe_bench_tools --model MODEL [--common "--threads 2"] [--draft-tokens 0,4]
"""

import argparse
import json
import shlex
import subprocess

TEXTS = {
    "story": "Once upon a time there was a little fox who lived at the edge of the forest. One day",
    "code": (
        "def area(width, height):\n    return width * height\n\n\ndef volume(width, height, depth):\n"
        "    return width * height * depth\n\n\nThe same functions with checks:\n\ndef area(width, height):\n"
    ),
    "list": "Monday: open at 9, closed at 5.\nTuesday: open at 9, closed at 5.\nWednesday: open at 9, closed at 5.\nThursday:",
}
TITLE = "text   temp  guesses  shape  source     tokens/s plain  with  ratio  tokens/step  accepted of guessed"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", default="build/release/troupe_bench_tools")
    parser.add_argument("--model", required=True)
    parser.add_argument("--sources", default="ngram,lookahead,jacobi,auto", help="and draft, with --draft in --common")
    parser.add_argument("--draft-tokens", default="0,4", help="0: as many as pay")
    parser.add_argument("--shapes", default="trees,lines")
    parser.add_argument("--temperatures", default="0")
    parser.add_argument("--texts", default=",".join(TEXTS))
    parser.add_argument("--common", default="", help="flags of the engine")
    parser.add_argument("--generate", type=int, default=96)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    print(TITLE)
    for name in options.texts.split(","):
        for temperature in options.temperatures.split(","):
            for guesses in options.draft_tokens.split(","):
                for shape in options.shapes.split(","):
                    measure(options, name, temperature, guesses, shape)


def measure(options, name, temperature, guesses, shape):
    command = [options.tools, "bench", "speculate", "--json", "--model", options.model, "--text", TEXTS[name]]
    command += ["--source", options.sources, "--draft-tokens", guesses, "--temperature", temperature]
    command += ["--generate", str(options.generate), "--repeat", str(options.repeat)]
    command += ["--lines"] if shape == "lines" else []
    out = subprocess.run(command + shlex.split(options.common), capture_output=True, text=True)
    if out.returncode != 0:
        raise SystemExit(out.stderr)
    for line in out.stdout.splitlines():
        row = json.loads(line)
        tried = row["accepted"] + row["rejected"]
        share = f"{row['accepted'] / tried:.2f}" if tried else "-"
        tokens = options.generate * options.repeat
        print(
            f"{name:6} {temperature:>4}  {'as pays' if guesses == '0' else guesses:>7}  {shape}  {row['source']:9}"
            f"  {row['without_tps']:14.1f}  {row['with_tps']:5.1f}  {row['ratio']:5.2f}"
            f"  {tokens / (tokens - row['accepted']):11.2f}  {share:>8} of {tried}",
            flush=True,
        )


if __name__ == "__main__":
    main()
