"""Texts scored rather than continued: echo with logprobs, prompt_logprobs, max_tokens 0, EleutherAI's lm-evaluation-harness,
and `troupe score`."""

import json
import subprocess

import pytest
from lm_eval.api.instance import Instance
from lm_eval.models.openai_completions import LocalCompletionsAPI
from websockets.sync.client import connect

from expected import MODEL, PROMPT
from server import GOLDEN, binary

TEXT = "ROMEO:\nThe sun, the moon and all the stars of heaven are not as bright as she is.\n"


def score(client, prompt, **fields):
    """Echoes and scores, and generates nothing unless told to."""
    return client.completions.create(
        model=MODEL, prompt=prompt, echo=True, **{"logprobs": 0, "max_tokens": 0, "temperature": 0, **fields})


def tokens_of(server, text, special=True):
    return server.post("/tokenize", {"prompt": text, "add_special_tokens": special}).json()["tokens"]


@pytest.mark.parametrize("number", range(3))
def test_a_scored_continuation_has_the_log_probabilities_of_its_generation(client, golden, number):
    case = golden["cases"][number]
    made = client.completions.create(
        model=MODEL, prompt=case["ids"], temperature=0, max_tokens=48, logprobs=0, extra_body={"return_token_ids": True})
    ids = case["ids"] + made.choices[0].token_ids
    answer = score(client, ids)
    scored = answer.choices[0].logprobs
    assert len(scored.tokens) == len(scored.token_logprobs) == len(scored.top_logprobs) == len(ids)
    assert scored.token_logprobs[0] is None and scored.top_logprobs[0] is None
    # To the bit: a result does not depend on how its rows were scheduled.
    assert scored.token_logprobs[len(case["ids"]):] == made.choices[0].logprobs.token_logprobs
    for ours, theirs in zip(scored.token_logprobs[len(case["ids"]):], case["greedy"]["logprobs"]):
        assert ours == pytest.approx(theirs, abs=2e-3)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.prompt_tokens == len(ids) and answer.usage.completion_tokens == 0


def test_an_echo_lists_prompt_and_answer_as_one_text(client, golden):
    case = golden["cases"][0]
    answer = score(client, case["ids"], logprobs=2, max_tokens=8)
    choice = answer.choices[0]
    lists = choice.logprobs
    assert len(lists.tokens) == len(case["ids"]) + 8
    for start, token in list(zip(lists.text_offset, lists.tokens))[1:]:
        assert choice.text[start:start + len(token)] == token
    for value, top in list(zip(lists.token_logprobs, lists.top_logprobs))[1:]:
        assert 2 <= len(top) <= 3 and value <= max(top.values()) <= 0
    assert lists.token_logprobs[:len(case["ids"])] == score(client, case["ids"]).choices[0].logprobs.token_logprobs


def test_a_streamed_echo_is_the_whole_one_in_pieces(client, golden):
    ids = golden["cases"][0]["ids"]
    whole = score(client, ids, logprobs=1, max_tokens=8).choices[0]
    chunks = [chunk.choices[0] for chunk in score(client, ids, logprobs=1, max_tokens=8, stream=True)]
    assert "".join(chunk.text for chunk in chunks) == whole.text
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert sum((getattr(chunk.logprobs, name) for chunk in chunks), []) == getattr(whole.logprobs, name)


def test_prompts_of_texts_and_ids_are_scored_in_one_batch(client, golden):
    cases = golden["cases"][:3]
    alone = [score(client, case["text"]).choices[0].logprobs.token_logprobs for case in cases]
    for kind in ("text", "ids"):
        answer = score(client, [case[kind] for case in cases])
        assert [choice.logprobs.token_logprobs for choice in answer.choices] == alone


def test_a_cached_prompt_has_the_same_scores(client, golden):
    ids = (golden["cases"][1]["ids"] * 20)[:100]
    first = score(client, ids).choices[0].logprobs.token_logprobs
    assert score(client, ids).choices[0].logprobs.token_logprobs == first
    assert score(client, ids[:64]).choices[0].logprobs.token_logprobs == first[:64]


def test_prompt_logprobs_have_vllms_form(server, client, golden):
    ids = golden["cases"][0]["ids"]
    body = {"model": MODEL, "prompt": ids, "max_tokens": 2, "temperature": 0, "prompt_logprobs": 2}
    answer = server.post("/v1/completions", body).json()
    listed = answer["choices"][0]["prompt_logprobs"]
    scored = score(client, ids).choices[0].logprobs.token_logprobs
    assert listed[0] is None and len(listed) == len(ids)
    for id, value, entries in list(zip(ids, scored, listed))[1:]:
        assert entries[str(id)]["logprob"] == value
        assert {1, 2} <= {entry["rank"] for entry in entries.values()}
        assert all(entry.keys() == {"logprob", "rank", "decoded_token"} for entry in entries.values())
    chat = server.post("/v1/chat/completions", {
        "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 0, "prompt_logprobs": 0})
    if chat.status_code == 200:
        assert len(chat.json()["prompt_logprobs"]) == chat.json()["usage"]["prompt_tokens"]
    else:
        assert "chat template" in chat.json()["error"]["message"]


@pytest.mark.parametrize("fields, param", [
    ({"max_tokens": 0}, "max_tokens"),
    ({"max_tokens": 0, "logprobs": 1}, "max_tokens"),
    ({"max_tokens": 0, "echo": True, "n": 2}, "n"),
    ({"prompt_logprobs": 21}, "prompt_logprobs"),
    ({"prompt_logprobs": 1, "stream": True}, "prompt_logprobs"),
    ({"speculate": "fast"}, "speculate"),
    ({"prediction": {"type": "content"}}, "prediction.content"),
])
def test_what_is_undefined_is_refused(server, fields, param):
    answer = server.post("/v1/completions", {"prompt": PROMPT, **fields})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_a_websocket_sends_the_prompts_scores_as_frames(server, client, golden):
    ids = golden["cases"][0]["ids"]
    with connect(server.ws_url, open_timeout=300) as ws:
        ws.send(json.dumps({"type": "generate", "id": "a", "prompt": ids, "max_tokens": 0, "prompt_logprobs": 1}))
        frames = [json.loads(ws.recv(timeout=300))]
        while frames[-1]["type"] != "done":
            frames.append(json.loads(ws.recv(timeout=300)))
    assert {frame["type"] for frame in frames[:-1]} == {"prompt"}
    assert sum((frame["token_ids"] for frame in frames[:-1]), []) == ids
    values = [entry["logprob"] for frame in frames[:-1] for entry in frame["logprobs"]]
    assert values == score(client, ids).choices[0].logprobs.token_logprobs


def test_scores_are_those_that_bench_perplexity_computes(server, client, tmp_path):
    file = tmp_path / "text"
    file.write_text(TEXT)
    bench = subprocess.run(
        [binary(), "bench", "perplexity", "--model", str(GOLDEN), "--text", str(file), "--context", "512", "--json"],
        capture_output=True, text=True, check=True)
    measured = json.loads(bench.stdout)
    scored = score(client, TEXT).choices[0].logprobs.token_logprobs[1:]
    assert len(scored) == measured["tokens"]
    assert -sum(scored) / len(scored) == pytest.approx(measured["loss"], abs=1e-5)


def test_the_program_scores_as_the_server_does(client):
    result = subprocess.run([binary(), "score", TEXT, "--model", str(GOLDEN), "--json", "--top", "2", "--quiet"],
                            capture_output=True, text=True)
    assert result.returncode == 0 and result.stderr == "", result.stderr
    answer = json.loads(result.stdout)
    scored = score(client, TEXT).choices[0].logprobs.token_logprobs
    assert [token["logprob"] for token in answer["tokens"]] == scored
    assert all(len(token["top"]) == 2 for token in answer["tokens"][1:])
    assert answer["logprob"] == pytest.approx(sum(scored[1:]), abs=1e-4)


# -- lm-evaluation-harness, model `local-completions` ------------------------------------------------------------------


@pytest.fixture
def harness(server):
    """Its client, which sends ids that it gets from /tokenize, several prompts in a request."""
    return LocalCompletionsAPI(
        base_url=server.url + "/v1/completions", model=MODEL, tokenizer_backend="auto", tokenized_requests=True,
        batch_size=3, max_length=512, max_retries=1)


def requests_of(kind, *arguments):
    return [Instance(kind, {}, one, number) for number, one in enumerate(arguments)]


def test_the_harness_finds_the_tokenizer(harness, server):
    assert harness.tokenizer_backend == "remote"
    assert harness.tok_encode("Hello") == tokens_of(server, "Hello", special=False)
    assert harness.decode_batch([tokens_of(server, "Hello", special=False)]) == ["Hello"]


def test_the_harness_scores_continuations(harness, server, golden):
    texts = [case["text"] for case in golden["cases"][:4]]
    likely = server.post("/v1/completions", {"prompt": texts, "max_tokens": 6, "temperature": 0}).json()["choices"]
    pairs = [(text, choice["text"]) for text, choice in zip(texts, likely)] + [(text, " zebra!") for text in texts]
    pairs.append(("", "Once upon"))  # scored from a special token on
    found = harness.loglikelihood(requests_of("loglikelihood", *pairs), disable_tqdm=True)
    for (context, continuation), (value, is_greedy) in zip(pairs, found):
        if context:
            before, after = harness._encode_pair(context, continuation)
        else:
            before, after = [harness.prefix_token_id], harness.tok_encode(continuation)
        listed = server.post("/v1/completions", {
            "prompt": before + after, "max_tokens": 1, "prompt_logprobs": 1}).json()["choices"][0]["prompt_logprobs"]
        entries = [listed[len(before) + i][str(id)] for i, id in enumerate(after)]
        assert value == pytest.approx(sum(entry["logprob"] for entry in entries), abs=1e-5)
        assert is_greedy == all(entry["rank"] == 1 for entry in entries)
    assert {is_greedy for _, is_greedy in found[4:8]} == {False}


def test_the_harness_scores_a_text_in_windows(harness, server, client):
    value, = harness.loglikelihood_rolling(requests_of("loglikelihood_rolling", (TEXT,)), disable_tqdm=True)
    scored = score(client, [harness.prefix_token_id, *harness.tok_encode(TEXT)]).choices[0].logprobs.token_logprobs
    assert value == pytest.approx(sum(scored[1:]), abs=1e-4)
    harness.max_length = 16
    pieces, = harness.loglikelihood_rolling(requests_of("loglikelihood_rolling", (TEXT,)), disable_tqdm=True)
    assert pieces < 0 and pieces != pytest.approx(value, abs=1e-4)


def test_the_harness_generates(harness, client, golden):
    text, = harness.generate_until(
        requests_of("generate_until", (PROMPT, {"until": ["\n\n"], "max_gen_toks": 12})), disable_tqdm=True)
    plain = client.completions.create(
        model=MODEL, prompt=harness.tok_encode(PROMPT), max_tokens=12, temperature=0, stop=["\n\n", harness.eos_string])
    assert text == plain.choices[0].text
