"""Beams and best_of over the protocols."""

import json
from pathlib import Path

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


def shaped_cases():
    found = json.loads((Path(__file__).parents[1] / "data" / "shaped_beams.json").read_text())
    return [case for case in found["golden"][MODEL] if "allowed" not in case]


@pytest.mark.parametrize("case", shaped_cases(), ids=lambda case: "sampled" if "seed" in case else "searched")
def test_processors_filters_and_stop_strings_mean_what_they_mean_in_transformers(client, case):
    fields = {key: case[key] for key in ("num_beams", "length_penalty", "early_stopping", "repetition_penalty", "no_repeat_ngram_size",
                                         "temperature", "top_k", "top_p", "min_p", "epsilon_cutoff", "seed", "stop") if key in case}
    if "logit_bias" in case:
        fields["logit_bias"] = {str(token): bias for token, bias in case["logit_bias"]}
    if "bad_words" in case:
        pytest.skip("HTTP names bad words as texts")
    answer = client.completions.create(
        model=MODEL, prompt=case["prompt"], n=len(case["sequences"]), max_tokens=case["max_tokens"],
        extra_body={**IDS, **fields, "do_sample": "seed" in case},
    )
    for choice, expected in zip(answer.choices, case["sequences"]):
        assert choice.score == pytest.approx(expected["score"], abs=2e-3)
    assert answer.choices[0].token_ids == case["sequences"][0]["ids"]
    if "stop" in case and answer.choices[0].finish_reason == "stop":
        assert not any(stop in answer.choices[0].text for stop in case["stop"])


def test_beam_sampling_comes_again_with_the_seed(client):
    fields = {"num_beams": 3, "temperature": 1.4, "top_k": 40}
    first, again, other = (search(client, seed=seed, n=3, **fields) for seed in (5, 5, 6))
    ids = [[choice.token_ids for choice in answer.choices] for answer in (first, again, other)]
    assert ids[0] == ids[1]
    assert ids[0] != ids[2]


def test_beams_follow_a_guide_with_processors(client):
    answer = search(client, n=2, num_beams=3, guided_regex="[a-d]{6}", repetition_penalty=1.5, presence_penalty=0.5)
    texts = [choice.text for choice in answer.choices]
    assert len({tuple(choice.token_ids) for choice in answer.choices}) == 2
    assert all(len(text) == 6 and set(text) <= set("abcd") for text in texts)


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
        ("temperature", {"num_beams": 2, "do_sample": True, "temperature": 0}),
        ("top_p", {"num_beams": 2, "do_sample": False, "top_p": 0.7}),
        ("num_beam_groups", {"num_beams": 4, "num_beam_groups": 3, "diversity_penalty": 1}),
        ("stream", {"n": 2, "num_beams": 2, "stream": True}),
    ],
)
def test_contradictions_are_refused_by_their_field(client, field, fields):
    with pytest.raises(openai.BadRequestError) as refused:
        search(client, **fields)
    assert refused.value.param == field
