"""10 MB of what is worst to parse, tokenise or render: it is refused or answered, another client hardly notices, and nothing goes on
for long once its client has left. Guides have a test of their own (test_guide_costs.py)."""

import contextlib
import json
import pathlib
import socket
import threading
import time
import urllib.parse

import pytest

from busy import Share
from server import STORYTELLER, Server, wait_until

SIZE = 10 << 20
LONGEST = 15  # seconds of a quiet machine for the costly request
OTHERS = 0.12  # seconds of a quiet machine: the 99th percentile of those of others
SLOWER = 4  # or no more than so many times what others take at rest, which is as busy a machine
IDLE = 5  # seconds of a quiet machine until nothing goes on behind a client that has left
HANGS = 900  # seconds that only a fault reaches

MINE, OTHER = {"Authorization": "Bearer mine"}, {"Authorization": "Bearer other"}


def chat(messages, **more):
    return "/v1/chat/completions", json.dumps({"messages": messages, "max_tokens": 1, **more})


def many(text):
    return text * (SIZE // len(text))


USER = {"role": "user", "content": "a"}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": many('{"a":[1,"b"],').rstrip(",")}}
WORST = {
    "one word, tokenised": ("/tokenize", json.dumps({"prompt": many("a")})),
    "white space, tokenised": ("/tokenize", json.dumps({"prompt": many(" \n")})),
    "escapes, tokenised": ("/tokenize", '{"prompt":"' + many("\\u00e9") + '"}'),
    "one message": chat([{"role": "user", "content": many("ab ")}]),
    "messages, rendered and tokenised": ("/tokenize", json.dumps({"messages": [USER] * (SIZE // 40)})),
    "arguments of a call": chat([USER, {"role": "assistant", "tool_calls": [CALL]}]),
    "tools": chat([USER], tools=[{"type": "function", "function": {"name": f"f{i}", "parameters": {"type": "object"}}}
                                 for i in range(SIZE // 90)]),
    "brackets": ("/v1/completions", many("[")),
    "members": ("/v1/completions", "{" + ",".join(f'"k{i}":0' for i in range(SIZE // 12)) + "}"),
    "inputs of a response": ("/v1/responses", json.dumps({"input": [USER] * (SIZE // 40)})),
}


@pytest.fixture(scope="module")
def worst_server():
    server = Server(STORYTELLER, "--api-key", "mine", "--api-key", "other", "--threads", "1")
    yield server
    server.wait_until_idle(HANGS, headers=OTHER)
    assert server.stop() == 0, "".join(server.err)


class Others:
    """Another client's short requests, one after the other, and how long they take: while this is open, or so many."""

    def __init__(self, server, count=None):
        self.server, self.count, self.took, self.done, self.wrong = server, count, [], False, None
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.done and not self.wrong and len(self.took) != self.count:
            begun = time.monotonic()
            answer = self.server.post("/v1/completions", {"prompt": "A fox", "max_tokens": 1}, headers=OTHER, timeout=HANGS)
            self.took.append(time.monotonic() - begun)
            if answer.status_code != 200:
                self.wrong = answer.text

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done = self.count is None
        self.thread.join()
        assert not self.wrong, self.wrong
        self.median, self.p99 = (sorted(self.took)[len(self.took) * part // 100] for part in (50, 99))


@pytest.mark.parametrize("name", WORST)
def test_ten_megabytes_of_the_worst_delay_others_next_to_nothing(worst_server, name):
    path, body = WORST[name]
    for attempt in range(3):  # the machine may become busier in between
        with Others(worst_server, 20) as rest:
            pass
        with Share() as share, Others(worst_server) as others:
            begun = time.monotonic()
            answer = worst_server.post(path, content=body, headers={**MINE, "Content-Type": "application/json"},
                                       timeout=HANGS)
            took = time.monotonic() - begun
        print(f"{name}: {answer.status_code}, {took:.2f} s; {len(others.took)} others: median {others.median:.3f} s, p99 "
              f"{others.p99:.3f} s, at rest {rest.median:.3f} s, {rest.p99:.3f} s; share {share.value:.2f}")
        assert answer.status_code in (200, 400, 413), answer.text
        if took * share.value < LONGEST and (
                others.p99 * share.value < OTHERS or (others.median < SLOWER * rest.median and others.p99 < SLOWER * rest.p99)):
            return
    raise AssertionError(f"{name}: {took:.1f} s; others {others.p99:.3f} s, at rest {rest.p99:.3f} s; share {share.value:.2f}")


def test_work_for_clients_that_have_left_ends(worst_server):
    url = urllib.parse.urlparse(worst_server.url)
    for name, (path, body) in WORST.items():
        with socket.create_connection((url.hostname, url.port)) as s, contextlib.suppress(OSError):
            s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer mine\r\nContent-Type: application/json\r\n"
                      f"Content-Length: {len(body)}\r\n\r\n{body}".encode())
    begun = time.monotonic()
    with Share() as share:
        wait_until(lambda: is_idle(worst_server), "the processor to be free", HANGS)
    assert (time.monotonic() - begun) * share.value < IDLE


def is_idle(server):
    """Whether hardly any of its threads computes, or would if the machine let it, within a fifth of a second."""
    running = 0
    for _ in range(10):
        for stat in pathlib.Path(f"/proc/{server.process.pid}/task").glob("*/stat"):
            with contextlib.suppress(OSError):  # threads may end
                running += stat.read_text().rpartition(")")[2].split()[0] == "R"
        time.sleep(0.02)
    return running <= 2
