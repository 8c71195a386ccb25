"""`troupe serve --replace`: a server takes another's place, and no stream is torn, no connection refused."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import threading

import pytest
from websockets.sync.client import connect

from server import STORYTELLER, Server, binary, wait_until
from streams import KINDS, PROMPT, Stream

UNREAD = 800  # tokens of each of 16 choices: more than sockets hold, so that such a stream, unread, goes on
KINDS = [kind for kind in KINDS if kind != "many choices"]


@pytest.fixture
def control(tmp_path):
    (tmp_path / "control").mkdir(mode=0o700)
    return str(tmp_path / "control" / "socket")


@pytest.fixture
def start(control):
    """start(): a server; start("--replace"): one that takes its place."""
    started = []

    def run(*flags, model=STORYTELLER, **more):
        started.append(Server(model, "--control-socket", control, "--log-format", "json", "--max-sequences", "32",
                              *flags, **more))
        return started[-1]

    yield run
    for server in started:
        if server.process.poll() is None:
            assert server.stop() == 0, "".join(server.err)


def port_is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def is_told(server, event):
    return wait_until(lambda: any(f'"{event}"' in line for line in list(server.err)), lambda: "".join(server.err))


def replace(start, old, *flags):
    next = start("--replace", *flags, ready=False)
    is_told(next, "ready")
    is_told(old, "replaced")
    return next


def test_streams_of_every_api_go_on_in_the_new_process_with_the_same_bytes(start):
    old = start("--fault-injection")
    old.slow_down(200)
    streams = [Stream(old.url, kind, 120) for kind in KINDS]
    for stream in streams:
        stream.chunk()
    old.slow_down(1000)  # a token a second: none ends before the new process has its model, however busy the machine is
    where = ("127.0.0.1", int(old.url.rsplit(":", 1)[1]))
    idle = socket.create_connection(where)
    idle.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert idle.recv(1 << 16).startswith(b"HTTP/1.1 200")
    fresh = socket.create_connection(where)
    new = replace(start, old)
    assert new.url == old.url
    for stream in streams:
        stream.rest()
    assert old.process.wait(300) == 0, "".join(old.err)
    assert is_told(new, "the other server has ended")
    wait_until(lambda: sum('"moved"' in line for line in old.err) == len(streams), lambda: "".join(old.err))
    for connection in (idle, fresh):
        connection.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 200")
        connection.close()
    for stream in streams:
        alone = Stream(new.url, stream.kind, stream.tokens).rest()
        differ = [(a[i - 40:i + 80], b[i - 40:i + 80]) for a, b in zip(stream.told(), alone.told()) if a != b
                  for i in [len(os.path.commonprefix([a, b]))]]
        assert not differ and len(stream.told()) == len(alone.told()), (stream.kind, differ[:2])
        assert len(stream.answer_ids()) == len(alone.answer_ids()), stream.kind
        stream.close()
    new.wait_until_idle()


def test_no_connection_is_refused_and_no_answer_lost_while_servers_replace_each_other(start):
    server = start()
    url, stop, answers, wrong = server.url, threading.Event(), [], []
    expected = Stream(url, "completions", 60).rest().told()

    def ask():
        while not stop.is_set():
            try:
                stream = Stream(url, "completions", 60)
                answers.append(stream.rest().told() == expected)
                stream.close()
            except Exception as e:  # a refused connection, a torn stream
                wrong.append(repr(e))

    clients = [threading.Thread(target=ask) for _ in range(4)]
    for client in clients:
        client.start()
    try:
        for _ in range(3):
            new, before = replace(start, server), len(answers)
            assert server.process.wait(300) == 0, "".join(server.err)
            server = new
            wait_until(lambda: wrong or len(answers) >= before + len(clients), lambda: f"{len(answers)} of {before}")
    finally:
        stop.set()
        for client in clients:
            client.join(300)
    assert not wrong
    assert all(answers)


def test_what_cannot_go_on_elsewhere_is_served_to_its_end_by_the_old_process(start):
    old = start()
    with connect(old.ws_url, open_timeout=300, ping_interval=None, max_queue=1) as ws:
        ws.send(json.dumps({"type": "generate", "id": "a", "prompt": PROMPT, "temperature": 0, "n": 16,
                            "max_tokens": UNREAD, "ignore_eos": True}))
        frames = [json.loads(ws.recv())]
        stream = Stream(old.url, "many choices", UNREAD)
        new = replace(start, old, "--kv-dtype", "int8")  # with which other tokens might follow
        assert new.get("/health").status_code == 200
        assert old.process.poll() is None
        assert stream.rest().body.count(b'"finish_reason":"length"') == 16
        while frames[-1]["type"] != "done":
            frames.append(json.loads(ws.recv()))
    assert sum(len(frame["token_ids"]) for frame in frames[:-1]) == 16 * UNREAD
    assert old.process.wait(300) == 0
    assert not any('"moved"' in line for line in old.err)


def test_another_build_of_the_program_continues_no_request_and_what_outlasts_the_grace_ends(start, tmp_path, monkeypatch):
    old = start("--replace-grace", "1")
    stream = Stream(old.url, "many choices", UNREAD)
    program = bytearray(pathlib.Path(binary()).read_bytes())
    note = program.index(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0")  # the build id's
    program[note + 16] ^= 1
    (tmp_path / "troupe").write_bytes(program)
    (tmp_path / "troupe").chmod(0o755)
    monkeypatch.setenv("TROUPE_BINARY", str(tmp_path / "troupe"))
    new = replace(start, old)
    wait_until(lambda: any("another build of the program" in line for line in old.err), lambda: "".join(old.err))
    assert "the server is stopping" in stream.rest().body.decode()
    assert old.process.wait(300) == 0
    assert not any('"moved"' in line for line in old.err)
    assert new.get("/health").status_code == 200


def test_a_new_process_that_fails_leaves_the_old_one_serving(start, control, tmp_path):
    old = start()
    stream = Stream(old.url, "many choices", UNREAD)
    (tmp_path / "config.json").write_text("{}")
    failed = subprocess.run([binary(), "serve", "--model", str(tmp_path), "--replace", "--control-socket", control],
                            capture_output=True, text=True, timeout=300)
    assert failed.returncode == 1
    is_told(old, "not replaced")
    assert old.get("/health").status_code == 200
    assert stream.rest().body.count(b'"finish_reason":"length"') == 16
    assert old.process.poll() is None


def test_who_has_no_right_to_take_over_is_refused(start, control):
    old = start()
    talk = socket.socket(socket.AF_UNIX)
    talk.connect(control)
    text = json.dumps({"what": "replace", "protocol": 99, "pid": 1}).encode()
    talk.sendall(len(text).to_bytes(8, "little") + text)
    size = int.from_bytes(talk.recv(8), "little")
    assert "it speaks version 1 of the hand-over, not 99" in talk.recv(size).decode()
    assert talk.recv(8) == b""
    assert os.stat(control).st_mode & 0o077 == 0
    nobody = subprocess.run([binary(), "serve", "--replace", "--control-socket", control + "-none"],
                            capture_output=True, text=True, timeout=300)
    assert nobody.returncode == 1 and "no server of this user listens there" in nobody.stderr
    if os.geteuid() == 0:  # another user, who may reach the path all the same
        os.chmod(control, 0o777)
        for folder in pathlib.Path(control).parents[:4]:
            os.chmod(folder, 0o755)
        other = subprocess.run(["python3", "-c", f"""
import os, socket
os.setuid(65534)
s = socket.socket(socket.AF_UNIX)
s.settimeout(300)
s.connect({control!r})
print(repr(s.recv(8)))"""], capture_output=True, text=True, timeout=300)
        assert other.stdout.strip() == "b''", other.stderr
    assert old.get("/health").status_code == 200


def test_a_service_manager_hears_who_serves_now_and_its_command_returns(start, control, tmp_path):
    old = start()
    port = int(old.url.rsplit(":", 1)[1])
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(300)
        with open(tmp_path / "log", "w") as log:
            command = subprocess.Popen(
                [binary(), "serve", "--model", str(STORYTELLER), "--replace", "--background", "--control-socket",
                 control], env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify")}, stdout=subprocess.DEVNULL,
                stderr=log)
        said = []
        while not any(line.startswith("READY=1") for line in said):
            said += heard.recv(4096).decode().splitlines()
        assert command.wait(300) == 0
    new = next(int(line.split("=")[1]) for line in said if line.startswith("MAINPID="))
    try:
        assert new not in (old.process.pid, os.getpid())
        assert old.process.wait(300) == 0
        assert old.get("/health").status_code == 200  # by the new one
    finally:
        os.kill(new, signal.SIGTERM)
    wait_until(lambda: not os.path.exists(control), "the new server to end")
    wait_until(lambda: not port_is_open(port), "the port to be free")
    # The process in the background has a log of its own: the thread that writes it is none of the command's.
    wait_until(lambda: "stopped" in (tmp_path / "log").read_text(), lambda: (tmp_path / "log").read_text())
    assert "ready" in (tmp_path / "log").read_text()


def test_a_server_is_found_by_its_port(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    serve = [binary(), "serve", "--model", str(STORYTELLER), "--port", port]
    with subprocess.Popen(serve, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True) as old:
        wait_until(lambda: "ready" in old.stderr.readline(), "the server")
        path = tmp_path / "troupe" / f"127.0.0.1-{port}.control"
        assert path.is_socket() and path.parent.stat().st_mode & 0o077 == 0
        with subprocess.Popen([*serve, "--replace"], env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL,
                              text=True) as new:
            wait_until(lambda: "ready" in new.stderr.readline(), "the new server")
            assert old.wait(300) == 0
            new.send_signal(signal.SIGTERM)
            assert new.wait(300) == 0
        assert not path.exists()
