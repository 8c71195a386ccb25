"""Models with recurrent layers: their prefixes are found by snapshots, and nothing changes answers."""

import concurrent.futures
import pathlib
import subprocess

import pytest

from server import binary, wait_until

FAMILIES = pathlib.Path(__file__).parent.parent / "data/families"
QWEN, LFM = FAMILIES / "qwen3-5", FAMILIES / "lfm2"


def ask(server, prompt, **more):
    """The ids of an answer, and how many tokens of the prompt were cached."""
    body = {"prompt": prompt, "max_tokens": 40, "temperature": 1, "seed": 9, "ignore_eos": True,
            "return_token_ids": True, "logprobs": 1, **more}
    reply = server.post("/v1/completions", body)
    assert reply.status_code == 200, reply.text
    reply = reply.json()
    return ([(choice["token_ids"], choice["logprobs"]) for choice in reply["choices"]],
            (reply["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0))


def ids(count, first=3):
    return [first + 7 * i % 600 for i in range(count)]


@pytest.mark.parametrize("model", [QWEN, LFM], ids=lambda m: m.name)
def test_a_growing_conversation_finds_itself_but_for_a_block(launch, model):
    cold, warm = launch("--no-prefix-cache", model=model), launch(model=model)
    conversation, before = ids(300), 0
    for turn in range(5):
        answer, cached = ask(warm, conversation)
        assert ask(cold, conversation) == (answer, 0)
        assert cached >= before - 17  # the last token was chosen, and never computed
        conversation = conversation + answer[0][0]
        before = len(conversation)
        conversation = conversation + ids(30, 100 + turn)
    metrics = warm.metrics()
    assert metrics["troupe_state_snapshots_restored_total"] == 4
    assert metrics["troupe_state_snapshots_in_use"] > 0


def test_conversations_with_one_system_prompt_find_it(launch):
    server = launch(model=QWEN)
    cached = [ask(server, ids(320) + ids(60, 50 * n))[1] for n in range(1, 6)]
    assert all(found >= 288 for found in cached[2:])


def test_a_crowd_has_the_answers_of_solo_requests(launch):
    alone = launch("--no-prefix-cache", "--speculate", "off", model=QWEN)
    crowd = launch("--step-tokens", "24", "--max-sequences", "5", "--swap", "1MiB", model=QWEN)
    bodies = [dict(prompt=ids(20 + 13 * i, 3 + i % 4), seed=i, n=1 + i % 3, max_tokens=30) for i in range(12)]
    bodies.append(dict(prompt=ids(40), num_beams=3, use_beam_search=True, temperature=0, n=2))
    expected = [ask(alone, **body)[0] for body in bodies]
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        for _ in range(2):
            assert list(pool.map(lambda body: ask(crowd, **body)[0], bodies)) == expected


@pytest.mark.parametrize("model", [QWEN, LFM], ids=lambda m: m.name)
def test_a_conversation_goes_on_after_kill_9_from_the_disk(launch, tmp_path, model):
    cold = launch("--no-prefix-cache", model=model)
    conversation, before = ids(300), 0
    for turn in range(4):
        server = launch("--kv-disk", str(tmp_path / "kept"), model=model)
        answer, cached = ask(server, conversation)
        assert ask(cold, conversation) == (answer, 0)
        assert cached >= before - 17
        if turn > 0:
            assert server.metrics()["troupe_state_snapshots_adopted_total"] == 1
        conversation = conversation + answer[0][0]
        before = len(conversation)
        conversation = conversation + ids(30, 100 + turn)

        def is_kept(seen):
            return (seen["troupe_kv_disk_blocks_written_total"] ==
                    seen["troupe_kv_blocks_kept_total"] + seen["troupe_state_snapshots_kept_total"] and
                    seen["troupe_state_snapshots_kept_total"] > 1)  # of the prompt, and of the answer's end

        wait_until(lambda: is_kept(server.metrics()), "all to be written")
        server.process.kill()
        server.process.wait(300)


def test_a_conversation_is_found_in_host_memory_with_its_states(launch):
    server = launch("--max-sequences", "1", "--max-context", "1024", "--swap", "16MiB", model=QWEN)
    answer, _ = ask(server, ids(300))
    for other in range(12):  # of more blocks than there are, and more snapshots than two for each
        ask(server, ids(300, 4 + 9 * other), max_tokens=1)
    assert server.metrics()["troupe_kv_blocks_parked_total"] > 18
    again = ids(300) + answer[0][0] + ids(30)
    assert ask(server, again)[1] >= 340 - 17
    assert server.metrics()["troupe_kv_blocks_restored_total"] > 18


def test_prompts_with_their_states_move_to_who_decodes(launch):
    alone = launch("--no-prefix-cache", model=LFM)
    server = launch("--roles", "prefill:1,decode:1", "--role-idle", "off", model=LFM)
    bodies = [dict(prompt=ids(400 + 16 * i, 3 + i), seed=i) for i in range(6)]
    expected = [ask(alone, **body)[0] for body in bodies]
    assert [ask(server, **body)[0] for body in bodies] == expected
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        assert list(pool.map(lambda body: ask(server, **body)[0], bodies)) == expected
    seen = server.metrics()
    assert seen['troupe_state_snapshots_sent_total{replica="0"}'] > 0
    assert seen['troupe_state_snapshots_adopted_total{replica="1"}'] > 0


@pytest.mark.parametrize("flags, reason", [
    (("--lora", "a={folder}"), "does not support models with recurrent layers"),
    (("--draft", str(LFM)), "has recurrent layers, which only the main model may have"),
])
def test_what_is_not_supported_is_refused_with_a_sentence(tmp_path, flags, reason):
    flags = [flag.format(folder=tmp_path) for flag in flags]
    run = subprocess.run([binary(), "serve", "--port", "0", "--model", LFM if "--draft" in flags else QWEN, *flags],
                         capture_output=True, text=True, timeout=300)
    assert run.returncode != 0
    assert reason in run.stderr.strip().splitlines()[-1]


def test_perplexity_is_that_of_windows_from_their_beginnings(tmp_path):
    text = tmp_path / "text"
    text.write_text("The state of a sequence is a cache of its transcript. " * 40)
    run = subprocess.run([binary(), "bench", "perplexity", "--model", QWEN, "--text", text, "--context", "256", "--json"],
                         capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
