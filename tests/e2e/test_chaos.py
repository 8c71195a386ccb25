"""Streams of every API and kind while an actor dies each second, of every kind in turn: whoever survives gets the bytes of a
quiet server, and afterwards nothing is left. TROUBLE_SECONDS of CI are TROUPE_CHAOS_SECONDS of a long run, which prints its
table (results in README.md)."""

import asyncio
import json
import os
import time

import jsonschema
import pytest
from websockets.sync.client import connect

import heap
from chaos_check import judge
from crowd import Client, Crowd, History, requests
from server import GOLDEN, ROOT, Server, wait_until
from test_lora import write_adapter
from test_steering import made
from trouble import Trouble

SECONDS = float(os.environ.get("TROUPE_CHAOS_SECONDS", "0"))
STREAMS = int(os.environ.get("TROUPE_CHAOS_STREAMS", "64"))
RECURRENT = ROOT / "tests" / "data" / "families" / "qwen3-5"
WORKERS = "scheduler", "kv_block_manager", "sampler", "executor", "guide_compiler", "guide_worker", "request"


class Layout:
    """What a server is started with. `seconds`: of trouble in CI; 0: in long runs alone."""

    def __init__(self, model, seconds, *flags, kinds=WORKERS, features=(), without=()):
        self.model, self.seconds, self.flags = model, seconds, flags
        self.kinds, self.features, self.without = kinds, features, without

    def start(self, folder):
        flags = [*self.flags, "--fault-injection", "--log-level", "error"]
        if "kv_mover" in self.kinds:
            flags += ["--kv-disk", str(folder / "kept")]
        if "adapter" in self.features:
            flags += ["--lora", f"one={write_adapter(folder / 'one', 1)}"]
        if "steering" in self.features:
            flags += ["--steer", f"mean={made(folder, 'mean.safetensors')[0]}"]
        if "judge" in self.features:
            flags += ["--reward-model", str(ROOT / "tests" / "data" / "tiny_reward")]
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0")  # what threads keep for later counts as used
            return Server(self.model, *flags)

    def requests(self, seed):
        return [one for one in requests(seed, features=self.features) if one[0] not in self.without]


CPU = "--device", "cpu", "--threads", "2", "--max-sequences", "32"
LAYOUTS = {
    "replicas": Layout(GOLDEN, 10, *CPU, "--replicas", "2", "--draft", str(GOLDEN), "--draft-tokens", "2",
                       kinds=(*WORKERS, "drafter", "kv_mover", "judge"), features=("adapter", "steering", "judge")),
    "stages of a recurrent model": Layout(RECURRENT, 4, *CPU, "--stages", "2", without=("search",)),
    "roles": Layout(GOLDEN, 0, *CPU, "--roles", "prefill:1,decode:1", "--kv-cache", "8MiB", kinds=(*WORKERS, "kv_mover")),
    "ranks": Layout(GOLDEN, 0, *CPU, "--tensor-parallel", "2", "--kv-cache", "4MiB", kinds=(*WORKERS, "kv_mover")),
}


def actors(server):
    """By kind: (alive, messages queued)."""
    with connect(server.ws_url, open_timeout=300) as link:
        link.send(json.dumps({"type": "watch", "id": "w", "interval_ms": 100}))
        while "actors" not in (frame := json.loads(link.recv(30))):
            pass
    return {each["kind"]: (each["alive"], each["queued"]) for each in frame["actors"]}


def is_idle(server):
    """Of all replicas."""
    held = ("troupe_kv_blocks_in_use", "troupe_sequences_", "troupe_requests_in_flight")
    return all(value == 0 for name, value in server.metrics().items()
               if name.startswith(held) and "total" not in name)


def standing(server):
    """What is held at rest: descriptors, threads, actors by kind."""
    wait_until(lambda: is_idle(server), "all blocks to be free and no request to run", 120)
    descriptors, threads = heap.resources(server.process.pid)
    return {"descriptors": descriptors, "threads": threads, **{kind: alive for kind, (alive, _) in actors(server).items()}}


def settled(server, before):
    """Waits until no more is held than before; replicas and the judge are started again."""
    more = {"descriptors": 2}

    def is_as_before():
        now = standing(server)
        return all(now[what] <= count + more.get(what, 0) for what, count in before.items()) and \
            all(now.get(kind, 0) >= before[kind] for kind in before if kind not in ("descriptors", "threads"))
    wait_until(is_as_before, lambda: f"{before} to be held again, not {standing(server)}", 120)


def check_accounts(server, histories):
    """The server's accounts of the last requests, of which it keeps 1,024: their parts sum to the whole."""
    seen = 0
    for one in [one for one in histories if one.id][-400:]:
        answer = server.get(f"/v1/requests/{one.id}")
        if answer.status_code == 404:  # its connection broke before it was read, or others have ended since
            continue
        account = answer.json()
        assert account["state"] == "ended" and abs(sum(account["spent_ms"].values()) - account["total_ms"]) < 1, account
        seen += 1
    assert seen > 20


def history(text, end="whole", last_events=1, logprobs=("-0.5", "-1.25"), **more):
    return History("chat", 0, {("text", 0): text, ("logprobs", 0): list(logprobs)}, end, last_events=last_events, **more)


def test_the_checker_sees_whatever_differs():
    alone = {("chat", 0): history("hello")}
    assert judge([history("hello")], alone).wrong == []
    assert judge([history("hel", "left", 0, ["-0.5"])], alone).wrong == []
    lost = judge([history("hel", "error", 1, [], error={"message": "a fault was injected"})], alone)
    assert lost.wrong == [] and lost.lost == {"requests that died themselves": 1}
    for wrong in (history("hallo"), history("hell"), history("hello!"), history("hello", logprobs=["-0.5", "-1.26"]),
                  history("hello", last_events=2), history("hello", last_events=0), history("ha", "left", 0, []),
                  history("hello!", "cut", 0), history("hel", "cut", 1)):
        assert len(judge([wrong], alone).wrong) == 1, wrong
    assert judge([], {("chat", 0): history("hello", "error", 1)}).wrong


@pytest.mark.parametrize("name", LAYOUTS)
def test_streams_survive_the_deaths_of_every_kind_of_actor(tmp_path, name, capsys):
    layout = LAYOUTS[name]
    seconds = SECONDS or layout.seconds
    if not seconds:
        pytest.skip("in long runs alone")
    server = layout.start(tmp_path)
    try:
        model = json.loads(server.get("/v1/models").text)["data"][0]["id"]
        crowd = Crowd(server.url, model, layout.requests, 3 if SECONDS else 1, STREAMS, seed=int(time.time()))
        trouble = Trouble(server.url, layout.kinds, seed=int(time.time()))
        alone = asyncio.run(crowd.alone())
        asyncio.run(crowd.run(min(max(SECONDS / 10, 1), 120)))  # fills what is filled once: guides, records of 1,024 requests
        before, used = standing(server), heap.heap(server.url, still=0.5)

        async def both():
            await asyncio.gather(crowd.run(seconds), trouble.run(seconds))

        asyncio.run(both())
        verdict = judge(crowd.histories, alone)
        struck = trouble.by_kind()
        settled(server, before)
        grown = heap.heap(server.url, still=0.5) - used
        check_accounts(server, crowd.histories)
        restarts = sum(count for what, count in server.metrics().items() if what.startswith("troupe_restarts_total"))
        with capsys.disabled():
            print(f"\n{name}, {seconds:.0f} s of trouble among {STREAMS} clients: {sum(struck.values())} faults "
                  f"({', '.join(f'{count} {kind}' for kind, count in sorted(struck.items()))}), {restarts:.0f} restarts; "
                  f"{verdict.told()}; heap {grown / 1e3:+.0f} kB")
        assert not verdict.wrong, "\n".join(verdict.wrong[:20])
        assert set(verdict.lost) <= {"requests that died themselves", "connections that ended", "searches without their judge",
                                     "refused as the cause of failures", "without memory"}, verdict.told()
        assert verdict.lost["requests that died themselves"] <= struck["request"]
        assert verdict.lost["connections that ended"] <= struck["socket"]
        assert verdict.whole > verdict.streams / 3
        assert grown < 4e6
        again = judge(asyncio.run(crowd.alone()).values(), alone)
        assert not again.wrong and again.whole == again.streams, again.wrong
    except BaseException:
        print("".join(server.err[-40:]))
        raise
    finally:
        assert server.stop() == 0, "".join(server.err)


# -- a guide and a call that go on in the middle of a string -----------------------------------------------------------

LONG = {"type": "string", "minLength": 300, "maxLength": 320}


@pytest.fixture(scope="module")
def delayed():
    server = Server(GOLDEN, "--device", "cpu", "--threads", "2", "--replicas", "2", "--fault-injection", "--log-level", "error")
    yield server
    wait_until(lambda: is_idle(server), "all blocks to be free and no request to run")
    assert server.stop() == 0, "".join(server.err)


def faults(server, *rules):
    """Replaces the faults; those that were there, with how often they struck."""
    answer = server.post("/debug/faults", {"faults": list(rules)})
    assert answer.status_code == 200, answer.text
    return answer.json()["faults"]


def in_mid_string(text):
    return 40 <= len(text) <= 300 and text.count('"') % 2 == 1


def across_deaths(server, request, deaths):
    """The answer to `request`, a stream of chats; each time that it is in mid-string and further than before, `deaths` has its
    next fault set, which strikes before the next one is. Returns what was seen, and what the answer was each time."""
    at = []

    async def follow():
        client = Client(server.url, json.loads(server.get("/v1/models").text)["data"][0]["id"])
        loop, pending, told = asyncio.get_running_loop(), list(deaths), 0
        task = asyncio.create_task(client.ask(request, 0))

        def die(rules):
            faults(server, *rules)
            wait_until(lambda: task.done() or all(one["struck"] for one in server.get("/debug/faults").json()["faults"]), rules)

        while pending and not task.done():
            await asyncio.sleep(0.005)
            history = client.current
            text = (history.seen.get(("arguments", 0)) or history.seen.get(("text", 0)) or "") if history else ""
            if in_mid_string(text) and len(text) > told:
                told = len(text) + 20
                at.append(text)
                await loop.run_in_executor(None, die, pending.pop(0))
        return await task

    history = asyncio.run(follow())
    faults(server)
    return history, at


@pytest.mark.parametrize("kind", ["a schema", "a tool"])
@pytest.mark.parametrize("effect", ["kill", "exception"])
def test_a_guided_answer_goes_on_in_mid_string_after_deaths(delayed, kind, effect):
    body = {"messages": [{"role": "user", "content": "ROMEO:"}], "max_tokens": 700, "temperature": 1, "seed": 4, "logprobs": True}
    schema = {"type": "object", "properties": {"text": LONG, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
              "required": ["text", "age"], "additionalProperties": False}
    if kind == "a schema":
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": True}}
    else:
        body |= {"tools": [{"type": "function", "function": {"name": "tell", "parameters": schema}}], "tool_choice": "required",
                 "parallel_tool_calls": False}
    request = kind, "chat", "/v1/chat/completions", body
    alone, _ = across_deaths(delayed, request, [])
    before = delayed.metrics()

    def run(pause):
        """Each step of a sampler takes so many milliseconds, so that a string of 300 characters lasts."""
        slow = {"kind": "sampler", "what": "delay", "pause_ms": pause, "every_messages": 1, "count": 10**9}

        def dies(number, actor, count=1):
            return slow, {"kind": actor, "what": effect, "replica": number, "every_messages": 1, "count": count}

        # Where it was, or in the other; then in the second alone, then in the first alone.
        once = slow, {"kind": "executor", "what": effect, "every_messages": 1}
        deaths = [once, once] if effect == "exception" else [once, dies(0, "executor", 10**6), dies(1, "kv_block_manager", 10**6)]
        faults(delayed, slow)
        history, at = across_deaths(delayed, request, deaths)
        wait_until(lambda: delayed.get("/health").json()["status"] == "ok", "both replicas to run")
        return history, at, len(deaths)

    for pause in (5, 20, 80, 320):
        history, at, wanted = run(pause)
        if len(at) == wanted:
            break  # else this process was not run for so long that the string was over
    assert len(at) == wanted and all(in_mid_string(text) for text in at)
    assert history.end == alone.end == "whole", (history.error, alone.error)
    assert history.seen == alone.seen
    text = history.seen["arguments" if kind == "a tool" else "text", 0]
    assert all(text.startswith(part) and len(text) > len(part) for part in at)
    jsonschema.validate(json.loads(text), schema)
    after = delayed.metrics()
    grown = {what: [after[f'troupe_{what}_total{{replica="{number}"}}'] - before[f'troupe_{what}_total{{replica="{number}"}}']
                    for number in (0, 1)] for what in ("restarts", "steps")}
    assert sum(grown["restarts"]) >= 2, grown
    assert effect == "exception" or min(grown["steps"]) > 0, grown  # it was in both
