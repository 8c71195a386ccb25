"""Structured answers as frameworks of agents ask for them: LangChain, instructor, and OpenAI's own helpers. The bundled
storyteller knows nothing of the schemas, so that an answer that fits comes from the guide."""

import asyncio
import os
from typing import Annotated, Literal

import instructor
import ollama
import pydantic
import pytest

os.environ["LANGSMITH_TRACING"] = "false"  # nothing leaves the machine
from langchain_core.messages import HumanMessage, ToolMessage  # noqa: E402
from langchain_core.tools import tool  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402

from conftest import client_of  # noqa: E402

ASK = "Describe a brave fox as JSON."
USER = [{"role": "user", "content": ASK}]
Word = Annotated[str, pydantic.Field(max_length=12)]


class Animal(pydantic.BaseModel):
    name: Word
    kind: Literal["badger", "walrus"]
    age: int = pydantic.Field(ge=3, le=20)
    friends: list[Word] = pydantic.Field(max_length=2)


@pytest.fixture
def client(story_server):
    return client_of(story_server)


@pytest.fixture
def model(client):
    return client.models.list().data[0].id


@pytest.fixture
def chat(story_server, model):
    return ChatOpenAI(base_url=story_server.url + "/v1", api_key="none", model=model, temperature=0, max_tokens=300,
                      max_retries=0, timeout=300)


@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_langchain_makes_objects(chat, method):
    assert isinstance(chat.with_structured_output(Animal, method=method).invoke(ASK), Animal)


def test_langchain_makes_objects_strictly_streamed_together_and_through_responses(chat):
    structured = chat.with_structured_output(Animal, strict=True, include_raw=True).invoke(ASK)
    assert structured["parsing_error"] is None
    assert isinstance(structured["parsed"], Animal)
    assert isinstance(list(chat.with_structured_output(Animal).stream(ASK))[-1], Animal)
    several = asyncio.run(chat.with_structured_output(Animal).abatch([ASK] * 3))
    assert several == [structured["parsed"]] * 3
    responses = chat.model_copy(update={"use_responses_api": True})
    assert isinstance(responses.with_structured_output(Animal).invoke(ASK), Animal)


def test_langchain_calls_tools_and_hands_their_results_back(chat):
    @tool
    def weather(place: Word, days: Literal[1, 2, 7]) -> str:
        """The weather of a place."""
        return f"{place}: sunny"

    question = HumanMessage("What is the weather in the forest?")
    answer = chat.bind_tools([weather], tool_choice="weather").invoke([question])
    assert [call["name"] for call in answer.tool_calls] == ["weather"]
    call = answer.tool_calls[0]
    assert call["args"]["days"] in (1, 2, 7)
    result = ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])
    assert chat.bind_tools([weather]).invoke([question, answer, result]).content


@pytest.mark.parametrize("mode", ["TOOLS", "TOOLS_STRICT", "JSON_SCHEMA", "RESPONSES_TOOLS"])
def test_instructor_makes_objects_in_one_attempt(client, model, mode):
    wrapped = instructor.from_openai(client, mode=instructor.Mode[mode])
    answer = wrapped.chat.completions.create(model=model, messages=USER, response_model=Animal, max_tokens=300,
                                             temperature=0, max_retries=0)
    assert isinstance(answer, Animal)


def test_instructor_shows_objects_as_they_grow(client, model):
    parts = list(instructor.from_openai(client).chat.completions.create_partial(
        model=model, messages=USER, response_model=Animal, max_tokens=300, temperature=0))
    assert len(parts) > 3
    Animal.model_validate(parts[-1].model_dump())


def test_openais_helpers_parse_chats_streams_and_responses(client, model):
    fields = {"model": model, "temperature": 0}
    parsed = client.chat.completions.parse(messages=USER, response_format=Animal, max_tokens=300, **fields)
    expected = parsed.choices[0].message.parsed
    assert isinstance(expected, Animal)
    with client.chat.completions.stream(messages=USER, response_format=Animal, max_tokens=300, **fields) as stream:
        for _ in stream:
            pass
        assert stream.get_final_completion().choices[0].message.parsed == expected
    response = client.responses.parse(input=ASK, text_format=Animal, max_output_tokens=300, **fields)
    assert isinstance(response.output_parsed, Animal)


def test_ollamas_format_takes_a_schema(story_server, model):
    answer = ollama.Client(host=story_server.url).chat(model=model, messages=USER, format=Animal.model_json_schema(),
                                                       options={"temperature": 0, "num_predict": 300})
    Animal.model_validate_json(answer.message.content)
