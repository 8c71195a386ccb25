"""Weights that are mapped from a file, or do not fit in memory, change no results."""

import os
import sys

import pytest

from server import GOLDEN, ROOT, Server, wait_until
from test_packed_cache import answer

sys.path.insert(0, str(ROOT / "tests" / "bench"))
from mapped import limited, llama  # noqa: E402


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "packed"


def test_tokens_are_the_same_mapped_and_resident(launch, cache):
    expected, _ = answer(launch, "--packed-cache", "none")
    for how in ("mapped", "resident", "mapped"):
        got, log = answer(launch, "--weights", how, "--packed-cache", str(cache))
        assert got == expected, how
        assert "packed weights" in log


def test_metrics_say_how_much_of_mapped_weights_was_read(launch, cache):
    _, log = answer(launch, "--weights", "mapped", "--packed-cache", str(cache))
    (file,) = cache.glob("*.packed")
    read = "troupe_mapped_weight_bytes_read_total"
    server = launch("--dtype", "bf16", "--weights", "mapped", "--packed-cache", str(cache))
    with open(file) as opened:
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # pages that are mapped stay
    body = {"prompt": [1, 7, 9], "max_tokens": 4}
    server.post("/v1/completions", body)
    first = server.metrics()[read]
    assert 0 <= first <= 2 * file.stat().st_size
    server.post("/v1/completions", body)
    assert server.metrics()[read] == first  # what fits is read once
    assert server.stop() == 0
    resident = launch("--dtype", "bf16", "--weights", "resident", "--packed-cache", str(cache))
    resident.post("/v1/completions", body)
    assert resident.metrics()[read] == 0


def test_stages_and_replicas_share_mapped_weights(launch, cache):
    expected, _ = answer(launch, "--packed-cache", "none")
    for flags in (("--replicas", "2"), ("--stages", "2"), ("--tensor-parallel", "2")):
        got, _ = answer(launch, "--weights", "mapped", "--packed-cache", str(cache), "--threads", "2", *flags)
        assert got == expected, flags


def test_small_models_leave_nothing_behind_unasked(monkeypatch, launch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    _, log = answer(launch)
    assert "packed weights" not in log
    assert not (tmp_path / "caches" / "troupe" / "packed").exists()


def test_a_damaged_block_of_mapped_weights_is_one_sentence_and_the_next_start_heals_it(launch, cache):
    expected, _ = answer(launch, "--packed-cache", str(cache))
    (file,) = cache.glob("*.packed")
    whole = file.read_bytes()
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 16
    file.write_bytes(changed)
    server = Server(GOLDEN, "--dtype", "bf16", "--packed-cache", str(cache), ready=False)
    sentence = f"{file} is damaged, in the matrix `model."

    def told():
        if server.process.poll() is None:
            try:
                server.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
            except Exception:  # it may end at any time
                pass
        return any(sentence in line for line in server.err)

    wait_until(told, "the sentence")
    server.process.kill()
    server.process.wait()
    assert not file.exists()
    again, _ = answer(launch, "--packed-cache", str(cache))
    assert again == expected


def test_a_model_of_more_than_the_memory_answers_with_the_same_tokens(tmp_path, cache):
    model = tmp_path / "large.gguf"
    llama(model, layers=12, hidden=1024, ffn=4096, vocab=2048, kv=256)
    flags = ("--packed-cache", str(cache), "--max-sequences", "1", "--max-context", "128", "--step-tokens", "32",
             "--threads", "2")
    body = {"prompt": [1, 7, 9, 300], "max_tokens": 6, "temperature": 1, "seed": 5, "ignore_eos": True, "logprobs": 1,
            "return_token_ids": True}

    def run(group=None, *more):
        enter = (lambda: (group / "cgroup.procs").write_text("0")) if group else None
        server = Server(model, *flags, *more, preexec_fn=enter)
        try:
            choice = server.post("/v1/completions", body).json()["choices"][0]
            read = server.metrics()["troupe_mapped_weight_bytes_read_total"]
        finally:
            status = server.stop()
        assert status == 0
        return (choice["token_ids"], choice["logprobs"]["token_logprobs"]), "".join(server.err), read

    expected, _, nothing = run(None, "--packed-cache", "none")
    size = model.stat().st_size
    for how in ("auto", "mapped"):  # packs within the limit at first
        with limited(size * 2 // 3) as group:
            if group is None:
                pytest.skip("no control group can be made")
            got, log, read = run(group, "--weights", how)
        assert got == expected, how
        assert "each token reads" in log and "from disk" in log, log
        assert read > size / 3 > nothing == 0
