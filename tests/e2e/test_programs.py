"""Published programs run unchanged against a model whose answers are written down. All share one environment, and each is
driven by a script in uses/ that prints what it saw as JSON."""

import json
import os
import pathlib
import subprocess

import pytest

from programs import installed, interpreter
from scripted import SCRIPTS, WHOLE, write_folder
from server import Server

PACKAGES = ("litellm==1.110.2", "langchain-ollama==1.1.0", "langchain-openai==1.7.4", "pydantic-ai-slim[openai]==2.68.0",
            "strands-agents[ollama]==1.62.0",
            # of mini-swe-agent, whose requirements have 300 MB of data sets that runs do not need
            "platformdirs", "prompt_toolkit", "python-dotenv", "rich", "tenacity", "textual", "typer")
ALONE = ("mini-swe-agent==2.4.6",)
DSPY, GUIDANCE, INSPECT, VIBE = ("dspy==3.4.1",), ("guidance==0.3.1", "openai>=2"), ("inspect-ai==0.3.285", "openai>=2"), (
    "mistral-vibe==3.0.2",)
USES = pathlib.Path(__file__).parent / "uses"

CALL = '<tool_call>\n{"name": "bash", "arguments": {"command": "%s"}}\n</tool_call>'
SHELL = {"tool ": [CALL % "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"], "list files": [CALL % "echo a file"]}
QUIZ = { # of inspect-ai
    "18": SCRIPTS["tool "], "weather": WHOLE["weather"], "France": ["Paris"], "Italy": ["Milan"], "": SCRIPTS[""]}
FIELDS = "[[ ## %s ## ]]\n%s\n\n"
DONE = "[[ ## completed ## ]]"
PREDICTIONS = { # of DSPy; the agent's steps are told apart by what the transcript in the message already holds
    "{name}": ['{"name": "Martha", "age": 55}'],
    "json, please": ['{"name": "Martha", "age": 55}'],
    "Which capital?": [FIELDS % ("answer", "Paris") + DONE],
    "`[[ ## reasoning ## ]]`": [FIELDS % ("reasoning", "It is 18.") + FIELDS % ("answer", "Yes") + DONE],
    "observation_0": [FIELDS % ("next_thought", "That is all.") + FIELDS % ("next_tool_name", "finish") +
                      FIELDS % ("next_tool_args", "{}") + DONE],
    "Is it warm?": [FIELDS % ("next_thought", "I ask.") + FIELDS % ("next_tool_name", "get_weather") +
                    FIELDS % ("next_tool_args", '{"city": "Paris"}') + DONE],
    "": SCRIPTS[""]}
CAPTURED = { # of guidance
    "count": SCRIPTS["count"], "yes or no": ["yes"], "age": ["I am 42 years and 7"], "object": ['{"age": 7}'],
    "letters": ["acy"], "": SCRIPTS[""]}
CODING = { # of mistral-vibe
    "tool ": ["The file ", "is there."], "make a file": [CALL % "echo step one > one"], "": SCRIPTS[""]}
VIBE_CONFIG = """
active_model = "scripted"
enable_telemetry = false
enable_update_checks = false
[[providers]]
name = "troupe"
api_base = "%s/v1"
api_style = "openai"
backend = "generic"
[[models]]
name = "scripted"
provider = "troupe"
alias = "scripted"
"""
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


@pytest.fixture
def scripted_as(tmp_path):
    """scripted_as({...}) is a server whose model answers by that script."""
    started = []

    def start(scripts):
        started.append(Server(write_folder(tmp_path / "scripted", scripts, template=TEMPLATE, positions=512)))
        return started[-1]

    yield start
    for server in started:
        assert server.stop() == 0, "".join(server.err)


def outcome(command, home):
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "SSL_CERT_FILE") if name in os.environ}
    ended = subprocess.run(
        command, capture_output=True, text=True, timeout=300, cwd=home, stdin=subprocess.DEVNULL,
        env=kept | {"HOME": str(home), "LITELLM_LOCAL_MODEL_COST_MAP": "True", "OTEL_SDK_DISABLED": "true"})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def run(program, server, home, model="scripted", bin=None):
    python = (bin or installed(*PACKAGES, alone=ALONE)) / "python"
    return json.loads(outcome([python, USES / f"{program}.py", server.url, model], home).splitlines()[-1])


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


def test_dspy(scripted_as, tmp_path):
    seen = run("of_dspy", scripted_as(PREDICTIONS), tmp_path, bin=installed(*DSPY))
    assert seen == {"predicted": "Paris", "agent": "Yes", "asked": ["Paris"], "person": {"name": "Martha", "age": 55},
                    "overflow": ["ContextWindowExceededError", True]}


def test_inspect_ai(scripted_as, tmp_path):
    seen = run("of_inspect", scripted_as(QUIZ), tmp_path, bin=installed(*INSPECT))
    assert set(seen) == {"openai-api/troupe", "vllm", "ollama"}
    for name, mine in seen.items():
        assert mine == {"accuracy": 0.5, "with a tool": 1, "asked": ["Paris"], "overflow": "model_length"}, name


def test_guidance(scripted_as, tmp_path):
    assert run("of_guidance", scripted_as(CAPTURED), tmp_path, bin=installed(*GUIDANCE)) == {
        "free": [COUNT], "choice": ["yes"], "captures": ["42", "7"], "schema": ['{"age": 7}'], "list": [["a", "c"], "y"]}


def test_mistral_vibe(scripted_as, tmp_path):
    server = scripted_as(CODING)
    bin = installed(*VIBE, python=interpreter((3, 12)))
    (tmp_path / ".vibe").mkdir(), (tmp_path / "work").mkdir()
    (tmp_path / ".vibe" / "config.toml").write_text(VIBE_CONFIG % server.url)
    said = outcome([bin / "vibe", "--trust", "--yolo", "--workdir", tmp_path / "work", "-p", "make a file"], tmp_path)
    assert said.strip().endswith("The file is there."), said
    assert (tmp_path / "work" / "one").read_text() == "step one\n"
