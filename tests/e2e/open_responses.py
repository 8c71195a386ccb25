"""Checks responses and their events against Open Responses' OpenAPI file and, strictly, against openai-python's types."""

import importlib.util
import json
import pathlib
import warnings

import jsonschema
import pydantic
import pytest

warnings.filterwarnings("ignore", message=".*shadows an attribute.*")
from openai.types import responses as openai_types  # noqa: E402

# The file's names of events that OpenAI and its clients know by others.
OTHER_EVENTS = {"response.reasoning_text.delta": "response.reasoning.delta",
                "response.reasoning_text.done": "response.reasoning.done"}
# Members that openai-python's types lack: the file has the first four and those of a namespace, older clients need
# `name`.
EXTRA = {"frequency_penalty", "presence_penalty", "store", "bytes", "name", "parameters", "strict"}

EVENT = pydantic.TypeAdapter(openai_types.ResponseStreamEvent)
INPUT_ITEM = pydantic.TypeAdapter(openai_types.ResponseItem)


def load():
    spec = importlib.util.find_spec("openresponses")
    if spec is None:
        pytest.skip("openresponses-py, which carries Open Responses' OpenAPI file, is not installed")
    files = sorted(pathlib.Path(spec.submodule_search_locations[0], "openapi").glob("*.json"))
    schemas = json.loads(files[-1].read_text())["components"]["schemas"]
    # The file allows no schema here but null; and it has functions as the only tools, OpenAI groups them.
    schemas["JsonSchemaResponseFormat"]["properties"]["schema"] = {"type": ["object", "null"]}
    needed = [*schemas["FunctionTool"]["required"], "tools"]
    schemas["Tool"] = {"anyOf": [schemas["Tool"], {"type": "object", "required": needed,
                                                  "properties": {"type": {"const": "namespace"}}}]}
    return schemas


class Checker:
    def __init__(self):
        self.schemas = load()
        self.by_type = {}
        for name, schema in self.schemas.items():
            if name.endswith("StreamingEvent"):
                self.by_type[schema["properties"]["type"]["enum"][0]] = name

    def against(self, name, value):
        schema = {"$ref": "#/components/schemas/" + name, "components": {"schemas": self.schemas}}
        found = sorted(jsonschema.Draft202012Validator(schema).iter_errors(value), key=lambda e: -len(e.path))
        assert not found, f"{name}: {[(list(e.path), e.message[:300]) for e in found][:3]}"

    def response(self, body):
        self.against("ResponseResource", body)
        known(openai_types.Response.model_validate_json(json.dumps(body), strict=True))

    def event(self, body):
        theirs = dict(body, type=OTHER_EVENTS.get(body["type"], body["type"]))
        self.against(self.by_type[theirs["type"]], theirs)
        known(EVENT.validate_json(json.dumps(body), strict=True))
        if "response" in body:
            self.response(body["response"])

    def error(self, body):
        self.against("ErrorPayload", body["error"])

    def input_page(self, body):
        known(openai_types.ResponseItemList.model_validate_json(json.dumps(body), strict=True))
        for item in body["data"]:
            self.against("ItemField", item)


def known(model):
    """No member that the type does not know."""
    extra = set(model.model_extra or {}) - EXTRA
    assert not extra, f"{type(model).__name__} has no {extra}"
    for value in dict(model).values():
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, pydantic.BaseModel):
                known(one)


def events_of(text):
    """The events of a stream: each names its type twice, and they are numbered."""
    events, (*blocks, done, nothing) = [], text.split("\n\n")
    assert (done, nothing) == ("data: [DONE]", "")
    for block in blocks:
        head, data = block.split("\n", 1)
        body = json.loads(data.removeprefix("data: "))
        assert head == "event: " + body["type"]
        assert body["sequence_number"] == len(events)
        events.append(body)
    return events
