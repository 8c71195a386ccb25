#!/usr/bin/env python3
"""What an agent's conversation of twenty turns computes again. Prints a Markdown table, a row for each model and way.

    tests/bench/agents.py [MODEL...]

A turn is a request: a user's message or a tool's result, and the model's answer of reasoning and a call. Transcripts are
token ids, as a template would write them that strips the reasoning of past turns at the next message of the user (each
fourth turn) and whose prompts begin the reasoning. *Old tokens* of a turn are those that its prompt shares with anything
that was computed before it. What of these is not cached is computed again: at best none beyond the last block of 16.
Each answer is compared with that of a server without a cache, tokens and log-probabilities. Ways:

    stays       one server
    killed      before each turn the server is killed (-9) and started again (--kv-disk)
    an hour     the same, and all files are an hour older
    evicted     between turns, other prompts take the whole cache (--swap); and the same with --kv-disk
    layouts     a server for each turn: one executor, two replicas, two ranks, roles, in turn (--kv-disk)

By default the models are small checkpoints of tests/data. With --peer, a llama-server, perhaps behind `chroot FOLDER`,
answers the same turns with the same models, as GGUF files that `troupe quantize` writes into --folder (whose path there
--peer-folder says). Needs only Python's standard library.
"""

import argparse
import json
import os
import random
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = ["families/qwen3-5", "families/lfm2", "families/granite-hybrid", "golden/qwen3"]
BLOCK, TURNS = 16, 20
SYSTEM, USER, RESULT, REASONING, CALL = 240, 20, 26, 21, 13  # tokens of each part
ANSWER_HEAD, REASONING_HEAD, END = [7, 8, 9], [10, 11], [12, 13]
LAYOUTS = ["", "--replicas 2", "--tensor-parallel 2", "--roles prefill:1,decode:1"]


class Server:
    """A server as a child process, on a port of its own."""

    def __init__(self, command):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.log = tempfile.TemporaryFile()
        self.process = subprocess.Popen([*command, "--port", str(self.port)], stdout=self.log, stderr=self.log)
        for _ in range(1200):
            try:
                self.get("/health")
                return
            except (urllib.error.URLError, ConnectionError):
                if self.process.poll() is not None:
                    break
                time.sleep(0.05)
        self.process.kill()
        self.log.seek(0)
        raise RuntimeError(f"the server did not become ready: {shlex.join(command)}\n{self.log.read().decode()[-800:]}")

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            return answer.read()

    def post(self, path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as answer:
            return json.load(answer)

    def end(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        self.process.wait()
        self.log.close()


class Troupe(Server):
    def __init__(self, options, model, flags):
        super().__init__([str(options.troupe), "serve", "--model", str(model), *shlex.split(flags)])

    def complete(self, prompt, tokens):
        """The answer's ids and all that is said of them; how much of the prompt was cached."""
        reply = self.post("/v1/completions", {"prompt": prompt, "max_tokens": tokens, "temperature": 1, "seed": 5,
                                              "ignore_eos": True, "return_token_ids": True, "logprobs": 2})
        choice = reply["choices"][0]
        return choice["token_ids"], choice["logprobs"], (reply["usage"].get("prompt_tokens_details") or {}).get(
            "cached_tokens", 0)

    def metric(self, name):
        return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (.*)$", self.get("/metrics").decode(), re.M))

    def wait_until_kept(self):
        """All that is to be kept has been written."""
        while self.metric("troupe_kv_disk_blocks_written_total") < (
                self.metric("troupe_kv_blocks_kept_total") + self.metric("troupe_state_snapshots_kept_total")):
            time.sleep(0.01)
        time.sleep(0.05)


class Peer(Server):
    def __init__(self, options, model):
        super().__init__([*shlex.split(options.peer), "--model", str(options.peer_folder / f"{model.name}.gguf"), "--ctx-size",
                          "4096", "--threads", "2", "--parallel", "1", "--host", "127.0.0.1"])

    def complete(self, prompt, tokens):
        reply = self.post("/completion", {"prompt": prompt, "n_predict": tokens, "temperature": 0, "ignore_eos": True,
                                          "cache_prompt": True, "return_tokens": True, "logit_bias": [[0, False]]})
        return reply["tokens"], None, len(prompt) - reply["timings"]["prompt_n"]


class Transcript:
    """What the agent and the model have said."""

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.parts = [(False, self.some(SYSTEM))]  # whether it is reasoning, and its tokens

    def some(self, count):
        return [self.rng.randrange(20, 600) for _ in range(count)]

    def turn(self, number):
        """The prompt of the next turn."""
        if number % 4 == 0:
            self.parts = [part for part in self.parts if not part[0]]
        self.parts.append((False, self.some(USER if number % 4 == 0 else RESULT) + ANSWER_HEAD))
        return [token for _, tokens in self.parts for token in tokens] + REASONING_HEAD

    def answered(self, answer):
        self.parts += [(True, REASONING_HEAD + answer[:REASONING]), (False, answer[REASONING:] + END)]


def common(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


class Way:
    """One server at a time, for the turns of one conversation."""

    def __init__(self, name, flags, options, model, folder):
        self.name, self.options, self.model, self.server = name, options, model, None
        self.folder = folder
        self.flags = flags + (f" --kv-disk {folder}" if "disk" in name or name in ("killed", "an hour", "layouts") else "")
        self.filler = random.Random(3)

    def before(self, number):
        layout = LAYOUTS[number % len(LAYOUTS)] if self.name == "layouts" else ""
        if not self.server:
            self.server = Troupe(self.options, self.model, f"{self.flags} {layout}")

    def after(self):
        if self.name.startswith("evicted"):
            for _ in range(4):  # of 900 tokens each, more than the 2048 that the cache holds
                self.server.complete([self.filler.randrange(20, 600) for _ in range(900)], 1)
        if self.name == "layouts":  # of whose replicas two may keep the same; one that stops writes the rest
            self.server.end()
            self.server = None
        elif "--kv-disk" in self.flags:
            self.server.wait_until_kept()
        if self.name in ("killed", "an hour"):
            self.server.end(signal.SIGKILL)
            self.server = None
        if self.name == "an hour":
            for file in self.folder.rglob("*.kv"):
                at = file.stat().st_mtime - 3600
                os.utime(file, (at, at))

    def end(self):
        if self.server:
            self.server.end()


def measure(way, alone):
    """For each turn: old tokens, and how many of these were computed again. Whether all answers equal the solo ones."""
    said, computed, turns, equal = Transcript(1), [], [], True
    for number in range(TURNS):
        prompt = said.turn(number)
        way.before(number)
        answer, about, cached = way.server.complete(prompt, REASONING + CALL)
        if alone:
            equal = equal and alone.complete(prompt, REASONING + CALL)[:2] == (answer, about)
        old = max((common(prompt, before) for before in computed), default=0)
        turns.append((old, max(old - cached, 0), len(prompt)))
        computed.append(prompt + answer[:-1])  # the last one was chosen, and never computed
        said.answered(answer)
        way.after()
    return turns, equal


def row(model, name, turns, equal):
    again = [computed for _, computed, _ in turns[1:]]
    return (f"| {model} | {name} | {sum(old for old, _, _ in turns)} | {sum(again)} | {sum(again) / len(again):.1f} | {max(again)} "
            f"| {equal} |")


class PeerWay:
    name = "llama.cpp"

    def __init__(self, options, model):
        self.server = Peer(options, model)

    def before(self, number):
        pass

    after = end = lambda self: None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", type=Path, metavar="MODEL")
    parser.add_argument("--troupe", type=Path, default=ROOT / "build" / "release" / "troupe")
    parser.add_argument("--ways", default="stays,killed,an hour,evicted (swap),evicted (disk),layouts")
    parser.add_argument("--peer", help="the command of a llama-server")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="for GGUF files")
    parser.add_argument("--peer-folder", type=Path, help="the same folder as the peer sees it")
    options = parser.parse_args()
    options.peer_folder = options.peer_folder or options.folder
    print("| model | way | old tokens | of these computed again | a turn | at most | bits equal a solo run |\n|---|---|---|---|---|---|---|")
    failed = False
    for model in options.models or [ROOT / "tests/data" / name for name in MODELS]:
        alone = Troupe(options, model, "--no-prefix-cache")
        for name in filter(None, options.ways.split(",")):
            flags = "--max-sequences 1 --max-context 2048" if name.startswith("evicted") else "--max-sequences 8"
            if name.endswith("(swap)"):
                flags += " --swap 64MiB"
            with tempfile.TemporaryDirectory() as folder:
                way = Way(name, flags, options, model, Path(folder))
                turns, equal = measure(way, alone)
                way.end()
            failed = failed or not equal or max(again for _, again, _ in turns) > BLOCK
            print(row(model.name, name, turns, "yes" if equal else "NO"), flush=True)
        alone.end()
        if options.peer:
            file = options.folder / f"{model.name}.gguf"
            subprocess.run([options.troupe, "quantize", "--model", model, "--to", "f32", "--out", file], check=True, stdout=subprocess.DEVNULL)
            try:
                way = PeerWay(options, model)
            except RuntimeError as why:
                print(f"| {model.name} | llama.cpp | does not load the file | | | | |", flush=True)
                print(why, file=sys.stderr)
                continue
            turns, _ = measure(way, None)
            way.server.end()
            print(row(model.name, way.name, turns, "-"), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
