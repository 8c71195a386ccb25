"""Runs a troupe server as a subprocess; checks its metrics and its exit."""

import os
import pathlib
import re
import signal
import subprocess
import threading
import time

import httpx

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "data" / "golden" / "llama-gqa"
STORYTELLER = ROOT / "examples" / "storyteller" / "model"

# Fields of a stream that cannot end before it is read, however slow its reader is: 40 MB, more than sockets hold.
ENDLESS = {"max_tokens": 2000, "n": 8, "temperature": 1, "ignore_eos": True, "logprobs": 20}


def binary():
    path = pathlib.Path(os.environ.get("TROUPE_BINARY", ROOT / "build" / "release" / "troupe"))
    assert path.is_file(), f"{path} does not exist: build it or set TROUPE_BINARY"
    return str(path)


def wait_until(condition, what, seconds=300):
    """Polls `condition` and returns its first true value; fails after `seconds` with `what`, or what it returns then."""
    end = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        assert time.monotonic() < end, f"timed out after {seconds} s waiting for {what() if callable(what) else what}"
        time.sleep(0.02)


class Server:
    def __init__(self, model, *flags, ready=True, stderr_to_stdout=False, preexec_fn=None):
        named = ["--model", str(model)] if model else []  # else those of the flags
        self.process = subprocess.Popen(
            [binary(), "serve", *named, "--port", "0", *flags], preexec_fn=preexec_fn,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT if stderr_to_stdout else subprocess.PIPE, text=True)
        self.out, self.err = [], []
        # One connection per request: the server may have closed a kept one, and httpcore may close an idle one that it has
        # just given to another thread. TLS is off because its set-up is slow.
        self._http = httpx.Client(timeout=600, verify=False, headers={"Connection": "close"})
        self._readers = [threading.Thread(target=lambda pipe=pipe, lines=lines: lines.extend(pipe), daemon=True)
                         for pipe, lines in ((self.process.stdout, self.out), (self.process.stderr, self.err)) if pipe]
        for reader in self._readers:
            reader.start()
        try:
            self.url = wait_until(self._find_url, "the server to print its URL")
            if ready:
                wait_until(self._is_ready, "the model to load")
        except BaseException:
            self.process.kill()
            raise

    def _find_url(self):
        for line in list(self.out):
            if found := re.search(r"https?://\S+:\d+", line):
                return found.group().rstrip(".,")
        assert self.process.poll() is None, f"the server ended with {self.process.returncode}: {''.join(self.err)}"
        return None

    def _is_ready(self):
        try:
            return self.get("/health").status_code == 200
        except httpx.TransportError as e:
            raise AssertionError(f"the server ended with {self.process.wait(300)}: {''.join(self.err)}") from e

    @property
    def ws_url(self):
        return self.url.replace("http", "ws", 1) + "/v1/ws"

    def post(self, path, json=None, **more):
        return self._http.post(self.url + path, json=json, **more)

    def get(self, path, **more):
        return self._http.get(self.url + path, **more)

    def metrics(self, **more):
        """Samples by name, or by `name{labels}` if they have labels."""
        text = self.get("/metrics", **more).text
        return {name: float(value) for name, value in re.findall(r"^([^#\s]\S*) (\S+)$", text, re.MULTILINE)}

    def slow_down(self, milliseconds, **more):
        """Each step takes so much longer from now on, and what makes many tokens lasts as long as a test needs. Only with
        --fault-injection."""
        self.post("/debug/faults", {"faults": [{"kind": "sampler", "what": "delay", "pause_ms": milliseconds,
                                                "every_messages": 1, "count": 10**9}]}, **more).raise_for_status()

    def is_idle(self, **more):
        seen = self.metrics(**more)
        return all(seen[name] == 0 for name in (
            "troupe_kv_blocks_in_use", "troupe_sequences_running", "troupe_sequences_waiting",
            "troupe_sequences_paused", "troupe_requests_in_flight"))

    def wait_until_idle(self, seconds=300, **more):
        wait_until(lambda: self.is_idle(**more), "all blocks to be free and no request to run", seconds)

    def stop(self):
        """Sends SIGTERM and returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(300)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise
        finally:
            self._http.close()
            for reader in self._readers:
                reader.join(300)
