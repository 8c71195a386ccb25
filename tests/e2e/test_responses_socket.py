"""Responses over a WebSocket, with OpenAI's client and openai-agents' model, unchanged."""

import json
import subprocess

import pytest
from websockets.sync.client import connect

from agent_scripts import AGENT_SCRIPTS, write_agent
from conftest import client_of
from programs import installed
from scripted import SCRIPTS
from server import Server

COUNT, HELLO, TOLD = "".join(SCRIPTS["count"]), "Hello, world!", "It is 18 degrees."
TOOL = {"type": "function", "name": "get_weather", "strict": False, "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}
AGENT = """
import asyncio, json, sys
from agents import Agent, Runner, RunConfig, OpenAIProvider, function_tool, set_tracing_disabled
from openai import AsyncOpenAI
set_tracing_disabled(True)

@function_tool
def get_weather(city: str) -> str:
    return "18"

async def main():
    client = AsyncOpenAI(base_url=sys.argv[1] + "/v1", api_key="none", max_retries=0)
    provider = OpenAIProvider(openai_client=client, use_responses=True, use_responses_websocket=True)
    agent = Agent(name="one", instructions="Be kind.", model="scripted", tools=[get_weather])
    result = await Runner.run(agent, "weather", run_config=RunConfig(model_provider=provider))
    print(json.dumps(result.final_output))
asyncio.run(main())
"""


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    server = Server(write_agent(tmp_path_factory.mktemp("socket") / "scripted", AGENT_SCRIPTS))
    yield server
    server.wait_until_idle()
    assert server.stop() == 0, "".join(server.err)


def until_end(connection, lanes=(None,)):
    """The events of each lane, up to the one that ends its response."""
    events, open_lanes = {lane: [] for lane in lanes}, set(lanes)
    while open_lanes:
        event = connection.recv()
        lane = getattr(event, "stream_id", None)
        events[lane].append(event)
        if event.type in ("response.completed", "response.incomplete", "response.failed", "error"):
            open_lanes.discard(lane)
    return events


def say(connection, text, **fields):
    connection.response.create(model="scripted", input=text, **fields)
    return until_end(connection, (fields.get("stream_id"),))[fields.get("stream_id")]


def text_of(events):
    assert events[0].type == "response.created", events[0]
    return events[-1].response.output_text


def test_turns_on_one_connection(scripted):
    client = client_of(scripted)
    with client.responses.connect() as connection:
        first = say(connection, "count", store=False)
        assert text_of(first) == COUNT and not first[-1].response.store
        assert "".join(e.delta for e in first if e.type == "response.output_text.delta") == COUNT
        whole = client.responses.create(model="scripted", input="count")
        assert text_of(first) == whole.output_text
        second = say(connection, "hi", store=False, previous_response_id=first[-1].response.id)
        assert text_of(second) == HELLO
        assert second[-1].response.usage.input_tokens > 0
        kept = say(connection, "hi")
        assert client.responses.retrieve(kept[-1].response.id).output_text == HELLO
        with pytest.raises(Exception, match="there is no response"):
            client.responses.retrieve(first[-1].response.id) # it is the connection's alone
    with client.responses.connect() as connection:
        (gone,) = say(connection, "hi", previous_response_id=first[-1].response.id)
        assert (gone.type, gone.status, gone.error.code) == ("error", 400, "previous_response_not_found")
        assert gone.error.param == "previous_response_id"
        assert text_of(say(connection, "hi", previous_response_id=kept[-1].response.id)) == HELLO


def test_what_has_no_effect_is_told_by_the_first_event(scripted):
    with connect(scripted.url.replace("http", "ws", 1) + "/v1/responses", open_timeout=300) as ws:
        for more in ({"temprature": 1}, {}, {"generate": False, "temprature": 1}):
            ws.send(json.dumps({"type": "response.create", "input": "hi", "stream_id": "a", "store": False, **more}))
            events = [json.loads(ws.recv(timeout=300))]
            while events[-1]["type"] != "response.completed":
                events.append(json.loads(ws.recv(timeout=300)))
            assert events[0]["type"] == "response.created"
            notes = ["`temprature` is not known here and has no effect; did you mean `temperature`?"]
            assert [e.get("warnings") for e in events] == [notes if more else None] + [None] * (len(events) - 1)


def test_calls_are_continued_without_being_stored(scripted):
    with client_of(scripted).responses.connect() as connection:
        first = say(connection, "weather", store=False, tools=[TOOL])[-1].response
        (call,) = [item for item in first.output if item.type == "function_call"]
        output = [{"type": "function_call_output", "call_id": call.call_id, "output": "18"}]
        assert text_of(say(connection, output, store=False, tools=[TOOL], previous_response_id=first.id)) == TOLD


def test_what_failed_is_not_continued_again(scripted):
    with client_of(scripted).responses.connect() as connection:
        first = say(connection, "count", store=False)[-1].response
        (bad,) = say(connection, "hi", store=False, previous_response_id=first.id, temperature=9)
        assert (bad.type, bad.status, bad.error.param) == ("error", 400, "temperature")
        (gone,) = say(connection, "hi", store=False, previous_response_id=first.id)
        assert gone.error.code == "previous_response_not_found"
        assert text_of(say(connection, "hi")) == HELLO


def test_64_conversations_side_by_side(scripted):
    lanes = [f"lane {i}" for i in range(64)]
    with client_of(scripted).responses.connect() as connection:
        previous = {}
        for turn in range(2):
            for lane in lanes:
                more = {"previous_response_id": previous[lane]} if lane in previous else {}
                connection.send({"type": "response.create", "model": "scripted", "input": "count" if turn else "hi",
                                 "store": False, "stream_id": lane, **more})
            events = until_end(connection, lanes)
            for lane in lanes:
                assert text_of(events[lane]) == (COUNT if turn else HELLO)
                previous[lane] = events[lane][-1].response.id


def test_a_lane_is_first_in_first_out(scripted):
    with connect(scripted.url.replace("http", "ws", 1) + "/v1/responses", open_timeout=300) as ws:
        for text in ("count", "hi", "count"):
            ws.send(json.dumps({"type": "response.create", "input": text, "stream_id": "a", "store": False}))
        ended, running = [], set()
        while len(ended) < 3:
            event = json.loads(ws.recv(timeout=300))
            assert event["stream_id"] == "a"
            if event["type"] == "response.created":
                assert not running
                running.add(event["response"]["id"])
            if event["type"] == "response.completed":
                running.remove(event["response"]["id"])
                ended.append(event["response"]["output"][-1]["content"][0]["text"])
        assert ended == [COUNT, HELLO, COUNT]


def test_state_without_output_and_wrong_events(scripted):
    with connect(scripted.url.replace("http", "ws", 1) + "/v1/responses", open_timeout=300) as ws:
        def ask(**event):
            ws.send(json.dumps(event))
            told = [json.loads(ws.recv(timeout=300))]
            while told[-1]["type"] not in ("error", "response.completed"):
                told.append(json.loads(ws.recv(timeout=300)))
            return told
        made = ask(type="response.create", input="count", generate=False, store=False)
        assert made[-1]["response"]["output"] == [] and made[-1]["response"]["status"] == "completed"
        after = ask(type="response.create", input="hi", previous_response_id=made[-1]["response"]["id"], store=False)
        assert after[-1]["response"]["output"][-1]["content"][0]["text"] == HELLO
        for event, param in (({"type": "session.update"}, "type"), ({}, "type"), ({"type": "response.create", "stream_id": ""}, "stream_id"),
                             ({"type": "response.create", "input": 5}, "input"),
                             ({"type": "response.create", "input": "x", "background": True}, "background")):
            (wrong,) = ask(**event)
            assert (wrong["type"], wrong["error"]["param"]) == ("error", param) and wrong["status"] == 400
        ws.send("{")
        assert json.loads(ws.recv(timeout=300))["status"] == 400
    assert scripted.get("/v1/responses").status_code == 426


def test_a_conversation_is_compacted_and_goes_on(scripted):
    client = client_of(scripted)
    first = client.responses.create(model="scripted", input="count")
    compact = client.responses.compact(model="scripted", previous_response_id=first.id,
                                       input=[{"role": "user", "content": "one more"}])
    assert compact.object == "response.compaction" and compact.usage.output_tokens > 0
    assert [item.type for item in compact.output] == ["message", "message", "compaction"]
    assert [item.content[0].text for item in compact.output[:2]] == ["count", "one more"]
    again = client.responses.create(model="scripted", input=[*compact.output, {"role": "user", "content": "count"}])
    assert again.output_text == COUNT
    counted = client.responses.input_tokens.count(model="scripted", input=[*compact.output]).input_tokens
    assert counted > 0
    with pytest.raises(Exception, match="input"):
        client.responses.compact(model="scripted")


def test_agents_run_a_loop(scripted, tmp_path):
    python = installed("openai-agents==0.24.0") / "python"
    (tmp_path / "loop.py").write_text(AGENT)
    ended = subprocess.run([python, tmp_path / "loop.py", scripted.url], capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert json.loads(ended.stdout) == TOLD
