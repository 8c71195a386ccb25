"""POST /v1/responses and /v1/embeddings with the official client."""

import json
import pathlib

import openai
import pytest

from expected import MODEL
from server import ROOT

GREEDY = {"model": MODEL, "temperature": 0, "max_output_tokens": 12}
USER = "Hello, who are you?"


def test_a_response_equals_the_chat(client):
    chat = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": USER}], temperature=0,
                                          max_tokens=12)
    answer = client.responses.create(input=USER, **GREEDY)
    assert answer.object == "response" and answer.id.startswith("resp_")
    assert answer.output_text == chat.choices[0].message.content
    assert answer.status == "incomplete" and answer.incomplete_details.reason == "max_output_tokens"
    assert answer.usage.input_tokens == chat.usage.prompt_tokens
    assert answer.usage.output_tokens == 12
    assert answer.model == MODEL
    items = client.responses.create(input=[{"role": "user", "content": [{"type": "input_text", "text": USER}]}], **GREEDY)
    assert items.output_text == answer.output_text


def test_a_stream_tells_the_response_by_events(client):
    whole = client.responses.create(input=USER, **GREEDY)
    events = list(client.responses.create(input=USER, stream=True, **GREEDY))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type for event in events]
    assert kinds[:4] == ["response.created", "response.in_progress", "response.output_item.added",
                         "response.content_part.added"]
    assert kinds[-4:] == ["response.output_text.done", "response.content_part.done", "response.output_item.done",
                          "response.incomplete"]
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text == events[-1].response.output_text
    with client.responses.stream(input=USER, **GREEDY) as stream:  # whose last response must be complete
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text


def test_responses_are_stored_continued_and_deleted(client):
    first = client.responses.create(input=USER, **GREEDY)
    again = client.responses.retrieve(first.id)
    assert again.output_text == first.output_text
    listed = client.responses.input_items.list(first.id).data
    assert listed[0].content[0].text == USER
    second = client.responses.create(input="And then?", previous_response_id=first.id, **GREEDY)
    assert second.previous_response_id == first.id
    chat = client.chat.completions.create(model=MODEL, temperature=0, max_tokens=12, messages=[
        {"role": "user", "content": USER}, {"role": "assistant", "content": first.output_text},
        {"role": "user", "content": "And then?"}])
    assert second.output_text == chat.choices[0].message.content
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(input="x", previous_response_id=first.id, **GREEDY)
    kept = client.responses.create(input=USER, store=False, **GREEDY)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(kept.id)


def test_one_key_does_not_see_the_responses_of_another(launch):
    server = launch("--api-key", "one", "--api-key", "two")
    one, two = (openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0) for key in ("one", "two"))
    answer = one.responses.create(input=USER, **GREEDY)
    assert one.responses.retrieve(answer.id).id == answer.id
    with pytest.raises(openai.NotFoundError):
        two.responses.retrieve(answer.id)


def test_what_is_not_supported_is_refused_by_name(client):
    for field, value in (("background", True), ("truncation", "newest"), ("tool_choice", {"type": "web_search"})):
        with pytest.raises(openai.BadRequestError) as caught:
            client.responses.create(input=USER, model=MODEL, **{field: value})
        assert caught.value.param.startswith(field)


def test_embeddings_are_transformers(client):
    golden = json.loads((pathlib.Path(ROOT) / "tests/data/embeddings.json").read_text())[MODEL]
    for case in golden:
        length = sum(x * x for x in case["last"]) ** 0.5
        expected = [x / length for x in case["last"]]
        for encoding in ("float", "base64"):
            answer = client.embeddings.create(model=MODEL, input=case["ids"], encoding_format=encoding)
            if encoding == "float":
                found = answer.data[0].embedding
            else:
                import base64
                import struct
                raw = base64.b64decode(answer.data[0].embedding)
                found = struct.unpack(f"<{len(raw) // 4}f", raw)
            assert max(abs(a - b) for a, b in zip(found, expected, strict=True)) < 1e-3
            assert answer.usage.prompt_tokens == len(case["ids"])
    short = client.embeddings.create(model=MODEL, input=["a", "b"], dimensions=4)
    assert [len(one.embedding) for one in short.data] == [4, 4]
    assert abs(sum(x * x for x in short.data[0].embedding) - 1) < 1e-5
