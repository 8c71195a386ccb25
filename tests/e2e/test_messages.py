"""Anthropic's API with the `anthropic` package, and agents that speak nothing else."""

import json
import os
import pathlib
import subprocess

import anthropic
import httpx
import pytest

from agent_scripts import AGENT_SCRIPTS, STRICT, TEMPLATE, call, write_agent
from expected import MODEL
from programs import installed
from scripted import SCRIPTS
from server import Server

FRAMEWORK = ["pydantic-ai-slim[anthropic]==2.68.0"]
CODE = ["claude-agent-sdk==0.2.189"] # which carries the program, 400 MB
COUNT, TOLD = "".join(SCRIPTS["count"]), "".join(SCRIPTS["tool "])
GREEDY = {"extra_body": {"temperature": 0}} # the client has no such argument any more
HELLO = [{"role": "user", "content": "Hello, who are you?"}]
WEATHER = {"name": "get_weather", "description": "The weather of a city.", "input_schema": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}


def client_at(server, key="none"):
    return anthropic.Anthropic(base_url=server.url, api_key=key, max_retries=0, timeout=300)


@pytest.fixture
def messages(server):
    return client_at(server).messages


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    server = Server(write_agent(tmp_path_factory.mktemp("messages") / "scripted", AGENT_SCRIPTS))
    yield server
    server.wait_until_idle()
    assert server.stop() == 0, "".join(server.err)


def total(usage):
    return usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens


def test_a_message_equals_a_chat(messages, client):
    expected = client.chat.completions.create(
        model=MODEL, messages=[{"role": "system", "content": "Be kind."}, *HELLO], temperature=0, max_tokens=12)
    asked = dict(model=MODEL, system=[{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}],
                 messages=HELLO)
    answer = messages.create(**asked, max_tokens=12, **GREEDY)
    assert [block.text for block in answer.content] == [expected.choices[0].message.content]
    assert (answer.role, answer.model, answer.stop_reason, answer.stop_sequence) == ("assistant", MODEL, "max_tokens", None)
    assert answer.usage.output_tokens == 12
    assert total(answer.usage) == expected.usage.prompt_tokens == messages.count_tokens(**asked).input_tokens
    again = messages.create(**asked, max_tokens=12, **GREEDY)
    assert again.content == answer.content
    with messages.stream(**asked, max_tokens=12, **GREEDY) as stream:
        pieces = list(stream.text_stream)
        whole = stream.get_final_message()
    assert "".join(pieces) == whole.content[0].text == answer.content[0].text and len(pieces) > 1
    assert whole.stop_reason == "max_tokens" and total(whole.usage) == total(answer.usage)
    assert whole.usage.output_tokens == 12


def test_stop_sequences_and_a_message_that_is_continued(messages):
    text = messages.create(model=MODEL, messages=HELLO, max_tokens=12, **GREEDY).content[0].text
    stop = text[4:7]
    cut = messages.create(model=MODEL, messages=HELLO, max_tokens=12, **GREEDY, stop_sequences=["\0", stop])
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", stop)
    assert "".join(block.text for block in cut.content) == text[:text.index(stop)]
    begun = [*HELLO, {"role": "assistant", "content": "I am"}]
    assert messages.create(model=MODEL, messages=begun, max_tokens=3, **GREEDY).usage.output_tokens == 3


def test_cached_tokens_are_told(messages):
    asked = dict(model=MODEL, system="Once upon a time there was a cache. " * 20, messages=HELLO, max_tokens=1)
    first, second = messages.create(**asked).usage, messages.create(**asked).usage
    assert second.cache_read_input_tokens > 0 and total(first) == total(second)


def test_a_loop_of_tools(scripted):
    messages = client_at(scripted).messages
    asked = dict(model="scripted", max_tokens=100, tools=[WEATHER, {"type": "web_search_20250305", "name": "web_search"}])
    question = {"role": "user", "content": "weather"}
    first = messages.create(**asked, messages=[question])
    assert first.stop_reason == "tool_use"
    (use,) = first.content
    assert (use.type, use.name, use.input) == ("tool_use", "get_weather", {"city": "Paris"})
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": [
        {"type": "text", "text": "18"}]}]}
    turns = [question, {"role": "assistant", "content": first.content}, result]
    last = messages.create(**asked, messages=turns)
    assert (last.content[0].text, last.stop_reason) == (TOLD, "end_turn")
    with messages.stream(**asked, messages=[{"role": "user", "content": "two calls"}]) as stream:
        events = [event.type for event in stream if not event.type.startswith("content_block_delta")]
        both = stream.get_final_message()
    assert [block.input for block in both.content if block.type == "tool_use"] == [{"city": "Paris"}, {"city": "Rome"}]
    assert events[0] == "message_start" and events[-1] == "message_stop" and "input_json" in events
    quiet = messages.create(**asked, messages=[question], tool_choice={"type": "none"})
    assert quiet.stop_reason == "end_turn"
    forced = messages.create(**asked, messages=[{"role": "user", "content": "weather"}],
                             tool_choice={"type": "tool", "name": "get_weather", "disable_parallel_tool_use": True})
    assert [block.name for block in forced.content] == ["get_weather"]


def test_thinking_comes_in_blocks_and_goes_back(scripted):
    messages = client_at(scripted).messages
    asked = dict(model="scripted", max_tokens=2000, thinking={"type": "enabled", "budget_tokens": 1024})
    question = {"role": "user", "content": "think"}
    whole = messages.create(**asked, messages=[question])
    assert [block.type for block in whole.content] == ["thinking", "text"]
    assert whole.content[0].signature
    with messages.stream(**asked, messages=[question]) as stream:
        streamed = stream.get_final_message()
    assert streamed.content[0].thinking == whole.content[0].thinking and streamed.content[0].signature
    assert streamed.content[1].text == whole.content[1].text
    again = messages.create(**asked, messages=[question, {"role": "assistant", "content": whole.content},
                                              {"role": "user", "content": "count"}])
    assert again.content[0].text == COUNT


def test_models_are_listed_for_the_client(scripted):
    client = client_at(scripted)
    listed = list(client.models.list(limit=1))
    assert [(model.id, model.type, model.lifecycle) for model in listed] == [("scripted", "model", "active")]
    assert listed[0].max_input_tokens > 0 and client.models.retrieve("scripted").display_name == "scripted"
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("claude")
    answer = client.messages.with_raw_response.create(
        model="scripted", max_tokens=9, messages=HELLO, extra_headers={"X-Request-Id": "mine"})
    assert answer.request_id == answer.parse()._request_id == "mine"
    with client.messages.stream(model="scripted", max_tokens=9, messages=HELLO) as stream: # a ping among its events
        assert stream.get_final_text()


def test_errors_are_the_clients_classes(launch, messages, server):
    with pytest.raises(anthropic.NotFoundError) as missing:
        messages.create(model="claude", messages=HELLO, max_tokens=1)
    assert missing.value.body["error"]["type"] == "not_found_error" and missing.value.body["request_id"]
    image = [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}]
    with pytest.raises(anthropic.BadRequestError, match="reads text only"):
        messages.create(model=MODEL, messages=[{"role": "user", "content": image}], max_tokens=1)
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long: "):
        messages.create(model=MODEL, messages=[{"role": "user", "content": "far " * 60000}], max_tokens=1)
    bare = httpx.post(server.url + "/v1/messages", json={"model": MODEL, "messages": HELLO}, timeout=300)
    assert bare.status_code == 400 and bare.json()["error"]["message"] == "`max_tokens` is required"
    locked = launch("--api-key", "sesame")
    assert client_at(locked, "sesame").messages.count_tokens(model=MODEL, messages=HELLO).input_tokens > 0
    with pytest.raises(anthropic.AuthenticationError):
        client_at(locked, "other").messages.create(model=MODEL, messages=HELLO, max_tokens=1)


def test_a_long_system_prompt(scripted):
    system = "You are an agent. " * 3641 # 64 KB
    answer = client_at(scripted).messages.create(model="scripted", system=system, max_tokens=50, tools=[WEATHER],
                                                 messages=[{"role": "user", "content": "count"}])
    assert answer.content[0].text == COUNT


def test_an_agent_of_pydantic_ai(scripted):
    python = installed(*FRAMEWORK) / "python"
    ended = subprocess.run([python, pathlib.Path(__file__).parent / "uses" / "of_anthropic.py", scripted.url],
                           capture_output=True, text=True, timeout=300)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert json.loads(ended.stdout) == [["Paris"], "It is 18 degrees.", "Thought it over.", COUNT, "It is 18 degrees."]


@pytest.mark.programs
def test_claude_code_runs_its_shell(tmp_path):
    python = installed(*CODE) / "python"
    where = "import claude_agent_sdk, pathlib; print(pathlib.Path(claude_agent_sdk.__file__).parent / '_bundled' / 'claude')"
    program = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True).stdout.strip()
    scripts = {"make a file": [call("Bash", command="echo step one > one", description="Makes a file")],
               "": ["The file ", "is there."]}
    # It puts system messages behind the user's, which this template refuses.
    server = Server(write_agent(tmp_path / "scripted", scripts, TEMPLATE + STRICT))
    home = tmp_path / "home"
    home.mkdir()
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    try:
        ended = subprocess.run(
            [program, "-p", "make a file", "--output-format", "json", "--allowedTools", "Bash", "--model", "scripted"],
            capture_output=True, text=True, timeout=300, cwd=home, stdin=subprocess.DEVNULL,
            env=kept | {"HOME": str(home), "ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "none",
                        "ANTHROPIC_SMALL_FAST_MODEL": "scripted", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                        "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1"})
        assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
        result = json.loads(ended.stdout)
        assert result["result"] == "The file is there." and not result["is_error"]
        assert (home / "one").read_text() == "step one\n"
    finally:
        assert server.stop() == 0, "".join(server.err)
