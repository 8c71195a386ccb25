#!/usr/bin/env python3
"""How many watermarked and unmarked texts are found, on the bundled model.

Starts `troupe serve` once, generates texts, and judges them from their text alone by `troupe detect`:
  tests/bench/watermark.py --troupe build/release/troupe --texts 200 --unmarked 10000
Prints the table of tests/bench/README.md.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import tempfile
import threading
import urllib.request

MARKS = {
    "green, lefthash": {"type": "green"},
    "green, selfhash": {"type": "green", "scheme": "selfhash"},
    "green, min of 4": {"type": "green", "scheme": "min"},
    "Gumbel": {"type": "gumbel"},
    "green, lefthash, delta 5": {"type": "green", "delta": 5},
    "green, selfhash, delta 5": {"type": "green", "scheme": "selfhash", "delta": 5},
}
LENGTHS = [50, 100, 200]
LEVEL = 1e-3
PROMPTS = ["Once upon a time", "There was a", "One day, a fox", "Lily and Tom", "The old man", "In a big forest"]


class server:
    def __init__(self, program, extra):
        self.process = subprocess.Popen(
            [program, "serve", "--port", "0", "--quiet", "--max-sequences", "64", *extra],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = re.search(r"http://\S+", self.process.stdout.readline()).group()
        threading.Thread(target=self.process.stdout.read, daemon=True).start()
        while True:
            try:
                urllib.request.urlopen(self.url + "/health")
                return
            except OSError:
                pass

    def post(self, path, body):
        request = urllib.request.Request(
            self.url + path, json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        return json.load(urllib.request.urlopen(request))

    def stop(self):
        self.process.terminate()
        self.process.wait()


def texts(at, count, tokens, mark, first_seed):
    """Answers of exactly so many tokens."""

    def one(i):
        body = {
            "prompt": PROMPTS[i % len(PROMPTS)],
            "max_tokens": tokens,
            "ignore_eos": True,
            "temperature": 1,
            "seed": first_seed + i,
        }
        if mark:
            body["watermark"] = mark
        return at.post("/v1/completions", body)["choices"][0]["text"]

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        return list(pool.map(one, range(count)))


def judged(at, marked, mark, own_keys=False):
    def one(i):
        key = {"key": f"key {i}"} if own_keys else {}
        return at.post("/v1/watermark/detect", {"text": marked[i], "watermark": {**mark, **key}})

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(one, range(len(marked))))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--troupe", default="build/release/troupe")
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--unmarked", type=int, default=10000)
    parser.add_argument("--marks", default=";".join(MARKS), help="names of the table's rows, between semicolons")
    parser.add_argument("--unmarked-tokens", type=int, default=100)
    parser.add_argument("flags", nargs="*", help="more flags of `troupe serve`")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        key = pathlib.Path(folder, "key")
        key.write_text(os.urandom(16).hex())
        at = server(options.troupe, ["--watermark-key-file", str(key), *options.flags])
        try:
            unmarked = texts(at, options.unmarked, options.unmarked_tokens, None, 10**6)
            print("| mark | " + " | ".join(f"found, {n} tokens" for n in LENGTHS) + " | median z, 200 | unmarked found | with a key each |")
            print("|---" * (len(LENGTHS) + 4) + "|")
            for name, mark in ((name, MARKS[name]) for name in options.marks.split(";")):
                cells = []
                for n in LENGTHS:
                    found = judged(at, texts(at, options.texts, n, mark, n * 10**4), mark)
                    cells.append(f"{sum(f['p'] < LEVEL for f in found) / len(found):.1%}")
                    median = sorted(f["z"] for f in found)[len(found) // 2]
                wrong = [sum(f["p"] < LEVEL for f in judged(at, unmarked, mark, own)) for own in (False, True)]
                print(f"| {name} | " + " | ".join(cells) + f" | {median:.1f} | {wrong[0]} | {wrong[1]} |", flush=True)
        finally:
            at.stop()


main()
