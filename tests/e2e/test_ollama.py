"""Ollama's API with the `ollama` package."""

import json

import httpx
import ollama
import pytest

from expected import MODEL
from server import wait_until

GREEDY = {"temperature": 0, "num_predict": 12}
USER = [{"role": "user", "content": "Hello, who are you?"}]


@pytest.fixture
def ollama_client(server):
    return ollama.Client(host=server.url)


def test_a_chat_equals_openais(ollama_client, client):
    expected = client.chat.completions.create(model=MODEL, messages=USER, temperature=0, max_tokens=12)
    answer = ollama_client.chat(model=MODEL, messages=USER, options=GREEDY)
    assert answer.message.role == "assistant"
    assert answer.message.content == expected.choices[0].message.content
    assert answer.done and answer.done_reason == "length"
    assert answer.eval_count == 12
    assert answer.prompt_eval_count == expected.usage.prompt_tokens
    assert answer.total_duration >= answer.eval_duration > 0


def test_streams_have_the_same_text(ollama_client):
    whole = ollama_client.generate(model=MODEL, prompt="Once upon a time", options=GREEDY)
    pieces = list(ollama_client.generate(model=MODEL, prompt="Once upon a time", options=GREEDY, stream=True))
    assert "".join(piece.response for piece in pieces) == whole.response
    assert [piece.done for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    assert pieces[-1].eval_count == 12
    chat = list(ollama_client.chat(model=MODEL, messages=USER, options=GREEDY, stream=True))
    assert "".join(piece.message.content for piece in chat) == \
        ollama_client.chat(model=MODEL, messages=USER, options=GREEDY).message.content


def test_a_conversation_goes_on_from_its_context(ollama_client):
    first = ollama_client.generate(model=MODEL, prompt="One", options=GREEDY)
    assert len(first.context) == first.prompt_eval_count + first.eval_count
    second = ollama_client.generate(model=MODEL, prompt="Two", options=GREEDY, context=first.context)
    assert second.context[:len(first.context)] == list(first.context)
    assert second.prompt_eval_count > len(first.context)


def test_raw_prompts_stop_strings_and_seeds(ollama_client):
    raw = ollama_client.generate(model=MODEL, prompt="Once upon a time", raw=True, options=GREEDY)
    assert raw.context is None
    stop = raw.response[4:7]
    cut = ollama_client.generate(model=MODEL, prompt="Once upon a time", raw=True, options={**GREEDY, "stop": [stop]})
    assert cut.response == raw.response[:raw.response.index(stop)]
    assert cut.done_reason == "stop"
    drawn = [ollama_client.generate(model=MODEL, prompt="a", options={"temperature": 1, "seed": 5, "num_predict": 12})
             for _ in range(2)]
    assert drawn[0].response == drawn[1].response


def test_the_model_is_listed_shown_and_loaded(ollama_client, server):
    listed = ollama_client.list().models
    assert [model.model for model in listed] == [MODEL + ":latest"]
    assert len(listed[0].digest) == 64
    assert [model.model for model in ollama_client.ps().models] == [MODEL + ":latest"]
    assert ollama_client.pull(MODEL).status == "success"
    assert [step.status for step in ollama_client.pull(MODEL, stream=True)][-1] == "success"
    shown = ollama_client.show(MODEL)
    assert shown.details.family == "llama"
    assert "completion" in shown.capabilities
    assert shown.modelinfo["llama.context_length"] > 0
    loaded = ollama_client.generate(model=MODEL, keep_alive=-1)
    assert loaded.done_reason == "load" and loaded.response == ""
    assert ollama_client.chat(model=MODEL + ":latest", messages=[]).done_reason == "load"
    assert server.get("/api/version").json() == {"version": "0.12.11"}
    assert server.get("/").text == "Ollama is running"
    assert httpx.head(server.url + "/", timeout=300).status_code == 200


def test_errors_are_sentences(ollama_client, server):
    with pytest.raises(ollama.ResponseError, match="not found") as caught:
        ollama_client.generate(model="other", prompt="x")
    assert caught.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="options.temperature"):
        ollama_client.generate(model=MODEL, prompt="x", options={"temperature": 9})
    assert isinstance(server.get("/api/nothing").json()["error"], str)
    assert isinstance(server.post("/api/chat", content="{", headers={"Content-Type": "application/json"}).json()["error"], str)


def test_requests_need_no_content_type_and_options_without_effect_are_told(server):
    body = json.dumps({"model": MODEL, "prompt": "x", "stream": False,
                       "options": {**GREEDY, "num_ctx": 100_000, "max_tokens": 5, "mirostat": 1}})
    for headers in ({"Content-Type": "application/x-www-form-urlencoded"}, {}): # as `curl -d`, as litellm
        answer = server.post("/api/generate", content=body, headers=headers)
        assert answer.status_code == 200 and answer.json()["eval_count"] == 12
    warning = answer.headers["x-troupe-warning"]
    for name in ("options.num_ctx", "options.max_tokens", "options.mirostat"):
        assert f"`{name}`" in warning
    wait_until(lambda: any("left out" in line and "options.max_tokens" in line for line in list(server.err)), "a line in the log")
    other = server.post("/api/generate", content=body, headers={"Content-Type": "text/plain", "Origin": "https://a.b"})
    assert other.status_code == 403


def test_embeddings_have_length_1(ollama_client):
    answer = ollama_client.embed(model=MODEL, input=["one", "two"])
    assert len(answer.embeddings) == 2
    for vector in answer.embeddings:
        assert abs(sum(x * x for x in vector) - 1) < 1e-5
    assert answer.prompt_eval_count > 0
    assert list(ollama_client.embed(model=MODEL, input="one").embeddings[0]) == list(answer.embeddings[0])
    assert len(ollama_client.embeddings(model=MODEL, prompt="one").embedding) == len(answer.embeddings[0])
