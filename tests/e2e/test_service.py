"""configs/troupe.service: systemd accepts it, finds it confined, and the server works under its restrictions."""

import ctypes
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys

import httpx
import pytest

import server
from server import ROOT, Server

UNIT = ROOT / "configs" / "troupe.service"
SCRIPTED = ROOT / "tests" / "data" / "scripted"
CONFINED = ROOT / "tests" / "e2e" / "confined.py"

pytestmark = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is absent")


def analyze(*arguments):
    done = subprocess.run(["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


def test_systemd_accepts_the_unit(tmp_path):
    text = UNIT.read_text()
    command = re.search(r"^ExecStart=(\S+) serve --config (\S+)$", text, re.MULTILINE)
    assert command.groups() == ("/usr/bin/troupe", "/etc/troupe/troupe.toml")
    (tmp_path / "troupe.service").write_text(text.replace(command[1], server.binary()))
    status, said = analyze("verify", "--man=no", tmp_path / "troupe.service")
    ours = [line for line in said.splitlines() if "troupe" in line]
    assert (status, ours) == (0, [])


def test_the_unit_is_confined():
    status, said = analyze("security", "--offline=true", "--threshold=15", "--no-pager", UNIT)
    assert status == 0, said
    level = float(re.search(r"exposure level for troupe.service: ([\d.]+)", said)[1])
    assert level <= 1.5


def has_landlock():
    """Whether this kernel has a version of it (landlock_create_ruleset, which asks for nothing)."""
    return ctypes.CDLL(None).syscall(444, None, 0, 1) > 0


@pytest.fixture
def confined(tmp_path, monkeypatch):
    """Starts servers under the unit's restrictions."""
    program = tmp_path / "troupe"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {CONFINED} {UNIT} {server.binary()} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("TROUPE_BINARY", str(program))
    started = []

    def start(model, *flags):
        started.append(Server(model, *flags))
        return started[-1]

    yield start
    for each in started:
        assert each.stop() == 0, "".join(each.err)


def test_the_server_answers_under_the_units_restrictions(confined):
    running = confined(SCRIPTED, "--config", str(ROOT / "configs" / "troupe.toml"), "--threads", "2")
    status = pathlib.Path(f"/proc/{running.process.pid}/status").read_text()
    assert re.search(r"^Seccomp:\s+2$", status, re.MULTILINE), "the filter of system calls is not in force"
    assert re.search(r"^NoNewPrivs:\s+1$", status, re.MULTILINE)
    assert not any("is not confined" in line for line in running.err) or not has_landlock()
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    request = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5}
    answer = running.post("/v1/chat/completions", request)
    assert answer.status_code == 200, answer.text
    lines = running.post("/v1/chat/completions", {**request, "stream": True}).text.split("\n\n")
    assert len([json.loads(line[6:]) for line in lines if line.startswith("data: {")]) > 1


SOCKET = ROOT / "configs" / "troupe.socket"


def test_systemd_accepts_the_socket(tmp_path):
    (tmp_path / "troupe.service").write_text(UNIT.read_text().replace("/usr/bin/troupe", server.binary()))
    shutil.copy(SOCKET, tmp_path)
    status, said = analyze("verify", "--man=no", tmp_path / "troupe.socket")
    assert (status, [line for line in said.splitlines() if "troupe" in line]) == (0, [])


@pytest.mark.skipif(not shutil.which("systemd-socket-activate"), reason="systemd-socket-activate is absent")
def test_the_server_takes_the_socket_that_systemd_passes(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # --port 1 could not be bound without rights, nor where it is taken: it does not count.
    process = subprocess.Popen(["systemd-socket-activate", "-l", f"127.0.0.1:{port}", server.binary(), "serve", "--model", SCRIPTED,
                                "--port", "1", "--host", "192.0.2.1"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        server.wait_until(lambda: port_is_open(port), "systemd to listen")
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300) as client:
            server.wait_until(lambda: client.get("/health").status_code == 200, "the model to load")
            answer = client.post("/v1/chat/completions",
                                 json={"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5})
            assert answer.status_code == 200, answer.text
        assert process.stdout.readline() == f"Listening on http://127.0.0.1:{port}\n"
        process.terminate()
        assert process.wait(300) == 0
    finally:
        process.kill()


def port_is_open(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_sockets_that_are_not_the_servers_are_refused_and_keys_are_asked_for():
    def serve(passed, pid="$$", count="1"):
        command = f'LISTEN_PID={pid} LISTEN_FDS={count} exec "$@" 3<&{passed.fileno()}'
        return subprocess.run(["bash", "-c", command, "bash", server.binary(), "serve", "--model", SCRIPTED, "--port", "1",
                               "--host", "192.0.2.1", "--allow-anonymous"], pass_fds=[passed.fileno()], capture_output=True,
                              text=True, timeout=300)
    with socket.socket() as listening, socket.socket() as idle, socket.socket(socket.AF_UNIX) as local:
        listening.bind(("0.0.0.0", 0))
        listening.listen()
        local.bind("\0troupe-test-" + str(listening.getsockname()[1]))
        local.listen()
        for wrong in (idle, local):
            refused = serve(wrong)
            assert refused.returncode == 2 and "is not a socket that listens for TCP" in refused.stderr
        assert "not 2 (LISTEN_FDS)" in serve(listening, count="2").stderr
        assert "cannot listen on 192.0.2.1:1" in serve(listening, pid="1").stderr  # of another process
        command = 'LISTEN_PID=$$ LISTEN_FDS=1 exec "$@" 3<&' + str(listening.fileno())
        open_to_all = subprocess.run(["bash", "-c", command, "bash", server.binary(), "serve", "--model", SCRIPTED],
                                     pass_fds=[listening.fileno()], capture_output=True, text=True, timeout=300)
        assert open_to_all.returncode == 2 and "other machines could use this server" in open_to_all.stderr


def test_the_confinement_of_these_tests_holds():
    """So that the test above could fail: what the unit does not allow fails with its error."""
    probe = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n" \
            "print(libc.mount(b'none', b'/mnt', b'tmpfs', 0, None), ctypes.get_errno())\n" \
            "print(libc.syscall(321, 0, None, 0), ctypes.get_errno())\n" \
            "print(os.sched_setaffinity(0, os.sched_getaffinity(0)))\n"
    said = subprocess.run([sys.executable, CONFINED, UNIT, sys.executable, "-c", probe], capture_output=True, text=True,
                          timeout=300)
    assert said.stdout == "-1 1\n-1 1\nNone\n", said  # mount, bpf: EPERM; pinning threads is allowed


def test_systemd_is_told_of_loading_readiness_life_reloading_and_the_end(tmp_path):
    """sd_notify(3), as a manager would hear it."""
    path = tmp_path / "notify"
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(path))
    manager.settimeout(300)
    heard = []

    def until(word):
        while not any(line == word for text in heard for line in text.split("\n")):
            heard.append(manager.recv(4096).decode())

    config = tmp_path / "troupe.toml"
    config.write_text('log-level = "info"\n')
    process = subprocess.Popen(
        [server.binary(), "serve", "--model", str(server.GOLDEN), "--port", "0", "--config", str(config), "--quiet"],
        env={**os.environ, "NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "200000"}, stdout=subprocess.PIPE)
    try:
        until("READY=1")
        assert any(text.startswith("STATUS=") and "EXTEND_TIMEOUT_USEC=" in text for text in heard)
        until("WATCHDOG=1")
        process.send_signal(signal.SIGHUP)
        until("RELOADING=1")
        heard.clear()
        until("READY=1")
        process.send_signal(signal.SIGTERM)
        until("STOPPING=1")
        assert process.wait(300) == 0
    finally:
        process.kill()
        process.wait()


def test_a_manager_that_cannot_be_named_is_refused():
    refused = subprocess.run([server.binary(), "serve", "--model", str(server.GOLDEN), "--port", "0"],
                             env={**os.environ, "NOTIFY_SOCKET": "tcp:1"}, capture_output=True, text=True, timeout=300)
    assert refused.returncode == 1
    assert "NOTIFY_SOCKET must be a path" in refused.stderr
