#!/usr/bin/env python3
"""A day in the life of a server, in ten seconds: two models, settings and the list of models read again, more clients than it can bear, an upgrade
under load, and the whole day replayed to see whether every bit is still the same. Needs Python alone.

    python3 examples/operator/day.py                    # build/release/troupe
    python3 examples/operator/day.py /usr/bin/troupe
"""

import concurrent.futures
import json
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
STORIES = ROOT / "examples" / "storyteller" / "model"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Day:
    def __init__(self, troupe, folder):
        self.troupe, self.folder, self.port = troupe, folder, free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.policy, self.record = folder / "policy.toml", folder / "record"
        self.policy.write_text("max_tokens = 400\n")
        self.models = folder / "models.toml"
        self.list_models("stories", "drafts")

    def list_models(self, *names, more=""):
        self.models.write_text("".join(f'[[model]]\nname = "{name}"\npath = "{STORIES}"\n' for name in names) + more)

    def start(self, *more):
        """A server of two models, or one that takes its place; returns once it answers for both."""
        self.log = open(self.folder / "log", "a")
        seen = self.log_lines().count(" ready ")
        process = subprocess.Popen(
            [self.troupe, "serve", "--port", str(self.port), "--config", str(self.models), "--kv-cache", "32MiB",
             "--max-sequences", "16", "--max-wait", "1s", "--policy", str(self.policy), "--record", str(self.record), *more],
            stdout=self.log, stderr=self.log)
        while self.log_lines().count(" ready ") == seen or not self.has_both():
            if process.poll() is not None:
                sys.exit("the server ended:\n" + self.log_lines())
            time.sleep(0.1)
        return process

    def log_lines(self):
        return (self.folder / "log").read_text()

    def has_both(self):
        try:
            return len(json.load(urllib.request.urlopen(self.url + "/v1/models", timeout=5))["data"]) == 2
        except (OSError, ValueError):
            return False

    def ask(self, prompt, model="stories", tokens=40, **more):
        """The answer's text; (status, seconds to wait, why) if it is refused."""
        body = {"model": model, "prompt": prompt, "max_tokens": tokens, "temperature": 0.8, **more}
        request = urllib.request.Request(self.url + "/v1/completions", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                if more.get("stream"):
                    events = [line[6:] for line in answer.read().decode().splitlines() if line.startswith("data: ")]
                    assert events[-1] == "[DONE]", "the stream was torn"
                    return "".join(choice["text"] for event in events[:-1] for choice in json.loads(event)["choices"])
                return json.load(answer)["choices"][0]["text"]
        except urllib.error.HTTPError as refused:
            return refused.code, float(refused.headers["Retry-After"] or 0), json.load(refused)["error"]["message"]

    def hear(self, prompt, **more):
        """The answer's text, by a client that comes again later where the server says so."""
        while isinstance(told := self.ask(prompt, **more), tuple):
            status, wait, why = told
            assert status == 429, why
            time.sleep(wait)
        return told


def tell(*words):
    print(time.strftime("%H:%M:%S"), *words, flush=True)


def main():
    troupe = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / "build" / "release" / "troupe")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(128) as clients:
        day = Day(troupe, pathlib.Path(folder))
        server = day.start()
        tell("Two models are served in one process:", *(repr(day.hear("Once upon a time", model=model, tokens=8)) for model in ("stories", "drafts")))

        day.policy.write_text("max_tokens = 5\n")
        server.send_signal(signal.SIGHUP)
        while len(cut := day.hear("Once upon a time", seed=1, ignore_eos=True, tokens=30)) > 60:
            time.sleep(0.1)
        tell("A policy is read again (SIGHUP), and no answer is longer than 5 tokens:", repr(cut))
        day.policy.write_text("max_tokens = 400\n")
        server.send_signal(signal.SIGHUP)
        time.sleep(0.5)

        day.list_models("stories", "drafts", more='aliases = ["gpt-4o-mini"]\n')
        server.send_signal(signal.SIGHUP)
        while not isinstance(told := day.ask("Once upon a time", "gpt-4o-mini", 8), str):
            time.sleep(0.1)
        tell("So is the list of models: a program that wants gpt-4o-mini is answered by drafts:", repr(told))

        crowd = [f"The {n}th fox went to the river and " for n in range(400)]
        told = list(clients.map(lambda prompt: day.ask(prompt, tokens=200, ignore_eos=True), crowd))
        refused = [one for one in told if isinstance(one, tuple)]
        assert all(status == 429 and wait >= 1 for status, wait, _ in refused), refused[:1]
        tell(f"400 clients at once: {len(told) - len(refused)} answered, {len(refused)} told to come later"
             + (f": {refused[0][2]}" if refused else ""))

        alone = [day.hear(f"Fox {n}", tokens=300, seed=n, ignore_eos=True) for n in range(16)]
        upgraded = threading.Event()

        def keep_asking(number):
            """Streams, one after another, each as it was said without an upgrade; how many."""
            streams = 0
            while not upgraded.is_set():
                told = day.hear(f"Fox {number}", tokens=300, seed=number, ignore_eos=True, stream=True)
                assert told == alone[number], "a stream differs from what was said without an upgrade"
                streams += 1
            return streams

        clients_at_it = [clients.submit(keep_asking, number) for number in range(16)]
        old, server = server, day.start("--replace")
        old.wait(60)
        upgraded.set()
        streams = sum(client.result() for client in clients_at_it)
        moved = day.log_lines().count("moved")
        tell(f"An upgrade under load: of {streams} streams, one after another from 16 clients, none was torn or another "
             f"to the letter; {moved} went on in the new process from where they were")

        server.send_signal(signal.SIGTERM)
        assert server.wait(60) == 0
        replay = subprocess.run([troupe, "replay", str(day.record), "--config", str(day.models),
                                 "--speed", "0", "--threads", "1", "--quiet", "--kv-cache", "32MiB"],
                                capture_output=True, text=True)
        tell("The day again, by one thread:", replay.stdout.splitlines()[0] if replay.stdout else replay.stderr)
        assert replay.returncode == 0, replay.stdout + replay.stderr


if __name__ == "__main__":
    main()
