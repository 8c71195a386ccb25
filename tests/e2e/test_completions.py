"""POST /v1/completions with the official client."""

import math

import httpx
import openai
import pytest

from expected import MODEL, PROMPT, binding, greedy_text, text_of
from server import ENDLESS, wait_until

GREEDY = {"model": MODEL, "temperature": 0, "max_tokens": 48}
IDS = {"return_token_ids": True}


def complete(client, prompt=PROMPT, extra=None, **fields):
    return client.completions.create(prompt=prompt, **{**GREEDY, **fields}, extra_body={**IDS, **(extra or {})})


@pytest.mark.parametrize("number", range(5))
def test_greedy_continues_as_transformers_does(client, server, golden, number):
    case = golden["cases"][number]
    sure = binding(case)
    answer = complete(client, case["text"])
    choice = answer.choices[0]
    assert choice.prompt_token_ids == case["ids"]
    assert choice.token_ids[:sure] == case["greedy"]["ids"][:sure]
    assert choice.text == text_of(server, choice.token_ids)
    assert choice.finish_reason == "length"
    assert answer.object == "text_completion"
    assert answer.model == MODEL
    assert answer.usage.prompt_tokens == len(case["ids"])
    assert answer.usage.completion_tokens == 48
    assert answer.usage.total_tokens == len(case["ids"]) + 48


def test_a_prompt_of_ids_is_used_unchanged(client, golden):
    case = golden["cases"][0]
    choice = complete(client, case["ids"]).choices[0]
    assert choice.prompt_token_ids == case["ids"]
    assert choice.token_ids == case["greedy"]["ids"]


@pytest.mark.parametrize("kind", ["text", "ids"])
def test_a_list_of_prompts_gives_one_choice_each_in_order(client, golden, kind):
    cases = golden["cases"][:3]
    answer = complete(client, [case[kind] for case in cases])
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert [choice.token_ids for choice in answer.choices] == [case["greedy"]["ids"] for case in cases]
    assert answer.usage.prompt_tokens == sum(len(case["ids"]) for case in cases)
    assert answer.usage.completion_tokens == 3 * 48


def test_a_list_may_mix_texts_and_ids(client, golden):
    cases = golden["cases"][:2]
    answer = complete(client, [cases[0]["text"], cases[1]["ids"]])
    assert [choice.token_ids for choice in answer.choices] == [case["greedy"]["ids"] for case in cases]


def test_max_tokens_defaults_to_16(client):
    answer = client.completions.create(model=MODEL, prompt=PROMPT, temperature=0)
    assert answer.usage.completion_tokens == 16


def test_a_stream_gives_the_whole_reply_in_pieces(client, golden):
    pieces, ids, finish = [], [], []
    for chunk in complete(client, stream=True):
        assert chunk.object == "text_completion"
        assert chunk.usage is None
        for choice in chunk.choices:
            pieces.append(choice.text)
            ids += choice.token_ids
            finish.append(choice.finish_reason)
    whole = complete(client)
    assert "".join(pieces) == whole.choices[0].text
    assert ids == whole.choices[0].token_ids == golden["cases"][0]["greedy"]["ids"]
    assert finish[-1] == "length" and set(finish[:-1]) == {None}
    assert len(pieces) > 20, "tokens must come one by one, not all at the end"


def test_include_usage_adds_one_last_chunk_without_choices(client, golden):
    chunks = list(complete(client, stream=True, stream_options={"include_usage": True}))
    assert all(chunk.usage is None and chunk.choices for chunk in chunks[:-1])
    assert chunks[-1].choices == []
    assert chunks[-1].usage.prompt_tokens == len(golden["cases"][0]["ids"])
    assert chunks[-1].usage.completion_tokens == 48


def test_n_choices_differ_and_repeat_with_their_seed(client):
    sampling = {"temperature": 1, "seed": 7, "n": 4}
    first, again = complete(client, **sampling), complete(client, **sampling)
    texts = [choice.text for choice in first.choices]
    assert [choice.index for choice in first.choices] == [0, 1, 2, 3]
    assert len(set(texts)) == 4
    assert texts == [choice.text for choice in again.choices]
    assert first.usage.completion_tokens == sum(len(choice.token_ids) for choice in first.choices)
    alone = complete(client, temperature=1, seed=7)
    assert alone.choices[0].text == texts[0], "a sequence must not depend on its siblings"
    other = complete(client, temperature=1, seed=8)
    assert other.choices[0].text != texts[0]


def test_streamed_n_choices_equal_those_of_the_whole_reply(client):
    sampling = {"temperature": 1, "seed": 3, "n": 3}
    whole = [choice.text for choice in complete(client, **sampling).choices]
    streamed = ["", "", ""]
    ends = []
    for chunk in complete(client, stream=True, **sampling):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
            if choice.finish_reason:
                ends.append(choice.index)
    assert streamed == whole
    assert sorted(ends) == [0, 1, 2]


def test_n_times_several_prompts(client, golden):
    texts = [case["text"] for case in golden["cases"][:2]]
    together = complete(client, texts, n=2, temperature=1, seed=5)
    assert [choice.index for choice in together.choices] == [0, 1, 2, 3]
    for number, text in enumerate(texts):
        alone = complete(client, text, n=2, temperature=1, seed=5)
        assert [c.text for c in together.choices[2 * number:2 * number + 2]] == [c.text for c in alone.choices]


def test_logprobs_are_those_of_the_model(client, golden):
    case = golden["cases"][0]
    choice = complete(client, logprobs=5).choices[0]
    given = choice.logprobs
    assert len(given.tokens) == len(given.token_logprobs) == len(given.top_logprobs) == len(given.text_offset) == 48
    for got, wanted in zip(given.token_logprobs, case["greedy"]["logprobs"]):
        assert math.isclose(got, wanted, abs_tol=1e-3)
    assert "".join(given.tokens) == choice.text
    for token, logprob, top, offset in zip(given.tokens, given.token_logprobs, given.top_logprobs, given.text_offset):
        assert 1 <= len(top) <= 6
        assert math.isclose(top[token], logprob, abs_tol=1e-6)
        assert max(top.values()) == top[token], "greedy must choose the most likely token"
        assert choice.text[offset:].startswith(token)


def test_logprobs_do_not_depend_on_sampling(client):
    plain = complete(client, logprobs=0).choices[0]
    biased = complete(client, logprobs=0, logit_bias={str(plain.token_ids[0]): 50}, max_tokens=1).choices[0]
    assert biased.token_ids[0] == plain.token_ids[0]
    assert biased.logprobs.token_logprobs[0] == plain.logprobs.token_logprobs[0]


def test_streamed_logprobs_equal_those_of_the_whole_reply(client):
    whole = complete(client, logprobs=2).choices[0].logprobs
    tokens, values, offsets = [], [], []
    for chunk in complete(client, logprobs=2, stream=True):
        for choice in chunk.choices:
            if choice.logprobs:
                tokens += choice.logprobs.tokens
                values += choice.logprobs.token_logprobs
                offsets += choice.logprobs.text_offset
    assert (tokens, values, offsets) == (whole.tokens, whole.token_logprobs, whole.text_offset)


@pytest.mark.parametrize("start, length", [(3, 2), (10, 6), (17, 15)])
def test_a_stop_string_ends_the_text_and_is_not_part_of_it(client, server, golden, start, length):
    text = greedy_text(server, golden)
    stop = text[start:start + length]
    expected = text[:text.index(stop)]
    choice = complete(client, stop=stop).choices[0]
    assert choice.text == expected
    assert choice.finish_reason == "stop"
    streamed = ""
    for chunk in complete(client, stop=[stop, "never in the text"], stream=True):
        for part in chunk.choices:
            streamed += part.text
            assert expected.startswith(streamed), "no part of a stop string may be sent, not even temporarily"
    assert streamed == expected


def test_text_withheld_for_an_unfinished_stop_string_is_sent_at_the_end(client, server, golden):
    text = greedy_text(server, golden)
    choice = complete(client, stop=[text[-3:] + "\0 cannot follow"]).choices[0]
    assert choice.text == text
    assert choice.finish_reason == "length"


def test_stop_ids_end_the_text(client, golden):
    ids = golden["cases"][0]["greedy"]["ids"]
    stop = ids[9]
    choice = complete(client, extra={"stop_token_ids": [stop]}).choices[0]
    assert choice.finish_reason == "stop"
    assert choice.token_ids[:ids.index(stop)] == ids[:ids.index(stop)]
    assert len(choice.token_ids) <= ids.index(stop) + 1


def test_eos_ends_the_text_unless_min_tokens_or_ignore_eos_forbids(client):
    always_eos = {"logit_bias": {"4": 100}}
    ended = complete(client, **always_eos)
    assert ended.choices[0].finish_reason == "stop"
    assert ended.choices[0].text == ""
    assert ended.usage.completion_tokens <= 1
    later = complete(client, extra={"min_tokens": 5}, **always_eos).choices[0]
    assert later.finish_reason == "stop"
    assert len([token for token in later.token_ids if token != 4]) == 5
    ignored = complete(client, extra={"ignore_eos": True}, max_tokens=7, **always_eos)
    assert ignored.choices[0].finish_reason == "length"
    assert ignored.usage.completion_tokens == 7


def test_logit_bias_forces_and_forbids(client, golden):
    ids = golden["cases"][0]["greedy"]["ids"]
    assert complete(client, logit_bias={"50": 100}).choices[0].token_ids == [50] * 48
    assert complete(client, logit_bias={str(ids[0]): -100}, max_tokens=1).choices[0].token_ids[0] != ids[0]


@pytest.mark.parametrize("fields", [
    {"top_k": 1}, {"top_p": 0.0001}, {"min_p": 1.0}])
def test_sampling_from_a_single_candidate_is_greedy(client, golden, fields):
    choice = complete(client, temperature=1.3, extra=fields).choices[0]
    assert choice.token_ids == golden["cases"][0]["greedy"]["ids"]


@pytest.mark.parametrize("fields", [
    {"repetition_penalty": 1.8}, {"presence_penalty": 2.0}, {"frequency_penalty": 2.0}])
def test_penalties_make_texts_less_repetitive(client, fields):
    plain, penalised = complete(client), complete(client, extra=fields)
    assert len(set(penalised.choices[0].token_ids)) > len(set(plain.choices[0].token_ids))


def test_echo_puts_the_prompt_first(client):
    plain = complete(client).choices[0].text
    assert complete(client, echo=True).choices[0].text == PROMPT + plain
    streamed = "".join(choice.text for chunk in complete(client, echo=True, stream=True) for choice in chunk.choices)
    assert streamed == PROMPT + plain


def test_closing_a_stream_frees_its_blocks(client, server):
    before = server.metrics()["troupe_generated_tokens_total"]
    stream = client.completions.create(model=MODEL, prompt=PROMPT, stream=True, extra_body=ENDLESS)
    for number, _ in enumerate(stream):
        if number == 3:
            break
    stream.close()
    server.wait_until_idle()
    after = server.metrics()["troupe_generated_tokens_total"]
    assert after - before < ENDLESS["n"] * ENDLESS["max_tokens"], "the request continued after its client disconnected"


def test_a_client_timeout_frees_the_blocks(client, server):
    cancelled = lambda: server.metrics().get('troupe_requests_total{outcome="cancelled"}', 0)
    before = cancelled()

    def times_out():
        """It does not where this process waits for the machine until there is an answer."""
        try:
            client.with_options(timeout=httpx.Timeout(60, read=0.05)).completions.create(
                model=MODEL, prompt=PROMPT, max_tokens=2000, extra_body={"ignore_eos": True}, n=8)
        except openai.APITimeoutError:
            return True
        return False

    wait_until(times_out, "a client to leave before its answer")
    wait_until(lambda: cancelled() == before + 1, "the request to be cancelled")
    server.wait_until_idle()
