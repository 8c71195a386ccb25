"""Codex CLI, unchanged, against a model that answers by keyword: whole loops, with a shell that really runs."""

import json
import os
import subprocess

import pytest

from agent_scripts import call, write_agent
from programs import installed
from server import Server, wait_until

VERSION = "openai-codex-cli-bin==0.163.0"


SCRIPTS = { # looked for in this order in the last message, also in what the shell printed
    "step two": ["All ", "done."],
    "step one": ["<think>\n", "One more step.\n", "</think>\n\n",
                 call("exec_command", cmd="echo step $((1 + 1)) > two; sed s/2/two/ two")],
    "tool ": ["The tool ", "has answered."],
    "make a file": ["<think>\n", "The shell does that.\n", "</think>\n\n",
                    call("exec_command", cmd="echo step one | tee one")],
    "close the helper": [call("multi_agent_v1__close_agent", target="nobody")],
    "as json": ['{"name": "Martha", "age": 55}'],
    "": ["Hello ", "from a script."],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    model = write_agent(tmp_path_factory.mktemp("model") / "scripted", SCRIPTS)
    server = Server(model, "--log-level", "info")
    yield server
    server.wait_until_idle()
    assert server.stop() == 0, "".join(server.err)


@pytest.fixture(scope="module")
def program():
    from glob import glob
    found = glob(str(installed(VERSION).parent / "lib/python*/site-packages/codex_cli_bin/bin/codex"))
    assert found, "the package has no program"
    return found[0]


@pytest.fixture
def codex(server, program, tmp_path):
    """codex(..., "a prompt") returns the items of its answer; its last event is codex.ended."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir(), work.mkdir()
    (home / "config.toml").write_text(f'''
model = "scripted"
model_provider = "troupe"
model_reasoning_summary = "detailed"
[model_providers.troupe]
name = "troupe"
base_url = "{server.url}/v1"
wire_api = "responses"
request_max_retries = 0
stream_max_retries = 0
''')

    def run(*arguments):
        ended = subprocess.run([program, "exec", "--json", "--skip-git-repo-check", *arguments], cwd=work, text=True,
                               capture_output=True, stdin=subprocess.DEVNULL, timeout=300,
                               env=os.environ | {"CODEX_HOME": str(home), "HOME": str(home)})
        events = [json.loads(line) for line in ended.stdout.splitlines() if line.startswith("{")]
        assert ended.returncode == 0, ended.stdout + ended.stderr
        assert not [e for e in events if e["type"] in ("error", "turn.failed")], events
        run.ended = events[-1]
        return [e["item"] for e in events if e["type"] == "item.completed"]

    run.work = work
    return run


def texts(items):
    return [item["text"] for item in items if item["type"] == "agent_message"]


def test_a_loop_of_shell_commands(codex):
    items = codex("-s", "danger-full-access", "make a file")
    commands = [item for item in items if item["type"] == "command_execution"]
    assert [command["aggregated_output"] for command in commands] == ["step one\n", "step two\n"], items
    assert texts(items) == ["All done."]
    assert codex.ended["usage"]["reasoning_output_tokens"] == 4 # two in each thought
    assert (codex.work / "one").read_text() == "step one\n"


def test_a_conversation_is_resumed(codex):
    assert texts(codex("hello")) == ["Hello from a script."]
    assert texts(codex("resume", "--last", "-c", "sandbox_mode=danger-full-access", "make a file")) == ["All done."]


def test_an_answer_follows_a_schema(codex):
    schema = codex.work / "schema.json"
    schema.write_text(json.dumps({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
                                  "required": ["name", "age"], "additionalProperties": False}))
    assert json.loads(texts(codex("--output-schema", str(schema), "as json"))[-1]) == {"name": "Martha", "age": 55}


def test_a_function_of_a_namespace_is_called_and_hosted_tools_are_left_out(codex, server):
    before = len(server.err)
    assert texts(codex("close the helper")) == ["The tool has answered."]
    lines = wait_until(lambda: [line for line in server.err[before:] if "does not have" in line], "a line in the log")
    assert all("left out" in line and "web_search" in line for line in lines), lines
