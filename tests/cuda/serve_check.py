#!/usr/bin/env python3
"""Compares the tokens that `troupe serve` gives on a GPU with those of a CPU.

    serve_check.py TROUPE MODEL [--devices cuda:0,cpu | --layers cuda:0=0-1,cpu=2]

Asks both servers for the same 20 greedy completions, all at once, with the two likeliest tokens of every position. The
first token that differs is a failure unless the CPU's two likeliest are nearly as likely, because rounding may then
decide; the text after it is not compared. Needs nothing but Python. Exit status: 1 for a difference.
"""
import argparse
import concurrent.futures
import json
import re
import subprocess
import sys
import threading
import time
import urllib.request

CLEAR = 0.05  # difference of log-probabilities that rounding to bf16 does not reach in models of this size
BEGINNINGS = ("Once upon a time", "The little dog", "Anna and Tom", "One day a bird", "In the garden", "A big red ball",
              "The sun", "Grandmother said", "There was a cat", "It was raining", "Lily", "The old man", "My friend",
              "On the hill", "A small boat", "Ben found", "At night", "The king", "Under the tree", "Two frogs")


class Server:
    def __init__(self, troupe, model, device):
        self.process = subprocess.Popen(
            [troupe, "serve", "--model", model, "--layers" if "=" in device else "--device", device, "--port", "0"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines, self.url, known = [], None, threading.Event()

        def read():
            for line in self.process.stdout:
                self.lines.append(line)
                if self.url is None and (found := re.search(r"https?://\S+:\d+", line)):
                    self.url = found.group()
                    known.set()
            known.set()

        threading.Thread(target=read, daemon=True).start()
        known.wait(30)
        if self.url is None:
            self.process.kill()
            sys.exit(f"the server on {device} did not start: {''.join(self.lines)}")
        end = time.monotonic() + 40
        while True:
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5):
                    return
            except OSError:
                if time.monotonic() > end or self.process.poll() is not None:
                    self.process.kill()
                    sys.exit(f"the model was not loaded on {device}: {''.join(self.lines)}")
                time.sleep(0.05)

    def complete(self, prompt):
        """[(token, log-probability's lead over the second)]."""
        body = {"model": "any", "prompt": prompt, "max_tokens": 24, "temperature": 0, "logprobs": 2}
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=40) as answer:
            found = json.load(answer)["choices"][0]["logprobs"]
        result = []
        for token, top in zip(found["tokens"], found["top_logprobs"]):
            best = sorted(top.values(), reverse=True)
            result.append((token, best[0] - best[1] if len(best) > 1 else 0))
        return result

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()


def completions(troupe, model, device):
    server = Server(troupe, model, device)
    try:
        with concurrent.futures.ThreadPoolExecutor(len(BEGINNINGS)) as pool:
            return list(pool.map(server.complete, BEGINNINGS))
    finally:
        server.stop()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe")
    parser.add_argument("model")
    parser.add_argument("--devices", default="cuda:0,cpu", help="what is tested, then what it should equal")
    parser.add_argument("--layers", help="what is tested, if its layers are divided; the CPU is what it should equal")
    arguments = parser.parse_args()
    devices = [arguments.layers, "cpu"] if arguments.layers else arguments.devices.split(",")
    tested, reference = (completions(arguments.troupe, arguments.model, device) for device in devices)
    compared = unclear = 0
    failures = []
    for prompt, got, want in zip(BEGINNINGS, tested, reference):
        for place, ((token, _), (expected, lead)) in enumerate(zip(got, want)):
            if token == expected:
                compared += 1
                continue
            if lead < CLEAR:
                unclear += 1
            else:
                failures.append(f"{prompt!r}, token {place}: {token!r}, not {expected!r}, which leads by {lead:.3f}")
            break
        else:
            if len(got) != len(want):
                failures.append(f"{prompt!r}: {len(got)} tokens, not {len(want)}")
    print(json.dumps({"requests": len(BEGINNINGS), "equal_tokens": compared, "ended_at_unclear_tokens": unclear,
                      "failures": failures}))
    if compared < len(BEGINNINGS):
        sys.exit("fewer equal tokens than requests: the margins hide everything")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
