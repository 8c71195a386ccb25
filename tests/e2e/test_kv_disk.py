"""Cached prefixes outlive the process (--kv-disk), and change no results."""

import array
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import re
import resource
import signal
import stat
import struct

import pytest

from server import GOLDEN, wait_until
from test_lora import write_adapter
from test_prompt_embeds import Embeddings, saved, text_of

LONG = [3 + 7 * i % 90 for i in range(200)]  # token ids: 12 full blocks and a rest
FLAGS = "--dtype", "bf16"
FAMILIES = pathlib.Path(__file__).parent.parent / "data/families"


def ask(server, prompt, **more):
    body = {**({"prompt": prompt} if prompt else {}), "max_tokens": 20, "temperature": 1, "seed": 9, "ignore_eos": True,
            "return_token_ids": True, "logprobs": 2, **more}
    reply = server.post("/v1/completions", body)
    assert reply.status_code == 200, reply.text
    reply = reply.json()
    return (([(choice["token_ids"], choice["logprobs"]) for choice in reply["choices"]]),
            reply["usage"].get("prompt_tokens_details", {}).get("cached_tokens", 0))


def written(server, blocks):
    wait_until(lambda: server.metrics()["troupe_kv_disk_blocks_written_total"] >= blocks, f"{blocks} blocks to be written")


def files_in(folder):
    return sorted(folder.rglob("*.kv"))


@pytest.fixture
def disk(launch, tmp_path):
    """Starts servers that keep prefixes in one folder."""
    folder = tmp_path / "kept"

    def start(*flags, **more):
        return launch(*FLAGS, "--kv-disk", str(folder), *flags, **more)

    start.folder = folder
    return start


def kill(server):
    server.process.send_signal(signal.SIGKILL)
    server.process.wait(300)


def test_a_prompt_is_found_after_kill_9_with_the_same_answer(disk, launch):
    expected, _ = ask(launch(*FLAGS, "--no-prefix-cache"), LONG)
    first = disk()
    assert ask(first, LONG) == (expected, 0)
    written(first, 13)  # of the prompt, and of the answer
    kill(first)
    second = disk()
    assert ask(second, LONG) == (expected, 192)
    seen = second.metrics()
    assert seen["troupe_kv_disk_blocks_read_total"] >= 12
    assert seen["troupe_kv_blocks_adopted_total"] >= 12
    assert seen["troupe_kv_disk_blocks_damaged_total"] == 0
    assert second.stop() == 0
    # A longer conversation goes on from the answer's blocks.
    third = disk()
    answer = expected[0][0]
    _, cached = ask(third, LONG + answer + LONG[:9])
    assert cached == 208
    # Everything is for its owner alone.
    assert stat.S_IMODE(disk.folder.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in files_in(disk.folder))


@pytest.mark.parametrize("kv_dtype", ["f32", "int8", "fp8"])
def test_every_type_of_k_and_v_is_kept_and_none_is_taken_for_another(disk, launch, kv_dtype):
    flags = "--kv-dtype", kv_dtype
    expected, _ = ask(launch(*FLAGS, *flags), LONG)
    other = disk()
    ask(other, LONG)
    written(other, 13)
    assert other.stop() == 0
    first = disk(*flags)
    assert ask(first, LONG) == (expected, 0)
    written(first, 13)
    kill(first)
    assert ask(disk(*flags), LONG) == (expected, 192)


def test_damaged_files_are_skipped_and_counted(disk, launch):
    expected, _ = ask(launch(*FLAGS), LONG)
    chance = random.Random(4)
    for round in range(6):
        server = disk()
        reply, _ = ask(server, LONG)
        assert reply == expected
        if round > 0:
            assert server.metrics()["troupe_kv_disk_blocks_damaged_total"] >= 1
        wait_until(lambda: len(files_in(disk.folder)) >= 13, "blocks to be written again")
        assert server.stop() == 0
        for file in files_in(disk.folder):
            content = bytearray(file.read_bytes())
            how = chance.randrange(4)
            if how == 0:
                content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
            elif how == 1:
                del content[chance.randrange(len(content)):]
            elif how == 2:
                content += b"x" * 100
            else:
                content = bytearray(chance.randbytes(len(content)))
            file.write_bytes(content)


def test_two_servers_share_a_folder(disk, launch):
    expected, _ = ask(launch(*FLAGS), LONG)
    one, two = disk(), disk()
    assert ask(one, LONG) == (expected, 0)
    written(one, 13)
    assert ask(two, LONG) == (expected, 192)
    other = [token + 1 for token in LONG]
    ask(two, other)
    written(two, 13)
    assert ask(one, other)[1] == 192
    for file in files_in(disk.folder):
        file.unlink()
    third = disk()
    assert ask(third, LONG) == (expected, 0)


def test_salted_prefixes_are_found_by_their_salt_alone_after_a_restart(disk):
    first = disk()
    expected, _ = ask(first, LONG, cache_salt="mine")
    written(first, 13)
    assert first.stop() == 0
    second = disk()
    assert ask(second, LONG, cache_salt="yours") == (expected, 0)
    assert ask(second, LONG) == (expected, 0)
    assert ask(second, LONG, cache_salt="mine") == (expected, 192)


def test_prefixes_under_adapters_steering_and_embeddings_are_found_after_a_restart(disk, tmp_path):
    adapters = [write_adapter(tmp_path / f"adapter{seed}", seed) for seed in (1, 2)]
    vector = tmp_path / "vector.safetensors"
    rows = Embeddings(GOLDEN)
    write_vector(vector, rows.width)
    embedded = {"prompt_embeds": text_of(saved(rows.of(LONG), rows.width))}

    def start(*names):
        flags = [flag for name, folder in zip(names, adapters) for flag in ("--lora", f"{name}={folder}")]
        return disk(*flags, "--steer", f"v={vector}", "--enable-prompt-embeds")

    asked = [dict(model="one"), dict(model="two"), dict(steering=[{"name": "v"}]),
             dict(steering=[{"name": "v", "strength": 2}]), {}]
    first = start("one", "two")
    expected = [ask(first, LONG, **how) for how in asked]
    assert len({str(answer) for answer, _ in expected}) == len(asked)
    assert {cached for _, cached in expected} == {0}
    assert ask(first, None, **embedded)[1] == 0
    written(first, 13 * (len(asked) + 1))
    kill(first)
    second = start("one", "two")
    assert [ask(second, LONG, **how) for how in asked] == [(answer, 192) for answer, _ in expected]
    assert ask(second, None, **embedded)[1] == 192
    kill(second)
    adapters.reverse()  # found by their values, whatever their names
    third = start("two", "one")
    assert ask(third, LONG, model="one") == (expected[0][0], 192)


def test_prompts_beyond_a_border_of_longrope_are_found_after_a_restart(disk):
    model = FAMILIES / "phi3-longrope"
    first = disk(model=model)
    expected, _ = ask(first, LONG)
    written(first, 13)
    kill(first)
    assert ask(disk(model=model), LONG) == (expected, 192)


def write_vector(file, hidden):
    values = array.array("f", (((5 * i) % 7 - 3) / 2 for i in range(hidden))).tobytes()
    header = json.dumps({"direction.1": {"dtype": "F32", "shape": [hidden], "data_offsets": [0, len(values)]}}).encode()
    file.write_bytes(struct.pack("<Q", len(header)) + header + values)


def test_a_disk_that_refuses_is_told_of_once_and_serving_goes_on(disk, launch):
    expected, _ = ask(launch(*FLAGS), LONG)

    def full():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (600, 600))

    server = disk(preexec_fn=full)
    for _ in range(2):
        assert ask(server, LONG)[0] == expected
    wait_until(lambda: server.metrics()["troupe_kv_disk_blocks_unwritten_total"] >= 13, "blocks to be refused")
    assert server.stop() == 0
    assert "".join(server.err).count("cached prefixes cannot be kept in") == 1
    assert files_in(disk.folder) == []


def test_a_folder_that_cannot_be_made_is_told_of_and_serving_goes_on(launch, tmp_path):
    (tmp_path / "file").write_text("")
    server = launch(*FLAGS, "--kv-disk", str(tmp_path / "file" / "below"))
    ask(server, LONG)
    assert server.stop() == 0
    assert len(re.findall("cached prefixes are not kept in .*: Not a directory", "".join(server.err))) == 1


def test_the_folder_stays_within_its_size(disk):
    server = disk("--kv-cache", "8MiB")
    ask(server, LONG)
    written(server, 13)
    each = files_in(disk.folder)[0].stat().st_size
    assert server.stop() == 0
    limit = 20 * ((each + 4095) // 4096 * 4096)
    small = launch_with_size(disk, limit)
    for start in range(6):
        ask(small, [(token + start) % 90 + 3 for token in LONG])
    wait_until(lambda: small.metrics()["troupe_kv_disk_blocks_removed_total"] > 0, "old blocks to be removed")
    small.wait_until_idle()
    # Blocks are still being written and removed.
    wait_until(lambda: size_of(disk.folder) <= limit + 4096 * 20, lambda: f"{limit} bytes, not {size_of(disk.folder)}")


def size_of(folder):
    """The bytes that its files take; they may go meanwhile."""
    total = 0
    for file in files_in(folder):
        with contextlib.suppress(FileNotFoundError):
            total += file.stat().st_blocks * 512
    return total


def launch_with_size(disk, limit):
    return disk("--kv-disk", f"{disk.folder}:{limit}")


def test_crowds_in_tiny_pools_answer_as_alone(disk, launch):
    prompts = [[3 + (7 * i + 13 * (who % 5)) % 90 for i in range(40 + 16 * (who % 7))] for who in range(24)]
    alone = launch(*FLAGS, "--no-prefix-cache")
    expected = [ask(alone, prompt)[0] for prompt in prompts]
    for _ in range(3):
        server = disk("--max-context", "256", "--kv-cache", cache_of(alone, 20), "--max-sequences", "6")
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            replies = list(pool.map(lambda prompt: ask(server, prompt)[0], prompts))
        assert replies == expected
        server.wait_until_idle()
        kill(server) if os.urandom(1)[0] % 2 else server.stop()
    # On a busy machine, all three may have been killed before they had written it.
    wait_until(lambda: ask(disk(), prompts[6])[1] > 0, "a prompt to be found")


def cache_of(server, blocks):
    """The size of so many blocks: llama-gqa's in bf16."""
    info = server.get("/v1/models").json()["data"][0]
    per_block = info.get("kv_cache_bytes", 0) / max(server.metrics()["troupe_kv_blocks"], 1)
    return str(int(per_block or 8192) * blocks)
