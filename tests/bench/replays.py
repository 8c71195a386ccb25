"""Records mixed requests to a server, and replays them under several layouts and by another instruction set: a Markdown table.

    python3 tests/bench/replays.py build/release/troupe                       # the bundled storyteller, 10,000 requests
    python3 tests/bench/replays.py build/release/troupe --count 500 --model M
"""

import argparse
import concurrent.futures
import json
import pathlib
import random
import re
import subprocess
import tempfile
import urllib.request

STORYTELLER = pathlib.Path(__file__).resolve().parents[2] / "examples" / "storyteller" / "model"
WORDS = "fox bear owl river moon bread king tower storm garden letter ship".split()
SCHEMA = {"type": "object", "required": ["name", "age"], "additionalProperties": False, "properties": {
    "name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 99}}}
LAYOUTS = (("one thread", "--threads 1"), ("two replicas, no prefix cache", "--replicas 2 --no-prefix-cache"),
           ("two stages, small steps, a small KV cache", "--stages 2 --step-tokens 96 --max-sequences 24 --kv-cache 4MiB"),
           ("another instruction set", "--device cpu:avx2"))


def requests(count, model):
    rng = random.Random(7)
    for i in range(count):
        text, tokens = " ".join(rng.choices(WORDS, k=rng.randint(2, 40))), rng.randint(8, 64)
        chat = {"model": model, "messages": [{"role": "user", "content": "Tell me about " + text}], "max_tokens": tokens}
        yield (("/v1/chat/completions", {**chat, "temperature": rng.choice([0, 0.7, 1])}),
               ("/v1/chat/completions", {**chat, "response_format": {
                   "type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA, "strict": True}}}),
               ("/v1/completions", {"prompt": text, "max_tokens": tokens, "n": 2, "temperature": 1}),
               ("/v1/completions", {"prompt": text, "max_tokens": tokens, "top_p": 0.9, "repetition_penalty": 1.1}),
               ("/v1/messages", chat),
               ("/v1/responses", {"input": text, "max_output_tokens": tokens, "store": False}))[i % 6]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe")
    parser.add_argument("--model", default=str(STORYTELLER))
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--streams", type=int, default=32)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen([given.troupe, "serve", "-m", given.model, "--port", "0", "--record", folder + "/record"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        url = re.search(r"http://\S+:\d+", server.stdout.readline()).group()
        for line in server.stderr:
            if " ready " in line:
                break
        model = json.load(urllib.request.urlopen(url + "/v1/models"))["data"][0]["id"]
        drain = concurrent.futures.ThreadPoolExecutor(1)
        drain.submit(server.stderr.read)

        def ask(request):
            path, body = request
            urllib.request.urlopen(urllib.request.Request(
                url + path, json.dumps(body).encode(), {"Content-Type": "application/json"})).read()

        with concurrent.futures.ThreadPoolExecutor(given.streams) as pool:
            list(pool.map(ask, requests(given.count, model)))
        server.terminate()
        server.wait()
        print("| replayed by | equal | differ | tokens compared | seconds (recorded) |\n|---|---|---|---|---|", flush=True)
        for name, flags in LAYOUTS:
            told = json.loads(subprocess.run(
                [given.troupe, "replay", folder + "/record", "-m", given.model, "--speed", "0", "--json", "--quiet",
                 *flags.split()], stdout=subprocess.PIPE, text=True).stdout)
            print(f"| {name}: `{flags}` | {told['equal']:,} | {told['differing']:,} | {told['tokens']:,} | "
                  f"{told['now']['seconds']:.0f} ({told['recorded']['seconds']:.0f}) |", flush=True)


if __name__ == "__main__":
    main()
