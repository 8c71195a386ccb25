"""`serve --policy`: what clients cannot lift."""

import json
import subprocess

import pytest
from websockets.sync.client import connect

from agent_scripts import write_agent
from server import Server, binary

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
    assert policed.metrics(headers=headers("other"))["troupe_policy_withheld_tokens_total"] > before
    assert say(policed, "count", "sesame", temperature=0) == "one two three four five" # ann's key
    streamed = policed.post("/v1/chat/completions", headers=headers("other"), json={
        "messages": [{"role": "user", "content": "count"}], "temperature": 0, "stream": True}).text
    said = "".join(json.loads(line[6:])["choices"][0]["delta"].get("content") or ""
                   for line in streamed.splitlines() if line.startswith("data: {"))
    assert said == text
    with connect(policed.ws_url, additional_headers=headers("other")) as ws:
        ws.send(json.dumps({"type": "generate", "id": "a", "temperature": 0,
                            "messages": [{"role": "user", "content": "count"}]}))
        frames = []
        while not frames or frames[-1]["type"] == "token":
            frames.append(json.loads(ws.recv(timeout=30)))
    assert "".join(frame.get("text", "") for frame in frames) == text


def test_bounds_can_be_tightened_and_not_lifted(policed):
    refused = say(policed, "count", temperature=0.9)
    assert refused["param"] == "temperature" and "at most 0.5" in refused["message"]
    assert policed.metrics(headers=headers("other"))["troupe_policy_refusals_total"] >= 1
    answer = policed.post("/v1/completions", {"prompt": "x", "max_tokens": 50, "ignore_eos": True}, headers=headers("other"))
    assert answer.json()["usage"]["completion_tokens"] == 5
    answer = policed.post("/v1/completions", {"prompt": "x", "max_tokens": 2, "ignore_eos": True}, headers=headers("other"))
    assert answer.json()["usage"]["completion_tokens"] == 2
    assert not say(policed, "hi", temperature=0).startswith("Hello")
    assert not say(policed, "hi", temperature=0, logit_bias={"Hello, ": 100}).startswith("Hello")


def test_a_policy_that_is_wrong_is_told_at_the_start(tmp_path):
    for text, why in (("banned = 5", "line 1: `banned` must be a list"), ("max_tokens = 0", "at least 1"),
                      ("[key.ann]\nbaned = []", "line 2: unknown key `key.ann.baned`"), ("x", "line 1"),
                      ("max_temperature = 3", "must be from 0 to 2")):
        (tmp_path / "policy.toml").write_text(text)
        ended = subprocess.run([binary(), "serve", "--policy", str(tmp_path / "policy.toml"), "--port", "0"],
                               capture_output=True, text=True, timeout=30)
        assert ended.returncode in (1, 2) and why in ended.stderr, ended.stderr
