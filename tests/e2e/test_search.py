"""Monte-Carlo tree search over HTTP."""

import subprocess
from concurrent.futures import ThreadPoolExecutor

import openai
import pytest

from expected import MODEL, PROMPT
from conftest import client_of
from server import GOLDEN, ROOT, Server, binary, wait_until
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


REWARD = ROOT / "tests" / "data" / "tiny_reward"  # likes the letter o


@pytest.fixture(scope="module")
def judged():
    server = Server(GOLDEN, "--reward-model", str(REWARD))
    yield server
    server.wait_until_idle()
    assert server.stop() == 0, "".join(server.err)


def test_a_reward_model_decides_what_is_found(judged):
    client = client_of(judged)
    options = {"simulations": 120, "branching": 8, "parallel": 6}
    likeliest = search(client, **options, more={"ignore_eos": True}).choices[0]
    before = judged.metrics()["troupe_judged_answers_total"]
    best = search(client, n=2, value="model", **options, more={"ignore_eos": True})
    assert best.choices[0].text.count("o") > likeliest.text.count("o")
    assert 1 > best.choices[0].score >= best.choices[1].score > 0
    count = wait_until(lambda: (count := judged.metrics()["troupe_judged_answers_total"] - before) >= 120 and count, "all to be counted")
    assert count == 120

    def chat(content):
        return judged.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": content}], "max_tokens": 6, "temperature": 0,
            "search": {"value": "model", **options}}).json()

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(chat, ["one", "two", "one", "two"]))
    assert [a["choices"][0]["message"]["content"] for a in answers[:2]] == [a["choices"][0]["message"]["content"] for a in answers[2:]]


def test_what_a_reward_model_cannot_do_is_said(judged):
    with pytest.raises(openai.BadRequestError, match="whose context is 256") as refused:
        search(client_of(judged), prompt=[54] * 300, value="model")
    assert refused.value.param == "search"
    done = subprocess.run([binary(), "serve", "--model", str(GOLDEN), "--reward-model", str(GOLDEN), "--port", "0"],
                          capture_output=True, text=True, timeout=300)
    assert done.returncode != 0 and "cannot judge answers" in done.stderr


def test_run_searches_by_a_reward_model():
    def run(*flags):
        done = subprocess.run([binary(), "run", "--model", str(GOLDEN), "--raw", "--quiet", "--temperature", "0", "--max-tokens", "8",
                               "--simulations", "120", *flags, "ROMEO:"], capture_output=True, text=True, timeout=300)
        return done.returncode, done.stdout, done.stderr

    plain, judged = run(), run("--reward-model", str(REWARD), "--search-value", "model")
    assert plain[0] == judged[0] == 0
    assert judged[1].count("o") > plain[1].count("o")
    status, _, why = run("--search-value", "model")
    assert status != 0 and "--reward-model" in why
