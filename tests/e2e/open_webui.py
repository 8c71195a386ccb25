"""Open WebUI, unchanged, in front of Troupe by both of its connections, to Ollama's API and to OpenAI's. Not a test: its
environment takes 7 GB, which it makes in $TROUPE_PROGRAMS and keeps.

    build/e2e/bin/python tests/e2e/open_webui.py
"""

import json
import os
import socket
import subprocess
import sys
import tempfile

import httpx

from agent_scripts import AGENT_SCRIPTS, write_agent
from programs import installed, interpreter
from scripted import SCRIPTS
from server import Server, wait_until

VERSION = "open-webui==0.12.4"
COUNT = "".join(SCRIPTS["count"])
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}}}}]


def text_of(lines):
    """The text of a stream of chunks."""
    chunks = [json.loads(line[6:]) for line in lines.splitlines() if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk.get("choices"))


def use(ui):
    """What a person's browser sends: the list of models, chats with settings of Ollama's, streams, a tool."""
    signed_in = ui.post("/api/v1/auths/signin", json={"email": "admin@localhost", "password": "admin"}).json()
    ui.headers["Authorization"] = "Bearer " + signed_in["token"]
    models = {model["id"]: model["owned_by"] for model in ui.get("/api/models").json()["data"]}
    assert {"scripted": "openai", "scripted:latest": "ollama"}.items() <= models.items(), models
    settings = {"mirostat": 1, "tfs_z": 0.9, "repeat_last_n": 64, "num_ctx": 100_000, "max_tokens": 50, "reasoning_effort": "low"}
    for model in ("scripted", "scripted:latest"):
        asked = {"model": model, "messages": [{"role": "user", "content": "now count"}]}
        if model == "scripted:latest":
            asked["params"] = settings
        answer = ui.post("/api/chat/completions", json=asked).json()
        assert answer["choices"][0]["message"]["content"] == COUNT, answer
        stream = ui.post("/api/chat/completions", json={**asked, "stream": True})
        assert text_of(stream.text) == COUNT, stream.text
    asked = {"model": "scripted:latest", "stream": False, "tools": TOOLS,
             "messages": [{"role": "user", "content": "the weather?"}]}
    called = ui.post("/ollama/api/chat", json=asked).json()["message"]["tool_calls"][0]["function"]
    assert called == {"name": "get_weather", "arguments": {"city": "Paris"}}, called
    assert ui.get("/ollama/api/version").status_code == ui.get("/ollama/api/ps").status_code == 200


def main():
    program = installed(VERSION, seconds=3600, python=interpreter((3, 11))) / "open-webui"
    with tempfile.TemporaryDirectory() as home, socket.socket() as free:
        server = Server(write_agent(home + "/scripted", AGENT_SCRIPTS))
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        own = {"HOME": home, "DATA_DIR": home, "OLLAMA_BASE_URL": server.url, "OPENAI_API_BASE_URL": server.url + "/v1",
               "OPENAI_API_KEY": "none", "WEBUI_AUTH": "False", "WEBUI_SECRET_KEY": "none", "OFFLINE_MODE": "True",
               "HF_HUB_OFFLINE": "1", "RAG_EMBEDDING_ENGINE": "ollama"}
        with open(home + "/log", "w+") as log:
            ui = subprocess.Popen([program, "serve", "--host", "127.0.0.1", "--port", str(port)], env=os.environ | own,
                                  cwd=home, stdout=log, stderr=subprocess.STDOUT)
            try:
                client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300, trust_env=False)

                def answers():
                    assert ui.poll() is None, "Open WebUI has ended"
                    try:
                        return client.get("/health").status_code == 200
                    except httpx.TransportError:
                        return False

                wait_until(answers, "Open WebUI to start", 300)
                use(client)
            except BaseException:
                log.seek(0)
                sys.stderr.write(log.read()[-3000:])
                raise
            finally:
                ui.kill()
                ui.wait()
        assert server.stop() == 0, "".join(server.err)
    print(f"{VERSION}: all is well")


if __name__ == "__main__":
    main()
