"""Answers that follow schemas, patterns and grammars, with the official client and with plain HTTP."""

import concurrent.futures
import json
import os
import pathlib
import re

import jsonschema
import pydantic
import pytest

from conftest import client_of
from expected import MODEL

STORY = [{"role": "user", "content": "Tell me a story about a fox"}]
SAMPLE = pathlib.Path(os.environ.get("TROUPE_SCHEMAS", ""))

SCHEMAS = [
    {"type": "object", "properties": {"title": {"type": "string", "maxLength": 40},
                                      "animal": {"enum": ["fox", "bear", "owl"]},
                                      "age": {"type": "integer", "minimum": 0, "maximum": 99}},
     "required": ["title", "animal", "age"], "additionalProperties": False},
    {"type": "array", "items": {"type": "string", "maxLength": 12}, "minItems": 2, "maxItems": 4},
    {"$defs": {"node": {"type": "object", "properties": {
        "name": {"type": "string", "maxLength": 8},
        "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]}},
        "required": ["name", "next"], "additionalProperties": False}}, "$ref": "#/$defs/node"},
    {"type": "object", "properties": {"when": {"type": "string", "format": "date"},
                                      "mail": {"type": "string", "pattern": "^[a-z]{1,8}@[a-z]{1,8}\\.org$"}},
     "required": ["when", "mail"], "additionalProperties": False},
    {"oneOf": [{"type": "integer", "minimum": 10, "maximum": 20}, {"const": {"ok": True}}]},
    {"type": "number", "minimum": -1, "exclusiveMaximum": 1},
]


def ask(server, path="/v1/chat/completions", **fields):
    body = {"messages": STORY} if "chat" in path else {"prompt": "Once upon a time"}
    return server.post(path, {**body, "max_tokens": 300, "seed": 1, **fields})


def text_of(answer):
    assert answer.status_code == 200, answer.text
    choice = answer.json()["choices"][0]
    return choice["message"]["content"] if "message" in choice else choice["text"], choice["finish_reason"]


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_the_storyteller_writes_documents_that_are_valid(story_server, number):
    schema = SCHEMAS[number]
    for seed in range(3):
        text, reason = text_of(ask(story_server, seed=seed, response_format={
            "type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}))
        if reason == "stop":
            jsonschema.validate(json.loads(text), schema, format_checker=jsonschema.FormatChecker())
        else:
            assert number in (2, 5), text  # a list of nodes and the digits of a number may be endless


class Animal(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=20)
    legs: int = pydantic.Field(ge=0, le=8)
    tame: bool


class Farm(pydantic.BaseModel):
    animals: list[Animal] = pydantic.Field(max_length=3)
    open: bool | None


def test_the_official_client_parses_pydantic_models(story_server):
    client = client_of(story_server)
    name = client.models.list().data[0].id
    answer = client.chat.completions.parse(model=name, messages=STORY, response_format=Farm, max_tokens=400, seed=5)
    assert isinstance(answer.choices[0].message.parsed, Farm)
    tool_free = client.chat.completions.parse(model=name, messages=STORY, response_format=Animal, max_tokens=200, n=2,
                                               seed=5)
    assert all(isinstance(choice.message.parsed, Animal) for choice in tool_free.choices)


def test_a_stream_is_the_same_document(story_server):
    fields = {"seed": 3, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMAS[0]}}}
    whole, _ = text_of(ask(story_server, **fields))
    pieces = []
    for line in ask(story_server, stream=True, **fields).text.splitlines():
        if line.startswith("data: {"):
            pieces += [c["delta"].get("content") or "" for c in json.loads(line[6:])["choices"]]
    assert "".join(pieces) == whole


@pytest.mark.parametrize("fields, pattern", [
    ({"guided_regex": "[A-Z][a-z]{2,6} [0-9]{4}"}, r"[A-Z][a-z]{2,6} [0-9]{4}"),
    ({"structured_outputs": {"choice": ["yes", "no", "may be"]}}, "yes|no|may be"),
    ({"structured_outputs": {"grammar": 'root ::= ("fox" | "owl") " " [0-9]{1,4} "."'}}, r"(fox|owl) [0-9]{1,4}\."),
    ({"structured_outputs": {"json": {"const": [1, 2]}, "compact": True}}, r"\[1(\.0)?,2(\.0)?\]"),
    ({"guided_choice": ["a", "b"], "num_beams": 2, "use_beam_search": True, "temperature": 0}, "a|b"),
])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
def test_every_kind_of_guide_is_followed(story_server, path, fields, pattern):
    text, reason = text_of(ask(story_server, path, **fields))
    assert reason == "stop"
    assert re.fullmatch(pattern, text), text


@pytest.mark.parametrize("fields, param", [
    ({"guided_regex": "("}, "guided_regex"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "nothing"}}}},
     "response_format.json_schema.schema"),
    ({"structured_outputs": {"grammar": "root ::= other"}}, "structured_outputs.grammar"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
    ({"guided_regex": "a" * 2_000_000}, "guided_regex"),
])
def test_what_cannot_be_compiled_is_a_400_that_names_the_field(server, fields, param):
    for stream in False, True:
        answer = server.post("/v1/completions", {"model": MODEL, "prompt": "a", "stream": stream, **fields})
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["param"] == param


@pytest.mark.skipif(not SAMPLE.is_file(), reason="TROUPE_SCHEMAS does not name a file of schemas")
def test_answers_under_200_schemas_are_valid(story_server):
    lines = [json.loads(line) for line in SAMPLE.read_text().splitlines()][:200]

    def check(line):
        answer = ask(story_server, max_tokens=400, response_format={
            "type": "json_schema", "json_schema": {"name": "a", "schema": line["schema"]}})
        if answer.status_code == 400:
            return "refused"
        text, reason = text_of(answer)
        if reason != "stop":
            return "cut"
        jsonschema.validate(json.loads(text), line["schema"])
        return "valid"

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        results = list(pool.map(check, lines))
    print({kind: results.count(kind) for kind in set(results)})
    assert results.count("valid") >= len(lines) // 2
