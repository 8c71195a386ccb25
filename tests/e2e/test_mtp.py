"""Layers of multi-token prediction guess by themselves where a checkpoint brings them, and change no answer."""

import concurrent.futures
import json
import pathlib
import subprocess

import pytest

from server import binary

TINY = pathlib.Path(__file__).parent.parent / "data/tiny_mtp"


def ask(server, **body):
    reply = server.post("/v1/completions", {"max_tokens": 40, "temperature": 0, "ignore_eos": True,
                                            "return_token_ids": True, "logprobs": 1, **body})
    assert reply.status_code == 200, reply.text
    return [(choice["token_ids"], choice["logprobs"]) for choice in reply.json()["choices"]]


@pytest.mark.parametrize("model", ["glm4-moe", "qwen3-next"])
def test_a_crowd_has_the_answers_of_a_server_that_does_not_guess(launch, model):
    walk = json.loads((TINY / model / "expected.json").read_text())["walk"]
    plain = launch("--speculate", "off", model=TINY / model)
    guessing = launch("--speculate", "mtp", "--step-tokens", "24", "--max-sequences", "5", model=TINY / model)
    bodies = [dict(prompt=walk[i:i + 2 + 3 * i], temperature=i % 2, seed=i, n=1 + i % 3 // 2) for i in range(10)]
    expected = [ask(plain, **body) for body in bodies]
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        for _ in range(2):
            assert list(pool.map(lambda body: ask(guessing, **body), bodies)) == expected
    reply = plain.post("/v1/completions", {"prompt": walk[:5], "max_tokens": 3, "speculate": "mtp"})
    assert reply.status_code == 400
    assert "no layers of multi-token prediction are loaded" in reply.json()["error"]["message"]


def test_a_model_without_such_layers_is_refused():
    model = TINY.parent / "families/lfm2"
    told = subprocess.run([binary(), "run", "a", "--model", str(model), "--speculate", "mtp"], capture_output=True,
                          text=True)
    assert told.returncode == 1
    assert told.stderr.strip().splitlines()[-1].endswith(
        "`speculate` is mtp, but lfm2 has no layers of multi-token prediction that are known")


def test_the_bundled_model_is_refused_by_what_it_lacks_not_by_a_draft_that_nobody_named():
    told = subprocess.run([binary(), "run", "a", "--speculate", "mtp"], capture_output=True, text=True)
    assert told.returncode == 1
    last = told.stderr.strip().splitlines()[-1]
    assert "has no layers of multi-token prediction that are known" in last
    assert "draft" not in last
