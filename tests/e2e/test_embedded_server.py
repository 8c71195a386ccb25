"""The server within another program: examples/serve, which serves an engine of its own caf::actor_system."""

import json
import re
import subprocess
import urllib.request

from server import GOLDEN, ROOT

PROGRAM = ROOT / "build" / "release" / "troupe_embedded_server"


def test_an_embedding_program_serves_its_engine_and_uses_it_itself():
    with subprocess.Popen([PROGRAM, GOLDEN, "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True) as program:
        try:
            url = re.fullmatch(r"Listening on (http://127\.0\.0\.1:\d+)\n", program.stdout.readline())[1]
            assert program.stdout.readline() == "An actor heard 24 tokens\n"
            with urllib.request.urlopen(f"{url}/v1/models", timeout=300) as answer:
                [model] = json.load(answer)["data"]
            body = {"model": model["id"], "prompt": "Once", "max_tokens": 5, "ignore_eos": True}
            asked = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(),
                                           {"Content-Type": "application/json"})
            with urllib.request.urlopen(asked, timeout=300) as answer:
                assert json.load(answer)["usage"]["completion_tokens"] == 5
            program.stdin.close()
            assert program.wait(timeout=300) == 0
            assert program.stderr.read() == ""
        finally:
            program.kill()
