"""/v1/ws with the `websockets` client: many requests on one connection, cancellation, bad frames, slow readers."""

import json
import socket

import pytest
import websockets
from websockets.sync.client import connect

from expected import MODEL, PROMPT, greedy_text
from server import ENDLESS, wait_until


def generate(id, **fields):
    return json.dumps({"type": "generate", "id": id, "prompt": PROMPT, "temperature": 0, "max_tokens": 48, **fields})


def receive(ws):
    return json.loads(ws.recv(timeout=300))


def until_end(ws, ids):
    """Receives until each of `ids` has ended with done or error. Returns the frames by id."""
    frames = {id: [] for id in ids}
    open_ids = set(ids)
    while open_ids:
        frame = receive(ws)
        frames[frame["id"]].append(frame)
        if frame["type"] in ("done", "error"):
            open_ids.remove(frame["id"])
    return frames


def text_of(frames, index=0):
    return "".join(frame["text"] for frame in frames if frame["type"] == "token" and frame["index"] == index)


def ids_of(frames, index=0):
    return [id for frame in frames if frame["type"] == "token" and frame["index"] == index for id in frame["token_ids"]]


@pytest.fixture
def ws(server):
    with connect(server.ws_url, open_timeout=300) as connection:
        yield connection


def test_token_frames_and_the_done_frame(ws, server, golden):
    ws.send(generate("a", model=MODEL))
    frames = until_end(ws, ["a"])["a"]
    assert [frame["type"] for frame in frames] == ["token"] * (len(frames) - 1) + ["done"]
    assert len(frames) > 20, "tokens must arrive one by one"
    assert ids_of(frames) == golden["cases"][0]["greedy"]["ids"]
    assert text_of(frames) == greedy_text(server, golden)
    position = 0
    for frame in frames[:-1]:
        assert frame.keys() == {"type", "id", "index", "position", "text", "token_ids"}
        assert frame["position"] == position
        position += len(frame["token_ids"])
    done = frames[-1]
    assert done["choices"] == [{"index": 0, "finish_reason": "length"}]
    assert done["usage"]["prompt_tokens"] == len(golden["cases"][0]["ids"])
    assert done["usage"]["completion_tokens"] == 48
    assert done["timings"].keys() == {
        "queue_ms", "prefill_ms", "decode_ms", "total_ms", "spent_ms", "cached_tokens", "draft_n", "draft_n_accepted"}
    spent = done["timings"].pop("spent_ms")
    assert all(value >= 0 for value in [*done["timings"].values(), *spent.values()])
    assert sum(spent.values()) == pytest.approx(done["timings"]["total_ms"], abs=0.01)


def test_many_requests_on_one_connection_interleave_and_stay_exact(ws, golden):
    cases = golden["cases"][:4]
    names = [f"request {i}" for i in range(24)]
    ws.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 1)  # all arrive together, or the first may end before
    for number, name in enumerate(names):
        ws.send(generate(name, prompt=cases[number % 4]["text"]))
    ws.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, 0)
    order = []
    frames = {name: [] for name in names}
    while len([1 for f in frames.values() if f and f[-1]["type"] == "done"]) < len(names):
        frame = receive(ws)
        assert frame["type"] != "error", frame
        order.append(frame["id"])
        frames[frame["id"]].append(frame)
    for number, name in enumerate(names):
        assert ids_of(frames[name]) == cases[number % 4]["greedy"]["ids"]
    changes = sum(a != b for a, b in zip(order, order[1:]))
    assert changes > 2 * len(names), "requests must run concurrently"


def test_chats_n_and_logprobs(ws):
    chat = {"type": "generate", "id": "c", "messages": [{"role": "user", "content": "Hello"}], "n": 3, "seed": 4,
            "temperature": 1, "max_tokens": 12, "logprobs": True, "top_logprobs": 2}
    ws.send(json.dumps(chat))
    frames = until_end(ws, ["c"])["c"]
    assert frames[-1]["type"] == "done", frames[-1]
    assert sorted(choice["index"] for choice in frames[-1]["choices"]) == [0, 1, 2]
    assert len({text_of(frames, index) for index in range(3)}) == 3
    for frame in frames[:-1]:
        assert len(frame["logprobs"]) == len(frame["token_ids"])
        assert all(len(token["top_logprobs"]) == 2 for token in frame["logprobs"])


def test_stop_strings_end_a_request(ws, server, golden):
    text = greedy_text(server, golden)
    ws.send(generate("s", stop=[text[9:13]]))
    frames = until_end(ws, ["s"])["s"]
    assert text_of(frames) == text[:text.index(text[9:13])]
    assert frames[-1]["choices"][0]["finish_reason"] == "stop"


def test_cancelling_one_request_does_not_affect_another(ws, server, golden):
    cancelled = lambda: server.metrics().get('troupe_requests_total{outcome="cancelled"}', 0)
    before = cancelled()
    ws.send(generate("long", **ENDLESS))
    assert receive(ws)["id"] == "long"
    ws.send(generate("short"))
    ws.send(json.dumps({"type": "cancel", "id": "long"}))
    wait_until(lambda: cancelled() > before, "it to be cancelled")  # it cannot end unread
    frames = until_end(ws, ["long", "short"])
    assert frames["long"][-1]["type"] == "done"
    assert frames["long"][-1]["choices"][0]["finish_reason"] == "cancelled"
    assert frames["long"][-1]["usage"]["completion_tokens"] < 8 * 1900
    assert ids_of(frames["short"]) == golden["cases"][0]["greedy"]["ids"]
    ws.send(generate("long"))
    assert until_end(ws, ["long"])["long"][-1]["type"] == "done", "an ended request's id is free again"


def test_cancelling_immediately_ends_the_request(ws):
    for number in range(10):
        ws.send(generate(str(number), **{**ENDLESS, "n": 1}))
        ws.send(json.dumps({"type": "cancel", "id": str(number)}))
    frames = until_end(ws, [str(number) for number in range(10)])
    for all_of_one in frames.values():
        assert all_of_one[-1]["type"] == "done"
        assert all_of_one[-1]["choices"][0]["finish_reason"] == "cancelled"


@pytest.mark.parametrize("frame, id, param", [
    ("no json", None, None),
    ("", None, None),
    ("[1]", None, None),
    ('"text"', None, None),
    ("{}", None, "id"),
    ('{"type": "generate"}', None, "id"),
    ('{"type": "generate", "id": 5}', None, "id"),
    ('{"id": "x"}', "x", "type"),
    ('{"type": "dance", "id": "x"}', "x", "type"),
    ('{"type": "generate", "id": "x"}', "x", "prompt"),
    ('{"type": "generate", "id": "x", "prompt": "a", "temperature": 9}', "x", "temperature"),
    ('{"type": "generate", "id": "x", "prompt": "a", "n": 0}', "x", "n"),
    ('{"type": "generate", "id": "x", "messages": []}', "x", "messages"),
    ('{"type": "cancel", "id": "x"}', "x", "id"),
])
def test_a_bad_frame_gets_an_error_and_the_connection_stays_open(ws, golden, frame, id, param):
    ws.send(frame)
    answer = receive(ws)
    assert answer["type"] == "error"
    assert answer["id"] == id
    assert answer["error"]["param"] == param
    assert answer["error"]["message"]
    ws.send(generate("after"))
    assert ids_of(until_end(ws, ["after"])["after"]) == golden["cases"][0]["greedy"]["ids"]


def test_a_binary_frame_gets_an_error_and_the_connection_stays_open(ws):
    ws.send(b"\x00\x01")
    assert receive(ws)["type"] == "error"
    ws.send(generate("after", max_tokens=1))
    assert until_end(ws, ["after"])["after"][-1]["type"] == "done"


def test_an_id_in_use_is_refused(ws):
    ws.send(generate("a", **ENDLESS))
    ws.send(generate("a"))
    while (frame := receive(ws))["type"] == "token":
        pass
    assert frame["type"] == "error" and frame["error"]["param"] == "id"
    ws.send(json.dumps({"type": "cancel", "id": "a"}))
    while receive(ws)["type"] != "done":
        pass


def test_a_frame_that_is_too_large_closes_with_1009(server):
    with connect(server.ws_url, open_timeout=300, compression=None) as ws:
        try:
            ws.send(generate("big", prompt="a" * (2 << 20)))
            with pytest.raises(websockets.ConnectionClosed):
                while True:
                    ws.recv(timeout=300)
        except websockets.ConnectionClosed:
            pass  # closed while sending
        assert ws.close_code == 1009
    assert server.get("/health").status_code == 200


def test_a_dropped_connection_cancels_all_its_requests(server):
    cancelled = lambda: server.metrics().get('troupe_requests_total{outcome="cancelled"}', 0)
    before = cancelled()
    with connect(server.ws_url, open_timeout=300) as ws:
        for number in range(8):
            ws.send(generate(str(number), **{**ENDLESS, "n": 1}))
        receive(ws)
        wait_until(lambda: server.metrics()["troupe_requests_in_flight"] == 8, "all its requests to run")
        ws.socket.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: cancelled() == before + 8, "all its requests to be cancelled")
        server.wait_until_idle()


def test_a_slow_reader_pauses_only_its_own_requests(server, golden):
    host, port = server.url.removeprefix("http://").split(":")
    wire = socket.socket()
    wire.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    wire.connect((host, int(port)))
    with connect(server.ws_url, sock=wire, max_queue=1, open_timeout=300, ping_interval=None) as slow:
        # About 40 MB of frames, more than socket buffers hold.
        names = [str(number) for number in range(8)]
        for name in names:
            slow.send(generate(name, max_tokens=2000, ignore_eos=True, logprobs=20))

        def steps_alone():
            """Answers a quick client while nothing of the other's is read, and its requests are paused: sockets are full then, or
            the server was late to fill them, and they go on once more."""
            wait_until(lambda: server.metrics()["troupe_sequences_paused"] == len(names), "all its requests to pause")
            steps = server.metrics()["troupe_generated_tokens_total"]
            with connect(server.ws_url, open_timeout=300) as quick:
                quick.send(generate("q"))
                assert ids_of(until_end(quick, ["q"])["q"]) == golden["cases"][0]["greedy"]["ids"]
            seen = server.metrics()
            return seen["troupe_generated_tokens_total"] - steps <= 60 and seen["troupe_sequences_paused"] == len(names)

        wait_until(steps_alone, "paused requests to get no steps")
        frames = until_end(slow, names)
        for name in names:
            assert frames[name][-1]["type"] == "done", frames[name][-1]
            assert len(ids_of(frames[name])) == 2000
            assert ids_of(frames[name]) == ids_of(frames["0"]), "pausing must not lose or change tokens"


def test_the_websocket_requires_an_api_key(launch):
    guarded = launch("--api-key", "secret")
    with pytest.raises(websockets.InvalidStatus) as refused:
        with connect(guarded.ws_url, open_timeout=300):
            pass
    assert refused.value.response.status_code == 401
    with connect(guarded.ws_url, additional_headers={"Authorization": "Bearer secret"}, open_timeout=300) as ws:
        ws.send(generate("a"))
        assert until_end(ws, ["a"])["a"][-1]["type"] == "done"


def test_other_origins_cannot_connect(server):
    with pytest.raises(websockets.InvalidStatus) as refused:
        with connect(server.ws_url, origin="https://evil.example", open_timeout=300):
            pass
    assert refused.value.response.status_code == 403
