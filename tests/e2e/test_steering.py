"""Steering vectors, from two lists of prompts to the answers of a server."""

import json
import subprocess

import httpx
import pytest
from websockets.sync.client import connect

from server import GOLDEN, binary

MODEL = GOLDEN
PROMPT = {"max_tokens": 24, "temperature": 0, "ignore_eos": True}


def made(tmp_path, name, *more):
    positive, negative = tmp_path / "positive.txt", tmp_path / "negative.txt"
    positive.write_text("ROMEO: O happy day\nWhat joy is this\n\nI love thee well\n")
    negative.write_text("JULIET: O woeful night\nWhat grief is this\nI hate thee much\n")
    file = tmp_path / name
    command = [binary(), "steer", "--model", str(MODEL), "--positive", str(positive), "--negative", str(negative), "--out",
               str(file), "--threads", "1", "--json", *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    about = json.loads(done.stdout)
    assert about["positive"] == about["negative"] == 3
    return file, about["lengths"]


@pytest.fixture
def steered(launch, tmp_path):
    mean, _ = made(tmp_path, "mean.safetensors")
    pca, lengths = made(tmp_path, "pca.gguf", "--method", "pca")
    assert lengths == pytest.approx([1, 1, 1], abs=1e-5)
    return launch("--steer", f"mean={mean}", "--steer", f"pca={pca}", model=MODEL)


def post(server, path, body):
    return httpx.post(server.url + path, json=body, timeout=300)


def completed(server, steering=None):
    answer = post(server, "/v1/completions", {"prompt": "ROMEO:", **PROMPT, "steering": steering})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"]


def test_every_endpoint_is_steered(steered):
    strong = [{"name": "mean", "strength": 30}]
    plain, changed = completed(steered), completed(steered, strong)
    assert plain != changed
    assert completed(steered, [{"name": "pca", "strength": -20, "first_layer": 1, "last_layer": 2}]) != plain
    assert completed(steered, [{"name": "mean", "strength": 0}]) == plain

    messages = [{"role": "user", "content": "Speak"}]
    chats = [
        post(steered, "/v1/chat/completions", {"messages": messages, **PROMPT, "steering": s}) for s in (None, strong)]
    responses = [
        post(steered, "/v1/responses", {"input": "Speak", "max_output_tokens": 24, "temperature": 0, "steering": s})
        for s in (None, strong)]
    for plain_answer, other in (chats, responses):
        assert plain_answer.status_code == other.status_code == 200, plain_answer.text + other.text
    told = [answer.json()["choices"][0]["message"]["content"] for answer in chats]
    assert told[0] != told[1]
    told = [answer.json()["output"][-1]["content"][0]["text"] for answer in responses]
    assert told[0] != told[1]

    with connect(steered.ws_url, open_timeout=300) as socket:
        socket.send(json.dumps({"type": "generate", "id": "s", "prompt": "ROMEO:", **PROMPT, "steering": strong}))
        text = ""
        while (frame := json.loads(socket.recv(timeout=300)))["type"] == "token":
            text += frame["text"]
        assert frame["type"] == "done"
        assert text == changed


def test_what_cannot_be_is_refused_by_name(steered, tmp_path):
    for steering, param in (
        ([{"name": "none"}], "steering[0].name"),
        ([{"name": "mean", "first_layer": 3}], "steering[0].first_layer"),
        ([{"name": "mean", "strength": 1e9}], "steering[0].strength"),
    ):
        refused = post(steered, "/v1/completions", {"prompt": "a", "steering": steering})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == param
    wide, _ = made(tmp_path, "again.safetensors")
    start = subprocess.run(
        [binary(), "run", "a", "--raw", "--model", str(GOLDEN.parent / "qwen3"), "--steer", f"x={wide}", "--quiet"],
        capture_output=True, text=True, timeout=300)
    assert start.returncode == 1
    assert "`direction.0` has the shape [128], expected [96], the model's hidden size" in start.stderr
