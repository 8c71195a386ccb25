"""Start, failure to start, and shutdown."""

import contextlib
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import threading
import time
import urllib.parse

import httpx
import pytest

from expected import PROMPT
from server import ENDLESS, GOLDEN, binary, wait_until

LONG = {"prompt": PROMPT, "temperature": 0, "max_tokens": 400, "ignore_eos": True}


def test_health_is_503_with_progress_until_the_model_is_loaded(launch):
    def loads():
        """What was answered meanwhile; nothing where the machine did not let this process ask before the model was loaded."""
        server, seen = launch(model="synthetic:llama-135m", ready=False, preexec_fn=lambda: os.nice(5)), []
        refused = server.post("/v1/completions", {**LONG, "max_tokens": 1})

        def ready():
            seen.append(server.get("/health"))
            return seen[-1].status_code == 200

        wait_until(ready, "the model to be loaded", 120)
        assert server.stop() == 0
        loading = [answer for answer in seen if answer.status_code != 200]
        return refused.status_code != 200 and loading and (refused, loading)

    refused, loading = wait_until(loads, "requests that come while 135M parameters are loaded", 120)
    for answer in loading:
        assert answer.status_code == 503
        assert 0 <= answer.json()["progress"] <= 1
        assert "retry-after" in answer.headers
    assert refused.status_code == 503 and refused.json()["error"]["message"]


def test_a_server_goes_on_when_nobody_reads_its_log_any_more():
    process = subprocess.Popen([binary(), "serve", "--port", "0", "--model", str(GOLDEN)], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    try:
        url = process.stdout.readline().split()[2]
        process.stdout.close()
        process.stderr.close()
        wait_until(lambda: httpx.get(url + "/health", timeout=300).status_code == 200, "the model to be loaded")
        for _ in range(3):
            assert httpx.post(url + "/v1/completions", json={**LONG, "max_tokens": 2}, timeout=300).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(300) == 0
    finally:
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_streams_finish_and_ends_cleanly(launch, number):
    server = launch("--stop-grace", "600")
    long = {**LONG, **ENDLESS, "max_tokens": 700, "stream": True}
    with httpx.stream("POST", server.url + "/v1/completions", json=long, timeout=300) as answer:
        pieces = answer.iter_bytes()
        next(pieces)
        server.process.send_signal(number)
        draining = wait_until(lambda: (answer := server.get("/health")).status_code == 503 and answer, "the drain")
        refused = server.post("/v1/completions", LONG)
        rest = b"".join(pieces).decode().strip().split("\n\n")
    assert draining.json()["status"] == "draining" and draining.headers["connection"] == "close"
    assert refused.status_code == 503 and refused.headers["connection"] == "close"
    [stopping] = wait_until(lambda: [line for line in server.err if " stopping " in line], "a line in the log")
    assert f" signal={signal.Signals(number).name} running=1 " in stopping
    assert rest[-1] == "data: [DONE]"
    assert json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
    assert server.process.wait(300) == 0
    with pytest.raises(httpx.TransportError):
        httpx.get(server.url + "/health", timeout=300)


@pytest.mark.parametrize("grace, signals", [("0", 1), ("300", 2)])
def test_requests_that_outlast_the_grace_period_end_with_an_error(launch, grace, signals):
    server = launch("--stop-grace", grace, "--fault-injection")
    server.slow_down(20)  # 40 s, if they were not ended
    endless = {**LONG, "max_tokens": 2000, "n": 32, "temperature": 1}
    whole = []
    reader = threading.Thread(target=lambda: whole.append(server.post("/v1/completions", endless)))
    with httpx.stream("POST", server.url + "/v1/completions", json={**endless, "stream": True}, timeout=300) as answer:
        lines = answer.iter_lines()
        next(lines)
        reader.start()
        wait_until(lambda: server.metrics()["troupe_requests_in_flight"] == 2, "both requests to run")
        for _ in range(signals):
            server.process.send_signal(signal.SIGTERM)
            wait_until(lambda: any("topping" in line for line in server.err), "the server to log that it is stopping")
        rest = [line for line in lines if line]
    assert rest[-1] == "data: [DONE]"
    assert json.loads(rest[-2].removeprefix("data: "))["error"]["message"] == "the server is stopping"
    reader.join(300)
    assert whole[0].status_code == 503 and whole[0].json()["error"]["code"] == "unavailable"
    assert server.process.wait(300) == 0


def test_a_hangup_reads_configuration_keys_and_policy_again(launch, tmp_path):
    config, keys, policy = tmp_path / "troupe.toml", tmp_path / "keys", tmp_path / "policy.toml"
    keys.write_text("alice=a1\n")
    policy.write_text("max_temperature = 1.5\n")
    config.write_text(f'threads = 1\n[serve]\napi-keys = "{keys}"\npolicy = "{policy}"\n')
    server = launch("--config", str(config))

    def status(key, temperature=0):
        return server.post("/v1/completions", {**LONG, "max_tokens": 4, "temperature": temperature},
                           headers={"Authorization": f"Bearer {key}"}).status_code

    def hang_up(*words):
        before = len(server.err)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: all(any(word in line for line in server.err[before:]) for word in words), "lines in the log")

    with httpx.stream("POST", server.url + "/v1/completions", json={**LONG, "stream": True, "max_tokens": 90},
                      headers={"Authorization": "Bearer a1"}, timeout=300) as answer:
        pieces = answer.iter_bytes()
        first = next(pieces)
        policy.write_text("max_temperature = 0.5\n")
        config.write_text(f'threads = 2\n[serve]\napi-keys = "{keys}"\npolicy = "{policy}"\nlog-level = "debug"\n')
        hang_up(" info reloaded", " warn --threads has another value now, which takes a restart")
        events = b"".join([first, *pieces]).decode().strip().split("\n\n")
    assert events[-1] == "data: [DONE]"
    assert status("a1") == 200 and status("a1", 0.9) == 400
    wait_until(lambda: any(" debug connection" in line for line in server.err), "a connection in the log")
    policy.write_text("max_temperatur = 1\n")
    hang_up(" error nothing is changed: ", "max_temperatur")
    assert status("a1") == 200 and status("a1", 0.9) == 400
    policy.unlink()
    config.write_text("threads = 1\n")
    hang_up(" info reloaded")
    assert server.post("/v1/completions", {**LONG, "max_tokens": 4, "temperature": 0.9}).status_code == 200  # no keys, no policy


def test_a_server_confines_itself_to_the_files_that_its_settings_name(launch, tmp_path):
    settings, elsewhere = tmp_path / "settings", tmp_path / "elsewhere"
    settings.mkdir()
    elsewhere.mkdir()
    policy = settings / "policy.toml"
    policy.write_text("max_temperature = 0.5\n")
    (elsewhere / "policy.toml").write_text("max_temperature = 1.5\n")

    def reload_from_elsewhere(server):
        policy.unlink(missing_ok=True)
        policy.symlink_to(elsewhere / "policy.toml")
        before = len(server.err)
        server.process.send_signal(signal.SIGHUP)
        said = lambda: [line for line in server.err[before:] if " info reloaded" in line or " nothing is changed" in line]
        wait_until(said, "the reload in the log")
        return said()[0]

    def of_threads(server, field):
        found = set()
        for task in pathlib.Path(f"/proc/{server.process.pid}/task").iterdir():
            with contextlib.suppress(OSError):  # threads may end
                found.add(re.search(rf"^{field}:\s*(\d+)", (task / "status").read_text(), re.M)[1])
        return found

    # A name that happens to be a folder's opens nothing.
    server = launch("--policy", str(policy), "--kv-disk", str(tmp_path / "kept" / "prefixes"), "--model-name", str(elsewhere))
    wait_until(lambda: any(" ready " in line for line in server.err), "the log to tell")
    if any("the server is not confined" in line for line in server.err):
        pytest.skip("this kernel has no Landlock or no seccomp")
    assert of_threads(server, "NoNewPrivs") == {"1"} and of_threads(server, "Seccomp") == {"2"}
    assert "Permission denied" in reload_from_elsewhere(server)
    assert server.post("/v1/completions", {**LONG, "max_tokens": 4, "temperature": 0.9}).status_code == 400
    policy.unlink()
    policy.write_text("max_temperature = 1.5\n")
    server.process.send_signal(signal.SIGHUP)
    wait_until(lambda: any(" info reloaded" in line for line in server.err), "the reload in the log")
    assert server.post("/v1/completions", {**LONG, "max_tokens": 4, "temperature": 0.9}).status_code == 200
    free = launch("--policy", str(policy), "--no-sandbox")
    assert of_threads(free, "Seccomp") == {"0"}
    assert "info reloaded" in reload_from_elsewhere(free)


def test_a_server_under_nohup_ignores_hangups(tmp_path):
    with open(tmp_path / "out", "w") as out:
        process = subprocess.Popen(["nohup", binary(), "serve", "--model", str(GOLDEN), "--port", "0"], stdout=out,
                                   stderr=subprocess.STDOUT)
    wait_until(lambda: "ready" in (tmp_path / "out").read_text(), "the server to be ready")
    process.send_signal(signal.SIGHUP)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(300) == 0


def test_the_limit_of_open_files_is_raised_and_its_lack_is_logged(launch):
    def limited(soft, hard):
        return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    server = launch(preexec_fn=limited(64, 4096))
    limits = pathlib.Path(f"/proc/{server.process.pid}/limits").read_text()
    assert re.search(r"Max open files +4096 +4096", limits)
    assert not any("few file descriptors" in line for line in server.err)

    server = launch("--max-connections", "500", preexec_fn=limited(64, 64))
    wait_until(lambda: any("few file descriptors limit=64 wanted=564" in line for line in server.err), "a line in the log")
    host, port = server.url.removeprefix("http://").split(":")
    wires = [socket.create_connection((host, int(port))) for _ in range(80)]
    wait_until(lambda: any("cannot accept" in line for line in server.err), "the log to tell")
    for wire in wires:
        wire.close()
    wait_until(lambda: server.get("/health").status_code == 200, "the server to accept again")


def test_keys_of_a_file_have_names_and_change_while_the_server_runs(launch, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("alice=key-of-alice\n")
    server = launch("--api-keys", str(keys), "--log-format", "json")

    def status(key):
        return server.post("/v1/completions", {**LONG, "max_tokens": 2, "user": "u-1"},
                           headers={"Authorization": f"Bearer {key}"}).status_code

    assert status("key-of-alice") == 200 and status("key-of-bob") == 401
    keys.write_text("bob=key-of-bob\n")
    wait_until(lambda: status("key-of-bob") == 200, "the file to be read again")
    assert status("key-of-alice") == 401
    assert server.stop() == 0
    lines = [json.loads(line) for line in server.err]
    assert [line for line in lines if line["event"] == "keys" and line["count"] == 1]
    served = [line for line in lines if line["event"] == "request" and line["status"] == 200]
    assert [line["key"] for line in served] == ["alice", "bob"]
    assert all(line["user"] == "u-1" and line["client"] == "127.0.0.1" for line in served)
    refused = [line for line in lines if line["event"] == "request" and line["status"] == 401]
    assert all("API key" in line["why"] and line["level"] == "warn" for line in refused)
    assert not any("key-of-" in line for line in server.err)


def test_lines_of_the_log_and_texts_for_people_do_not_fall_into_each_other(launch):
    """Both go to one pipe, from three threads."""
    for _ in range(5):
        server = launch(stderr_to_stdout=True)
        for _ in range(20):
            server.get("/v1/models")
        assert server.stop() == 0
        lines = "".join(server.out).splitlines()
        stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d (info|warn|error) "
        assert len([line for line in lines if re.match(stamp, line)]) >= 23  # loading, ready, requests, stopping
        assert not [line for line in lines if re.search(".+" + stamp, line)], lines
        assert len([line for line in lines if line.startswith("Listening on http://")]) == 1
        assert len([line for line in lines if re.match(stamp + "try: curl", line)]) == 1


def test_the_log_has_the_servers_lifecycle_and_each_request(launch):
    server = launch("--log-format", "json")
    answer = server.post("/v1/completions", {**LONG, "max_tokens": 5}, headers={"X-Request-Id": "mine"})
    assert answer.headers["x-request-id"] == "mine"
    assert server.stop() == 0
    lines = [json.loads(line) for line in server.err]
    assert [line for line in lines if line["event"] == "loading" and "KV cache" in line.get("message", "")]
    events = [line["event"] for line in lines if line["event"] not in ("measured", "trouble", "sampling", "page")  # or such
              and (line["event"] != "loading" or "model" in line)]
    # A request may be served before `ready` is written, and be written after `stopping`.
    assert events[0] == "loading" and events[-1] == "stopped" and sorted(events[1:-1]) == ["ready", "request", "stopping"]
    assert events.index("ready") < events.index("stopping")
    assert all(line["level"] == "info" and line["time"] for line in lines)
    of = {line["event"]: line for line in lines}
    assert of["ready"]["url"] == server.url
    assert of["request"]["id"] == "mine"
    assert of["request"]["completion_tokens"] == 5 and of["request"]["finish"] == "length"


def test_a_second_server_on_the_same_port_fails_and_names_it(launch):
    port = launch().url.rsplit(":", 1)[1]
    second = subprocess.run([binary(), "serve", "--model", str(GOLDEN), "--port", port],
                            capture_output=True, text=True, timeout=300)
    assert second.returncode != 0
    assert port in second.stderr


@pytest.mark.parametrize("flags, named", [
    (["--model", "/nowhere"], "/nowhere"),
    (["--model", str(GOLDEN), "--port", "70000"], "--port"),
    (["--model", str(GOLDEN), "--dtype", "f8"], "--dtype"),
    (["--model", str(GOLDEN), "--no-such-flag"], "--no-such-flag"),
    (["--model", str(GOLDEN), "--kv-cache", "lots"], "--kv-cache"),
])
def test_bad_flags_end_with_one_sentence_that_names_them(flags, named):
    ended = subprocess.run([binary(), "serve", "--port", "0", *flags], capture_output=True, text=True, timeout=300)
    assert ended.returncode not in (0, -signal.SIGSEGV, -signal.SIGABRT)
    assert named in ended.stderr
    assert len(ended.stderr.strip().splitlines()) <= 5


def test_metrics_tell_what_the_process_takes(launch):
    before = time.time()
    server = launch()
    process = pathlib.Path("/proc") / str(server.process.pid)

    def cpu_seconds():
        fields = (process / "stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    wait_until(lambda: server.metrics() and cpu_seconds() > 0, "the kernel to have counted some time")
    spent = cpu_seconds()
    seen = server.metrics()
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", (process / "status").read_text()).group(1)) << 10
    assert 1 << 20 < seen["process_resident_memory_bytes"] <= peak + (4 << 20) < seen["process_virtual_memory_bytes"]
    assert 0 < spent <= seen["process_cpu_seconds_total"] <= cpu_seconds()
    assert before - 2 < seen["process_start_time_seconds"] < time.time() + 2  # the system's start is in whole seconds
    assert 3 < seen["process_open_fds"] < seen["process_max_fds"]
    with contextlib.ExitStack() as held:
        for _ in range(40):  # the first count may have connections that were being closed
            address = urllib.parse.urlparse(server.url)
            held.enter_context(socket.create_connection((address.hostname, address.port)))
        wait_until(lambda: server.metrics()["process_open_fds"] >= seen["process_open_fds"] + 20, "20 more descriptors")


def test_a_server_listens_on_a_path_of_this_machine(tmp_path):
    path = tmp_path / "troupe.sock"
    flags = [binary(), "serve", "--model", str(GOLDEN), "--host", f"unix:{path}"]

    def start():
        process = subprocess.Popen(flags, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout.readline() == f"Listening on unix:{path}\n"
        return process

    process = start()
    try:
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://troupe", timeout=300) as client:
            wait_until(lambda: client.get("/health").status_code == 200, "ready")
            answer = client.post("/v1/completions", json={"prompt": [5, 6], "max_tokens": 3, "return_token_ids": True})
            assert answer.status_code == 200
            assert len(answer.json()["choices"][0]["token_ids"]) == 3
            with client.stream("POST", "/v1/completions",
                               json={"prompt": [5, 6], "max_tokens": 3, "stream": True}) as stream:
                assert list(stream.iter_lines())[-2:] == ["data: [DONE]", ""]
        second = subprocess.run(flags, capture_output=True, text=True, timeout=300)
        assert second.returncode == 1
        assert f"cannot listen on unix:{path}: another server listens there" in second.stderr
        nowhere = tmp_path / "nowhere" / "troupe.sock"
        refused = subprocess.run(flags[:-1] + [f"unix:{nowhere}"], capture_output=True, text=True, timeout=300)
        assert refused.returncode == 1 and refused.stdout == ""
        assert f"cannot listen on unix:{nowhere}: there is no folder {nowhere.parent}" in refused.stderr
        assert not nowhere.parent.exists()
        process.kill()  # leaves its socket
        process.wait()
        assert path.is_socket()
        process = start()
        process.terminate()
        assert process.wait(300) == 0
        assert not path.exists()
    finally:
        process.kill()
        process.wait()
    path.write_text("mine")
    taken = subprocess.run(flags, capture_output=True, text=True, timeout=300)
    assert taken.returncode == 1
    assert "there is something else" in taken.stderr
    assert path.read_text() == "mine"
