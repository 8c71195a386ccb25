"""Clients that lose a stream and come back for what they have missed and the rest (`--resume-window`)."""

import json
import re

import pytest
from websockets.sync.client import connect

from server import STORYTELLER, wait_until
from streams import KINDS, PROMPT, Stream

RESUMABLE = [kind for kind in KINDS if kind not in ("ollama", "many choices")]


def numbered(text):
    return [int(number) for number in re.findall(r"^id: (\d+)$", text, re.MULTILINE)]


@pytest.fixture
def server(launch):
    return launch("--resume-window", "60", model=STORYTELLER)


def test_a_stream_that_is_left_and_come_back_to_says_the_same_as_one_that_is_not(server):
    for kind in RESUMABLE:
        alone = Stream(server.url, kind, 60).rest()
        assert numbered(alone.body.decode()) == list(range(1, alone.body.count(b"id: ") + 1)), kind
        left = Stream(server.url, kind, 60, headers="X-Request-Id: mine\r\n")
        last = left.leave()
        rest = server.get("/v1/requests/mine/events", headers={"Last-Event-ID": str(last)})
        assert rest.status_code == 200
        assert numbered(rest.text)[0] == last + 1
        left.body += rest.content
        assert left.told() == alone.told(), kind
        assert len(left.answer_ids()) == len(alone.answer_ids())
    server.wait_until_idle()


def test_a_lost_client_computes_nothing_twice(server):
    before = server.metrics()["troupe_generated_tokens_total"]
    left = Stream(server.url, "many choices", 60, headers="X-Request-Id: mine\r\n")  # less than is kept behind a loss
    rest = server.get("/v1/requests/mine/events", headers={"Last-Event-ID": str(left.leave())})
    assert rest.text.count('"finish_reason":"length"') == 16
    wait_until(lambda: server.metrics()["troupe_requests_in_flight"] == 0, "its end")
    assert server.metrics()["troupe_generated_tokens_total"] - before == 16 * 60


def test_a_websocket_is_come_back_to(server):
    ask = {"type": "generate", "id": "a", "prompt": PROMPT, "temperature": 0, "max_tokens": 80, "ignore_eos": True}

    def text(frames):
        return "".join(frame["text"] for frame in frames if frame["type"] == "token")

    with connect(server.ws_url, open_timeout=300) as ws:
        ws.recv()  # its session
        ws.send(json.dumps(ask))
        whole = [json.loads(ws.recv())]
        while whole[-1]["type"] != "done":
            whole.append(json.loads(ws.recv()))
    with connect(server.ws_url, open_timeout=300) as lost:
        session = json.loads(lost.recv())["session"]
        lost.send(json.dumps(ask))
        frames = [json.loads(lost.recv()), json.loads(lost.recv())]
        lost.socket.shutdown(2)  # without a close frame
        with connect(f"{server.ws_url}?resume={session}&after={frames[-1]['seq']}", open_timeout=300) as again:
            assert json.loads(again.recv())["session"] == session
            while frames[-1]["type"] != "done":
                frames.append(json.loads(again.recv()))
    assert [frame["seq"] for frame in frames] == list(range(1, len(frames) + 1))
    assert text(frames) == text(whole)
