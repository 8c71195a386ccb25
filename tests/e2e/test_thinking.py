"""Bounded reasoning over each API, with a model that would think for long."""

import subprocess

import anthropic
import openai
import pytest

from agent_scripts import write_agent
from conftest import client_of
from server import Server, binary

THOUGHTS = [chr(ord("a") + i) + " " for i in range(20)]
SCRIPTS = {
    "": ["<think>", *THOUGHTS, "</think>", "So ", "it ", "is."],
}
TEMPLATE = ("{%- if tools -%}{#- <tool_call>{\"name\": ..., \"arguments\": ...}</tool_call> -#}{%- endif -%}"
            "{%- if false -%}<think></think>{%- endif -%}")
# The model says what stands at a position: behind the closing tag it goes on where it was.
REST = "".join(THOUGHTS[4:]) + "</think>So it is."
HELLO = [{"role": "user", "content": "Hello"}]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    server = Server(write_agent(tmp_path_factory.mktemp("thinking") / "scripted", SCRIPTS, TEMPLATE))
    yield server
    server.wait_until_idle()
    assert server.stop() == 0, "".join(server.err)


@pytest.fixture
def chats(thinker):
    create = client_of(thinker).chat.completions.create
    return lambda budget=None, content="Hello", more={}, **fields: create(
        model="scripted", messages=[{"role": "user", "content": content}],
        extra_body=more | ({} if budget is None else {"thinking_token_budget": budget}), **fields)


def told(choice):
    return getattr(choice.message, "reasoning_content", None), choice.message.content


def test_reasoning_ends_with_its_budget(chats):
    assert told(chats().choices[0]) == ("".join(THOUGHTS).strip(), "So it is.")
    answer = chats(3)
    assert told(answer.choices[0]) == ("a b c", REST) and answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens_details.reasoning_tokens == 4 # with the opening tag
    assert told(chats(0).choices[0])[1] == "".join(THOUGHTS[1:]) + "</think>So it is."
    assert told(chats(1000).choices[0]) == ("".join(THOUGHTS).strip(), "So it is.")


@pytest.mark.parametrize("fields", [{"n": 2}, {"extra": {"speculate": "ngram"}}, {"logprobs": True}, {"stream": True}])
def test_however_it_is_asked(chats, fields):
    extra = fields.pop("extra", {})
    if fields.get("stream"):
        chunks = [c.choices[0].delta for c in chats(3, **fields) if c.choices]
        assert "".join(getattr(d, "reasoning_content", None) or "" for d in chunks) == "a b c"
        assert "".join(d.content or "" for d in chunks) == REST
        return
    answer = chats(3, **fields) if not extra else chats(3, prediction={"type": "content", "content": REST})
    for choice in answer.choices:
        assert told(choice) == ("a b c", REST)
    assert len(answer.choices) == fields.get("n", 1)


def test_an_answer_has_room(chats):
    bounded = chats(1000, max_tokens=9)
    assert bounded.choices[0].finish_reason == "length"
    assert told(bounded.choices[0]) == ("a b c d e f", "h ")
    assert told(chats(max_tokens=9).choices[0])[1] in (None, "") # without a budget it is the client's affair
    assert told(chats(2, max_tokens=9).choices[0]) == ("a b", "d e f g h ")


def test_a_guide_begins_behind_it(chats):
    answer = chats(2, more={"structured_outputs": {"choice": ["red", "green"]}}).choices[0]
    assert told(answer)[0] == "a b" and told(answer)[1] in ("red", "green")
    answer = chats(2, tools=[TOOL], tool_choice="required").choices[0]
    assert answer.message.reasoning_content == "a b"
    assert [call.function.name for call in answer.message.tool_calls] == ["look"]


def test_a_wrong_budget_is_refused(chats):
    for budget in (-2, 1.5, "long"):
        with pytest.raises(openai.BadRequestError, match="thinking_token_budget"):
            chats(budget)


def test_responses(thinker):
    client = client_of(thinker)
    answer = client.responses.create(model="scripted", input="Hello", extra_body={"thinking_token_budget": 3})
    assert answer.output_text == REST
    assert answer.output[0].type == "reasoning" and answer.output[0].content[0].text == "a b c"
    assert answer.usage.output_tokens_details.reasoning_tokens == 4
    none = client.responses.create(model="scripted", input="Hello", reasoning={"effort": "none"})
    assert none.output_text == "".join(THOUGHTS[1:]) + "</think>So it is."


def test_messages(thinker):
    client = anthropic.Anthropic(base_url=thinker.url, api_key="none", max_retries=0, timeout=300)
    answer = client.messages.create(model="scripted", max_tokens=100, messages=HELLO,
                                    thinking={"type": "enabled", "budget_tokens": 3})
    assert [block.type for block in answer.content] == ["thinking", "text"]
    assert answer.content[0].thinking == "a b c" and answer.content[1].text == REST
    none = client.messages.create(model="scripted", max_tokens=100, messages=HELLO, thinking={"type": "disabled"})
    assert none.content[-1].text == "".join(THOUGHTS[1:]) + "</think>So it is."
    with pytest.raises(anthropic.BadRequestError, match="budget_tokens"):
        client.messages.create(model="scripted", max_tokens=100, messages=HELLO,
                               thinking={"type": "enabled", "budget_tokens": 0})


def test_ollama(thinker):
    def say(**fields):
        asked = {"model": "scripted", "messages": HELLO, "stream": False, **fields}
        return thinker.post("/api/chat", asked).raise_for_status().json()["message"]
    assert say()["thinking"] == "".join(THOUGHTS).strip()
    none = say(think=False)
    assert "thinking" not in none and none["content"] == "".join(THOUGHTS[1:]) + "</think>So it is."
    assert say(think="low")["thinking"] == "".join(THOUGHTS).strip() # 1,024 tokens are enough


def test_run_and_chat_have_a_budget(tmp_path):
    model = str(write_agent(tmp_path / "scripted", SCRIPTS, TEMPLATE))
    run = lambda *flags, command="run": subprocess.run(
        [binary(), command, "--model", model, "--temperature", "0", "--quiet", *flags], input="Hello\n", text=True,
        capture_output=True, timeout=300)
    assert "</think>So it is." in run("Hello").stdout
    bounded = run("--thinking-budget", "3", "Hello").stdout
    assert "c </think>" in bounded and bounded.count("</think>") == 2
    assert "c </think>" in run("--thinking-budget", "3", command="chat").stdout
    assert "--thinking-budget" in run("--thinking-budget", "-2", "Hello").stderr


@pytest.fixture(scope="module")
def brooder(tmp_path_factory):
    """Thinks for so long that its answers cannot end before they are read."""
    thoughts = [chr(ord("a") + i % 20) + " " for i in range(700)]
    scripts = {"": ["<think>", *thoughts, "</think>", "So ", "it ", "is."]}
    server = Server(write_agent(tmp_path_factory.mktemp("brooding") / "scripted", scripts, TEMPLATE))
    yield server, "".join(thoughts)
    server.wait_until_idle()
    assert server.stop() == 0, "".join(server.err)


def test_reasoning_is_ended_from_elsewhere_in_mid_stream(brooder):
    server, thoughts = brooder
    control = lambda id: server.post(f"/v1/requests/{id}/control", {"action": "end_reasoning"})
    stream = client_of(server).chat.completions.create(
        model="scripted", messages=HELLO, n=16, stream=True, logprobs=True, top_logprobs=20,
        extra_headers={"X-Request-Id": "brooding"})
    told = [["", "", None] for _ in range(16)]  # reasoning, content, end
    said = False
    for chunk in stream:
        for choice in chunk.choices:
            its = told[choice.index]
            its[0] += getattr(choice.delta, "reasoning_content", None) or ""
            its[1] += choice.delta.content or ""
            its[2] = choice.finish_reason or its[2]
        if not said and all(reasoning for reasoning, _, _ in told):
            said = True
            assert control("brooding").status_code == 200
            assert control("brooding").status_code == 200, "a second time, nothing happens"
    for reasoning, content, end in told:
        assert thoughts.startswith(reasoning) and len(reasoning) < len(thoughts) - 10
        assert content.endswith("</think>So it is.") and end == "stop"  # the model says what stands at a position
    plain = server.post("/v1/completions", {"prompt": "Hello", "max_tokens": 2}, headers={"X-Request-Id": "plain"})
    assert plain.status_code == 200
    assert control("plain").status_code == 404 and "has ended" in control("plain").text
