"""Streams of every API over plain sockets: what came, byte by byte, and what may differ between two runs taken out."""

import functools
import json
import re
import socket
import urllib.parse
import urllib.request

PROMPT = "Once upon a time there was a small fox who lived in a forest"
LONG = {"temperature": 0.8, "seed": 7, "ignore_eos": True}
CHAT = {"messages": [{"role": "user", "content": PROMPT}]}

# (path, body without a length, the field of the length)
KINDS = {
    "chat": ("/v1/chat/completions", {**CHAT, **LONG, "stream_options": {"include_usage": True}}, "max_tokens"),
    "completions": ("/v1/completions", {"prompt": PROMPT, **LONG}, "max_tokens"),
    "two choices": ("/v1/completions", {"prompt": PROMPT, **LONG, "n": 2}, "max_tokens"),
    "responses": ("/v1/responses", {"input": PROMPT, **LONG}, "max_output_tokens"),
    "anthropic": ("/v1/messages", {**CHAT, **LONG}, "max_tokens"),
    "ollama": ("/api/chat", {**CHAT, "model": None, "options": {**LONG}}, "num_predict"),
    "many choices": ("/v1/completions", {"prompt": PROMPT, **LONG, "n": 16}, "max_tokens"),
    "without a seed": ("/v1/chat/completions", {**CHAT, "temperature": 0, "ignore_eos": True}, "max_tokens"),
}

DIFFER = re.compile(r'"(?:id|item_id|created|created_at|completed_at|[a-z_]*duration|cached_tokens|input_tokens|cache_write_tokens|cache_creation_input_tokens|cache_read_input_tokens)":'
                    r'(?:"[^"]*"|[0-9.]+)|,?"timings":\{[^{}]*\{[^{}]*\}\}')


@functools.cache
def model_of(url):
    with urllib.request.urlopen(url + "/v1/models", timeout=300) as answer:
        return json.load(answer)["data"][0]["id"]


class Stream:
    """One streamed request on a connection of its own, or behind others on one that is kept."""

    def __init__(self, url, kind, tokens, headers="", buffer=8192):
        path, body, field = KINDS[kind]
        body = json.loads(json.dumps({**body, "stream": True}))
        (body["options"] if "options" in body else body)[field] = tokens
        where = urllib.parse.urlsplit(url)
        if "model" in body:
            body["model"] = model_of(url)
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(300)
        self.socket.connect((where.hostname, where.port))
        self.file = self.socket.makefile("rb")
        text = json.dumps(body).encode()
        self.socket.sendall(f"POST {path} HTTP/1.1\r\nHost: {where.netloc}\r\nContent-Type: application/json\r\n{headers}"
                            f"Content-Length: {len(text)}\r\n\r\n".encode() + text)
        self.kind, self.tokens = kind, tokens
        self.head = self._head()
        assert self.head.startswith("HTTP/1.1 200"), self.head
        self.body = b""
        self.gaps = []

    def _head(self):
        head = b""
        while not head.endswith(b"\r\n\r\n") or head.startswith(b"HTTP/1.1 100"):
            if head.endswith(b"\r\n\r\n"):
                head = b""
            line = self.file.readline()
            assert line, "the connection ended within the head"
            head += line
        return head.decode()

    def chunk(self):
        """Reads a chunk; false at the end of the body. A connection that ends before is an error."""
        size = int(self.file.readline() or "torn", 16)
        data = self.file.read(size + 2)
        assert len(data) == size + 2 and data.endswith(b"\r\n"), "the stream is torn"
        self.body += data[:-2]
        return size > 0

    def rest(self):
        while self.chunk():
            pass
        return self

    def leave(self):
        """Reads the first numbered event, forgets what came beyond it, closes, and returns its number. A chunk may hold the
        whole stream: when the machine is busy, all of it is made before this process reads any."""
        while not (first := re.search(rb"^id: (\d+)\n.*?\n\n", self.body, re.MULTILINE | re.DOTALL)):
            assert self.chunk(), "the stream has no numbered event"
        self.body = self.body[:first.end()]
        self.close()
        return int(first[1])

    def told(self):
        """What was said, choice by choice, without comments and what may differ."""
        lines = [line for line in self.body.decode().replace("\n ", "\n").splitlines() if line and not line.startswith(":")]
        if "n" not in KINDS[self.kind][1]:
            return [DIFFER.sub("", line) for line in lines]
        return sorted((DIFFER.sub("", line) for line in lines),
                      key=lambda line: int((re.search(r'"index":(\d+)', line) or [0, 99])[1]))

    def answer_ids(self):
        return set(re.findall(r'"(?:id|item_id)":"([^"]+)"', self.body.decode()))

    def close(self):
        self.socket.close()
        self.file.close()
