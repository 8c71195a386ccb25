"""Plain HTTP: format of streams, errors, limits, API keys, CORS, and the endpoints that generate nothing."""

import concurrent.futures
import json
import shutil
import socket
import subprocess

import httpx
import openai
import pytest

from conftest import client_of
from expected import MODEL, PROMPT
from server import ENDLESS, wait_until

COMPLETION = {"model": MODEL, "prompt": PROMPT, "temperature": 0, "max_tokens": 8}
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 8}


def expect_error(answer, status, param=None, kind="invalid_request_error"):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("application/json")
    error = answer.json()["error"]
    assert error["type"] == kind
    assert error["param"] == param
    assert len(error["message"]) > 10
    return error


@pytest.mark.parametrize("path, body", [("/v1/completions", COMPLETION), ("/v1/chat/completions", CHAT)])
def test_a_stream_is_one_data_line_per_event_and_ends_with_done(server, path, body):
    answer = server.post(path, {**body, "stream": True})
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = answer.text.split("\n\n")
    assert events[-1] == "" and events[-2] == "data: [DONE]"
    for event in events[:-2]:
        assert event.startswith("data: {") and "\n" not in event
        chunk = json.loads(event.removeprefix("data: "))
        assert {"id", "object", "created", "model", "choices"} <= chunk.keys()


def test_events_are_sent_as_tokens_arrive(server):
    with httpx.stream("POST", server.url + "/v1/completions", timeout=300,
                      json={**COMPLETION, **ENDLESS, "stream": True}) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("data: {")
        seen = server.metrics()
        assert seen["troupe_sequences_running"] + seen["troupe_sequences_paused"] >= 1, (
            "the first event must arrive while the request runs")


LONG = list(range(10, 20)) * 300  # exceeds the context of 2048 tokens


@pytest.mark.parametrize("change, param", [
    ({"temperature": 2.5}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"top_p": 1.5}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"min_p": -0.5}, "min_p"),
    ({"repetition_penalty": 0}, "repetition_penalty"),
    ({"presence_penalty": 3}, "presence_penalty"),
    ({"frequency_penalty": -3}, "frequency_penalty"),
    ({"logit_bias": {"99999": 1}}, "logit_bias"),
    ({"logit_bias": {"5": 101}}, "logit_bias"),
    ({"logit_bias": [5]}, "logit_bias"),
    ({"n": 0}, "n"),
    ({"n": 1.5}, "n"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": -2}, "max_tokens"),
    ({"max_tokens": 5000}, "max_tokens"),
    ({"min_tokens": 9}, "min_tokens"),
    ({"logprobs": 21}, "logprobs"),
    ({"stop": [""]}, "stop"),
    ({"stop": 5}, "stop"),
    ({"stop_token_ids": [768]}, "stop_token_ids"),
    ({"seed": "lucky"}, "seed"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"prompt": None}, "prompt"),
    ({"prompt": 5}, "prompt"),
    ({"prompt": []}, "prompt"),
    ({"prompt": [768]}, "prompt"),
    ({"prompt": [-1]}, "prompt"),
    ({"prompt": LONG}, "prompt"),
    ({"prompt": "word " * 5000}, "prompt"),
])
def test_errors_name_the_bad_field_of_a_completion(server, change, param):
    expect_error(server.post("/v1/completions", {**COMPLETION, **change}), 400, param)


@pytest.mark.parametrize("change, param", [
    ({"messages": None}, "messages"),
    ({"messages": []}, "messages"),
    ({"messages": "Hello"}, "messages"),
    ({"messages": [{"role": "user", "content": "word " * 5000}]}, "messages"),
    ({"max_completion_tokens": 0}, "max_completion_tokens"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logprobs": 3}, "logprobs"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"temperature": -1}, "temperature"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ({"guided_regex": "("}, "guided_regex"),
])
def test_errors_name_the_bad_field_of_a_chat(server, change, param):
    expect_error(server.post("/v1/chat/completions", {**CHAT, **change}), 400, param)


def test_errors_name_the_bad_message(server):
    answer = server.post("/v1/chat/completions", {**CHAT, "messages": [{"role": "user", "content": 5}]})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith("messages")


@pytest.mark.parametrize("text", [
    "", "{", "[1, 2", '{"prompt": "\\ud800"', "null", "[]", '"text"', b"\xff\xfe", "{} {}"])
def test_a_body_must_be_a_json_object(server, text):
    answer = server.post("/v1/completions", content=text, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    assert "message" in answer.json()["error"]


def test_errors_map_to_the_clients_exceptions(client):
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(**{**COMPLETION, "temperature": 9})
    assert caught.value.param == "temperature"
    with pytest.raises(openai.NotFoundError) as caught:
        client.completions.create(**{**COMPLETION, "model": "gpt-5"})
    assert caught.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError):
        client.completions.create(**{**COMPLETION, "stream": True, "top_p": -1})


def test_models(client, server):
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-5")
    listed = server.get("/v1/models").json()
    assert listed["object"] == "list" and listed["data"][0]["object"] == "model"


@pytest.mark.parametrize("path", [
    "/v1", "/v1/", "/v2/completions", "/v1/completions/", "/v1/models/a/b", "/../etc"])
def test_unknown_paths_are_404(server, path):
    assert server.get(path).status_code == 404


def test_known_paths_refuse_other_methods(server):
    answer = server.get("/v1/completions")
    assert answer.status_code == 405
    assert "POST" in answer.headers["allow"]
    assert server.post("/health", {}).status_code == 405


def test_tokenize_and_detokenize_match_transformers(server, golden):
    for case in golden["tokenize"]:
        answer = server.post("/tokenize", {"prompt": case["text"]})
        assert answer.status_code == 200, answer.text
        assert answer.json() == {"tokens": case["ids"], "count": len(case["ids"])}
        without = server.post("/tokenize", {"prompt": case["text"], "add_special_tokens": False}).json()
        assert without["tokens"] == case["ids_no_special"]
        assert server.post("/detokenize", {"tokens": case["ids_no_special"]}).json()["prompt"] == (
            case["decoded_with_special"])


def test_tokenize_renders_messages(server, golden):
    for case in golden["chat"]:
        answer = server.post("/tokenize", {"messages": case["messages"],
                                           "add_generation_prompt": case["add_generation_prompt"]})
        if case["rendered"] is None:
            assert answer.status_code == 400
        else:
            assert answer.json()["tokens"] == case["ids"]


@pytest.mark.parametrize("path, body, param", [
    ("/tokenize", {}, "prompt"), ("/tokenize", {"prompt": 5}, "prompt"), ("/detokenize", {}, "tokens"),
    ("/detokenize", {"tokens": [768]}, "tokens"), ("/detokenize", {"tokens": "text"}, "tokens")])
def test_tokenize_and_detokenize_name_bad_fields(server, path, body, param):
    answer = server.post(path, body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"].startswith(param)


def test_health(server):
    answer = server.get("/health")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("application/json")


def test_metrics_count_requests_and_tokens(server):
    before = server.metrics()
    server.post("/v1/completions", {**COMPLETION, "n": 2, "temperature": 1})
    wait_until(server.is_idle, "the server to be idle")
    after = server.metrics()

    def grown(name):
        return after[name] - before.get(name, 0)

    assert grown("troupe_generated_tokens_total") >= 2
    assert grown("troupe_text_bytes_total") > 0
    assert grown("troupe_time_to_first_token_seconds_count") == 1
    assert grown("troupe_queue_seconds_count") == 1
    assert grown("troupe_inter_token_seconds_count") >= 2
    assert 0 <= after["troupe_prefix_cache_hit_rate"] <= 1
    assert after["troupe_kv_blocks"] > 0
    assert after["troupe_kv_blocks_in_use"] == 0
    assert "troupe_preemptions_total" in after
    answer = server.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    for name, kind in [("troupe_time_to_first_token_seconds", "histogram"), ("troupe_sequences_running", "gauge"),
                       ("troupe_preemptions_total", "counter")]:
        assert f"# TYPE {name} {kind}" in answer.text
        assert f"# HELP {name} " in answer.text


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool, of Debian's package prometheus, is absent")
def test_metrics_are_as_prometheus_wants_them(launch, tmp_path):
    (tmp_path / "keys").write_text("alice=a1\n")
    server = launch("--api-keys", str(tmp_path / "keys"), "--speculate", "ngram")
    key = {"Authorization": "Bearer a1"}
    assert server.post("/v1/completions", COMPLETION, headers=key).status_code == 200
    assert server.post("/v1/completions", {**COMPLETION, "n": 0}, headers=key).status_code == 400
    text = wait_until(lambda: 'troupe_key_requests_total{key="alice",status="400"} 1' in
                      (text := server.get("/metrics", headers=key).text) and text, "the refused request to be counted")
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=300)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_a_client_that_shuts_down_its_sending_side_gets_its_answer(server):
    host, port = server.url.removeprefix("http://").split(":")
    body = json.dumps({**COMPLETION, "max_tokens": 200, "ignore_eos": True}).encode()
    with socket.create_connection((host, int(port)), timeout=300) as wire:
        wire.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     b"Content-Length: %d\r\n\r\n" % len(body) + body)
        wire.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := wire.recv(65536):
            answer += piece
    final = answer[answer.rindex(b"HTTP/1.1 "):]
    assert final.startswith(b"HTTP/1.1 200 ")
    assert b"onnection: close\r\n" in final
    assert json.loads(final.split(b"\r\n\r\n", 1)[1])["usage"]["completion_tokens"] == 200


def test_one_connection_serves_many_requests(server):
    with httpx.Client(base_url=server.url, timeout=300) as session:
        for _ in range(20):
            assert session.post("/v1/completions", json=COMPLETION).status_code == 200
            assert session.post("/v1/completions", json={**COMPLETION, "n": 0}).status_code == 400
            assert session.get("/health").status_code == 200


@pytest.mark.parametrize("bytes_sent", [
    b"\r\n\r\n", b"GET\r\n\r\n", b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9\r\n\r\n",
    b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: -5\r\n\r\n{}",
    b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 100000 + b"\r\n\r\n"])
def test_malformed_requests_do_no_harm(server, bytes_sent):
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=300) as wire:
        wire.sendall(bytes_sent)
        wire.shutdown(socket.SHUT_WR)
        answer = b""
        try:
            while piece := wire.recv(65536):
                answer += piece
        except ConnectionResetError:
            pass
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert server.get("/health").status_code == 200


@pytest.fixture(scope="module")
def guarded():
    """A server with a key, two allowed origins and small limits."""
    from server import GOLDEN, Server
    server = Server(GOLDEN, "--api-key", "first-key", "--api-key", "second-key", "--cors-origin",
                    "https://app.example", "--max-body", "64KiB", "--max-sequences", "1", "--max-queue", "1")
    yield server
    server.wait_until_idle(headers=KEY)
    assert server.stop() == 0, "".join(server.err)


KEY = {"Authorization": "Bearer second-key"}


@pytest.mark.parametrize("headers", [
    {}, {"Authorization": "Bearer wrong"}, {"Authorization": "Bearer second-ke"},
    {"Authorization": "Bearer second-keyy"}, {"Authorization": "Basic second-key"}, {"Authorization": "second-key"},
    {"Authorization": "Bearer"}])
def test_without_a_valid_key_everything_but_health_is_401(guarded, headers):
    expect_error(guarded.post("/v1/completions", COMPLETION, headers=headers), 401)
    for path in ("/v1/models", "/metrics", "/v1/ws"):
        assert guarded.get(path, headers=headers).status_code == 401
    assert guarded.post("/tokenize", {"prompt": "a"}, headers=headers).status_code == 401
    assert guarded.get("/health", headers=headers).status_code == 200


def test_any_valid_key_is_accepted(guarded):
    for key in ("first-key", "second-key"):
        assert client_of(guarded, key).completions.create(**COMPLETION).choices[0].text
    with pytest.raises(openai.AuthenticationError):
        client_of(guarded, "third-key").completions.create(**COMPLETION)


def test_cors_preflight_allows_configured_origins_only(guarded):
    asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST",
             "Access-Control-Request-Headers": "authorization, content-type"}
    answer = httpx.options(guarded.url + "/v1/chat/completions", headers=asked, timeout=300)
    assert answer.status_code in (200, 204)
    assert answer.headers["access-control-allow-origin"] == "https://app.example"
    assert "POST" in answer.headers["access-control-allow-methods"]
    allowed = answer.headers["access-control-allow-headers"].lower()
    assert "authorization" in allowed and "content-type" in allowed
    stranger = httpx.options(guarded.url + "/v1/chat/completions", headers={**asked, "Origin": "https://evil.example"}, timeout=300)
    assert "access-control-allow-origin" not in stranger.headers


def test_cors_headers_are_also_on_replies(guarded):
    own = guarded.post("/v1/completions", COMPLETION, headers={**KEY, "Origin": "https://app.example"})
    assert own.headers["access-control-allow-origin"] == "https://app.example"
    refused = guarded.post("/v1/completions", COMPLETION, headers={"Origin": "https://app.example"})
    assert refused.status_code == 401
    assert refused.headers["access-control-allow-origin"] == "https://app.example", "or the page cannot read the error"
    stranger = guarded.post("/v1/completions", COMPLETION, headers={**KEY, "Origin": "https://evil.example"})
    assert "access-control-allow-origin" not in stranger.headers


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_limit_is_413(guarded, chunked):
    body = json.dumps({**COMPLETION, "prompt": "a" * 200_000}).encode()
    content = (body[i:i + 4096] for i in range(0, len(body), 4096)) if chunked else body
    answer = guarded.post("/v1/completions", content=content, headers={**KEY, "Content-Type": "application/json"})
    assert answer.status_code == 413, answer.text
    assert "message" in answer.json()["error"]
    assert guarded.post("/v1/completions", COMPLETION, headers=KEY).status_code == 200


def test_a_full_queue_is_429_with_retry_after(guarded):
    long = {**COMPLETION, "max_tokens": 1000, "ignore_eos": True}

    def crowd():
        """Ten requests, which come one after the other where this machine is busy; those that are refused, and all."""
        with concurrent.futures.ThreadPoolExecutor(10) as pool:
            answers = list(pool.map(lambda _: guarded.post("/v1/completions", long, headers=KEY), range(10)))
        return (refused := [answer for answer in answers if answer.status_code != 200]) and (refused, answers)

    refused, answers = wait_until(crowd, "one of ten requests to be refused: one runs and one waits")
    assert len(refused) <= 8, "one request runs and one waits"
    for answer in refused:
        expect_error(answer, 429, kind="rate_limit_error")
        assert int(answer.headers["retry-after"]) >= 1
    done = [answer.json()["choices"][0]["text"] for answer in answers if answer.status_code == 200]
    assert len(set(done)) == 1
