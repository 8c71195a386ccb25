"""Several models in one process: routed by name, loaded on demand, unloaded when idle or when memory is short."""

import concurrent.futures
import json
import shutil
import signal
import socket
import subprocess
import threading

import httpx
import pytest

from browser import CHROMIUM, Visit, chromium  # noqa: F401
from server import ENDLESS, GOLDEN, ROOT, STORYTELLER, Server, binary, wait_until

ENCODERS = ROOT / "tests" / "data" / "tiny_encoders"
EMBEDDER, RANKER = ENCODERS / "bert", ENCODERS / "bert-ranker"
QWEN = GOLDEN.parent / "qwen3"
SMALL = ("--max-context", "128", "--kv-cache", "16MiB", "--max-sequences", "8")
ADMIN = {"Authorization": "Bearer operator"}


def status_of(server):
    return {one["id"]: one["status"] for one in server.get("/v1/models").json()["data"]}


def values_of(server):
    return {name: one["value"] for name, one in status_of(server).items()}


def complete(server, model, **more):
    return server.post("/v1/completions", {"model": model, "prompt": [1, 2, 3], "max_tokens": 8, "temperature": 0,
                                           "return_token_ids": True, **more})


def tokens_of(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["token_ids"]


@pytest.fixture
def admin_key(tmp_path):
    file = tmp_path / "admin"
    file.write_text("operator\n")
    return "--admin-key-file", str(file)


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Chat, embeddings and a reranker, as a configuration names them."""
    file = tmp_path_factory.mktemp("config") / "three.toml"
    file.write_text(f"""
max-sequences = 4
[[model]]
name = "chat"
path = "{STORYTELLER}"
aliases = ["gpt-4o-mini", "llama3:8b"]
max-context = 256
kv-cache = "16MiB"
[[model]]
name = "embed"
path = "{EMBEDDER}"
[[model]]
name = "rank"
path = "{RANKER}"
""")
    server = Server(None, "--config", str(file))
    yield server
    assert server.stop() == 0, "".join(server.err)


def test_what_a_request_does_is_told_as_of_a_single_model(together):
    assert together.post("/v1/completions", {"model": "chat", "prompt": "Once", "max_tokens": 8, "ignore_eos": True},
                         headers={"X-Request-Id": "told"}).status_code == 200
    seen = wait_until(lambda: (told := together.get("/v1/requests/told").json())["state"] == "ended" and told, "its end")
    assert seen["completion_tokens"] == 8 and "decode" in seen["spent_ms"]


def test_the_field_model_chooses_by_name_and_alias(together):
    hello = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "temperature": 0}
    answers = [together.post("/v1/chat/completions", {**hello, "model": name}).json()
               for name in ("chat", "gpt-4o-mini", "llama3:8b", "chat:latest")]
    answers.append(together.post("/v1/chat/completions", hello).json())  # the first one
    assert {answer["model"] for answer in answers} == {"chat"}
    assert len({answer["choices"][0]["message"]["content"] for answer in answers}) == 1
    vector = together.post("/v1/embeddings", {"model": "embed", "input": "Hello"}).json()
    assert vector["model"] == "embed" and len(vector["data"][0]["embedding"]) > 8
    ranked = together.post("/v1/rerank", {"model": "rank", "query": "a", "documents": ["b", "c"]}).json()
    assert len(ranked["results"]) == 2


def test_a_model_that_is_not_there_is_refused_with_the_names_there_are(together):
    sentence = "the model `gpt-5` does not exist; this server has `chat`, `embed` and `rank`"
    for path, body in (("/v1/chat/completions", {"messages": []}), ("/v1/embeddings", {"input": "x"}),
                       ("/tokenize", {"prompt": "x"}), ("/v1/messages", {"messages": [], "max_tokens": 1})):
        refused = together.post(path, {**body, "model": "gpt-5"})
        assert refused.status_code == 404
        assert refused.json()["error"]["message"] == sentence
    refused = together.post("/api/chat", {"model": "gpt-5", "messages": []})
    assert refused.status_code == 404 and refused.json() == {"error": sentence}
    # By name, but of the wrong kind:
    refused = together.post("/v1/chat/completions", {"model": "embed", "messages": [{"role": "user", "content": "x"}]})
    assert refused.status_code == 400


def test_lists_health_and_metrics_know_all_of_them(together):
    listed = together.get("/v1/models").json()["data"]
    assert [one["id"] for one in listed] == ["chat", "embed", "rank"]
    assert listed[0]["aliases"] == ["gpt-4o-mini", "llama3:8b"] and listed[0]["max_model_len"] == 256
    assert all(one["status"]["value"] == "loaded" and one["status"]["weight_bytes"] > 0 for one in listed)
    assert together.get("/v1/models/gpt-4o-mini").json()["id"] == "chat"
    assert together.get("/v1/models/nobody").status_code == 404
    for path in ("/api/tags", "/api/ps"):
        assert [one["name"] for one in together.get(path).json()["models"]] == [
            "chat:latest", "embed:latest", "rank:latest"]
    assert together.get("/health").json() == {"status": "ok"}
    complete(together, "chat")
    seen = wait_until(lambda: (seen := together.metrics())['troupe_request_seconds_count{model="chat"}'] >= 1 and seen, "the request "
                      "to be counted")
    assert seen['troupe_model_loaded{model="rank"}'] == 1
    assert seen['troupe_generated_tokens_total{model="chat"}'] >= 8
    assert seen['troupe_generated_tokens_total{model="embed"}'] == 0
    assert seen['troupe_model_memory_bytes{model="chat",kind="kv_cache"}'] > 0


def test_each_answers_as_it_does_alone_while_the_others_are_busy(launch):
    alone = {}
    for path in (GOLDEN, QWEN):
        server = launch(*SMALL, model=path)
        alone[path] = [tokens_of(complete(server, server.get("/v1/models").json()["data"][0]["id"], seed=i))
                       for i in range(2)]
        assert server.stop() == 0
    both = launch("-m", f"b={QWEN}", *SMALL, model=f"a={GOLDEN}")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [(path, i % 2, pool.submit(complete, both, name, seed=i % 2))
                 for i in range(8) for name, path in (("a", GOLDEN), ("b", QWEN))]
    for path, seed, answer in asked:
        assert tokens_of(answer.result()) == alone[path][seed]


def test_one_model_is_served_as_ever(launch):
    server = launch(*SMALL, model=f"mine={GOLDEN}")
    listed = server.get("/v1/models").json()["data"]
    assert [one["id"] for one in listed] == ["mine"] and "status" not in listed[0]
    assert "troupe_generated_tokens_total" in server.metrics()
    assert server.post("/v1/models/load", {"model": "mine"}).status_code == 403


def test_names_that_clash_and_wrong_tables_are_refused_before_anything_is_loaded(tmp_path):
    def refusal(*flags):
        done = subprocess.run([binary(), "serve", "--port", "0", *flags], capture_output=True, text=True, timeout=300)
        assert done.returncode in (1, 2) and not done.stdout
        return done.stderr

    assert "two models would be called `a`" in refusal("-m", f"a={GOLDEN}", "-m", f"a={QWEN}")
    file = tmp_path / "x.toml"
    file.write_text(f'[[model]]\nname = "a"\npath = "{GOLDEN}"\nmax-contxt = 5\n')
    assert f"{file}: line 4: unknown key `model.max-contxt`" in refusal("--config", str(file))
    file.write_text(f'[[model]]\nname = "a"\npath = "{GOLDEN}"\nthreads = "x"\n')
    assert f"{file}: line 4: --threads: must be an integer" in refusal("--config", str(file))
    file.write_text('[[model]]\nname = "a"\n')
    assert f"{file}: line 1: a [[model]] needs a `path`" in refusal("--config", str(file))
    assert "--idle-unload has no effect without --load-on-demand" in refusal("-m", str(GOLDEN), "--idle-unload", "5")
    assert "there are no models below" in refusal("--models-dir", str(tmp_path))


def test_models_of_a_folder_are_loaded_when_a_request_names_them_once_for_all_who_wait(launch, tmp_path, admin_key):
    for name, path in (("first", GOLDEN), ("second", QWEN)):
        (tmp_path / "models").mkdir(exist_ok=True)
        (tmp_path / "models" / name).symlink_to(path)
    server = Server(None, "--models-dir", str(tmp_path / "models"), "--load-on-demand", *SMALL, *admin_key)
    try:
        assert server.get("/health").json() == {"status": "ok"}
        assert values_of(server) == {"first": "unloaded", "second": "unloaded"}
        assert server.get("/api/ps").json() == {"models": []}
        away = {one["name"]: one for one in server.get("/api/tags").json()["models"]}
        for name, path in (("first", GOLDEN), ("second", QWEN)):
            assert away[f"{name}:latest"]["size"] == sum(file.stat().st_size for file in path.glob("*.safetensors"))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: complete(server, "second"), range(8)))
        assert len({tuple(tokens_of(answer)) for answer in answers}) == 1
        assert any(float(answer.headers.get("x-troupe-load-seconds", 0)) > 0 for answer in answers)
        loads = lambda: sum('loaded' in line and 'model=second' in line for line in server.err)
        wait_until(loads, "the load in the log")
        assert loads() == 1
        assert values_of(server) == {"first": "unloaded", "second": "loaded"}
        for one in server.get("/api/tags").json()["models"]:
            assert [one[key] for key in ("size", "digest")] == [away[one["name"]][key] for key in ("size", "digest")]
        assert server.post("/tokenize", {"model": "first", "prompt": "hi"}).status_code == 200  # waits as well
        # the operator
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            assert server.post("/v1/models/unload", {"model": "first"}, headers=headers).status_code == 401
        assert server.post("/v1/models/unload", {"model": "first"}, headers=ADMIN).json() == {"success": True}
        assert values_of(server) == {"first": "unloaded", "second": "loaded"}
        assert server.post("/v1/models/load", {"model": "first"}, headers=ADMIN).json() == {"success": True}
        assert values_of(server)["first"] == "loaded"
        assert server.post("/v1/models/load", {"model": "third"}, headers=ADMIN).status_code == 404
        assert server.post("/v1/models/load", {"modle": "first"}, headers=ADMIN).status_code == 400
        # Ollama's way to say how long
        gone = server.post("/api/generate", {"model": "second", "keep_alive": 0})
        assert gone.status_code == 200 and gone.json()["done_reason"] == "unload"
        wait_until(lambda: values_of(server)["second"] == "unloaded", "the model to be unloaded")
        was_loaded = loads()
        gone = server.post("/api/chat", {"model": "second:latest", "messages": [], "keep_alive": 0})  # and stays so
        assert gone.status_code == 200 and gone.json()["done_reason"] == "unload" and gone.json()["model"] == "second:latest"
        assert "x-troupe-load-seconds" not in gone.headers and loads() == was_loaded
        assert server.post("/api/generate", {"model": "third", "keep_alive": 0}).status_code == 404
        server.post("/api/generate", {"model": "second", "keep_alive": "1h"})
        ps = {one["name"]: one["expires_at"] for one in server.get("/api/ps").json()["models"]}
        assert ps["first:latest"].startswith("9999") and not ps["second:latest"].startswith("9999")
        assert server.post("/api/generate", {"model": "second", "keep_alive": "soon"}).status_code == 400
    finally:
        assert server.stop() == 0, "".join(server.err)


def test_a_stream_is_not_ended_by_unloading_its_model_and_who_comes_then_waits(launch, admin_key):
    server = launch("-m", f"b={QWEN}", "--load-on-demand", *SMALL, *admin_key, model=f"a={GOLDEN}")
    complete(server, "a")
    first = threading.Event()

    def read():
        pieces = 0
        with httpx.stream("POST", server.url + "/v1/completions", timeout=300, json={
                "model": "a", "prompt": [1, 2, 3], "max_tokens": 120, "ignore_eos": True, "stream": True,
                "return_token_ids": True, "logprobs": 20, "n": 4}) as stream:
            for line in stream.iter_lines():
                if line.startswith("data: {"):
                    pieces += sum(len(c["token_ids"]) for c in json.loads(line[6:])["choices"] if c.get("token_ids"))
                    first.set()
        return pieces

    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        whole = pool.submit(read)
        first.wait(300)
        gone = pool.submit(server.post, "/v1/models/unload", {"model": "a"}, headers=ADMIN)
        again = pool.submit(complete, server, "a")
        assert whole.result() == 480
        assert gone.result().status_code == 200
        tokens_of(again.result())


def test_idle_models_are_unloaded_and_come_back(launch):
    server = launch("--load-on-demand", "--idle-unload", "1", *SMALL, model=f"a={GOLDEN}")
    first = tokens_of(complete(server, "a"))
    # A second is over soon where the machine is busy.
    wait_until(lambda: tokens_of(complete(server, "a")) and "unloads_at" in status_of(server)["a"], "its time to be told")
    wait_until(lambda: values_of(server) == {"a": "unloaded"}, "the model to be unloaded")
    assert tokens_of(complete(server, "a")) == first


def test_a_hangup_changes_the_models_that_are_served_and_cuts_no_answer(tmp_path):
    file = tmp_path / "x.toml"
    table = lambda name, path, more="": f'[[model]]\nname = "{name}"\npath = "{path}"\n{more}'
    common = 'max-context = 128\nkv-cache = "16MiB"\nmax-sequences = 8\nno-sandbox = true\n'
    write = lambda *tables: file.write_text(common + "".join(tables))
    write(table("a", GOLDEN), table("b", QWEN))
    server = Server(None, "--config", str(file))

    def hang_up(*words):
        before = len(server.err)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: all(any(word in line for line in server.err[before:]) for word in words), "lines in the log")

    try:
        first = tokens_of(complete(server, "a"))
        with httpx.stream("POST", server.url + "/v1/completions", timeout=300,
                          json={"model": "a", "prompt": [1, 2, 3], "stream": True, **ENDLESS, "max_tokens": 120}) as answer:
            pieces = answer.iter_lines()
            next(pieces)
            write(table("b", QWEN, 'aliases = ["second"]\n'), table("c", GOLDEN))
            hang_up("removed model=a", "added model=c", "renamed model=b", "info reloaded")
            assert complete(server, "a").json()["error"]["message"].endswith("this server has `b` and `c`")
            assert tokens_of(complete(server, "second"))
            assert tokens_of(complete(server, "c")) == first
            assert list(values_of(server)) == ["b", "c"]
            *_, last = [line for line in pieces if line]
        assert last == "data: [DONE]"
        write(table("b", QWEN), table("c", GOLDEN), table("d", tmp_path / "nowhere"))
        hang_up("error nothing is changed: ", "nowhere")
        assert list(values_of(server)) == ["b", "c"]
        write(table("b", QWEN), table("c", GOLDEN, "max-context = 64\n"))
        hang_up("removed model=c", "added model=c")
        wait_until(lambda: values_of(server) == {"b": "loaded", "c": "loaded"}, "the model to be loaded anew")
        assert {one["id"]: one["max_model_len"] for one in server.get("/v1/models").json()["data"]} == {"b": 128, "c": 64}
        assert server.get("/health").json() == {"status": "ok"}
    finally:
        assert server.stop() == 0, "".join(server.err)


def read_nothing(server, body):
    """A connection that asks, and reads only twelve bytes of the answer until told to."""
    url, text = httpx.URL(server.url), json.dumps(body).encode()
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.settimeout(300)
    client.connect((url.host, url.port))
    client.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Request-Id: unread\r\n"
                   b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text) + text)
    return client, client.recv(12)


def read_all(client):
    with client:
        return b"".join(iter(lambda: client.recv(1 << 16), b"")).decode()


def test_an_answer_that_nobody_reads_keeps_no_model_loaded(launch, admin_key):
    server = launch("--load-on-demand", *SMALL, "--max-context", "1024", *admin_key, model=f"a={GOLDEN}")
    client, begin = read_nothing(server, {"model": "a", "prompt": [1, 2, 3], **ENDLESS, "max_tokens": 1000}) # 5 MB, more than sockets hold
    assert begin == b"HTTP/1.1 200"
    gone = server.post("/v1/models/unload", {"model": "a"}, headers=ADMIN)
    assert gone.status_code == 200 and values_of(server) == {"a": "unloaded"}
    assert server.get("/v1/requests/unread").json()["state"] != "ended"
    assert tokens_of(complete(server, "a")) # it is loaded again meanwhile
    choices = json.loads(read_all(client).split("\r\n\r\n", 1)[1])["choices"]
    assert [len(one["logprobs"]["tokens"]) for one in choices] == [1000] * 8


def test_a_stream_that_nobody_reads_ends_when_others_have_waited_for_the_model_that_takes_its_place(tmp_path):
    file = tmp_path / "x.toml"
    write = lambda context: file.write_text(f"""
load-on-demand = true
max-wait = "500ms"
no-sandbox = true
kv-cache = "16MiB"
max-sequences = 8
[[model]]
name = "a"
path = "{GOLDEN}"
max-context = {context}
""")
    write(2048)
    server = Server(None, "--config", str(file))
    try:
        client, begin = read_nothing(server, {"model": "a", "prompt": [1, 2, 3], "stream": True, **ENDLESS})
        assert begin == b"HTTP/1.1 200"
        wait_until(lambda: server.get("/v1/requests/unread").json()["state"] == "paused", "its requests to be paused")
        write(64)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: any("added model=a" in line for line in server.err), "the reload")

        def asked():
            """It is refused until the other is not read for as long as --max-wait, and where the machine lets it wait for that."""
            answer = complete(server, "a")
            if answer.status_code != 429:
                return answer
            told = answer.json()["error"]["message"]
            assert "the answers of the model whose place it takes did not end in" in told or "(--max-wait)" in told, told
            return None

        assert tokens_of(wait_until(asked, "an answer of the model that takes its place"))
        assert [one["max_model_len"] for one in server.get("/v1/models").json()["data"]] == [64]
        *_, last, done = [line for line in read_all(client).split("\n") if line.startswith("data: ")]
        assert "another model `a`, whose requests waited for it, takes the place of its own" in last
    finally:
        assert server.stop() == 0, "".join(server.err)


def test_a_confined_server_refuses_models_from_elsewhere_and_finds_those_that_come_into_its_folder(tmp_path):
    inside, file = tmp_path / "models", tmp_path / "settings" / "x.toml"
    inside.mkdir()
    file.parent.mkdir()
    shutil.copytree(GOLDEN, inside / "a")
    file.write_text(f'models-dir = "{inside}"\nload-on-demand = true\n')
    server = Server(None, "--config", str(file), *SMALL)

    def hang_up(word):
        before = len(server.err)
        server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: any(word in line for line in server.err[before:]), "a line in the log")

    try:
        wait_until(lambda: any(" ready " in line for line in server.err), "the log to tell")
        if any("the server is not confined" in line for line in server.err):
            pytest.skip("this kernel has no Landlock or no seccomp")
        shutil.copytree(QWEN, inside / "b")
        hang_up("added model=b")
        assert tokens_of(complete(server, "b"))
        shutil.copytree(QWEN, tmp_path / "far" / "c")
        file.write_text(file.read_text() + f'[[model]]\nname = "c"\npath = "{tmp_path / "far" / "c"}"\n')
        hang_up("may not be read; a server that is confined")
        assert sorted(values_of(server)) == ["a", "b"]
    finally:
        assert server.stop() == 0, "".join(server.err)


def available():
    with open("/proc/meminfo") as lines:
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith("MemAvailable")))


def test_where_memory_is_short_the_one_used_longest_ago_goes_and_what_does_not_fit_is_refused_with_numbers(
        tmp_path, admin_key):
    share = available() // 100
    file = tmp_path / "x.toml"
    tables = "".join(f'[[model]]\nname = "{name}"\npath = "{path}"\nkv-cache = {share * percent}\n'
                     for name, path, percent in (("a", GOLDEN, 60), ("b", QWEN, 60), ("huge", GOLDEN, 300)))
    file.write_text('max-context = 128\nmax-sequences = 4\n' + tables)
    server = Server(None, "--config", str(file), "--load-on-demand", *admin_key)
    try:
        first = tokens_of(complete(server, "a"))
        tokens_of(complete(server, "b"))
        assert values_of(server) == {"a": "unloaded", "b": "loaded", "huge": "unloaded"}
        assert tokens_of(complete(server, "a")) == first
        assert values_of(server) == {"a": "loaded", "b": "unloaded", "huge": "unloaded"}
        refused = complete(server, "huge")
        assert refused.status_code == 503
        assert "the model `huge` could not be loaded: a KV cache of" in refused.json()["error"]["message"]
        assert "of memory are available" in refused.json()["error"]["message"]
        assert status_of(server)["huge"]["failed"]
        assert server.get("/health").json()["status"] == "degraded"
        tokens_of(complete(server, "a"))  # and the others come back
    finally:
        assert server.stop() == 0, "".join(server.err)


def test_an_engine_that_dies_leaves_the_others_alone_and_is_started_again_though_nobody_asks(launch):
    server = launch("-m", f"b={QWEN}", "--fault-injection", *SMALL, model=f"a={GOLDEN}")
    first = {name: tokens_of(complete(server, name)) for name in "ab"}
    starts = lambda: {name: sum("loaded" in line and f"model={name}" in line for line in server.err) for name in "ab"}
    wait_until(lambda: starts() == {"a": 1, "b": 1}, "both in the log")
    server.post("/debug/faults", {"faults": [{"kind": "engine", "what": "kill", "every_messages": 1, "count": 1}]})
    died = lambda: sum(starts().values()) > 2 or set(values_of(server).values()) != {"loaded"}
    wait_until(lambda: [complete(server, name) for name in "ab"] and died(), "an engine to die")
    wait_until(lambda: sum(starts().values()) == 3, "it to be started again")  # requests load nothing here
    wait_until(lambda: values_of(server) == {"a": "loaded", "b": "loaded"}, "both to be there")
    wait_until(lambda: server.get("/health").json() == {"status": "ok"}, "all to be well")
    assert {name: tokens_of(complete(server, name)) for name in "ab"} == first


@pytest.mark.skipif(not CHROMIUM, reason="Debian's package chromium is absent")
def test_the_page_shows_all_models_chats_with_the_chosen_one_and_loads_none_by_itself(chromium, launch):
    server = launch("-m", f"other={GOLDEN}", "--load-on-demand", "--kv-cache", "64MiB", model=f"chat={STORYTELLER}")
    it = Visit(chromium, server.url)
    try:
        it.page.wait_for_selector(".settings-list", state="attached")
        assert it.page.locator("select option").filter(has_text="other").count() >= 1
        assert values_of(server) == {"chat": "unloaded", "other": "unloaded"}
        it.ask("Hello")
        it.wait_for_answer()
        assert values_of(server) == {"chat": "loaded", "other": "unloaded"}
        it.page.locator("#tab-engine").click()
        it.page.wait_for_function("() => document.querySelectorAll('#memory .memory-model').length === 2")
        shown = it.page.locator("#memory").inner_text()
        assert "chat" in shown and "KV cache" in shown and "unloaded" in shown
        steps = lambda: it.page.evaluate("async () => (await import('/page/engine.js')).state().steps.length")
        complete(server, "chat")
        wait_until(steps, "steps of the first model that is loaded")
        it.page.locator("#ledger summary").click()
        it.page.wait_for_selector("#ledger .spent-bar i")
        it.page.locator("#engine-model").select_option("other")
        assert steps() == 0 and values_of(server)["other"] == "unloaded"
        complete(server, "other")
        complete(server, "chat")  # whose steps are not shown
        wait_until(steps, "steps of the other model")
        rows = it.page.evaluate("async () => (await import('/page/engine.js')).state().steps.map((s) => s.step)")
        assert rows[0] <= 2  # it had made none
    finally:
        it.end()
