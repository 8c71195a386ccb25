#!/usr/bin/env python3
"""A loop of tool calls with OpenAI's client: over HTTP, where every turn sends the whole conversation again, and over
one WebSocket, where it sends what is new (`store: false` in both). The model is scripted and takes next to no time, so
that what is measured is what a loop costs beside the model. In turn; medians.

    python tests/bench/responses_loop.py [--calls 20] [--output-bytes 4000] [--rounds 7]
"""

import argparse
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "e2e"))

from agent_scripts import AGENT_SCRIPTS, write_agent  # noqa: E402
from openai import OpenAI  # noqa: E402
from server import Server  # noqa: E402

TOOL = {"type": "function", "name": "get_weather", "strict": False, "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}


def call_of(response):
    (call,) = [item for item in response.output if item.type == "function_call"]
    return call


def outputs(call, text):
    """What the tool gave, and the user's next wish."""
    return [{"type": "function_call_output", "call_id": call.call_id, "output": text},
            {"role": "user", "content": "weather"}]


def over_http(client, calls, text):
    items = [{"role": "user", "content": "weather"}]
    for _ in range(calls):
        with client.responses.create(model="scripted", input=items, tools=[TOOL], store=False, stream=True) as events:
            response = [event for event in events][-1].response
        items += [item.model_dump(exclude_none=True) for item in response.output] + outputs(call_of(response), text)


def over_socket(client, calls, text):
    with client.responses.connect() as connection:
        items, more = [{"role": "user", "content": "weather"}], {}
        for _ in range(calls):
            connection.response.create(model="scripted", input=items, tools=[TOOL], store=False, **more)
            while (event := connection.recv()).type != "response.completed":
                if event.type == "error":
                    raise SystemExit(f"the server refuses: {event}")
            items, more = outputs(call_of(event.response), text), {"previous_response_id": event.response.id}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20)
    parser.add_argument("--output-bytes", type=int, default=4000, help="what each call of the tool gives")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    text = ("The wind comes from the west. " * (args.output_bytes // 30 + 1))[:args.output_bytes]
    with tempfile.TemporaryDirectory() as folder:
        server = Server(write_agent(pathlib.Path(folder) / "scripted", AGENT_SCRIPTS))
        client = OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        times = {over_http: [], over_socket: []}
        for number in range(args.rounds + 1):
            for way in times:
                start = time.monotonic()
                way(client, args.calls, text)
                if number > 0:  # the first warms up
                    times[way].append(time.monotonic() - start)
        server.stop()
    http, socket = (statistics.median(of) for of in times.values())
    print(f"{args.calls} calls that give {args.output_bytes} bytes each: HTTP {http * 1e3:.0f} ms, "
          f"WebSocket {socket * 1e3:.0f} ms, ratio {socket / http:.2f}")


if __name__ == "__main__":
    main()
