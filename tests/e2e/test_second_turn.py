"""Conversations survive their second turn with what official clients make of the first, members that are null included."""

import httpx
import ollama
import openai
import pytest

from conftest import client_of
from scripted import SCRIPTS, WHOLE, write_folder
from server import Server

TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": None, "strict": None,
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]
COUNT, DEGREES = "".join(SCRIPTS["count"]), "".join(SCRIPTS["tool "])


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    server = Server(write_folder(
        tmp_path_factory.mktemp("turns") / "scripted", WHOLE,
        template="{%- if false -%}<tool_call>{{ tools }}</tool_call><think></think>{%- endif -%}"))
    yield server
    assert server.stop() == 0, "".join(server.err)


def test_openais_messages(scripted):
    client = client_of(scripted)
    ask = lambda messages, **more: client.chat.completions.create(model="scripted", messages=messages, **more)
    messages = [{"role": "user", "content": "the weather?"}]
    said = ask(messages, tools=TOOLS).choices[0].message
    assert said.tool_calls[0].function.arguments == '{"city": "Paris"}'
    dumped = said.model_dump()
    assert dumped["function_call"] is None and dumped["refusal"] is None
    messages += [dumped, {"role": "tool", "tool_call_id": said.tool_calls[0].id, "content": "18"}]
    answer = ask(messages, tools=TOOLS).choices[0].message
    assert answer.content == DEGREES
    assert answer.model_dump()["tool_calls"] is None
    messages += [answer.model_dump(), {"role": "user", "content": "now count"}]
    assert ask(messages, tools=TOOLS).choices[0].message.content == COUNT
    messages[-2] = answer # openai-python also takes its own classes
    assert ask(messages, tools=TOOLS).choices[0].message.content == COUNT


def test_calls_that_were_cut_off(scripted):
    client = client_of(scripted)
    messages = [{"role": "user", "content": "the weather?"},
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city": "Pa'}}]},
                {"role": "user", "content": "now count"}]
    assert client.chat.completions.create(model="scripted", messages=messages).choices[0].message.content == COUNT


def test_ollamas_messages(scripted):
    client = ollama.Client(host=scripted.url)
    messages = [{"role": "user", "content": "the weather?"}]
    said = client.chat(model="scripted", messages=messages, tools=TOOLS).message
    assert said.tool_calls[0].function.arguments == {"city": "Paris"}
    for message in (said, said.model_dump()):
        turn = [*messages, message, {"role": "tool", "content": "18", "tool_name": "get_weather"}]
        answer = client.chat(model="scripted", messages=turn, tools=TOOLS).message
        assert answer.content == DEGREES
        body = {"model": "scripted:latest", "stream": False, "messages": [
            *messages, answer.model_dump(), {"role": "user", "content": None}, {"role": "user", "content": "now count"}]}
        assert httpx.post(scripted.url + "/api/chat", json=body, timeout=300).json()["message"]["content"] == COUNT


def test_a_context_that_is_exceeded_has_openais_code(scripted):
    client = client_of(scripted)
    with pytest.raises(openai.BadRequestError, match="This model's maximum context length is") as caught:
        client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": "x"}], max_tokens=10**6)
    assert caught.value.code == "context_length_exceeded"


def test_running_usage_and_a_misspelt_field(scripted):
    client = client_of(scripted)
    chunks = list(client.chat.completions.create(
        model="scripted", messages=[{"role": "user", "content": "now count"}], stream=True,
        stream_options={"include_usage": True}, extra_body={"stream_options": {
            "include_usage": True, "continuous_usage_stats": True}}))
    told = [chunk.usage.completion_tokens for chunk in chunks]
    assert told == sorted(told) and told[0] < told[-1] == 11 # the numbers and the end
    raw = client.chat.completions.with_raw_response.create(
        model="scripted", messages=[{"role": "user", "content": "x"}], extra_body={"temprature": 0})
    assert "did you mean `temperature`?" in raw.headers["x-troupe-warning"]
