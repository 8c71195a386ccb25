"""Published programs that take seconds to start and gigabytes to install, unchanged. CI leaves them out; programs.sh runs
them."""

import json
import os
import pathlib
import socket
import subprocess

import httpx
import pytest

from agent_scripts import AGENT_SCRIPTS, TEMPLATE
from programs import installed, interpreter
from scripted import SCRIPTS, write_folder
from server import Server, wait_until

pytestmark = pytest.mark.programs

AIDER = ("aider-chat==0.86.2",)
AIPERF = ("aiperf==0.13.0",)
GARAK = ("garak==0.17.1",)
GUIDELLM = ("guidellm==0.8.1",)
INTERPRETER = ("open-interpreter==0.4.3", "setuptools<80")
LLAMA_STACK = ("llama-stack==0.7.3", "mcp<2", "ollama", "aiosqlite", "sqlalchemy[asyncio]")

COUNT = "".join(SCRIPTS["count"])
SAYS = {
    "42": ["The ", "answer ", "is ", "42."],
    "greeting": ['greet.py\n```\nprint("hello from a script")\n```\n'],
    "work it out": ["I run it.\n\n", "```", "python\n", "print(6 * 7)", "\n", "```"],
    **AGENT_SCRIPTS,
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = write_folder(tmp_path_factory.mktemp("heavy") / "scripted", SAYS, template=TEMPLATE, positions=4096)
    config = folder / "generation_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"temperature": 0}))
    server = Server(folder)
    server.folder = folder
    yield server
    server.wait_until_idle()
    assert server.stop() == 0, "".join(server.err)


def environment(home, **own):
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "SSL_CERT_FILE") if name in os.environ}
    quiet = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "ANONYMIZED_TELEMETRY": "False", "OTEL_SDK_DISABLED": "true"}
    return kept | quiet | {"HOME": str(home)} | own


def run(command, home, seconds=300, **own):
    ended = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=seconds, cwd=home,
                           stdin=subprocess.DEVNULL, env=environment(home, **own))
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout


@pytest.mark.parametrize("backend", ["openai", "ollama", "ollama_chat"])
def test_aider_writes_a_file(server, tmp_path, backend):
    run([installed(*AIDER, seconds=1800) / "aider", "--model", backend + "/scripted", "--edit-format", "whole", "--no-git",
         "--yes-always", "--no-check-update", "--no-show-model-warnings", "--analytics-disable", "--no-show-release-notes",
         "--no-auto-lint", "--message", "write the greeting", "greet.py"], tmp_path,
        OPENAI_API_KEY="none", OPENAI_API_BASE=server.url + "/v1", OLLAMA_API_BASE=server.url)
    assert (tmp_path / "greet.py").read_text() == 'print("hello from a script")\n'


@pytest.mark.parametrize("backend", ["openai", "ollama"])
def test_open_interpreter_runs_code(server, tmp_path, backend):
    python = installed(*INTERPRETER, seconds=1800) / "python"
    out = run([python, pathlib.Path(__file__).parent / "uses" / "of_interpreter.py", server.url, "scripted", backend],
              tmp_path, OLLAMA_API_BASE=server.url)
    messages = json.loads(next(line for line in out.splitlines() if line.startswith("[{")))
    seen = [(message["role"], message["type"], message["content"].strip()) for message in messages]
    assert seen == [("assistant", "message", "I run it."), ("assistant", "code", "print(6 * 7)"),
                    ("computer", "console", "42"), ("assistant", "message", "The answer is 42.")]


@pytest.mark.parametrize("kind", ["OllamaGeneratorChat", "OllamaGenerator"])
def test_garak_probes_and_judges(server, tmp_path, kind):
    """Empty prompts are among its probes: chats answer them, /api/generate then only loads the model, as Ollama's does."""
    host = server.url.removeprefix("http://")
    (tmp_path / "options.json").write_text(json.dumps({"ollama": {kind: {"host": host}}}))
    run([installed(*GARAK, seconds=3600) / "garak", "--target_type", "ollama." + kind, "--target_name", "scripted",
         "--probes", "test.Test,test.Blank", "--generator_option_file", "options.json", "--generations", "2"], tmp_path,
        HF_HUB_OFFLINE="1")
    report = next(tmp_path.glob(".local/share/garak/garak_runs/*.report.jsonl")).read_text()
    entries = [json.loads(line) for line in report.splitlines()]
    attempts = [entry for entry in entries if entry["entry_type"] == "attempt" and entry["status"] == 2]
    for attempt in attempts:
        asked = attempt["prompt"]["turns"][0]["content"]["text"]
        right = "Hello, world!" if asked or kind == "OllamaGeneratorChat" else ""
        assert [output["text"] for output in attempt["outputs"]] == [right, right], asked
    assert len(attempts) == 9
    judged = {entry["probe"]: entry["total_evaluated"] for entry in entries if entry["entry_type"] == "eval"}
    assert judged == {"test.Test": 16, "test.Blank": 2}


def test_guidellm_counts_tokens(server, tmp_path):
    run([installed(*GUIDELLM, seconds=3600) / "guidellm", "run",
         "--backend", f"kind=openai_http,target={server.url},model=scripted", "--profile", "kind=synchronous",
         "--constraint", "kind=max_requests,count=5", "--tokenizer", f"kind=hf_auto,model={server.folder}",
         "--data", "kind=synthetic_text,prompt_tokens=16,output_tokens=4", "--disable-console-interactive",
         "--output", "kind=json,path=out.json"], tmp_path, HF_HUB_OFFLINE="1")
    measured = json.loads((tmp_path / "out.json").read_text())["benchmarks"][0]
    assert measured["metrics"]["request_totals"] == {"successful": 5, "errored": 0, "incomplete": 0, "total": 5}
    for request in measured["requests"]["successful"]:
        assert "continuous_usage_stats" in request["request_args"]
        assert request["output"].startswith("Hello, world!")
        assert request["output_metrics"]["text_tokens"] == 4


def test_aiperf_reads_the_usage_of_each_chunk(server, tmp_path):
    run([installed(*AIPERF, seconds=1800) / "aiperf", "profile", "--model", "scripted", "--url", server.url,
         "--endpoint-type", "chat", "--streaming", "--per-chunk-usage", "--use-server-token-count", "--request-count", "5",
         "--tokenizer", server.folder, "--isl", "16", "--osl", "4", "--ui", "none"], tmp_path)
    lines = next(tmp_path.glob("artifacts/*/profile_export.jsonl")).read_text().splitlines()
    assert len(lines) == 5
    for line in lines:
        metrics = json.loads(line)["metrics"]
        assert metrics["usage_completion_tokens"]["value"] == metrics["output_sequence_length"]["value"] == 4


STACK = """
version: 2
distro_name: small
apis: [inference]
providers:
  inference:
  - {provider_id: ollama, provider_type: "remote::ollama", config: {base_url: "%s/v1"}}
storage:
  backends:
    kv_default: {type: kv_sqlite, db_path: ./kv.db}
    sql_default: {type: sql_sqlite, db_path: ./sql.db}
  stores:
    metadata: {namespace: registry, backend: kv_default}
    inference: {table_name: inference, backend: sql_default}
    conversations: {table_name: conversations, backend: sql_default}
    prompts: {namespace: prompts, backend: kv_default}
registered_resources:
  models: [{model_id: scripted, provider_id: ollama, provider_model_id: scripted, model_type: llm, metadata: {}}]
server: {port: %d}
"""


@pytest.fixture
def stack(server, tmp_path):
    """Its URL, while it runs."""
    program = installed(*LLAMA_STACK, seconds=1800, python=interpreter((3, 12))) / "llama"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (tmp_path / "run.yaml").write_text(STACK % (server.url, port))
    with open(tmp_path / "log", "w+") as log:
        process = subprocess.Popen([program, "stack", "run", "run.yaml", "--port", str(port)], cwd=tmp_path, stdout=log,
                                   stderr=subprocess.STDOUT, env=environment(tmp_path))
        url = f"http://127.0.0.1:{port}"

        def answers():
            log.seek(0)
            assert process.poll() is None, log.read()[-3000:]
            try:
                return httpx.get(url + "/v1/models", trust_env=False).status_code == 200
            except httpx.TransportError:
                return False

        try:
            wait_until(answers, "llama-stack to start", 120)
            yield url
        finally:
            process.kill()
            process.wait()


def test_llama_stack_serves_what_ollama_serves(stack):
    client = httpx.Client(base_url=stack, timeout=300, trust_env=False)
    assert "ollama/scripted" in [model["id"] for model in client.get("/v1/models").json()["data"]]
    asked = {"model": "ollama/scripted", "messages": [{"role": "user", "content": "now count"}]}
    assert client.post("/v1/chat/completions", json=asked).json()["choices"][0]["message"]["content"] == COUNT
    lines = client.post("/v1/chat/completions", json={**asked, "stream": True}).text.splitlines()
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"]) == COUNT
    tools = [{"type": "function", "function": {"name": "get_weather", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}}}}}]
    asked["messages"][0]["content"] = "the weather?"
    call = client.post("/v1/chat/completions", json={**asked, "tools": tools}).json()["choices"][0]["message"]["tool_calls"][0]
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("get_weather", {"city": "Paris"})
