#!/usr/bin/env python3
"""Which share of a draft model's guesses is kept, by how guesses and choices are drawn: with the same random number along the
tokens' order (as Troupe does, so that no answer depends on guesses), with shared Gumbel noise, or by rejection sampling
(whose answers depend on them). Computed from what two servers say of both models' 20 likeliest tokens, of which alone
choices are made (`top_k: 20`), behind texts that the first model writes.

    tests/contract/kept_guesses.py build/release/troupe MODEL DRAFT [--temperature 0.8] [--tokens 200]
"""

import argparse
import json
import math
import re
import subprocess
import urllib.request

PROMPTS = (
    "Once upon a time there was a little fox who lived at the edge of the forest. One day",
    "The capital of France is Paris. The most important thing to know about its history is that",
    "def area(width, height):\n    return width * height\n\n\ndef volume(width, height, depth):\n",
    "Question: Why is the sky blue?\nAnswer:",
)
LIKELIEST = 20


class Server:
    def __init__(self, program, model):
        self.process = subprocess.Popen([program, "serve", "-m", model, "--port", "0", "--log-level", "off"],
                                        stdout=subprocess.PIPE, text=True)
        self.url = re.search(r"http://\S+:\d+", self.process.stdout.readline()).group()

    def complete(self, **body):
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        while True:
            try:
                return json.load(urllib.request.urlopen(request))["choices"][0]
            except urllib.error.HTTPError as e: # it loads
                if e.code != 503:
                    raise SystemExit(e.read().decode())


def distribution(logprobs, temperature):
    """Of the likeliest: by the token's id."""
    likeliest = sorted(logprobs.items(), key=lambda one: -one[1])[:LIKELIEST]
    weights = {token: math.exp((logprob - likeliest[0][1]) / temperature) for token, logprob in likeliest}
    return {token: weight / sum(weights.values()) for token, weight in weights.items()}


def along_the_order(p, q):
    """A number in [0, 1) chooses the token in whose part of the line it lies."""
    both = at_p = at_q = 0
    for token in sorted(p.keys() | q.keys()):
        next_p, next_q = at_p + p.get(token, 0), at_q + q.get(token, 0)
        both += max(0, min(next_p, next_q) - max(at_p, at_q))
        at_p, at_q = next_p, next_q
    return both


def by_gumbel_noise(p, q):
    return sum(1 / sum(max(p.get(j, 0) / p[i], q.get(j, 0) / q[i]) for j in p.keys() | q.keys()) for i in p.keys() & q.keys())


def by_rejection(p, q):
    return sum(min(p[token], q[token]) for token in p.keys() & q.keys())


LAWS = {"the same number along the tokens' order": along_the_order, "shared Gumbel noise": by_gumbel_noise,
        "rejection sampling": by_rejection}


def logprobs_of(server, ids, first):
    """By the token's id, for each position from `first` on."""
    listed = server.complete(prompt=ids, max_tokens=0, prompt_logprobs=LIKELIEST)["prompt_logprobs"]
    return [{int(token): one["logprob"] for token, one in place.items()} for place in listed[first:]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("draft")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--tokens", type=int, default=200)
    given = parser.parse_args()
    model, draft = Server(given.program, given.model), Server(given.program, given.draft)
    shares = {name: [] for name in LAWS}
    try:
        for prompt in PROMPTS:
            answer = model.complete(prompt=prompt, max_tokens=given.tokens, temperature=given.temperature, top_k=LIKELIEST,
                                    seed=7, ignore_eos=True, return_token_ids=True)
            ids = answer["prompt_token_ids"] + answer["token_ids"]
            first = len(answer["prompt_token_ids"])
            for of_model, of_draft in zip(logprobs_of(model, ids, first), logprobs_of(draft, ids, first)):
                p, q = distribution(of_model, given.temperature), distribution(of_draft, given.temperature)
                for name, law in LAWS.items():
                    shares[name].append(law(p, q))
    finally:
        for server in (model, draft):
            server.process.terminate()
    for name, all_of_it in shares.items():
        print(f"{name}: {sum(all_of_it) / len(all_of_it):.3f} of {len(all_of_it)} guesses")


main()
