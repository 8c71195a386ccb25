"""`serve --policy`: what clients cannot lift."""

import json
import subprocess

import pytest
from websockets.sync.client import connect

from agent_scripts import call, write_agent
from server import Server, binary, wait_until

SCRIPTS = {"count": ["one ", "two ", "th", "ree ", "four ", "five"], "": ["Hello, ", "world", "!"]}
POLICY = """
banned = ["three", "world!"]
max_temperature = 0.5
max_tokens = 5
logit_bias = { "Hello, " = -100 }

[key.ann]
banned = []
max_tokens = 100
"""


@pytest.fixture(scope="module")
def policed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("policy")
    (folder / "policy.toml").write_text(POLICY)
    (folder / "keys").write_text("ann=sesame\nbob=other\n")
    server = Server(write_agent(folder / "scripted", SCRIPTS), "--policy", str(folder / "policy.toml"), "--api-keys",
                    str(folder / "keys"))
    yield server
    server.wait_until_idle(headers=headers("other"))
    assert server.stop() == 0, "".join(server.err)


def headers(key):
    return {"Authorization": "Bearer " + key}


def say(server, content, key="other", **fields):
    answer = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], **fields},
                         headers=headers(key))
    return answer.json()["choices"][0]["message"]["content"] if answer.status_code == 200 else answer.json()["error"]


def test_a_banned_text_never_leaves(policed):
    before = policed.metrics(headers=headers("other"))["troupe_policy_withheld_tokens_total"]
    text = say(policed, "count", temperature=0)
    assert text.startswith("one two th") and "three" not in text
    wait_until(lambda: policed.metrics(headers=headers("other"))["troupe_policy_withheld_tokens_total"] > before, "it to be counted")
    assert say(policed, "count", "sesame", temperature=0) == "one two three four five" # ann's key
    streamed = policed.post("/v1/chat/completions", headers=headers("other"), json={
        "messages": [{"role": "user", "content": "count"}], "temperature": 0, "stream": True}).text
    said = "".join(json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
                   for line in streamed.splitlines() if line.startswith("data: {"))
    assert said == text
    with connect(policed.ws_url, open_timeout=300, additional_headers=headers("other")) as ws:
        ws.send(json.dumps({"type": "generate", "id": "a", "temperature": 0,
                            "messages": [{"role": "user", "content": "count"}]}))
        frames = []
        while not frames or frames[-1]["type"] == "token":
            frames.append(json.loads(ws.recv(timeout=300)))
    assert "".join(frame.get("text", "") for frame in frames) == text


def test_bounds_can_be_tightened_and_not_lifted(policed):
    refused = say(policed, "count", temperature=0.9)
    assert refused["param"] == "temperature" and "at most 0.5" in refused["message"]
    wait_until(lambda: policed.metrics(headers=headers("other"))["troupe_policy_refusals_total"] >= 1, "it to be counted")
    answer = policed.post("/v1/completions", {"prompt": "x", "max_tokens": 50, "ignore_eos": True}, headers=headers("other"))
    assert answer.json()["usage"]["completion_tokens"] == 5
    answer = policed.post("/v1/completions", {"prompt": "x", "max_tokens": 2, "ignore_eos": True}, headers=headers("other"))
    assert answer.json()["usage"]["completion_tokens"] == 2
    assert not say(policed, "hi", temperature=0).startswith("Hello")
    assert not say(policed, "hi", temperature=0, logit_bias={"Hello, ": 100}).startswith("Hello")


def test_an_answer_that_only_a_banned_text_could_continue_fails_and_says_so(policed):
    refused = say(policed, "count", structured_outputs={"grammar": 'root ::= "one th" "ree"'})
    assert refused["message"] == "only texts that this server's policy bans can continue the answer"
    assert say(policed, "count", "sesame", structured_outputs={"grammar": 'root ::= "one th" "ree"'}) == "one three" # ann's key


def test_a_policy_that_is_wrong_is_told_at_the_start(tmp_path):
    for text, why in (("banned = 5", "line 1: `banned` must be a list"), ("max_tokens = 0", "at least 1"),
                      ("[key.ann]\nbaned = []", "line 2: unknown key `key.ann.baned`"), ("x", "line 1"),
                      ("max_temperature = 3", "must be from 0 to 2"),
                      ("[key.ann]\nbanned = []", "[key.ann] names no key; this server has none"),
                      ('logit_bias = { "' + "one 2 " * 100 + '" = -1 }', "which may have at most 64")):
        (tmp_path / "policy.toml").write_text(text)
        ended = subprocess.run([binary(), "serve", "--policy", str(tmp_path / "policy.toml"), "--port", "0"],
                               capture_output=True, text=True, timeout=300)
        assert ended.returncode in (1, 2) and why in ended.stderr, ended.stderr


# What clients read as one text, or read without escapes, holds a banned text that no token completed.
JOINED = {
    "join": ["This is ban", call("get_weather", city="Paris"), "ned", " indeed"],
    "spell": [r'<tool_call>\n{"name": "get_weather", "arguments": {"city": "bann\u0065\u0064"}}\n</tool_call>'.replace(
        r"\n", "\n")],
    "object": [r'{"name": "bann\u0065d"}'],
    "": ["Not ", "that."],
}
TOOL = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}


@pytest.fixture(scope="module")
def joining(tmp_path_factory):
    folder = tmp_path_factory.mktemp("joining")
    (folder / "policy.toml").write_text('banned = ["banned"]')
    server = Server(write_agent(folder / "scripted", JOINED), "--policy", str(folder / "policy.toml"))
    yield server
    server.wait_until_idle()
    assert server.stop() == 0, "".join(server.err)


def ask(server, path, content, **fields):
    answer = server.post(path, {"model": server.get("/v1/models").json()["data"][0]["id"],
                                "messages": [{"role": "user", "content": content}], "max_tokens": 50, **fields})
    assert answer.status_code == 200, answer.text
    return answer


def data_of(stream):
    return [json.loads(line[6:]) for line in stream.splitlines() if line.startswith("data: {")]


def test_a_text_put_together_around_a_call_never_leaves(joining):
    before = joining.metrics()["troupe_policy_filtered_answers_total"]
    tools = [{"type": "function", "function": TOOL}]
    whole = ask(joining, "/v1/chat/completions", "join", tools=tools).json()
    choice = whole["choices"][0]
    assert choice["finish_reason"] == "content_filter"
    assert choice["message"]["content"] == "This is banne"
    assert json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"]) == {"city": "Paris"}
    chunks = data_of(ask(joining, "/v1/chat/completions", "join", tools=tools, stream=True,
                         stream_options={"include_usage": True}).text)
    deltas = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]
    assert "".join(delta["delta"].get("content") or "" for delta in deltas) == "This is banne"
    assert [delta["finish_reason"] for delta in deltas if delta["finish_reason"]] == ["content_filter"]
    assert chunks[-1]["usage"] == whole["usage"] # whenever the engine was stopped
    wait_until(lambda: joining.metrics()["troupe_policy_filtered_answers_total"] == before + 2, "both to be counted")
    plain = ask(joining, "/v1/chat/completions", "hi", tools=tools).json()["choices"][0]
    assert (plain["message"]["content"], plain["finish_reason"]) == ("Not that.", "stop")


def test_a_text_spelt_with_escapes_never_leaves(joining):
    tools = [{"type": "function", "function": TOOL}]
    choice = ask(joining, "/v1/chat/completions", "spell", tools=tools).json()["choices"][0]
    assert choice["finish_reason"] == "content_filter"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"].endswith(r"bann\u0065\u006")
    choice = ask(joining, "/v1/chat/completions", "object", response_format={"type": "json_object"}).json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == (r'{"name": "bann\u0065', "content_filter")


def test_every_api_ends_such_answers_in_its_own_words(joining):
    for content, text in (("join", "ban|ne"), ("spell", "")):
        body = {"input": content, "tools": [{"type": "function", **TOOL}]}
        answer = joining.post("/v1/responses", body).json()
        assert answer["incomplete_details"] == {"reason": "content_filter"} and answer["status"] == "incomplete"
        said = "|".join(part["text"] for item in answer["output"] if item["type"] == "message"
                        for part in item["content"])
        assert said == text.replace("ban", "This is ban")
        events = data_of(joining.post("/v1/responses", {**body, "stream": True}).text)
        assert events[-1]["type"] == "response.incomplete"
        assert events[-1]["response"]["incomplete_details"] == {"reason": "content_filter"}
        told = "".join(event["delta"] for event in events if event["type"] == "response.output_text.delta")
        assert told == said.replace("|", "")

        anthropic = {"tools": [{"name": TOOL["name"], "input_schema": TOOL["parameters"]}]}
        answer = ask(joining, "/v1/messages", content, **anthropic).json()
        assert answer["stop_reason"] == "refusal"
        assert "|".join(block["text"] for block in answer["content"] if block["type"] == "text") == said
        calls = [block["input"] for block in answer["content"] if block["type"] == "tool_use"]
        assert calls == ([{"city": "Paris"}] if text else [])
        events = data_of(ask(joining, "/v1/messages", content, stream=True, **anthropic).text)
        assert events[-2]["delta"]["stop_reason"] == "refusal"
        told = "".join(event["delta"].get("text", "") for event in events if event["type"] == "content_block_delta")
        assert told == said.replace("|", "")

        tools = [{"type": "function", "function": TOOL}]
        answer = ask(joining, "/api/chat", content, tools=tools, stream=False).json()
        assert answer["done_reason"] == "content_filter" and answer["message"]["content"] == told
        assert len(answer["message"].get("tool_calls", [])) == len(calls)
        lines = [json.loads(line) for line in ask(joining, "/api/chat", content, tools=tools).text.splitlines()]
        assert lines[-1]["done_reason"] == "content_filter"
        assert "".join(line["message"]["content"] for line in lines) == told

        with connect(joining.ws_url, open_timeout=300) as ws:
            ws.send(json.dumps({"type": "generate", "id": "a", "max_tokens": 50, "tools": tools,
                                "messages": [{"role": "user", "content": content}]}))
            frames = []
            while not frames or frames[-1]["type"] == "token":
                frames.append(json.loads(ws.recv(timeout=300)))
        assert frames[-1]["choices"] == [{"index": 0, "finish_reason": "content_filter"}]
        assert "".join(frame.get("text", "") for frame in frames) == told
