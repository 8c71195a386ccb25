"""configs/troupe.service: systemd accepts it, finds it confined, and the server works under its restrictions."""

import json
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

import server
from server import ROOT, Server

UNIT = ROOT / "configs" / "troupe.service"
SCRIPTED = ROOT / "tests" / "data" / "scripted"
CONFINED = ROOT / "tests" / "e2e" / "confined.py"

pytestmark = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is absent")


def analyze(*arguments):
    done = subprocess.run(["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, timeout=60)
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
    assert re.search(r"^CapEff:\s+0+$", status, re.MULTILINE)
    request = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 5}
    answer = running.post("/v1/chat/completions", request)
    assert answer.status_code == 200, answer.text
    lines = running.post("/v1/chat/completions", {**request, "stream": True}).text.split("\n\n")
    assert len([json.loads(line[6:]) for line in lines if line.startswith("data: {")]) > 1


def test_the_confinement_of_these_tests_holds():
    """So that the test above could fail: what the unit does not allow fails with its error."""
    probe = "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n" \
            "print(libc.mount(b'none', b'/mnt', b'tmpfs', 0, None), ctypes.get_errno())\n" \
            "print(libc.syscall(321, 0, None, 0), ctypes.get_errno())\n" \
            "print(os.sched_setaffinity(0, os.sched_getaffinity(0)))\n"
    said = subprocess.run([sys.executable, CONFINED, UNIT, sys.executable, "-c", probe], capture_output=True, text=True,
                          timeout=60)
    assert said.stdout == "-1 1\n-1 1\nNone\n", said  # mount, bpf: EPERM; pinning threads is allowed
