"""Published programs run unchanged against a model whose answers are written down. All share one environment, and each is
driven by a script in uses/ that prints what it saw as JSON."""

import json
import os
import pathlib
import subprocess

import pytest

from programs import installed
from scripted import SCRIPTS, WHOLE, write_folder
from server import Server

PACKAGES = ("litellm==1.110.2", "langchain-ollama==1.1.0", "langchain-openai==1.7.4", "pydantic-ai-slim[openai]==2.68.0",
            "strands-agents[ollama]==1.62.0",
            # of mini-swe-agent, whose requirements have 300 MB of data sets that runs do not need
            "platformdirs", "prompt_toolkit", "python-dotenv", "rich", "tenacity", "textual", "typer")
ALONE = ("mini-swe-agent==2.4.6",)
USES = pathlib.Path(__file__).parent / "uses"

CALL = '<tool_call>\n{"name": "bash", "arguments": {"command": "%s"}}\n</tool_call>'
SHELL = {"tool ": [CALL % "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"], "list files": [CALL % "echo a file"]}
# A message that says "overflow" makes a prompt beyond the context.
TEMPLATE = ("{%- if false -%}<tool_call>{{ tools }}<think></think>{%- endif -%}"
            "{%- if messages[-1].content is string and 'overflow' in messages[-1].content -%}"
            "{%- for _ in range(5000) -%}<|pad|>{%- endfor -%}{%- endif -%}")
COUNT, DEGREES = "".join(SCRIPTS["count"]), "".join(SCRIPTS["tool "])
WEATHER = [["get_weather", {"city": "Paris"}]]


def serve(folder, scripts):
    server = Server(write_folder(folder, scripts, template=TEMPLATE))
    yield server
    assert server.stop() == 0, "".join(server.err)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    yield from serve(tmp_path_factory.mktemp("programs") / "scripted", WHOLE)


@pytest.fixture
def shell(tmp_path):
    yield from serve(tmp_path / "shell", SHELL)


def run(program, server, home, model="scripted"):
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "SSL_CERT_FILE") if name in os.environ}
    ended = subprocess.run(
        [installed(*PACKAGES, alone=ALONE) / "python", USES / f"{program}.py", server.url, model], capture_output=True,
        text=True, timeout=120, cwd=home,
        env=kept | {"HOME": str(home), "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OTEL_SDK_DISABLED": "true"})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


def test_litellm(scripted, tmp_path):
    seen = run("of_litellm", scripted, tmp_path)
    assert set(seen) == {"openai", "ollama_chat", "ollama"}
    for provider, mine in seen.items():
        assert mine["text"] == COUNT, provider
        if provider != "ollama":
            assert (mine["calls"], mine["answer"]) == (WEATHER, DEGREES), provider
    assert seen["openai"]["overflow"] == "ContextWindowExceededError"


def test_langchain(scripted, tmp_path):
    seen = run("of_langchain", scripted, tmp_path)
    for mine in seen.values():
        assert (mine["calls"], mine["answer"], mine["streamed"]) == (WEATHER, DEGREES, COUNT)
    # langchain-openai looks for the code in a text that openai-python 3 makes without it.
    for mine in seen.values():
        assert mine["overflow"] == "ContextOverflowError" or "maximum context length" in mine["overflow"]


def test_pydantic_ai(scripted, tmp_path):
    seen = run("of_pydantic_ai", scripted, tmp_path)
    assert seen == {"asked": ["Paris"], "answer": DEGREES, "next": COUNT, "person": {"name": "Martha", "age": 55}}


def test_strands(scripted, tmp_path):
    seen = run("of_strands", scripted, tmp_path)
    for mine in seen.values():
        assert mine == {"answer": DEGREES, "asked": ["Paris"], "next": COUNT, "overflow": True}


def test_mini_swe_agent(shell, tmp_path):
    seen = run("of_mini_swe_agent", shell, tmp_path, "shell")
    assert seen["ended"]["exit_status"] == "Submitted"
    assert any("a file" in output for output in seen["outputs"])
