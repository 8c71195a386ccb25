"""`serve --record` and `troupe replay`: what was asked is asked again, by another layout, and every bit is compared."""

import asyncio
import concurrent.futures
import json
import re
import shutil
import stat
import subprocess

import pytest

import crowd
from server import GOLDEN, binary


def replay(folder, *flags, model=GOLDEN):
    ended = subprocess.run([binary(), "replay", str(folder), "--model", str(model), "--speed", "0", "--json", "--quiet", *flags],
                           capture_output=True, text=True, timeout=300)
    return ended, json.loads(ended.stdout) if ended.stdout else {}


def ask(server, kind):
    name, api, path, body = kind
    if api == "socket":
        async def frames():
            async with crowd.connect(server.ws_url, open_timeout=300) as socket:
                await socket.send(json.dumps({"type": "generate", "id": "one", **body}))
                while json.loads(await socket.recv())["type"] not in ("done", "error"):
                    pass
        return asyncio.run(frames())
    reply = server.post(path, {"model": "llama-gqa", **body, **({} if api == "whole" else {"stream": True})})
    assert reply.status_code == 200, (name, reply.text)


@pytest.fixture
def record(launch, tmp_path):
    """A record of one request of each kind, two at a time, and how many there are."""
    folder = tmp_path / "hour"
    server = launch("--record", str(folder))
    kinds = [kind for seed in (3, 4) for kind in crowd.requests(seed)]
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda kind: ask(server, kind), kinds))
    reply = server.post("/v1/completions", {"prompt": "x", "max_tokens": 8, "temperature": 1})  # the server draws the seed
    assert "logprobs" not in reply.json()["choices"][0] or reply.json()["choices"][0]["logprobs"] is None
    assert server.post("/v1/completions", {"prompt": "x", "max_tokens": -3}).status_code == 400
    assert server.stop() == 0
    assert any(f"recorded requests={len(kinds) + 2} lines_lost=0" in line for line in server.err), server.err
    return folder, len(kinds) + 1


def test_a_record_is_answered_with_the_same_bits_by_another_layout(record):
    folder, requests = record
    for flags in (("--threads", "1", "--max-sequences", "8"), ("--replicas", "2", "--no-prefix-cache", "--step-tokens", "70")):
        ended, told = replay(folder, *flags)
        assert ended.returncode == 0, (ended.stdout, ended.stderr)
        assert told["answered"] == told["equal"] == requests and told["refused_then"] == 1, told
        assert told["tokens"] > 2000 and told["recorded"]["ttft_ms_p50"] > 0 and told["now"]["ttft_ms_p50"] > 0


def test_another_weight_is_found_and_the_first_token_that_differs(record, tmp_path):
    folder, _ = record
    other = tmp_path / "other"
    shutil.copytree(GOLDEN, other)
    weights = next(other.glob("*.safetensors"))
    bytes_of = bytearray(weights.read_bytes())
    bytes_of[-1001] ^= 1  # a bit of one weight's fraction
    weights.chmod(0o644)
    weights.write_bytes(bytes_of)
    ended, told = replay(folder, model=other)
    assert ended.returncode == 1, (ended.stdout, ended.stderr)
    assert told["differing"] > 0 and told["first"]["request"] >= 1 and "now" in told["first"]["difference"], told
    seen = subprocess.run([binary(), "replay", str(folder), "--model", str(other), "--speed", "0", "--limit", "5"],
                          capture_output=True, text=True, timeout=300)
    assert "are other ones than when it was recorded" in seen.stderr, seen.stderr
    assert "another build" not in seen.stderr


def test_another_build_of_the_program_is_named(record, tmp_path):
    folder, _ = record
    shutil.copytree(folder, tmp_path / "copy")
    file = min((tmp_path / "copy").iterdir())
    file.write_text(re.sub('"build":"[0-9a-f]+"', '"build":"0ther"', file.read_text(), count=1))
    seen = subprocess.run([binary(), "replay", str(tmp_path / "copy"), "--model", str(GOLDEN), "--speed", "0", "--limit", "1"],
                          capture_output=True, text=True, timeout=300)
    assert seen.returncode == 0 and "Recorded by another build of version" in seen.stderr and "0ther" in seen.stderr, seen.stderr


def test_without_prompts_a_record_is_a_load_and_holds_no_text(launch, tmp_path):
    folder = tmp_path / "hour"
    server = launch("--record", str(folder), "--record-prompts", "none")
    for i in range(3):
        assert server.post("/v1/completions", {"prompt": "a secret thing", "max_tokens": 20 + i, "ignore_eos": True}).status_code == 200
    assert server.stop() == 0
    files = list(folder.iterdir())
    assert files and all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not any(b"secret" in file.read_bytes() for file in files)
    ended, told = replay(folder)
    assert ended.returncode == 0, (ended.stdout, ended.stderr)
    assert told["answered"] == told["not_compared"] == 3 and told["now"]["tokens"] == 20 + 21 + 22


def test_a_folder_without_a_record_is_refused(tmp_path):
    ended, _ = replay(tmp_path)
    assert ended.returncode != 0 and "serve --record" in ended.stderr
    (tmp_path / "record-00000001.jsonl").write_text('{"begin": 1}\n')
    ended, _ = replay(tmp_path)
    assert ended.returncode == 1 and "record-00000001.jsonl" in ended.stderr, ended.stderr
