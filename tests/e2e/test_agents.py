"""openai-agents, unchanged: loops with tools, streams, sessions, structured answers and handing over, by responses."""

import json
import pathlib
import subprocess

import pytest

from agent_scripts import AGENT_SCRIPTS, write_agent
from programs import installed
from scripted import SCRIPTS
from server import Server

VERSION = "openai-agents==0.24.0"
SCRIPT = pathlib.Path(__file__).with_name("agents_loop.py")


@pytest.fixture
def server(tmp_path):
    server = Server(write_agent(tmp_path / "scripted", AGENT_SCRIPTS))
    yield server
    server.wait_until_idle()
    assert server.stop() == 0, "".join(server.err)


def test_agents_run_whole_loops(server):
    python = installed(VERSION) / "python"
    ended = subprocess.run([python, SCRIPT, server.url], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout)
    told = "It is 18 degrees."
    assert found == {
        "loop": told,
        "two": told,
        "called": ["Paris", "Paris", "Rome", "Paris"],
        "streamed": [told, 2, True],
        "session": ["Thought it over.", "".join(SCRIPTS["count"]), ["reasoning_item", "message_output_item"]],
        "chained": "".join(SCRIPTS["count"]),
        "typed": {"name": "Martha", "age": 55},
        "handed": ["helper", told],
        "allowed": ["get_weather"],
    }
