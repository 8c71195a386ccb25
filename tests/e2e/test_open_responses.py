"""Every response, event and error is what Open Responses' OpenAPI file and openai-python's types say."""

import json

import pytest
from websockets.sync.client import connect

from agent_scripts import AGENT_SCRIPTS, write_agent
from open_responses import Checker, events_of
from server import Server, wait_until

WEATHER = {"type": "function", "name": "get_weather", "description": "The weather of a city.", "strict": True,
           "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
                          "additionalProperties": False}}
TIME = {"type": "function", "name": "get_time"}
SPACE = {"type": "namespace", "name": "clock", "description": "Clocks.", "tools": [TIME]}
NAMES = {"type": "json_schema", "name": "person", "strict": True,
         "schema": {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                    "required": ["name", "age"], "additionalProperties": False}}
REQUESTS = {
    "text": {"input": "hello"},
    "items": {"input": [{"role": "developer", "content": "Be kind."},
                        {"role": "user", "content": [{"type": "input_text", "text": "hello"}]}]},
    "instructions": {"input": "hello", "instructions": "Be brief."},
    "cut": {"input": "count", "max_output_tokens": 3},
    "cut call": {"input": "long weather", "tools": [WEATHER], "max_output_tokens": 1},
    "cut reasoning": {"input": "think", "max_output_tokens": 2},
    "log-probabilities": {"input": "hello", "include": ["message.output_text.logprobs"], "top_logprobs": 2},
    "call": {"input": "weather", "tools": [WEATHER]},
    "calls": {"input": "two calls", "tools": [WEATHER, TIME], "parallel_tool_calls": True},
    "namespace": {"input": "hello", "tools": [SPACE, {"type": "web_search"}]},
    "no tools": {"input": "hello", "tools": [WEATHER], "tool_choice": "none"},
    "required": {"input": "weather", "tools": [WEATHER], "tool_choice": "required"},
    "named": {"input": "weather", "tools": [WEATHER], "tool_choice": {"type": "function", "name": "get_weather"}},
    "allowed": {"input": "weather", "tools": [WEATHER, TIME], "tool_choice": {
        "type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "get_weather"}]}},
    "reasoning": {"input": "think", "reasoning": {"effort": "low", "summary": "detailed"}},
    "sealed reasoning": {"input": "think", "include": ["reasoning.encrypted_content"], "store": False},
    "schema": {"input": "json", "text": {"format": NAMES, "verbosity": "low"}},
    "object": {"input": "json", "text": {"format": {"type": "json_object"}}},
    "echoes": {"input": "hello", "metadata": {"a": "b"}, "user": "u", "safety_identifier": "s", "prompt_cache_key": "k",
               "max_tool_calls": 3, "temperature": 0.5, "top_p": 0.25, "presence_penalty": 0.5, "frequency_penalty": -0.5,
               "service_tier": "auto", "truncation": "auto", "background": False, "store": False},
    "nulls": {"input": "hello", "instructions": None, "tools": None, "tool_choice": None, "metadata": None, "text": None,
              "reasoning": None, "temperature": None, "max_output_tokens": None, "previous_response_id": None,
              "max_tool_calls": None, "truncation": None, "user": None, "stream_options": None},
    "history": {"input": [
        {"role": "user", "content": "weather"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "function_call", "call_id": "c", "name": "get_weather", "arguments": "{\"city\": \"Par"},
        {"type": "function_call_output", "call_id": "c", "output": "sun"}], "tools": [WEATHER]},
}


@pytest.fixture(scope="module")
def checker():
    return Checker()


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    server = Server(write_agent(tmp_path_factory.mktemp("model") / "scripted", AGENT_SCRIPTS), "--log-level", "info")
    yield server
    server.wait_until_idle()
    assert server.stop() == 0, "".join(server.err)


@pytest.mark.parametrize("name", REQUESTS)
def test_a_response_is_what_the_file_and_the_clients_types_say(checker, scripted, name):
    asked = REQUESTS[name]
    found = scripted.post("/v1/responses", asked)
    assert found.status_code == 200, found.text
    whole = found.json()
    checker.response(whole)
    assert whole["status"] == ("incomplete" if name.startswith("cut") else "completed")
    for member in ("metadata", "user", "safety_identifier", "prompt_cache_key", "max_tool_calls", "temperature", "top_p",
                   "presence_penalty", "frequency_penalty", "truncation"):
        if name == "echoes":
            assert whole[member] == asked[member], member

    events = events_of(scripted.post("/v1/responses", dict(asked, stream=True)).text)
    for event in events:
        checker.event(event)
    told = events[-1]["response"]
    same = lambda items: [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in items]
    assert same(told["output"]) == same(whole["output"])
    assert events[-1]["type"] == "response." + told["status"]
    # Every item is opened and closed, and told twice alike.
    added = [event["item"]["id"] for event in events if event["type"] == "response.output_item.added"]
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert added == [item["id"] for item in done]
    assert done == told["output"]

    if asked.get("store", True):
        kept = scripted.get("/v1/responses/" + whole["id"]).json()
        assert kept == whole
        page = scripted.get(f"/v1/responses/{whole['id']}/input_items").json()
        checker.input_page(page)
        continued = scripted.post("/v1/responses", {"input": "hello", "previous_response_id": whole["id"]})
        assert continued.status_code == 200, continued.text # also behind a call that was cut off
        checker.response(continued.json())
        assert scripted.get("/v1/responses/" + continued.json()["id"]).json()["previous_response_id"] == whole["id"]


@pytest.mark.parametrize("name", ["text", "log-probabilities", "call", "calls", "allowed", "reasoning", "echoes"])
def test_the_strict_client_of_open_responses_takes_it(checker, scripted, name):
    import openresponses # the checker has found it
    client = openresponses.OpenResponses(base_url=scripted.url + "/v1", api_key="none")
    whole = client.responses.create(REQUESTS[name])
    with client.responses.create(REQUESTS[name] | {"stream": True}) as stream:
        events = list(stream) # which must end with [DONE]
    assert [item.root.type for item in events[-1].response.output] == [item.root.type for item in whole.output]


def test_input_items_come_in_pages(scripted, checker):
    items = [{"role": "user", "content": str(number)} for number in range(25)]
    kept = scripted.post("/v1/responses", {"input": items}).json()["id"]
    seen, after = [], ""
    while True:
        page = scripted.get(f"/v1/responses/{kept}/input_items?limit=10{after}").json()
        checker.input_page(page)
        assert (page["first_id"], page["last_id"]) == (page["data"][0]["id"], page["data"][-1]["id"])
        seen += [item["content"][0]["text"] for item in page["data"]]
        after = "&after=" + page["last_id"]
        if not page["has_more"]:
            break
    assert seen == [str(number) for number in reversed(range(25))]
    first = scripted.get(f"/v1/responses/{kept}/input_items?order=asc&limit=1").json()
    assert first["data"][0]["content"][0]["text"] == "0" and first["has_more"]


@pytest.mark.parametrize("path, body, status, code", [
    ("/v1/responses", {}, 400, "missing_required_parameter"),
    ("/v1/responses", {"input": "x", "model": "other"}, 404, "model_not_found"),
    ("/v1/responses", {"input": "x", "previous_response_id": "resp_0"}, 404, "previous_response_not_found"),
    ("/v1/responses", {"input": "x", "background": True}, 400, "unsupported_value"),
    ("/v1/responses/resp_0/cancel", {}, 404, "not_found"),
    ("/v1/responses/input_tokens", {"input": 3}, 400, "invalid_value"),
])
def test_errors_have_a_code_and_a_sentence(checker, scripted, path, body, status, code):
    found = scripted.post(path, body)
    assert (found.status_code, found.json()["error"]["code"]) == (status, code), found.text
    checker.error(found.json())
    assert "takes" not in found.json()["error"]["message"]


def test_input_tokens_are_those_of_the_response(scripted):
    asked = {"input": "count", "tools": [WEATHER], "instructions": "Be brief."}
    counted = scripted.post("/v1/responses/input_tokens", asked).json()
    answer = scripted.post("/v1/responses", asked).json()
    assert counted == {"object": "response.input_tokens", "input_tokens": answer["usage"]["input_tokens"]}


def test_only_a_response_in_the_background_could_be_cancelled(scripted):
    kept = scripted.post("/v1/responses", {"input": "hello"}).json()["id"]
    found = scripted.post(f"/v1/responses/{kept}/cancel", {})
    assert found.status_code == 400 and "background" in found.json()["error"]["message"]


def test_usage_tells_reasoning_apart(scripted):
    response = scripted.post("/v1/responses", {"input": "think"}).json()
    chat = scripted.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "think"}]}).json()
    reasoning = response["usage"]["output_tokens_details"]["reasoning_tokens"]
    assert 0 < reasoning < response["usage"]["output_tokens"]
    assert chat["usage"]["completion_tokens_details"]["reasoning_tokens"] == reasoning
    assert chat["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] == 0


def test_tools_that_are_left_out_are_named_in_the_log(scripted):
    before = len(scripted.err)
    scripted.post("/v1/responses", {"input": "hello", "tools": [{"type": "web_search"}, {"type": "file_search",
                                                                                        "vector_store_ids": []}]})
    lines = wait_until(lambda: [line for line in scripted.err[before:] if "left out" in line and "file_search" in line],
                       "a line in the log")
    assert len(lines) == 1 and "file_search, web_search" in lines[0]


def test_history_that_was_cut_is_replayed_in_chats(scripted):
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": WEATHER["parameters"]}}]
    asked = {"messages": [{"role": "user", "content": "long weather"}], "tools": tools, "max_tokens": 1}
    first = scripted.post("/v1/chat/completions", asked).json()
    choice = first["choices"][0]
    assert choice["finish_reason"] == "length"
    arguments = choice["message"]["tool_calls"][0]["function"]["arguments"]
    assert arguments == '{"city": "Par'
    history = [*asked["messages"], choice["message"], {"role": "user", "content": "hello"}]
    second = scripted.post("/v1/chat/completions", {"messages": history, "tools": tools})
    assert second.status_code == 200, second.text


def over_socket(checker, ws, request):
    """The events that answer a request; the last one ends it."""
    ws.send(json.dumps({"type": "response.create", "model": "scripted", **request}))
    events = [json.loads(ws.recv(timeout=300))]
    while events[-1]["type"] not in ("response.completed", "response.incomplete", "response.failed", "error"):
        events.append(json.loads(ws.recv(timeout=300)))
    if events[-1]["type"] == "error":
        checker.error(events[-1])
        return events
    for event in events:
        checker.event(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert (events[0]["type"], events[-1]["type"]) == ("response.created", "response.completed")
    return events


def item(text):
    return {"type": "message", "role": "user", "content": text}


def test_the_seven_cases_of_a_websocket(checker, scripted):
    """Those that the compliance suite of 2026-04-24 names, in its order, on two connections."""
    url = scripted.url.replace("http", "ws", 1) + "/v1/responses"
    with connect(url, open_timeout=300) as ws:
        say = lambda **request: over_socket(checker, ws, {"store": False, **request})[-1]
        one = say(input=[item("hello")])["response"]  # a response; sequential responses
        other = say(input=[item("count")])["response"]
        assert one["id"] != other["id"] and one["output"][-1]["content"][0]["text"]
        more = say(input=[item("hello")], previous_response_id=other["id"])["response"]  # a continuation
        assert more["previous_response_id"] == other["id"] and not more["store"]
        missing = say(input=[item("hello")], previous_response_id="resp_missing")  # a previous response that never was
        assert (missing["status"], missing["error"]["code"]) == (400, "previous_response_not_found")
        failed = say(previous_response_id=more["id"], input=[
            {"type": "function_call_output", "call_id": "call_of_nothing", "output": "1"}])  # evicts what it continues
        assert failed["type"] == "error" and failed["status"] == 400
        evicted = say(input=[item("hello")], previous_response_id=more["id"])
        assert evicted["error"]["code"] == "previous_response_not_found"
        kept = say(input=[item("count")], previous_response_id=one["id"])["response"]
    with connect(url, open_timeout=300) as ws:  # what was not stored is gone; the client sends all of it again
        lost = say(input=[item("hello")], previous_response_id=kept["id"])
        assert lost["error"]["code"] == "previous_response_not_found"
        again = say(input=[item("hello"), *one["output"], item("count"), *kept["output"], item("hello")])["response"]
        assert again["previous_response_id"] is None and again["status"] == "completed"
        compacted = scripted.post("/v1/responses/compact", {"model": "scripted", "input": [
            item("hello"), *one["output"], item("count")]})
        assert compacted.status_code == 200, compacted.text
        chain = say(input=[*compacted.json()["output"], item("count")])["response"]  # a new chain behind it
        assert chain["previous_response_id"] is None
        assert say(input=[item("hello")], previous_response_id=chain["id"])["response"]["status"] == "completed"
