#!/usr/bin/env python3
"""What deaths cost the clients of a server: streams lost, and answers that differ from those that nothing disturbed.

    deaths.py troupe  --model FILE --seconds 300 --period 5      an actor is killed each period, every kind in turn
    deaths.py process --model FILE ...                           the whole program is, and a watchdog starts it again
    deaths.py peer    --model FILE --peer "llama-server -np 64"  the same with llama.cpp's server (or what has its flags)

64 clients ask for streams of `/v1/completions` without sampling, one behind the other. Each prompt was answered alone first. A
stream that ends without `[DONE]` is lost; its client asks again when it can.
"""

import argparse
import asyncio
import collections
import json
import os
import pathlib
import random
import shlex
import signal
import socket
import subprocess
import sys
import time

import httpx

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from server import binary  # noqa: E402

KINDS = ("scheduler", "sampler", "executor", "kv_block_manager")  # without which nothing runs
WORDS = ("the fox river night king stone rain hill winter light bird field house teacher doctor machine city garden window letter "
         "ocean music paper story reason question answer morning").split()


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


class Program:
    """A server and the watchdog that starts it again."""

    def __init__(self, command, port):
        self.command, self.port, self.starts, self.process = command, port, 0, None

    def start(self):
        self.starts += 1
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                        start_new_session=True)

    def kill(self):
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    async def is_ready(self, http):
        for _ in range(6000):
            try:
                if (await http.get("/health")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)
        raise SystemExit("the server does not become ready: " + shlex.join(self.command))


async def stream(http, prompt, tokens):
    """The text, and whether it is whole."""
    text = ""
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True, "ignore_eos": True}
    try:
        async with http.stream("POST", "/v1/completions", json=body) as answer:
            if answer.status_code != 200:
                return text, False
            async for line in answer.aiter_lines():
                if line == "data: [DONE]":
                    return text, True
                if line.startswith("data: "):
                    event = json.loads(line[6:])
                    if "error" in event:
                        return text, False
                    text += event["choices"][0]["text"] if event["choices"] else ""
    except httpx.TransportError:
        pass
    return text, False


async def measure(given, program):
    program.start()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{program.port}", timeout=600, limits=limits) as http:
        await program.is_ready(http)
        chance = random.Random(given.seed)
        prompts = [" ".join(chance.choices(WORDS, k=chance.randint(3, 40))) for _ in range(given.clients)]
        alone = [(await stream(http, prompt, given.tokens))[0] for prompt in prompts]
        counts, deaths, end = collections.Counter(), 0, time.monotonic() + given.seconds

        async def ask(place):
            while time.monotonic() < end:
                text, whole = await stream(http, prompts[place], given.tokens)
                if whole:
                    counts["whole and equal" if text == alone[place] else "whole, but another text"] += 1
                elif text:
                    counts["lost in mid-answer"] += 1
                    counts["of those, with another text"] += not alone[place].startswith(text)
                if not whole:
                    counts["refused or not begun"] += not text
                    await asyncio.sleep(0.2)

        async def strike():
            nonlocal deaths
            while time.monotonic() + given.period < end:
                await asyncio.sleep(given.period)
                if given.what == "troupe":
                    fault = {"kind": KINDS[deaths % len(KINDS)], "what": "kill", "every_messages": 1, "count": 1}
                    await http.post("/debug/faults", json={"faults": [fault]})
                else:
                    program.kill()
                    program.start()
                    await program.is_ready(http)
                deaths += 1

        try:
            await asyncio.gather(strike(), *(ask(place) for place in range(given.clients)))
        finally:
            program.kill()
    print(json.dumps({"what": given.what, "seconds": given.seconds, "deaths": deaths, **counts}))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("troupe", "process", "peer"))
    parser.add_argument("--model", required=True)
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--period", type=float, default=5)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--peer", default="llama-server -np 64 -c 16384")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the server ends, too
    port = free_port()
    command = shlex.split(given.peer) if given.what == "peer" else [binary(), "serve", "--fault-injection", "--max-sequences", "64"]
    asyncio.run(measure(given, Program([*command, "-m" if given.what == "peer" else "--model", given.model,
                                        "--port", str(port)], port)))


if __name__ == "__main__":
    main()
