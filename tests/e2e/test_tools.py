"""Tools with the official client. Forced calls work with any model, so the storyteller makes them, too."""

import json
from typing import Literal

import openai
import pydantic
import pytest

from conftest import client_of
from expected import MODEL

USER = [{"role": "user", "content": "What is the weather in Paris?"}]
WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city",
    "parameters": {"type": "object", "required": ["city", "unit"], "properties": {
        "city": {"type": "string", "maxLength": 12},
        "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]}}}}}
DICE = {"type": "function", "function": {
    "name": "roll_dice", "strict": True,
    "parameters": {"type": "object", "required": ["sides"], "additionalProperties": False,
                   "properties": {"sides": {"type": "integer", "minimum": 2, "maximum": 20}}}}}
NAMED = {"type": "function", "function": {"name": "get_weather"}}


def ask(client, stream=False, messages=USER, **fields):
    return client.chat.completions.create(model=client.models.list().data[0].id, messages=messages, stream=stream,
                                          **{"tools": [WEATHER, DICE], "temperature": 0, "max_tokens": 120, **fields})


def check_call(call):
    arguments = json.loads(call.function.arguments)
    if call.function.name == "get_weather":
        assert set(arguments) == {"city", "unit"}
        assert arguments["unit"] in ("celsius", "fahrenheit")
        assert len(arguments["city"]) <= 12
    else:
        assert call.function.name == "roll_dice"
        assert 2 <= arguments["sides"] <= 20
    assert call.type == "function"
    assert call.id


@pytest.fixture
def story_client(story_server):
    return client_of(story_server)


def test_a_named_function_is_called_once(story_client):
    choice = ask(story_client, tool_choice=NAMED).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content is None
    assert [call.function.name for call in choice.message.tool_calls] == ["get_weather"]
    check_call(choice.message.tool_calls[0])


def test_required_makes_calls_and_nothing_else(story_client):
    choice = ask(story_client, tool_choice="required", parallel_tool_calls=False).choices[0]
    assert choice.message.content is None
    assert len(choice.message.tool_calls) == 1
    check_call(choice.message.tool_calls[0])


def test_parallel_calls_have_ids_of_their_own(story_client):
    choice = ask(story_client, tool_choice="required", max_tokens=400).choices[0]
    calls = choice.message.tool_calls
    assert len({call.id for call in calls}) == len(calls) >= 1
    for call in calls[:-1]:
        check_call(call)
    if choice.finish_reason == "tool_calls":
        check_call(calls[-1])


def test_a_stream_of_a_call_equals_the_whole_answer(story_client):
    whole = ask(story_client, tool_choice=NAMED).choices[0].message.tool_calls[0]
    name, arguments, reasons, roles = None, "", [], []
    for chunk in ask(story_client, stream=True, tool_choice=NAMED):
        choice = chunk.choices[0]
        roles.append(choice.delta.role)
        reasons.append(choice.finish_reason)
        assert not choice.delta.content
        for call in choice.delta.tool_calls or []:
            assert call.index == 0
            if call.function.name:
                assert name is None and call.id and call.function.arguments == ""
                name = call.function.name
            arguments += call.function.arguments or ""
    assert (name, arguments) == (whole.function.name, whole.function.arguments)
    assert roles[0] == "assistant" and reasons[-1] == "tool_calls"


def test_several_choices_have_calls_each(story_client):
    answer = ask(story_client, tool_choice=NAMED, n=3, temperature=1, seed=5)
    ids = [choice.message.tool_calls[0].id for choice in answer.choices]
    assert len(set(ids)) == 3
    for choice in answer.choices:
        check_call(choice.message.tool_calls[0])


def test_of_itself_a_model_answers_or_calls(story_client):
    choice = ask(story_client, max_tokens=200).choices[0]
    for call in choice.message.tool_calls or []:
        assert call.function.name in ("get_weather", "roll_dice")
    assert choice.message.tool_calls or choice.message.content
    none = ask(story_client, tool_choice="none").choices[0]
    assert none.message.tool_calls is None and none.message.content


def test_the_clients_helpers_parse_arguments(story_client):
    class GetWeather(pydantic.BaseModel):
        city: str = pydantic.Field(max_length=12)
        unit: Literal["celsius", "fahrenheit"]

    model = story_client.models.list().data[0].id
    fields = {"model": model, "messages": USER, "temperature": 0, "max_tokens": 120,
              "tools": [openai.pydantic_function_tool(GetWeather)],
              "tool_choice": {"type": "function", "function": {"name": "GetWeather"}}}
    call = story_client.chat.completions.parse(**fields).choices[0].message.tool_calls[0]
    assert isinstance(call.function.parsed_arguments, GetWeather)
    with story_client.chat.completions.stream(**fields) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "tool_calls.function.arguments.delta" in kinds
    assert final.choices[0].message.tool_calls[0].function.arguments == call.function.arguments


def test_a_result_goes_back_to_the_model(story_client):
    call = ask(story_client, tool_choice=NAMED).choices[0].message
    messages = [*USER, call.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "18 degrees, sunny"}]
    assert ask(story_client, messages=messages, tool_choice="none").choices[0].message.content


def test_a_schema_that_cannot_be_enforced_is_refused_by_its_tool(client):
    odd = {"type": "function", "function": {"name": "odd", "strict": True, "parameters": {
        "type": "object", "properties": {"a": {"$dynamicRef": "#x"}}}}}
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, tools=[WEATHER, odd])
    assert refused.value.param == "tools[1].function.parameters"
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, tool_choice={"type": "function", "function": {"name": "nobody"}})
    assert refused.value.param == "tool_choice"
    assert client.models.list().data[0].id == MODEL
