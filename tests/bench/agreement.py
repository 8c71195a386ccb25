#!/usr/bin/env python3
"""Compares Troupe's greedy tokens with llama.cpp's on the same GGUF files. Prints a Markdown table, one row per file.

    tests/bench/agreement.py --server "llama-server" MODEL.gguf...

llama.cpp continues each of three prompts by 32 greedy tokens. At each position, Troupe predicts the next token from the
same ids, so one difference does not affect the positions after it. A difference is an error, with exit status 1, if
llama.cpp's best token leads its second best by at least `--clear` in log-probability; below that, either token is
acceptable. With `--ids`, prompts are random token ids, for files whose vocabulary or weights mean nothing, and the
log-probabilities of llama.cpp's 15 best tokens behind them may differ by `--apart` at most. With `--embeddings`, the
files are encoders, whose embeddings of texts, or with `--ids` of random ids, may be 0.001 apart (1 less the cosine);
with `--scores`, rerankers, whose scores may differ by `--apart`. `--server` may be several words, such as `chroot DIR llama-server`; `--rename FROM=TO` then translates the
paths of the models. Needs only Python's standard library.
"""

import argparse
import functools
import json
import math
import random
import shlex
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROMPTS = ["Once upon a time there was", "The little fox walked to the river and", "\"Where is my ball?\" asked"]
TOKENS = 32
LENGTHS = [1, 2, 5, 11, 24, 45, 77]  # of prompts of ids
BEST = 15


class Server:
    """A server as a child process. `post` sends JSON and returns the decoded reply."""

    def __init__(self, command):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen([*command, "--port", str(self.port)], stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health").close()
                return
            except (urllib.error.URLError, ConnectionError):
                if self.process.poll() is not None:
                    break
                time.sleep(0.1)
        self.process.kill()
        sys.exit(f"the server did not become ready: {shlex.join(command)}")

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}") as answer:
            return json.load(answer)

    def post(self, path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


def continuation(peer, prompt):
    """Returns the prompt's ids and, per greedy token, its id, its log-probability and its lead over the second best."""
    ids = peer.post("/tokenize", {"content": prompt, "add_special": True})["tokens"]
    answer = peer.post("/completion", {"prompt": ids, "n_predict": TOKENS, "temperature": 0, "n_probs": 2,
                                       "ignore_eos": False})
    steps = []
    for step in answer["completion_probabilities"]:
        best, second = step["top_logprobs"][:2]
        steps.append((best["id"], best["logprob"], best["logprob"] - second["logprob"]))
    return ids, steps


def compare(troupe, peer_command, model, peer_model, clear, flags):
    compared = clear_ones = same = wrong = 0
    furthest, apart = 0.0, 0.0
    with Server([*peer_command, "-m", peer_model, "-t", "2", "-c", "512", "-np", "1"]) as peer:
        texts = [continuation(peer, prompt) for prompt in PROMPTS]
    with Server([troupe, "serve", "--model", str(model), "--max-context", "512", *flags]) as ours:
        for ids, steps in texts:
            for token, logprob, lead in steps:
                answer = ours.post("/v1/completions", {"prompt": ids, "max_tokens": 1, "temperature": 0, "logprobs": 1,
                                                       "return_token_ids": True, "ignore_eos": True})["choices"][0]
                sampled = answer["token_ids"][0]
                compared += 1
                clear_ones += lead >= clear
                if sampled == token:
                    same += 1
                    apart = max(apart, abs(answer["logprobs"]["token_logprobs"][0] - logprob))
                else:
                    furthest = max(furthest, lead)
                    wrong += lead >= clear
                ids = [*ids, token]
    differing = f"{compared - same}, where llama.cpp's lead is at most {furthest:.3f}" if compared > same else "none"
    print(f"| {model.name} | {compared} | {clear_ones} | {differing} | {apart:.3f} |", flush=True)
    return wrong


def compare_ids(troupe, peer_command, model, peer_model, apart, flags):
    draws = random.Random(5)
    with Server([*peer_command, "-m", peer_model, "-t", "2", "-c", "512", "-np", "1"]) as peer:
        known = peer.get("/v1/models")["data"][0]["meta"]
        prompts = [[draws.randrange(3, known["n_vocab"]) for _ in range(length)] for length in LENGTHS
                   if length < known["n_ctx_train"]]
        expected = [peer.post("/completion", {"prompt": ids, "n_predict": 1, "temperature": 0, "n_probs": 40})
                    ["completion_probabilities"][0]["top_logprobs"][:BEST] for ids in prompts]
    furthest = 0.0
    with Server([troupe, "serve", "--model", str(model), "--max-context", "512", *flags]) as ours:
        for ids, best in zip(prompts, expected):  # the token behind the prompt only asks for its log-probabilities
            answer = ours.post("/v1/completions", {"prompt": [*ids, 3], "max_tokens": 1, "prompt_logprobs": 20})
            found = answer["choices"][0]["prompt_logprobs"][-1]
            for token in best:
                here = found.get(str(token["id"]), {"logprob": -math.inf})["logprob"]
                furthest = max(furthest, abs(here - token["logprob"]))
    print(f"| {model.name} | {len(prompts)} | {furthest:.5f} |", flush=True)
    return furthest > apart


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


def compare_embeddings(troupe, peer_command, model, peer_model, apart, flags, by_ids):
    draws = random.Random(5)
    with Server([*peer_command, "-m", peer_model, "-t", "2", "-c", "512", "-np", "1", "--embeddings"]) as peer:
        known = peer.get("/v1/models")["data"][0]["meta"]
        inputs = [[draws.randrange(3, known["n_vocab"]) for _ in range(length)] for length in LENGTHS
                  if length < known["n_ctx_train"]] if by_ids else PROMPTS
        expected = [peer.post("/v1/embeddings", {"input": given})["data"][0]["embedding"] for given in inputs]
    furthest = 0.0
    with Server([troupe, "serve", "--model", str(model), *flags]) as ours:
        for given, there in zip(inputs, expected):
            here = ours.post("/v1/embeddings", {"input": given})["data"][0]["embedding"]
            furthest = max(furthest, 1 - cosine(here, there) if len(here) == len(there) else 2)
    print(f"| {model.name} | {len(inputs)} | {furthest:.6f} |", flush=True)
    return furthest > apart


def compare_scores(troupe, peer_command, model, peer_model, apart, flags):
    query, *texts = [*PROMPTS, "a", "The fox"]
    asked = {"query": query, "documents": texts}
    with Server([*peer_command, "-m", peer_model, "-t", "2", "-c", "512", "-np", "1", "--rerank"]) as peer:
        expected = {r["index"]: 1 / (1 + math.exp(-r["relevance_score"])) for r in
                    peer.post("/v1/rerank", asked)["results"]}
    with Server([troupe, "serve", "--model", str(model), *flags]) as ours:
        found = {r["index"]: r["relevance_score"] for r in ours.post("/v1/rerank", asked)["results"]}
    furthest = max(abs(found[i] - expected[i]) for i in expected)
    print(f"| {model.name} | {len(texts)} | {furthest:.5f} |", flush=True)
    return furthest > apart


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--troupe", default=str(ROOT / "build/release/troupe"))
    arguments.add_argument("--server", required=True, type=shlex.split)
    arguments.add_argument("--rename", default="=", help="FROM=TO: how llama.cpp finds the files")
    arguments.add_argument("--clear", type=float, default=0.5, help="in nats; the default is twice the change of "
                           "log-probabilities that rounding of activations, different in each engine, causes")
    arguments.add_argument("--flags", type=shlex.split, default=[], help="additional flags for `troupe serve`")
    arguments.add_argument("--ids", action="store_true", help="prompts of random ids")
    arguments.add_argument("--embeddings", action="store_true", help="files are encoders")
    arguments.add_argument("--scores", action="store_true", help="files are rerankers")
    arguments.add_argument("--apart", type=float, default=0.01, help="with --ids, in nats; GELU is a table of f16 in "
                           "llama.cpp")
    arguments.add_argument("models", nargs="+", type=Path)
    options = arguments.parse_args()
    source, target = options.rename.split("=", 1)
    if options.embeddings or options.scores:
        print(f"| file | texts | {'1 less the cosine' if options.embeddings else 'scores differ by'} up to |\n|---|---|---|")
    elif options.ids:
        print("| file | prompts | log-probabilities differ by up to |\n|---|---|---|")
    else:
        print(f"| file | tokens | clear by {options.clear} | other tokens | log-probabilities differ by up to |")
        print("|---|---|---|---|---|")
    check, limit = (compare_ids, options.apart) if options.ids else (compare, options.clear)
    if options.embeddings:
        check, limit = functools.partial(compare_embeddings, by_ids=options.ids), 1e-3
    if options.scores:
        check, limit = compare_scores, options.apart
    wrong = sum(check(options.troupe, options.server, model, str(model).replace(source, target, 1) if source else
                      str(model), limit, options.flags) for model in options.models)
    if wrong:
        sys.exit(f"{wrong} files differ by more than {limit}" if options.ids or options.embeddings or options.scores else
                 f"{wrong} tokens differ although llama.cpp's lead is clear")


if __name__ == "__main__":
    main()
