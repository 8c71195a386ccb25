"""Layers divided among stages (--stages, --layers): the same answers, the same kept prefixes, one sentence when it is wrong."""

import concurrent.futures
import subprocess

import pytest

from server import GOLDEN, binary, wait_until

FLAGS = "--device", "cpu", "--dtype", "bf16", "--threads", "2"


def ask(server, number):
    prompt = [3 + (7 + number) * i % 90 for i in range(20 + 60 * (number % 3))]
    reply = server.post("/v1/completions", {
        "prompt": prompt, "max_tokens": 16, "temperature": 1, "seed": number, "ignore_eos": True, "logprobs": 2,
        "return_token_ids": True, "n": 1 + number % 2})
    assert reply.status_code == 200, reply.text
    return [(choice["token_ids"], choice["logprobs"]) for choice in reply.json()["choices"]]


def all_at_once(server):
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda number: ask(server, number), range(8)))


def test_stages_give_the_answers_of_one(launch, tmp_path):
    kept = "--kv-disk", str(tmp_path / "kept")
    one = launch(*FLAGS, *kept)
    expected = [ask(one, number) for number in range(8)]
    wait_until(lambda: one.metrics()["troupe_kv_disk_blocks_written_total"] >= 8, "blocks to be written")
    assert one.stop() == 0
    two = launch(*FLAGS, *kept, "--stages", "2", "--microbatches", "3", "--step-tokens", "32")
    assert all_at_once(two) == expected
    assert two.metrics()["troupe_kv_blocks_adopted_total"] > 0  # what one stage has kept
    two.wait_until_idle()
    assert two.stop() == 0
    three = launch(*FLAGS[:-1], "3", "--layers", "cpu=0,cpu=1,cpu=2", "--speculate", "off")
    assert all_at_once(three) == expected
    assert three.stop() == 0


@pytest.mark.parametrize("flags, sentence", [
    (("--stages", "4"), "`stages` must be at most 3, the model's layers, not 4"),
    (("--stages", "2", "--threads", "1"), "`stages` must be at most 1, one for each thread to compute with, not 2"),
    (("--layers", "cpu=0,cpu=2"), "`layers` leaves out layer 1"),
    (("--layers", "cpu=0-1,cpu=1-2"), "`layers` has layer 1 twice"),
    (("--layers", "gpu=0-2"), "there is no device `gpu` here"),
    (("--layers", "cpu=0-2", "--stages", "2"), "`stages` must be left out"),
])
def test_a_wrong_layout_is_one_sentence(flags, sentence):
    ended = subprocess.run([binary(), "run", "--model", str(GOLDEN), *flags, "hello"], capture_output=True, text=True,
                           timeout=300)
    assert ended.returncode != 0
    assert sentence in ended.stderr
    assert "loading" not in ended.stderr
    assert ended.stdout == ""
