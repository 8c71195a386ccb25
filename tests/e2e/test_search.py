"""Monte-Carlo tree search over HTTP."""

from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from expected import MODEL, PROMPT
from test_completions import IDS


def search(client, prompt=PROMPT, n=1, max_tokens=8, temperature=0, more={}, **options):
    body = {**IDS, "search": {"simulations": 24, "branching": 4, "parallel": 6, **options}, **more}
    return client.completions.create(model=MODEL, prompt=prompt, n=n, max_tokens=max_tokens, temperature=temperature, extra_body=body)


def likelihood(client, prompt, **fields):
    answer = client.completions.create(model=MODEL, prompt=prompt, max_tokens=8, temperature=0, logprobs=0, extra_body={**IDS, **fields})
    return sum(answer.choices[0].logprobs.token_logprobs), answer.choices[0].token_ids


def test_an_answer_is_no_less_likely_than_the_greedy_one(client):
    greedy, _ = likelihood(client, PROMPT, ignore_eos=True)
    found = search(client, n=3, more={"ignore_eos": True})
    scores = [choice.score for choice in found.choices]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] >= greedy - 1e-3
    assert scores[0] == pytest.approx(found.choices[0].cumulative_logprob)
    assert len({tuple(choice.token_ids) for choice in found.choices}) == 3


def test_a_search_finds_the_same_among_others_as_alone(client):
    def found(seed):
        answer = search(client, n=4, temperature=1, max_tokens=12, simulations=10, more={"seed": seed})
        return [choice.token_ids for choice in answer.choices]

    alone = [found(seed) for seed in range(3)]
    with ThreadPoolExecutor(6) as pool:
        crowd = list(pool.map(found, [0, 1, 2] * 2))
    assert crowd == alone * 2
    assert alone[0] != alone[1]


def test_guides_and_stop_strings_hold_for_every_answer(client):
    found = search(client, n=4, more={"guided_regex": "[a-e]{5}"})
    assert len({tuple(choice.token_ids) for choice in found.choices}) == 4
    assert all(len(choice.text) == 5 and set(choice.text) <= set("abcde") for choice in found.choices)
    stopped = search(client, n=4, max_tokens=12, temperature=1, more={"stop": ["e", " "], "seed": 3})
    assert all("e" not in choice.text and " " not in choice.text for choice in stopped.choices)
    assert any(choice.finish_reason == "stop" for choice in stopped.choices)


def test_a_client_that_leaves_ends_its_search(client):
    with pytest.raises(openai.APITimeoutError):
        client.with_options(timeout=0.3, max_retries=0).completions.create(
            model=MODEL, prompt=PROMPT, max_tokens=100,
            extra_body={"search": {"simulations": 10000, "parallel": 16}, "ignore_eos": True},
        )
    assert search(client).choices[0].token_ids


def test_an_empty_search_has_the_defaults_and_null_is_none(client):
    def ask(search):
        answer = client.completions.create(
            model=MODEL, prompt=PROMPT, max_tokens=3, temperature=0, n=2 if search is not None else 1,
            extra_body={**IDS, "search": search},
        )
        return [choice.model_dump() for choice in answer.choices]

    empty = ask({})
    spelt = ask({"method": "mcts", "simulations": 64, "branching": 8, "parallel": 8, "exploration": 2,
                 "length_penalty": 0, "value": "likelihood"})
    assert [one["score"] for one in empty] == [one["score"] for one in spelt]
    assert [one["token_ids"] for one in empty] == [one["token_ids"] for one in spelt]
    assert "score" not in ask(None)[0]


@pytest.mark.parametrize(
    "field, options",
    [
        ("search.simulations", {"simulations": 0}),
        ("search", {"depth": 1}),
        ("search", {"value": "model"}),
        ("search", {"method": "a-star"}),
    ],
)
def test_what_a_search_cannot_do_is_refused(client, field, options):
    with pytest.raises(openai.APIStatusError) as refused:
        search(client, **options)
    assert 400 <= refused.value.status_code < 502
    assert refused.value.param == field
