"""Packed weight caches change no results."""

import pytest

from expected import PROMPT
from server import GOLDEN


def answer(launch, *flags):
    """Returns greedy and sampled tokens with their log-probabilities, and the server's stderr."""
    server = launch("--dtype", "bf16", *flags)
    bodies = [{"prompt": PROMPT, "max_tokens": 60, "ignore_eos": True, "return_token_ids": True, "logprobs": 3, **more}
              for more in ({"temperature": 0}, {"temperature": 1, "seed": 5, "n": 3})]
    choices = [choice for body in bodies for choice in server.post("/v1/completions", body).json()["choices"]]
    assert server.stop() == 0
    return [(choice["token_ids"], choice["logprobs"]) for choice in choices], "".join(server.err)


@pytest.mark.parametrize("quantize", ["none", "int8", "int4", "bf16"])
def test_tokens_are_the_same_with_a_cold_and_a_warm_packed_cache(launch, tmp_path, quantize):
    cache = tmp_path / "made" / "here"
    expected, log = answer(launch, "--quantize", quantize)
    assert "packed weights" not in log
    cold, log = answer(launch, "--quantize", quantize, "--packed-cache", str(cache))
    (file,) = cache.glob("*.packed")
    assert f"packed weights will be kept in {file}" in log and f"are kept in {file}" in log
    warm, log = answer(launch, "--quantize", quantize, "--packed-cache", str(cache))
    assert f"packed weights come from {file}" in log
    assert len(expected) == 4 and all(len(tokens) == 60 for tokens, _ in expected)
    assert cold == expected
    assert warm == expected


def test_a_truncated_packed_cache_is_replaced(launch, tmp_path):
    expected, _ = answer(launch, "--packed-cache", str(tmp_path))
    (file,) = tmp_path.glob("*.packed")
    whole = file.read_bytes()
    file.write_bytes(whole[:len(whole) // 2])
    again, log = answer(launch, "--packed-cache", str(tmp_path))
    assert f"{file} has {len(whole) // 2} bytes, expected {len(whole)}; weights are packed again" in log
    assert again == expected
    assert file.read_bytes() == whole


def test_a_damaged_packed_cache_is_replaced(launch, tmp_path):
    expected, _ = answer(launch, "--packed-cache", str(tmp_path))
    (file,) = tmp_path.glob("*.packed")
    whole = file.read_bytes()
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 16
    file.write_bytes(changed)
    again, log = answer(launch, "--packed-cache", str(tmp_path), "--weights", "resident")
    assert f"{file} is damaged, in the matrix `model." in log and "the next start packs the weights again" in log
    assert again == expected
    again, log = answer(launch, "--packed-cache", str(tmp_path))
    assert "will be kept in" in log
    assert again == expected
    assert file.read_bytes() == whole


def test_a_packed_cache_that_cannot_be_written_is_logged_once(launch, tmp_path):
    expected, _ = answer(launch, "--packed-cache", str(tmp_path))
    (file,) = tmp_path.glob("*.packed")
    file.unlink()
    (tmp_path / f".{file.name}.troupe-partial" / "in the way").mkdir(parents=True)
    got, log = answer(launch, "--packed-cache", str(tmp_path))
    assert log.count("packed weights are not kept: ") == 1
    assert got == expected
