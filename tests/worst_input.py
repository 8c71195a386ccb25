"""Whether one client's work holds up another's tokens: 10 MB of the worst input for tokenising, templates, what parses requests
and what compiles guides, from some clients at once, beside one that hears a stream. By hand; results in tests/bench/results.

    worst_input.py [--seconds 8] [--clients 3] [--megabytes 10] [KIND...] [-- FLAGS]

It starts a server with the golden model, or that of --model. Tells of each kind what became of its requests, and the times
between the tokens of the other client, whose p99 must be at most 120 ms; times the share of a core that a thread got meanwhile, if
the machine has others' work. A third of the clients leave before they have an answer: what they asked for must end as well.
"""

import argparse
import asyncio
import collections
import functools
import json
import os
import pathlib
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "e2e"))
import httpx  # noqa: E402
from busy import Share  # noqa: E402
from server import GOLDEN, Server  # noqa: E402
from soak import frame, in_process_of_its_own, percentile, told_ms, upgraded  # noqa: E402

MOST_BETWEEN_TOKENS = 0.120  # s


def completion(prompt):
    return "/v1/completions", {"prompt": prompt, "max_tokens": 1}


def chat(messages=None, **more):
    return "/v1/chat/completions", {"messages": messages or [{"role": "user", "content": "hi"}], "max_tokens": 1, **more}


def schema(of):
    return chat(response_format={"type": "json_schema", "json_schema": {"name": "s", "schema": of}})


def properties(count):
    return {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(count)}, "required": []}


def tool(name, parameters):
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


# By what does the work; of as many bytes as asked for, about.
KINDS = {
    "tokenise one word": lambda n: completion("a" * n),
    "tokenise few letters": lambda n: completion("ab" * (n // 2)),
    "tokenise spaces": lambda n: completion(" " * n),
    "tokenise marks": lambda n: completion("a" + "\u0301\u0316" * (n // 4)),
    "tokenise almost special tokens": lambda n: completion("<|im_start|" * (n // 11)),
    "template one message": lambda n: chat([{"role": "user", "content": "so it goes " * (n // 11)}]),
    "template many messages": lambda n: chat([{"role": ("user", "assistant")[i % 2], "content": "."} for i in range(n // 36)]),
    "template many tools": lambda n: chat(tools=[tool(f"f{i}", properties(1)) for i in range(n // 130)]),
    "parse nested lists": lambda n: chat(metadata={"a": json.loads("[" * 500 + "]" * 500)}, stop=["x"] * (n // 5)),
    "parse numbers": lambda n: ("/v1/completions", {"prompt": [1e-300] * (n // 8), "max_tokens": 1}),
    "compile a wide schema": lambda n: schema(properties(n // 28)),
    "compile alternatives": lambda n: schema({"anyOf": [properties(8) for _ in range(n // 240)]}),
    "compile a pattern": lambda n: chat(structured_outputs={"regex": "(" + "|".join(f"a{i}b*" for i in range(n // 8)) + ")*"}),
    "compile a repetition": lambda n: chat(structured_outputs={"regex": "((a{1,50}){1,50}){1,50}"}),
    "compile choices": lambda n: chat(structured_outputs={"choice": [f"choice {i}" for i in range(n // 18)]}),
}


async def hear(server, ends):
    """Streams over a WebSocket, one after another: seconds between what comes of them."""
    reader, writer = await upgraded(server)
    gaps, number = [], 0
    while not ends.is_set():
        number += 1
        writer.write(frame({"type": "generate", "id": f"s{number}", "prompt": "ROMEO:", "max_tokens": 200, "ignore_eos": True}))
        text, last = b"", None
        while not re.search(rb'"type":"(done|error)","id":"s%d"' % number, text):
            more = await reader.read(65536)
            now = time.monotonic()
            if last is not None:
                gaps.append(now - last)
            last, text = now, text[-80:] + more
    writer.close()
    return gaps


async def ask(server, kind, size, clients, seconds):
    """What became of the requests, and how long each took."""
    path, body = KINDS[kind](size)
    content, outcomes, times, end = json.dumps(body, ensure_ascii=False).encode(), collections.Counter(), [], time.monotonic() + seconds

    async def member(number):
        async with httpx.AsyncClient(timeout=600, verify=False) as http:
            while time.monotonic() < end:
                begun = time.monotonic()
                try:
                    answer = await http.post(server.url + path, content=content, headers={"Content-Type": "application/json"},
                                             timeout=0.5 if number % 3 == 2 else 600)
                    outcomes[answer.status_code] += 1
                    times.append(time.monotonic() - begun)
                except httpx.TimeoutException:
                    outcomes["left"] += 1

    await asyncio.gather(*(member(i) for i in range(clients)))
    return outcomes, times, len(content)


def measure(server, kind, size, clients, seconds):
    heard = in_process_of_its_own(functools.partial(hear, server))
    with Share() as share:
        outcomes, times, sent = asyncio.run(ask(server, kind, size, clients, seconds))
    begun = time.monotonic()
    gaps = heard()
    server.wait_until_idle(60)
    p99 = percentile(gaps, 0.99) * share.value
    well = p99 <= MOST_BETWEEN_TOKENS
    print(f"| {kind} | {sent / 1e6:.1f} | {dict(outcomes)} | {percentile(times, 0.5):.2f} | {told_ms(gaps)} | {1e3 * max(gaps):.0f} | "
          f"{share.value:.2f} | {time.monotonic() - begun:.1f} | {'' if well else 'TOO LONG'} |", flush=True)
    return well


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(GOLDEN))
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--megabytes", type=float, default=10)
    parser.add_argument("kinds", nargs="*", metavar="KIND", default=["nothing", *KINDS])
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    given = parser.parse_args(sys.argv[1:at])
    KINDS["nothing"] = lambda n: completion("ROMEO:")
    os.environ["NO_PROXY"] = "*"
    server = Server(given.model, "--log-level", "off", *sys.argv[at + 1:])
    print("| kind | MB | answers | s, median | between tokens | ms, most | share | s until idle | |\n|---|---|---|---|---|---|---|---|---|")
    try:
        well = [measure(server, kind, int(given.megabytes * 1e6), given.clients, given.seconds) for kind in given.kinds]
    finally:
        status = server.stop()
    sys.exit(0 if all(well) and status == 0 else 1)


if __name__ == "__main__":
    main()
