"""Requests of every endpoint and kind, and what they leave in a server's heap. Used by test_leaks.py and tests/soak.py."""

import http.client
import json
import os
import re
import socket
import struct
import time
import urllib.parse

PROMPT = "Once upon a time"
CHAT = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "temperature": 0}
SHORT = {"prompt": PROMPT, "max_tokens": 4, "temperature": 0}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}

# name: method, path, body; without a path: of a function below
KINDS = {
    "completion": ("POST", "/v1/completions", SHORT),
    "stream": ("POST", "/v1/completions", {**SHORT, "stream": True}),
    "n": ("POST", "/v1/completions", {**SHORT, "n": 4, "temperature": 1, "seed": 1}),
    "best_of": ("POST", "/v1/completions", {**SHORT, "best_of": 3, "temperature": 1, "seed": 1}),
    "beams": ("POST", "/v1/completions", {**SHORT, "use_beam_search": True, "n": 3}),
    "logprobs": ("POST", "/v1/completions", {**SHORT, "logprobs": 3, "prompt_logprobs": 2}),
    "several prompts": ("POST", "/v1/completions", {**SHORT, "prompt": [PROMPT, PROMPT, "There was"]}),
    "stop": ("POST", "/v1/completions", {**SHORT, "stop": ["e"]}),
    "schema": ("POST", "/v1/completions", {**SHORT, "guided_json": SCHEMA}),
    "choice": ("POST", "/v1/completions", {**SHORT, "guided_choice": ["yes", "no"]}),
    "chat": ("POST", "/v1/chat/completions", CHAT),
    "chat stream": ("POST", "/v1/chat/completions", {**CHAT, "stream": True}),
    "response": ("POST", "/v1/responses", {"input": "hello", "max_output_tokens": 16, "store": False,
                                            "temperature": 0}),
    "embedding": ("POST", "/v1/embeddings", {"input": PROMPT}),
    "ollama": ("POST", "/api/generate", {"prompt": PROMPT, "options": {"num_predict": 4}, "stream": False}),
    "tokenize": ("POST", "/tokenize", {"prompt": PROMPT}),
    "models": ("GET", "/v1/models", None),
    "not JSON": ("POST", "/v1/completions", "{"),
    "a bad field": ("POST", "/v1/completions", {**SHORT, "temperature": -1}),
    "nothing there": ("GET", "/nothing", None),
    "not HTTP": None,
    "a client that leaves": None,
    "websocket": None,
}
REFUSED = {"not JSON": 400, "a bad field": 400, "nothing there": 404}


class Caller:
    """Sends requests of one kind to a server, on one kept connection where the kind lets it."""

    def __init__(self, url):
        self.address = urllib.parse.urlparse(url)
        self.http = self.connect()
        self.model = json.loads(self.request("GET", "/v1/models", None)[1])["data"][0]["id"]

    def connect(self):
        return http.client.HTTPConnection(self.address.hostname, self.address.port, timeout=300)

    def send(self, kind):
        if KINDS[kind] is None:
            return {"not HTTP": self.garbage, "a client that leaves": self.leave, "websocket": self.frame}[kind]()
        status, text = self.request(*KINDS[kind])
        assert status == REFUSED.get(kind, 200), (kind, status, text)

    def request(self, method, path, body):
        sent = json.dumps({"model": self.model, **body}) if isinstance(body, dict) else body
        try:
            self.http.request(method, path, sent, {"Content-Type": "application/json"})
            answer = self.http.getresponse()
            text = answer.read()
        except (http.client.HTTPException, OSError):
            self.http.close()
            raise
        return answer.status, text

    def socket(self):
        return socket.create_connection((self.address.hostname, self.address.port), timeout=300)

    def garbage(self):
        with self.socket() as raw:
            raw.sendall(b"\x16\x03\x01\r\n\r\n")
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(4096):
                pass

    def leave(self):
        body = json.dumps({**SHORT, "max_tokens": 64, "stream": True, "ignore_eos": True}).encode()
        with self.socket() as raw:
            raw.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        b"Content-Length: %d\r\n\r\n" % len(body) + body)
            assert raw.recv(1000).startswith(b"HTTP/1.1 200")

    def frame(self):
        with self.socket() as raw:
            raw.sendall(b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
            seen = b""
            while not seen.endswith(b"\r\n\r\n"):
                seen += raw.recv(1)
            text = json.dumps({"type": "generate", "id": "a", **SHORT}).encode()
            assert len(text) < 126  # the length takes one byte
            raw.sendall(struct.pack("!BB", 0x81, 0x80 | len(text)) + bytes(4) + text)
            seen = b""
            while b'"done"' not in seen:
                piece = raw.recv(65536)
                assert piece, seen
                seen += piece
            raw.sendall(b"\x88\x82" + bytes(4) + struct.pack("!H", 1000))
            while raw.recv(4096):
                pass


def metric(url, name):
    address = urllib.parse.urlparse(url)
    link = http.client.HTTPConnection(address.hostname, address.port, timeout=300)
    link.request("GET", "/metrics")
    text = link.getresponse().read().decode()
    link.close()
    return float(re.search(rf"^{name} (\S+)$", text, re.MULTILINE).group(1))


def heap(url, still=1.0):
    """The server's heap at rest: the least that is read until it has not fallen for `still` seconds, of reading ten times in each."""
    while metric(url, "troupe_requests_in_flight") > 0:  # whose clients have left
        time.sleep(0.02)
    least, readings = metric(url, "troupe_heap_bytes"), 0
    while readings < 10 * still:
        time.sleep(0.1)
        now = metric(url, "troupe_heap_bytes")
        readings = 0 if now < least else readings + 1
        least = min(least, now)
    return least


def resources(pid):
    """Open descriptors and threads of a process."""
    return len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))


def growth(url, kind, count, before=100, still=1.0):
    """Bytes that each of `count` requests leaves in the heap, after some that may fill caches."""
    caller = Caller(url)
    for _ in range(before):
        caller.send(kind)
    first = heap(url, still)
    for _ in range(count):
        caller.send(kind)
    return (heap(url, still) - first) / count
