"""Classifier-free guidance, contrastive decoding and DoLa over the protocols."""

import concurrent.futures
import json
import subprocess

import pytest

from expected import MODEL, PROMPT
from server import GOLDEN, ROOT, binary
from test_completions import IDS

ALL_CONTRASTS = json.loads((ROOT / "tests" / "data" / "contrasts.json").read_text())
CONTRASTS = ALL_CONTRASTS["amateurs"]["qwen3/qwen2"]
LAYERS = ALL_CONTRASTS["layers"]["golden/llama-gqa"]
CASES = json.loads((ROOT / "tests" / "data" / "pairs.json").read_text())["answers"]["llama-gqa"]
GREEDY = {"temperature": 0, "max_tokens": 16}


def guided(case):
    fields = {"guidance_scale": case["scale"]}
    return fields if case["negative"] is None else {**fields, "negative_prompt": case["negative"]}


@pytest.mark.parametrize("case", [case for case in CASES if min(case["margins"]) > 0.01])
def test_guided_answers_are_those_of_transformers_also_streamed(client, case):
    ask = {"model": MODEL, "prompt": case["ids"], **GREEDY, "extra_body": {**IDS, **guided(case)}}
    answer = client.completions.create(**ask)
    assert answer.choices[0].token_ids == case["answer"][:16]
    chunks = list(client.completions.create(**ask, stream=True))
    assert len(chunks) > 3
    assert [token for chunk in chunks for token in chunk.choices[0].token_ids] == case["answer"][:16]
    assert "".join(chunk.choices[0].text for chunk in chunks) == answer.choices[0].text


def test_chats_are_guided_and_scale_one_changes_nothing(client):
    def told(**fields):
        messages = [{"role": "user", "content": "Speak"}]
        answer = client.chat.completions.create(model=MODEL, messages=messages, **GREEDY, extra_body=fields)
        return answer.choices[0].message.content

    plain = told()
    assert told(guidance_scale=1, negative_prompt=PROMPT) == plain
    assert told(guidance_scale=8, negative_prompt=PROMPT) != plain


def test_guides_and_logprobs_work_with_guidance(client):
    answer = client.completions.create(model=MODEL, prompt=PROMPT, **GREEDY, logprobs=1, extra_body={
        "guidance_scale": 3, "negative_prompt": "JULIET:\n", "guided_choice": ["yes", "no"]})
    assert answer.choices[0].text in ("yes", "no")
    assert answer.choices[0].finish_reason == "stop"
    assert all(logprob <= 0 for logprob in answer.choices[0].logprobs.token_logprobs)


def test_what_cannot_be_is_refused_by_name(server):
    for fields, param in (
        ({"guidance_scale": 1000}, "guidance_scale"),
        ({"guidance_scale": "a"}, "guidance_scale"),
        ({"negative_prompt": "a"}, "negative_prompt"),
        ({"guidance_scale": 2, "negative_prompt": [5] * 100_000}, "negative_prompt"),
        ({"guidance_scale": 2, "negative_prompt": "word " * 100_000}, "negative_prompt"),
        ({"guidance_scale": 2, "n": 2}, "n"),
        ({"guidance_scale": 2, "num_beams": 2}, "guidance_scale"),
        ({"dola_layers": "middle"}, "dola_layers"),
        ({"dola_layers": [3]}, "dola_layers"),
        ({"dola_layers": [1, 1]}, "dola_layers"),
        ({"dola_layers": "low", "num_beams": 2}, "dola_layers"),
        ({"dola_layers": "low", "guidance_scale": 2}, "dola_layers"),
        ({"contrastive_beta": 1}, "contrastive_beta"),
        ({"contrastive_beta": -1}, "contrastive_beta"),
        ({"contrastive_beta": 1, "contrastive_alpha": 2}, "contrastive_alpha"),
        ({"contrastive_beta": 1, "guidance_scale": 2}, "contrastive_beta"),
    ):
        refused = server.post("/v1/completions", {"model": MODEL, "prompt": "a", **fields})
        assert refused.status_code == 400, refused.text
        assert refused.json()["error"]["param"] == param
    server.wait_until_idle()


def test_contrasted_answers_are_those_of_pytorch_also_streamed_and_at_once(launch):
    golden = GOLDEN.parent
    server = launch("--amateur", str(golden / "qwen2"), "--dtype", "f32", model=golden / "qwen3")
    certain = [next((i for i, margin in enumerate(case["margins"]) if margin < 2e-3), 16) for case in CONTRASTS]
    assert sum(certain) > 16 * len(certain) / 2

    def ask(case, **fields):
        return {"model": "qwen3", "prompt": case["ids"], **GREEDY, "return_token_ids": True,
                "contrastive_alpha": case["alpha"], "contrastive_beta": case["beta"], **fields}

    def told(case):
        answer = server.post("/v1/completions", ask(case))
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]

    with concurrent.futures.ThreadPoolExecutor(len(CONTRASTS)) as pool:
        for case, count, choice in zip(CONTRASTS, certain, pool.map(told, CONTRASTS)):
            assert choice["token_ids"][:count] == case["answer"][:min(count, 16)]
    case, whole = CONTRASTS[0], told(CONTRASTS[0])
    stream = server.post("/v1/completions", ask(case, stream=True)).text
    chunks = [json.loads(line[6:]) for line in stream.split("\n") if line.startswith("data: {")]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == whole["text"]
    several = server.post("/v1/completions", ask(case, n=2, logprobs=1, guided_choice=["yes", "no"])).json()
    assert all(choice["text"] in ("yes", "no") for choice in several["choices"])
    server.wait_until_idle()


def test_answers_contrasted_with_layers_are_those_of_pytorch_also_streamed_and_at_once(client):
    def ask(case, **fields):
        return client.completions.create(model=MODEL, prompt=case["ids"], **GREEDY, **fields,
                                         extra_body={**IDS, "dola_layers": case["layers"]})

    certain = [next((i for i, margin in enumerate(case["margins"]) if margin < 2e-3), 16) for case in LAYERS]
    assert sum(certain) > 6 * len(certain)
    with concurrent.futures.ThreadPoolExecutor(len(LAYERS)) as pool:
        for case, count, answer in zip(LAYERS, certain, pool.map(ask, LAYERS)):
            assert answer.choices[0].token_ids[:count] == case["answer"][:min(count, 16)]
    case, whole = LAYERS[2], ask(LAYERS[2]).choices[0]
    chunks = list(ask(case, stream=True))
    assert [token for chunk in chunks for token in chunk.choices[0].token_ids] == whole.token_ids
    several = ask(case, n=2, logprobs=1)
    assert all(choice.token_ids == whole.token_ids for choice in several.choices)
    for logprob, expected in list(zip(several.choices[0].logprobs.token_logprobs, case["logprobs"]))[:certain[2]]:
        assert abs(logprob - expected) < 2e-4
    talk = client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Speak"}], **GREEDY,
                                          extra_body={"dola_layers": "high", "guided_choice": ["yes", "no"]})
    assert talk.choices[0].message.content in ("yes", "no")


def test_the_command_line_is_guided():
    def told(*flags):
        done = subprocess.run(
            [binary(), "run", PROMPT, "--raw", "--model", str(GOLDEN), "--temperature", "0", "--max-tokens", "16", "--quiet",
             *flags], capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert told("--guidance-scale", "8", "--negative-prompt", "JULIET:\n") != told()
    assert told("--guidance-scale", "1", "--negative-prompt", "JULIET:\n") == told()
