"""Requests by their ids: what they do, where their time went, and how they end early; deadlines and the longest wait. The
first cases are those at which other servers failed: ids that are used twice or again, requests cancelled in the queue,
deadlines that pass there."""

import json
import threading
import time

import pytest

from expected import MODEL, PROMPT
from server import ENDLESS, wait_until

# Thousands of steps, which take 40 s on a server that `slow` starts, however fast the machine is and however long this process
# is not run: what waits behind it, waits for longer than any limit here.
LONG = {"model": MODEL, "prompt": PROMPT, "temperature": 1, "max_tokens": 2000, "ignore_eos": True, "n": 8}
SHORT = {"model": MODEL, "prompt": PROMPT, "temperature": 0, "max_tokens": 4}
ONE_AT_A_TIME = ("--max-sequences", "8")


class Asked:
    """A request on a thread of its own, by its id."""

    def __init__(self, server, id, body, path="/v1/completions", **headers):
        self.server, self.id, self.answer = server, id, None
        self.headers = headers
        self.thread = threading.Thread(target=self._ask, args=(path, body))
        self.thread.start()

    def _ask(self, path, body):
        self.answer = self.server.post(path, body, headers={"X-Request-Id": self.id, **self.headers})

    def state(self):
        found = self.server.get(f"/v1/requests/{self.id}", headers=self.headers)
        return found.json().get("state") if found.status_code == 200 else None

    def wait_for(self, *states):
        wait_until(lambda: self.state() in states, lambda: f"{self.id} to be in {states}, not {self.state()}")

    def cancel(self):
        return self.server._http.delete(f"{self.server.url}/v1/requests/{self.id}", headers=self.headers)

    def end(self):
        self.thread.join(300)
        assert self.answer is not None, f"{self.id} was not answered"
        return self.answer


def control(server, id, action="end"):
    return server.post(f"/v1/requests/{id}/control", {"action": action})


def code(answer):
    return answer.json()["error"]["code"]


@pytest.fixture
def slow(launch):
    """slow(...): a server that makes at most 50 steps a second."""
    def start(*flags, **more):
        server = launch(*flags, "--fault-injection")
        server.slow_down(20, **more)
        return server

    return start


@pytest.fixture
def single(slow):
    """A server in which one request of LONG has all slots."""
    server = slow(*ONE_AT_A_TIME)
    yield server
    server.wait_until_idle()


def test_an_id_that_is_used_twice_names_both_and_one_that_is_used_again_the_new_one(slow):
    # vLLM 10583, 23697: the engine breaks, or the new request is cancelled in the place of the old
    server = slow()
    both = [Asked(server, "same", LONG) for _ in range(2)]
    wait_until(lambda: server.metrics()["troupe_requests_in_flight"] == 2, "both to run")
    assert both[0].cancel().json() == {"id": "same", "object": "request", "cancelled": True}
    for _ in range(5):
        again = server.post("/v1/completions", SHORT, headers={"X-Request-Id": "same"})
        assert again.status_code == 200 and again.headers["x-request-id"] == "same"
        assert again.json()["usage"]["completion_tokens"] == 4
    for one in both:
        assert one.end().status_code == 499 and code(one.answer) == "cancelled"
        assert "retry-after" not in one.answer.headers


def test_a_request_is_cancelled_in_the_queue_and_nothing_of_it_is_computed(single):
    # SGLang 6855, 31765: the client hangs, or the prompt is computed all the same
    running = Asked(single, "running", LONG)
    running.wait_for("decode")
    waiting = Asked(single, "waiting", {**SHORT, "prompt": "never computed"})
    waiting.wait_for("queue")
    before = single.metrics()["troupe_prefill_rows_total"]
    assert waiting.cancel().status_code == 200
    assert waiting.end().status_code == 499
    assert waiting.cancel().status_code == 404 and "has ended" in waiting.cancel().text
    assert running.cancel().status_code == 200
    assert running.end().status_code == 499
    assert single.metrics()["troupe_prefill_rows_total"] == before


@pytest.mark.parametrize("field", ["timeout", "ttft_timeout"])
def test_a_deadline_that_passes_in_the_queue_is_an_error_and_nothing_is_computed(single, field):
    # others prefill what has expired, and answer with one token and "length"
    running = Asked(single, "running", LONG)
    running.wait_for("decode")
    before = single.metrics()["troupe_prefill_rows_total"]
    late = single.post("/v1/completions", {**SHORT, "prompt": "never computed", field: 0.05})
    assert (late.status_code, code(late)) in ((504, "timeout"), (429, "rate_limit_exceeded")), late.text
    assert late.json()["error"]["param"] == field
    assert single.metrics()["troupe_prefill_rows_total"] == before
    running.cancel()
    running.end()


def test_a_deadline_that_passes_while_it_runs_leaves_what_there_is(server):
    fields = {**ENDLESS, "model": MODEL, "prompt": PROMPT, "timeout": 2, "stream": True}
    with server._http.stream("POST", server.url + "/v1/completions", json=fields,
                             headers={"X-Request-Id": "late"}) as answer:
        wait_until(lambda: server.get("/v1/requests/late").json().get("state") in ("write", "ended"), "its deadline")
        events = [json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: {")]
    reasons = [choice["finish_reason"] for event in events for choice in event.get("choices", ())
               if choice["finish_reason"]]
    # A machine may be too slow for a first token in two seconds.
    assert reasons == ["timeout"] * 8 or (not reasons and events[-1]["error"]["code"] == "timeout")


def test_what_would_wait_too_long_is_refused_with_the_wait(slow):
    server = slow(*ONE_AT_A_TIME, "--max-wait", "100ms")

    def runs():
        """A request; none if the machine was so busy that this one would have waited, too."""
        asked = Asked(server, "running", LONG)
        wait_until(lambda: asked.answer or asked.state() == "decode", "it to run or to be refused")
        return asked.answer is None and asked

    running = wait_until(runs, "a request to run")
    refused = server.post("/v1/completions", SHORT)
    assert (refused.status_code, code(refused)) == (429, "rate_limit_exceeded")
    assert int(refused.headers["retry-after"]) >= 1
    assert refused.json()["error"]["predicted_wait_ms"] >= 100
    assert "--max-wait" in refused.json()["error"]["message"]
    running.cancel()
    running.end()
    server.wait_until_idle()
    wait_until(lambda: server.post("/v1/completions", SHORT).status_code == 200, "one that waits for nobody to be answered")


def test_an_answer_is_ended_in_mid_stream_and_what_came_stays(server, client):
    stream = client.completions.create(stream=True, stream_options={"include_usage": True}, model=MODEL, prompt=PROMPT,
                                       temperature=1, max_tokens=2000, n=8, logprobs=20,
                                       extra_body={"ignore_eos": True}, extra_headers={"X-Request-Id": "stream"})
    first = next(stream)
    assert server.get(f"/v1/requests/{first.id}").json()["id"] == "stream"
    assert control(server, first.id).status_code == 200
    tokens, reasons, usage = 0, [], None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            tokens += choice.logprobs is not None and len(choice.logprobs.tokens or [])
            reasons += [choice.finish_reason] if choice.finish_reason else []
    assert reasons == ["stop"] * 8
    assert usage.completion_tokens < 8 * 2000
    wait_until(lambda: server.get("/v1/requests/stream").json()["state"] == "ended", "it to end")
    assert server.get("/v1/requests/stream").json()["completion_tokens"] == usage.completion_tokens


def test_what_cannot_be_ended_says_so(slow):
    server = slow()
    assert control(server, "nobody").status_code == 404
    beams = Asked(server, "beams", {**LONG, "use_beam_search": True})
    wait_until(lambda: control(server, "beams").status_code == 400 and "beam" in control(server, "beams").text,
               "the beams to be refused")
    assert beams.cancel().status_code == 200
    assert beams.end().status_code == 499
    assert control(server, "beams").status_code == 404
    wrong = control(server, "beams", "faster")
    assert wrong.status_code == 400 and wrong.json()["error"]["param"] == "action"


def test_only_its_key_sees_a_request(slow):
    mine = {"Authorization": "Bearer a"}
    server = slow("--api-key", "a", "--api-key", "b", headers=mine)
    running = Asked(server, "mine", LONG, **mine)
    running.wait_for("decode")
    other = {"Authorization": "Bearer b"}
    for found in (server.get("/v1/requests/mine", headers=other),
                  server._http.delete(server.url + "/v1/requests/mine", headers=other)):
        assert found.status_code == 404 and found.json()["error"]["param"] == "id"
    assert server.get("/v1/requests/mine").status_code == 401
    running.cancel()
    assert running.end().status_code == 499
    server.wait_until_idle(headers=mine)


def test_the_parts_of_a_request_are_its_whole_in_the_log_and_by_its_id(slow):
    server = slow("--log-format", "json", *ONE_AT_A_TIME)
    running = Asked(server, "first", LONG)
    running.wait_for("decode")
    second = Asked(server, "second", SHORT)
    second.wait_for("queue")
    assert control(server, "first").status_code == 200
    chat = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5,
                                                "prompt_logprobs": 1}, headers={"X-Request-Id": "third"})
    assert chat.status_code == 200
    running.end(), second.end()
    for id in ("first", "second", "third"):
        wait_until(lambda: server.get(f"/v1/requests/{id}").json()["state"] == "ended", "its end")
        seen = server.get(f"/v1/requests/{id}").json()
        assert sum(seen["spent_ms"].values()) == pytest.approx(seen["total_ms"], abs=0.01), seen
        assert seen["completion_tokens"] > 0 and seen["status"] == 200
    assert server.get("/v1/requests/second").json()["spent_ms"]["queue"] > 0
    wait_until(lambda: any(name.startswith('troupe_request_spent_seconds_sum{cause="decode"') for name in server.metrics()),
               "them to be counted")
    assert server.stop() == 0
    lines = {line["id"]: line for line in map(json.loads, server.err) if line.get("id") in ("first", "second", "third")
             and "/v1/requests/" not in line.get("route", "")}
    assert len(lines) == 3
    for line in lines.values():
        spent = {name: value for name, value in line.items() if name.startswith("spent_")}
        assert {"spent_decode_ms", "spent_prefill_ms", "spent_parse_ms"} <= spent.keys(), line
        assert sum(spent.values()) == pytest.approx(line["total_ms"], abs=1), line


def test_the_parts_of_what_fails_or_is_cancelled_are_its_whole_too(slow):
    server = slow("--log-format", "json", *ONE_AT_A_TIME)
    with server._http.stream("POST", server.url + "/v1/completions", json={**LONG, "stream": True},
                             headers={"X-Request-Id": "left"}) as answer:
        next(answer.iter_lines())
    server.wait_until_idle()
    running = Asked(server, "running", LONG)
    running.wait_for("decode")
    waiting = Asked(server, "waiting", SHORT)
    waiting.wait_for("queue")
    queued = time.monotonic()
    late = server.post("/v1/completions", {**SHORT, "timeout": 0.05}, headers={"X-Request-Id": "late"})
    assert late.status_code in (429, 504)
    queued = time.monotonic() - queued  # at least
    waiting.cancel(), running.cancel()
    assert waiting.end().status_code == running.end().status_code == 499
    errors = {"left": None, "running": "cancelled", "waiting": "cancelled", "late": code(late)}
    for id, error in errors.items():
        wait_until(lambda: server.get(f"/v1/requests/{id}").json()["state"] == "ended", "its end")
        seen = server.get(f"/v1/requests/{id}").json()
        assert sum(seen["spent_ms"].values()) == pytest.approx(seen["total_ms"], abs=0.01), seen
        assert seen.get("error") == error, seen
    for cause, outcome, least in (("queue", "cancelled", 1), ("decode", "cancelled", 2), ("parse", "failed", 1)):
        name = f'troupe_request_spent_seconds_count{{cause="{cause}",outcome="{outcome}"}}'
        wait_until(lambda: server.metrics().get(name, 0) >= least, f"{least} of {name}")
    assert server.stop() == 0
    lines = {line["id"]: line for line in map(json.loads, server.err)
             if line.get("route") == "POST /v1/completions" and line.get("id") in errors}
    assert lines.keys() == errors.keys()
    for line in lines.values():
        spent = {name: value for name, value in line.items() if name.startswith("spent_")}
        assert sum(spent.values()) == pytest.approx(line["total_ms"], abs=1) and spent, line
    assert lines["waiting"]["spent_queue_ms"] >= 1000 * queued


@pytest.mark.parametrize("usage", [True, False])
def test_official_clients_get_timings_with_answers_and_with_the_last_event_of_streams(server, client, usage):
    asked = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 8}
    whole = client.chat.completions.create(**asked, n=2)
    options = {"stream_options": {"include_usage": True}} if usage else {}
    chunks = list(client.chat.completions.create(**asked, stream=True, **options))
    assert [bool(getattr(chunk, "timings", None)) for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert all(chunk.choices for chunk in chunks) != usage, "without usage, each chunk has a choice"
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == "length"
    for timings, said in ((whole.timings, 16), (chunks[-1].timings, 8)):
        assert timings["predicted_n"] == said and timings["prompt_n"] + timings["cache_n"] == whole.usage.prompt_tokens
        assert sum(timings["spent_ms"].values()) == pytest.approx(timings["total_ms"], abs=0.01)
        assert timings["predicted_per_second"] > 0 and timings["spent_ms"]["decode"] > 0
    batch = client.completions.create(model=MODEL, prompt=["a", "b"], max_tokens=3, extra_body={"ignore_eos": True})
    assert batch.timings["predicted_n"] == 6
