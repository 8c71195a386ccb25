"""Answers that nobody reads: what they take together, and what others notice. The budget is --max-answer-memory."""

import json
import os
import socket
import threading
import time
import urllib.parse

import pytest

from busy import Share
from server import GOLDEN, Server
from test_guide_costs import Peak, in_time

BUDGET = "64MiB" # so that few and small answers exceed it; 256 MiB are the default
TOKENS = int(os.environ.get("TROUPE_UNREAD_TOKENS", "400")) # of each prompt; with 2,000, 40 answers of 60 MB each

# MiB above rest, connections, path, body. Each answer is many times as large as its request: together, they would take
# 3.6 GB and twice 460 MB. Of /tokenize, requests and what makes answers are most of it.
ATTACKS = {
    "tokenize": (800, 40, "/tokenize", {"prompt": "to be or not to be " * 150_000}),
    "prompt_logprobs": (320, 40, "/v1/completions", {"prompt": [[5 + i % 200 for i in range(TOKENS)]] * 50, "max_tokens": 1,
                                                "prompt_logprobs": 9}),
    "a stream with echo": (320, 40, "/v1/completions", {"prompt": [[5 + i % 200 for i in range(TOKENS)]] * 50, "max_tokens": 1,
                                                   "echo": True, "logprobs": 9, "stream": True}),
}


class Unread:
    """Connections that send a request each and read twelve bytes of what comes."""

    def __init__(self, server, count, path, body):
        url = urllib.parse.urlparse(server.url)
        self.address = url.hostname, url.port
        text = json.dumps(body).encode()
        self.request = (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                        f"Content-Length: {len(text)}\r\n\r\n").encode() + text
        self.sockets, self.seen = [], []
        self.threads = [threading.Thread(target=self.send) for _ in range(count)]
        for thread in self.threads:
            thread.start()

    def send(self):
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(300)
        self.sockets.append(client)
        try:
            client.connect(self.address)
            client.sendall(self.request)
            self.seen.append(client.recv(12))
        except OSError as e: # the server may close it
            self.seen.append(repr(e).encode())

    def close(self):
        for client in self.sockets:
            client.close()


@pytest.mark.parametrize("name", ATTACKS)
def test_answers_that_nobody_reads_are_bounded(launch, name):
    most, count, path, body = ATTACKS[name]

    def measure(_):
        server = launch("--log-level", "off", "--max-answer-memory", BUDGET, model=GOLDEN)
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 4}).status_code == 200
        with Peak(server) as peak, Share() as share:
            unread, slowest = Unread(server, count, path, body), 0
            while any(thread.is_alive() for thread in unread.threads):
                begun = time.monotonic()
                assert server.get("/health").status_code == 200
                slowest = max(slowest, time.monotonic() - begun)
                time.sleep(0.1)
        unread.close()
        print(f"{name}: {peak.bytes >> 20} MiB above rest, /health within {slowest:.2f} s, share {share.value:.2f}")
        assert peak.bytes <= most << 20
        assert len(unread.seen) == count and any(seen.startswith(b"HTTP/1.1 200") for seen in unread.seen)
        server.wait_until_idle()
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 4}).status_code == 200
        assert server.stop() == 0, "".join(server.err)
        return slowest * share.value <= 2

    in_time(measure)
