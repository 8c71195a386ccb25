"""Several executors of one model: replicas, roles and tensor parallelism give the answers of one, for every kind of request."""

import concurrent.futures
import re
import subprocess

import pytest

from server import GOLDEN, Server, binary, wait_until

LAYOUTS = {
    "replicas": ("--replicas", "2", "--threads", "2"),
    "roles": ("--roles", "prefill:1,decode:1", "--role-idle", "off", "--threads", "2"),
    "ranks": ("--tensor-parallel", "2", "--threads", "2"),
    "roles of ranks": ("--roles", "prefill:1,decode:1", "--role-idle", "off", "--tensor-parallel", "2", "--threads", "4"),
}
FLAGS = "--dtype", "bf16", "--quantize", "int8"


def prompt(seed, tokens):
    return [3 + (seed * 31 + 7 * i + i * i % 11) % 300 for i in range(tokens)]


def requests():
    for i in range(10):
        body = {"prompt": prompt(i, 10 + 35 * i % 190), "max_tokens": 40, "temperature": 0.9, "seed": i, "logprobs": 2,
                "ignore_eos": True, "return_token_ids": True}
        yield "/v1/completions", body
    yield "/v1/completions", {"prompt": prompt(1, 90), "max_tokens": 30, "n": 3, "seed": 4, "temperature": 1}
    yield "/v1/completions", {"prompt": prompt(2, 60), "max_tokens": 20, "use_beam_search": True, "n": 2, "temperature": 0}
    yield "/v1/completions", {"prompt": prompt(3, 70), "max_tokens": 30, "temperature": 0.5, "seed": 2,
                              "guided_regex": "[a-z]{4,12}( [a-z]{2,8}){1,4}"}
    yield "/v1/completions", {"prompt": prompt(4, 50), "max_tokens": 4, "echo": True, "logprobs": 1, "temperature": 0}
    yield "/v1/embeddings", {"input": [prompt(5, 40), prompt(6, 90)]}


def answers(server):
    """Of all requests at once."""
    def ask(request):
        path, body = request
        reply = server.post(path, body)
        assert reply.status_code == 200, reply.text
        reply = reply.json()
        return reply.get("choices") or reply["data"]

    with concurrent.futures.ThreadPoolExecutor(16) as crowd:
        return list(crowd.map(ask, requests()))


@pytest.fixture(scope="module")
def expected():
    server = Server(GOLDEN, *FLAGS)
    found = answers(server)
    assert server.stop() == 0
    return found


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_answers_of_one_executor(launch, expected, layout):
    server = launch(*FLAGS, *LAYOUTS[layout])

    def all_work():
        """On a busy machine requests may come one after the other, each when the first replica is free again."""
        for found, right in zip(answers(server), expected):
            assert found == right
        seen = server.metrics()
        steps = {name: value for name, value in seen.items() if re.match(r"troupe_steps_total\b", name)}
        assert len(steps) == (1 if layout == "ranks" else 2)
        return all(count > 0 for count in steps.values()) and seen

    seen = wait_until(all_work, "steps of all")
    assert server.get("/health").status_code == 200
    if layout != "ranks":
        assert 'troupe_moves_total{replica="0"}' in seen
        assert 'troupe_role_changes_total{replica="0"}' in seen
        assert (seen['troupe_kv_blocks_sent_total{replica="0"}'] > 0) == layout.startswith("roles")
        assert seen['troupe_kv_blocks_sent_total{replica="1"}'] == 0
    assert server.stop() == 0


@pytest.mark.parametrize("flags, sentence", [
    (("--roles", "prefill:0,decode:1"), "`roles` needs a number from 1 to 1024 behind `prefill:`, not `prefill:0`"),
    (("--roles", "prefill:1,draw:1"), "there is no role `draw`"),
    (("--roles", "prefill:1,decode:1", "--replicas", "2"), "leave out `replicas`"),
    (("--roles", "prefill:2,decode:2", "--threads", "3"), "`roles` asks for 4 replicas"),
    (("--roles", "prefill:1,decode:1", "--threads", "2", "--kv-cache", "100KiB", "--max-context", "512"),
     "a sequence of 512 tokens needs"),
    (("--roles", "prefill:1,decode:1", "--role-idle", "soon"), "or off"),
    (("--tensor-parallel", "64"), "threads can compute at once here"),
])
def test_a_layout_that_cannot_be_is_refused_in_a_sentence(flags, sentence):
    result = subprocess.run([binary(), "run", "x", "--raw", "--quiet", "--model", str(GOLDEN), "--device", "cpu", *flags],
                            capture_output=True, text=True, timeout=300)
    assert result.returncode != 0
    assert sentence in result.stderr
    assert len(result.stderr.strip().splitlines()) <= 3, result.stderr
