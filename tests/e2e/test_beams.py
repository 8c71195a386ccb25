"""Beams and best_of over the protocols."""

import openai
import pytest

from expected import MODEL, PROMPT
from test_completions import IDS


def search(client, prompt=PROMPT, n=1, **fields):
    return client.completions.create(model=MODEL, prompt=prompt, n=n, max_tokens=16, extra_body={**IDS, **fields})


def check_choices(choices, expected, penalty):
    """Ids must match wherever scores are further apart than the arithmetic's error."""
    scores = [sequence["score"] for sequence in expected]
    assert len(choices) == len(expected)
    for i, (choice, sequence) in enumerate(zip(choices, expected)):
        assert choice.score == pytest.approx(sequence["score"], abs=1e-3)
        length = len(choice.token_ids)
        assert choice.cumulative_logprob == pytest.approx(choice.score * length**penalty, abs=1e-3)
        near = [abs(scores[i] - other) < 1e-3 for j, other in enumerate(scores) if j != i]
        if not any(near):
            assert choice.token_ids == sequence["ids"]


@pytest.mark.parametrize("number", range(3))
def test_beam_search_finds_what_transformers_finds(client, golden, number):
    case = [case for case in golden["cases"] if "beam" in case][number]
    for beam in case["beam"]:
        answer = search(
            client,
            case["ids"],
            n=beam["num_beams"],
            use_beam_search=True,
            num_beams=beam["num_beams"],
            length_penalty=beam["length_penalty"],
        )
        check_choices(answer.choices, beam["sequences"], beam["length_penalty"])


def test_the_best_beam_is_streamed_once_it_is_final(client, golden):
    case = next(case for case in golden["cases"] if "beam" in case)
    beam = case["beam"][0]
    fields = {"num_beams": beam["num_beams"], "length_penalty": beam["length_penalty"]}
    chunks = list(client.completions.create(model=MODEL, prompt=case["ids"], max_tokens=16, stream=True, extra_body={**IDS, **fields}))
    ids = [token for chunk in chunks for token in chunk.choices[0].token_ids]
    assert ids == beam["sequences"][0]["ids"]
    assert chunks[-1].choices[0].finish_reason == "length"
    assert chunks[-1].choices[0].score == pytest.approx(beam["sequences"][0]["score"], abs=1e-3)


def test_stochastic_beams_are_different_and_come_again_with_the_seed(client):
    fields = {"stochastic_beams": True, "num_beams": 4, "seed": 7}
    once, again = search(client, n=3, **fields), search(client, n=3, **fields)
    found = [tuple(choice.token_ids) for choice in once.choices]
    assert len(set(found)) == 3
    assert found == [tuple(choice.token_ids) for choice in again.choices]
    scores = [choice.score for choice in once.choices]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("rank", ["cumulative", "mean"])
def test_the_best_of_several_candidates_are_returned_best_first(client, rank):
    fields = {"seed": 5, "temperature": 1.5, "ignore_eos": True}
    every = search(client, n=6, best_of=7, best_of_rank=rank, **fields).choices
    best = search(client, n=2, best_of=7, best_of_rank=rank, **fields).choices
    assert [choice.token_ids for choice in best] == [choice.token_ids for choice in every[:2]]
    scores = [choice.score for choice in every]
    assert scores == sorted(scores, reverse=True)
    drawn = [choice.token_ids for choice in search(client, n=7, **fields).choices]
    assert all(choice.token_ids in drawn for choice in every)


@pytest.mark.parametrize(
    "field, fields",
    [
        ("n", {"n": 3, "num_beams": 2}),
        ("best_of", {"n": 3, "best_of": 2}),
        ("temperature", {"num_beams": 2, "temperature": 0.7}),
        ("num_beam_groups", {"num_beams": 4, "num_beam_groups": 3, "diversity_penalty": 1}),
        ("stream", {"n": 2, "num_beams": 2, "stream": True}),
    ],
)
def test_contradictions_are_refused_by_their_field(client, field, fields):
    with pytest.raises(openai.BadRequestError) as refused:
        search(client, **fields)
    assert refused.value.param == field
