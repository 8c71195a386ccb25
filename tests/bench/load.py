#!/usr/bin/env python3
"""Loads Troupe and other servers with the same requests, and shows time to first token, time between tokens and goodput.

    tests/bench/load.py --model llama-1b-q8_0.gguf --llama-server llama-server --out bench/load
    tests/bench/load.py --model MODEL --load bursts --load shared --server other=http://127.0.0.1:8000/v1
    tests/bench/load.py --model MODEL --trace requests.jsonl

The first line makes the README's comparison; `--ik-llama-server PATH` adds ik_llama.cpp's. Servers run one after the other,
in turns of --rounds, each from its start, and get the same requests at the same times, as completions of OpenAI's API in
streams. A command with arguments, such as "chroot /opt/peer llama-server", is split as a shell does; --peer-model is the
model's path there, if it differs.

Loads (--load, any number): `poisson` (arrivals at random, --rate a second), `bursts` (the same number, eight at once),
`shared` (as poisson, behind a common prefix of --shared tokens), `mixed` (every sixth prompt is eight times as long),
or the requests of a file (--trace): lines of {"timestamp": milliseconds, "input_length": tokens, "output_length": tokens,
"hash_ids": [blocks of 512 tokens that prompts share]}, as Mooncake's traces have.

Goodput is the rate of requests that had their first token within --ttft and whose mean time between tokens was at most
--tpot. `--aiperf PATH` has NVIDIA's AIPerf send the requests instead of this script; then the figures are AIPerf's. Writes
table.md, results.json and load.svg (with matplotlib) to --out. Needs nothing but Python.
"""

import argparse
import asyncio
import json
import os
import random
import re
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK = 512  # tokens that a hash_id of a trace stands for
# Words that nearly every vocabulary has as one token each, with the space before them.
WORDS = ("time people way day man thing woman life child world school state family student group country problem hand part "
         "place case week company system program question work number night point home water room mother area money story "
         "fact month lot right study book eye job word business issue side kind head house service friend father power hour "
         "game line end member law car city name team minute idea body back parent face level office door health person art "
         "war history party result change morning reason research girl guy moment air teacher force education").split()


# -- loads -------------------------------------------------------------------------------------------------------------

def words(count, seed):
    chance = random.Random(seed)
    return " ".join(chance.choice(WORDS) for _ in range(count))


def as_ids(text):
    """For models without a tokenizer: an id for each word."""
    return [10 + WORDS.index(word) for word in text.split()]


def make_load(name, options, seed):
    """Requests in the order of their times: {"at": seconds, "prompt": text, "tokens": of the prompt, "generate": tokens}."""
    chance = random.Random(f"{name} {seed}")
    requests, at = [], 0.0
    for number in range(options.requests):
        if name == "bursts":
            at = number // 8 * 8 / options.rate
        elif number:
            at += chance.expovariate(options.rate)
        length = options.prompt * 8 if name == "mixed" and number % 6 == 5 else options.prompt
        prompt = words(length, f"{seed} {number}")
        if name == "shared":
            prompt = words(options.shared, f"{seed} shared") + " " + prompt
            length += options.shared
        requests.append({"at": at, "prompt": prompt, "tokens": length, "generate": options.generate})
    return requests


def read_trace(path, seed):
    requests = []
    for line in Path(path).read_text().splitlines():
        if not line.strip():
            continue
        entry = json.loads(line)
        length, blocks = entry["input_length"], entry.get("hash_ids", [])
        prompt = " ".join(words(BLOCK, f"{seed} block {block}") for block in blocks)
        prompt = " ".join(prompt.split()[:length])
        if missing := length - len(prompt.split()):
            prompt += " " + words(missing, f"{seed} {len(requests)}")
        requests.append({"at": entry["timestamp"] / 1e3, "prompt": prompt.strip(), "tokens": length,
                         "generate": entry["output_length"]})
    requests.sort(key=lambda request: request["at"])
    return requests


# -- one request -------------------------------------------------------------------------------------------------------

class Refused(RuntimeError):
    """An answer whose status is not 200."""

    def __init__(self, status, body):
        super().__init__(f"status {status}: {body[:300].decode(errors='replace')}")
        self.status, self.body = status, body


async def read_events(reader):
    """The data of server-sent events, whether the body is chunked or ends with the connection."""
    status = int((await reader.readline()).split()[1])
    chunked = False
    while (line := (await reader.readline()).strip().lower()) != b"":
        chunked |= line.startswith(b"transfer-encoding") and b"chunked" in line
    pending = b""
    while True:
        if chunked:
            size = int((await reader.readline()).split(b";")[0] or b"0", 16)
            piece = await reader.readexactly(size) if size else b""
            await reader.readline()
        else:
            piece = await reader.read(65536)
        if status != 200:
            raise Refused(status, piece)
        if not piece:
            return
        pending += piece
        *lines, pending = pending.split(b"\n")
        for line in lines:
            if line.startswith(b"data: ") and line != b"data: [DONE]" and line != b"data: [DONE]\r":
                yield json.loads(line[6:])


async def send(base, model, request, begin, record):
    """Fills `record` with the times of tokens, in seconds after the request was due."""
    await asyncio.sleep(max(0, begin + request["at"] - time.perf_counter()))
    due = begin + request["at"]
    url = urllib.parse.urlsplit(base)
    by_ids = request.get("by_ids") or model.startswith("synthetic:")
    prompt = as_ids(request["prompt"]) if by_ids else request["prompt"]
    body = json.dumps({"model": model, "prompt": prompt, "return_token_ids": True, "max_tokens": request["generate"], "temperature": 0,
                       "stream": True, "ignore_eos": True, "stream_options": {"include_usage": True},
                       "cache_prompt": True}).encode()
    try:
        reader, writer = await asyncio.open_connection(url.hostname, url.port or 80, limit=1 << 24)
        writer.write(f"POST {url.path}/completions HTTP/1.1\r\nHost: {url.netloc}\r\nContent-Type: application/json\r\n"
                     f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        async for event in read_events(reader):
            if event.get("usage"):
                record["prompt_tokens"] = event["usage"]["prompt_tokens"]
                record["completion_tokens"] = event["usage"]["completion_tokens"]
            # Tokens of a vocabulary of placeholders may have no text.
            if any(choice.get("text") or choice.get("token_ids") or by_ids and not choice.get("finish_reason")
                   for choice in event.get("choices", [])):
                record["times"].append(time.perf_counter() - due)
        record["end"] = time.perf_counter() - begin
        writer.close()
    except (OSError, RuntimeError, asyncio.IncompleteReadError, ValueError) as error:
        record["error"] = str(error) or type(error).__name__


async def replay(base, model, requests):
    records = [{"times": []} for _ in requests]
    begin = time.perf_counter() + 0.1
    await asyncio.gather(*(send(base, model, request, begin, record) for request, record in zip(requests, records)))
    return records


# -- servers -----------------------------------------------------------------------------------------------------------

def free_port():
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A server that this script starts, or one that runs already (`url`)."""

    def __init__(self, name, command=None, url=None):
        self.name, self.command, self.url = name, command, url

    def __enter__(self):
        if not self.command:
            self.process = None
            return self
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/v1"
        self.log = tempfile.TemporaryFile("w+")
        command = [word.replace("{port}", str(port)) for word in self.command]
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT, start_new_session=True)
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health").close()
                return self
            except (urllib.error.URLError, OSError):
                if self.process.poll() is not None:
                    self.log.seek(0)
                    sys.exit(f"{shlex.join(command)} ended: {self.log.read()[-2000:]}")
                time.sleep(0.2)

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            self.process.wait(60)
            self.log.close()

    def model(self):
        with urllib.request.urlopen(self.url + "/models") as answer:
            return json.load(answer)["data"][0]["id"]


def servers_of(options):
    context = max(request["tokens"] + request["generate"] for load in options.loads.values() for request in load) * 5 // 4 + 64
    threads = str(options.threads)
    found = [Server("Troupe", [*shlex.split(options.troupe), "serve", "--model", options.model, "--port", "{port}",
                               "--quiet", "--threads", threads, "--max-context", str(context),
                               *shlex.split(options.troupe_flags)])]
    for name, command in (("llama.cpp", options.llama_server), ("ik_llama.cpp", options.ik_llama_server)):
        if command:
            path = options.peer_model or options.model
            found.append(Server(name, [*shlex.split(command), "-m", path, "--port", "{port}", "-t", threads, "-tb", threads,
                                       "-np", str(options.slots), "-c", str(context * options.slots), "-cb",
                                       *shlex.split(options.llama_flags)]))
    for server in options.server:
        name, url = server.split("=", 1)
        found.append(Server(name, url=url.rstrip("/")))
    return found


# -- figures -----------------------------------------------------------------------------------------------------------

def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def figures_of(records, requests, options):
    whole = [record for record in records if record["times"] and "error" not in record]
    ttft = [record["times"][0] for record in whole]
    gaps = [b - a for record in whole for a, b in zip(record["times"], record["times"][1:])]
    tokens = sum(record.get("completion_tokens", len(record["times"])) for record in whole)
    seconds = max((record["end"] for record in whole), default=float("nan"))

    def is_good(record):
        steps = max(1, record.get("completion_tokens", len(record["times"])) - 1)
        return record["times"][0] <= options.ttft and (record["times"][-1] - record["times"][0]) / steps <= options.tpot
    good = sum(map(is_good, whole))
    return {"seconds": seconds, "ttft_p50": percentile(ttft, 0.5), "ttft_p99": percentile(ttft, 0.99),
            "gap_p50": percentile(gaps, 0.5), "gap_p99": percentile(gaps, 0.99), "tokens_per_s": tokens / seconds,
            "goodput": good / seconds, "good": good / len(requests), "failed": len(records) - len(whole),
            "prompt_tokens": statistics.mean(record.get("prompt_tokens", 0) for record in whole) if whole else 0,
            "ttfts": ttft, "gaps": gaps}


def with_aiperf(server, requests, options):
    """The same requests, sent by AIPerf."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.jsonl"
        trace.write_text("".join(json.dumps({"timestamp": round(1e3 * request["at"]), "text_input": request["prompt"],
                                             "output_length": request["generate"]}) + "\n" for request in requests))
        done = subprocess.run(
            [options.aiperf, "profile", "--model", server.model(), "--url", server.url.removesuffix("/v1"), "--endpoint-type",
             "completions", "--streaming", "--use-server-token-count", "--input-file", trace, "--custom-dataset-type",
             "mooncake_trace", "--fixed-schedule", "--extra-inputs", "ignore_eos:true", "--ui", "none",
             "--tokenizer", Path(options.tokenizer or options.model).resolve()], cwd=folder, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"aiperf ended with status {done.returncode}: {(done.stdout + done.stderr)[-2000:]}")
        lines = [json.loads(line) for path in Path(folder).glob("artifacts/*/profile_export.jsonl")
                 for line in path.read_text().splitlines()]
    start = min(line["metadata"]["request_start_ns"] for line in lines)
    records = []
    for line in lines:
        metrics, record = line["metrics"], {"times": []}
        if "time_to_first_token" in metrics:
            first = metrics["time_to_first_token"]["value"] / 1e3
            count = int(metrics["output_sequence_length"]["value"])
            gap = metrics.get("inter_token_latency", {"value": 0})["value"] / 1e3
            record = {"times": [first + gap * i for i in range(count)], "completion_tokens": count,
                      "end": (line["metadata"]["request_end_ns"] - start) / 1e9}
        records.append(record)
    return records


def measure(server, requests, options):
    with server:
        model = server.model()
        requests = [{**request, "by_ids": options.ids} for request in requests]
        asyncio.run(replay(server.url, model, [{"at": 0, "prompt": words(16, "warm"), "generate": 4, "by_ids": options.ids}]))
        records = (with_aiperf(server, requests, options) if options.aiperf
                   else asyncio.run(replay(server.url, model, requests)))
    figures = figures_of(records, requests, options)
    if figures["failed"]:
        print(f"{server.name}: {figures['failed']} requests failed: "
              f"{next((r['error'] for r in records if 'error' in r), 'without an answer')}", file=sys.stderr)
    return figures


def machine():
    info = Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*:\s*(.*)", info)
    return f"{name.group(1) if name else 'unknown processor'}, {os.cpu_count()} cores"


def table(results, options):
    lines = [f"{machine()}, {options.threads} threads, {Path(options.model).stem}, medians of {options.rounds} rounds; goodput "
             f"is of requests with a first token within {options.ttft:g} s and at most {1e3 * options.tpot:g} ms between tokens",
             "", "| load | server | all answered after | TTFT p50, p99 | between tokens p50, p99 | tokens/s | goodput/s | failed |",
             "|---|---|---|---|---|---|---|---|"]
    for load, of_servers in results.items():
        for number, (name, rounds) in enumerate(of_servers.items()):
            row = {key: statistics.median(run[key] for run in rounds) for key in rounds[0] if key not in ("ttfts", "gaps")}
            lines.append(f"| {load if number == 0 else ''} | {name} | {row['seconds']:.1f} s | {row['ttft_p50']:.2f}, "
                         f"{row['ttft_p99']:.2f} s | {1e3 * row['gap_p50']:.0f}, {1e3 * row['gap_p99']:.0f} ms | "
                         f"{row['tokens_per_s']:.1f} | {row['goodput']:.2f} ({100 * row['good']:.0f} %) | {row['failed']:.0f} |")
    return "\n".join(lines) + "\n"


def plot(results, options):
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(len(results), 2, figsize=(9, 2.6 * len(results)), squeeze=False)
    for row, (load, of_servers) in zip(axes, results.items()):
        for axis, key, limit, label in ((row[0], "ttfts", options.ttft, "time to first token, s"),
                                        (row[1], "gaps", options.tpot, "time between tokens, s")):
            for name, rounds in of_servers.items():
                values = sorted(value for run in rounds for value in run[key])
                shares = [(i + 1) / len(values) for i in range(len(values))]
                axis.plot(values, shares, drawstyle="steps-post", label=name)
            axis.axvline(limit, color="grey", linewidth=0.8, linestyle=":")
            axis.set(xscale="log", xlabel=label, ylabel="share", title=load, ylim=(0, 1))
        row[0].legend(fontsize=7)
    figure.suptitle(f"{machine()}, {Path(options.model).stem}", fontsize=8)
    figure.tight_layout()
    figure.savefig(options.out / "load.svg")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="for every server that is started")
    parser.add_argument("--peer-model", help="its path as llama.cpp's servers see it, if that differs")
    parser.add_argument("--troupe", default=str(ROOT / "build" / "release" / "troupe"))
    parser.add_argument("--troupe-flags", default="")
    parser.add_argument("--llama-server", help="command of llama.cpp's server")
    parser.add_argument("--ik-llama-server", help="command of ik_llama.cpp's server")
    parser.add_argument("--llama-flags", default="", help="more flags for both")
    parser.add_argument("--slots", type=int, default=16, help="sequences at once of llama.cpp's servers")
    parser.add_argument("--server", action="append", default=[], metavar="NAME=URL", help="a server that runs: http://HOST:PORT/v1")
    parser.add_argument("--load", action="append", choices=("poisson", "bursts", "shared", "mixed"))
    parser.add_argument("--trace", help="a file of requests")
    parser.add_argument("--rate", type=float, default=0.7, help="requests per second")
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--prompt", type=int, default=512, help="words, mostly a token each")
    parser.add_argument("--shared", type=int, default=512, help="words of the common prefix")
    parser.add_argument("--generate", type=int, default=48, help="tokens")
    parser.add_argument("--ttft", type=float, default=5.0, help="limit of goodput, seconds")
    parser.add_argument("--tpot", type=float, default=0.2, help="limit of goodput, seconds")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ids", action="store_true", help="prompts are token ids, for models without a vocabulary of words")
    parser.add_argument("--aiperf", help="path of the program")
    parser.add_argument("--tokenizer", help="for AIPerf: a folder with tokenizer.json")
    parser.add_argument("--out", type=Path, default=Path("bench/load"))
    options = parser.parse_args()
    if options.trace:
        options.loads = {Path(options.trace).stem: read_trace(options.trace, options.seed)}
    else:
        options.loads = {name: make_load(name, options, options.seed) for name in options.load or ["poisson"]}
    options.out.mkdir(parents=True, exist_ok=True)

    results = {}
    for load, requests in options.loads.items():
        servers = servers_of(options)
        results[load] = {server.name: [] for server in servers}
        for round_ in range(options.rounds):
            for server in servers:
                figures = measure(server, requests, options)
                results[load][server.name].append(figures)
                print(f"{load}, round {round_ + 1}, {server.name}: {figures['seconds']:.1f} s, TTFT {figures['ttft_p50']:.2f} s, "
                      f"{figures['tokens_per_s']:.1f} tokens/s", file=sys.stderr, flush=True)
    (options.out / "results.json").write_text(json.dumps({"machine": machine(), "runs": results}, indent=1) + "\n")
    (options.out / "table.md").write_text(table(results, options))
    print(table(results, options))
    try:
        plot(results, options)
    except ModuleNotFoundError:
        print("no plot: matplotlib is not installed", file=sys.stderr)


if __name__ == "__main__":
    main()
