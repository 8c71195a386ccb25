"""openai-agents, pydantic-ai and LangChain, unchanged: loops with tools, streams, histories, structured answers, handing
over, by responses."""

import json
import pathlib
import subprocess

import pytest

from agent_scripts import AGENT_SCRIPTS, write_agent
from programs import installed
from scripted import SCRIPTS
from server import Server

AGENTS = ["openai-agents==0.24.0"]
FRAMEWORKS = ["pydantic-ai-slim[openai]==2.68.0", "langchain-openai==1.7.4"]
TOLD = "It is 18 degrees." # what the script says to a tool's answer
COUNTED = "".join(SCRIPTS["count"])
PERSON = {"name": "Martha", "age": 55}


@pytest.fixture
def server(tmp_path):
    server = Server(write_agent(tmp_path / "scripted", AGENT_SCRIPTS))
    yield server
    server.wait_until_idle()
    assert server.stop() == 0, "".join(server.err)


def outcome(server, packages, script):
    python = installed(*packages) / "python"
    ended = subprocess.run([python, pathlib.Path(__file__).with_name(script), server.url], capture_output=True, text=True,
                           timeout=300)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return json.loads(ended.stdout)


def test_agents_run_whole_loops(server):
    assert outcome(server, AGENTS, "agents_loop.py") == {
        "loop": TOLD,
        "two": TOLD,
        "called": ["Paris", "Paris", "Rome", "Paris"],
        "streamed": [TOLD, 2, True],
        "session": ["Thought it over.", COUNTED, ["reasoning_item", "message_output_item"]],
        "chained": COUNTED,
        "typed": PERSON,
        "handed": ["helper", TOLD],
        "allowed": ["get_weather"],
    }


def test_frameworks_run_whole_loops(server):
    assert outcome(server, FRAMEWORKS, "frameworks_loop.py") == {
        "pydantic-ai": [TOLD, "Thought it over.", COUNTED, TOLD, PERSON],
        "langchain": [[{"city": "Paris"}], TOLD, COUNTED, "Thought it over."],
    }
