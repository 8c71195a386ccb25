"""What ends an answer, and which bounds each end keeps: the table of runtime/sampling/REFERENCE.md, with a model whose
answers are written down."""

import json

import pytest

from scripted import SCRIPTED
from server import Server

COUNT = "one two three four five six seven eight nine ten"


@pytest.fixture(scope="module")
def counter():
    server = Server(SCRIPTED)
    yield server
    server.wait_until_idle()
    assert server.stop() == 0, "".join(server.err)


def ask(server, word, **fields):
    answer = server.post("/v1/chat/completions", {
        "messages": [{"role": "user", "content": word}], "temperature": 0, **fields})
    assert answer.status_code == 200, answer.text
    choice = answer.json()["choices"][0]
    return choice, choice["message"]["content"], answer.json()["usage"]["completion_tokens"]


def streamed(server, word, **fields):
    lines = server.post("/v1/chat/completions", {
        "messages": [{"role": "user", "content": word}], "temperature": 0, "stream": True, **fields}).text.splitlines()
    deltas = [json.loads(line[6:])["choices"][0]["delta"] for line in lines if line.startswith('data: {"')]
    return "".join(delta.get("content") or "" for delta in deltas)


@pytest.mark.parametrize(("stop", "least", "text", "reason"), [
    (["three"], 0, "one two ", "three"),
    (["three"], 2, "one two ", "three"),
    (["three"], 3, COUNT, None),  # said by the third token
    (["three", "six"], 4, "one two three four five ", "six"),
    (["three four"], 3, "one two ", "three four"),  # completed by the fourth
    (["ten"], 9, COUNT[:-3], "ten"),
    (["ten"], 10, COUNT, None),
])
def test_stop_texts_are_counted_behind_min_tokens_only(counter, stop, least, text, reason):
    choice, content, _ = ask(counter, "count", stop=stop, min_tokens=least)
    assert (content, choice["stop_reason"], choice["finish_reason"]) == (text, reason, "stop")
    assert streamed(counter, "count", stop=stop, min_tokens=least) == text


def test_eos_and_stop_ids_cannot_be_chosen_before_min_tokens(counter):
    _, content, tokens = ask(counter, "count")
    assert (content, tokens) == (COUNT, 11)
    _, content, tokens = ask(counter, "count", min_tokens=12)
    assert content.startswith(COUNT) and tokens > 12
    third = counter.post("/tokenize", {"prompt": "three ", "add_special_tokens": False}).json()["tokens"]
    assert len(third) == 1
    _, content, tokens = ask(counter, "count", stop_token_ids=third, ignore_eos=True, max_tokens=20)
    assert (content, tokens) == ("one two ", 3)
    choice, content, tokens = ask(counter, "count", stop_token_ids=third, min_tokens=5, max_tokens=5)
    assert (choice["finish_reason"], tokens) == ("length", 5)
    assert content.startswith("one two ") and "three" not in content


def test_reasoning_counts_for_min_tokens_and_stop_texts(counter):
    choice, content, _ = ask(counter, "think", stop=["thought"])
    assert (choice["finish_reason"], choice["stop_reason"], content or "") == ("stop", "thought", "")
    choice, content, _ = ask(counter, "think", stop=["thought"], min_tokens=3)
    assert (choice["stop_reason"], content) == (None, "Thought it over.")


def test_where_only_an_end_may_follow_it_ends_whatever_the_bounds(counter):
    answer = counter.post("/v1/completions", {"prompt": "hello", "temperature": 0, "guided_choice": ["yes"],
                                              "min_tokens": 9, "ignore_eos": True, "max_tokens": 20}).json()
    assert (answer["choices"][0]["finish_reason"], answer["choices"][0]["text"]) == ("stop", "yes")
    assert answer["usage"]["completion_tokens"] <= 4
