"""Prompt and answer together are the text of all ids, also where decoding drops a space at the start of a text
(Llama 2, Mistral, Phi 3): on every way to continue a text. A chat's message is a text of its own. `cache_salt`."""

import json
import subprocess

import openai
import pytest

from server import GOLDEN, Server, binary

STRIPPING = GOLDEN.parent / "mistral-swa"
PROMPT = "Good morrow, my"


@pytest.fixture(scope="module")
def stripping():
    server = Server(STRIPPING)
    yield server
    server.wait_until_idle()
    assert server.stop() == 0, "".join(server.err)


@pytest.fixture(scope="module")
def spaced(stripping):
    """The ids of some text whose first token begins with a space."""
    ids = stripping.post("/tokenize", {"prompt": "lord", "add_special_tokens": False}).json()["tokens"]
    assert decoded(stripping, ids) == "lord"  # at the start of a text
    return ids


def decoded(server, ids):
    return server.post("/detokenize", {"tokens": ids, "skip_special_tokens": True}).json()["prompt"]


def forcing(ids):
    """Fields of a request whose answer begins with the first of these ids."""
    return {"temperature": 0, "max_tokens": 8, "allowed_token_ids": [ids[0]], "return_token_ids": True}


def complete(server, **fields):
    answer = server.post("/v1/completions", {"prompt": PROMPT, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


def events(server, path, body):
    return [json.loads(line[6:]) for line in server.post(path, body).text.splitlines()
            if line.startswith("data: ") and line != "data: [DONE]"]


def test_a_completion_begins_with_its_space(stripping, spaced):
    choice = complete(stripping, **forcing(spaced))["choices"][0]
    assert choice["text"].startswith(" ")
    assert PROMPT + choice["text"] == decoded(stripping, choice["prompt_token_ids"] + choice["token_ids"])


def test_free_completions_join_their_prompts_at_every_length(stripping):
    whole = complete(stripping, temperature=0, max_tokens=40, return_token_ids=True)["choices"][0]
    ids = whole["prompt_token_ids"] + whole["token_ids"]
    text = decoded(stripping, ids)
    for cut in range(1, len(ids) - 1, 3):
        choice = complete(stripping, prompt=ids[:cut], temperature=0, max_tokens=12, return_token_ids=True)["choices"][0]
        assert decoded(stripping, ids[:cut]) + choice["text"] == decoded(stripping, ids[:cut] + choice["token_ids"])
    assert text.startswith(PROMPT)


def test_echo_and_offsets(stripping, spaced):
    choice = complete(stripping, echo=True, logprobs=0, **forcing(spaced))["choices"][0]
    assert choice["text"] == decoded(stripping, choice["prompt_token_ids"] + choice["token_ids"])
    logprobs = choice["logprobs"]
    for token, offset in zip(logprobs["tokens"][2:], logprobs["text_offset"][2:], strict=True):
        assert choice["text"][offset:].startswith(token)


def test_streams(stripping, spaced):
    text = "".join(c["choices"][0]["text"] for c in events(
        stripping, "/v1/completions", {"prompt": PROMPT, "stream": True, **forcing(spaced)}))
    assert text == complete(stripping, **forcing(spaced))["choices"][0]["text"]


def test_a_stop_text_that_begins_with_the_space(stripping, spaced):
    word = decoded(stripping, [spaced[0]])
    choice = complete(stripping, stop=[" " + word], **forcing(spaced))["choices"][0]
    assert (choice["text"], choice["finish_reason"], choice["stop_reason"]) == ("", "stop", " " + word)


def test_ollamas_raw_prompts(stripping, spaced):
    answer = stripping.post("/api/generate", {
        "model": "mistral-swa", "prompt": PROMPT, "raw": True, "stream": False,
        "options": {"temperature": 0, "num_predict": 12}}).json()["response"]
    assert answer == complete(stripping, temperature=0, max_tokens=12)["choices"][0]["text"]


def test_run_raw(stripping):
    expected = complete(stripping, temperature=0, max_tokens=12)["choices"][0]["text"]
    ran = subprocess.run(
        [binary(), "run", "--model", str(STRIPPING), "--raw", "--quiet", "--temperature", "0", "--max-tokens", "12",
         PROMPT], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.rstrip("\n") == expected.rstrip("\n")


def test_a_continued_message_joins_and_a_new_one_begins_anew(stripping, spaced):
    def chat(messages, **more):
        answer = stripping.post("/v1/chat/completions", {"messages": messages, **forcing(spaced), **more})
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]["message"]["content"]

    user = {"role": "user", "content": "Hello"}
    begun = {"role": "assistant", "content": "Good morrow, my"}
    assert chat([user, begun], continue_final_message=True).startswith(" " + decoded(stripping, [spaced[0]]))
    assert chat([user]).startswith(decoded(stripping, [spaced[0]]))


def test_cache_salt_keeps_cached_prefixes_apart(launch):
    server = launch()
    client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0, timeout=300)
    prompt = list(range(100, 164))

    def cached(salt=None, **more):
        extra = {} if salt is None else {"cache_salt": salt}
        answer = client.completions.create(model=server.get("/v1/models").json()["data"][0]["id"], prompt=prompt,
                                           max_tokens=2, temperature=0, extra_body=extra, **more)
        return answer.usage.prompt_tokens_details.cached_tokens, answer.choices[0].text

    cold, text = cached("one")
    assert cold == 0
    assert cached("one") == (48, text)
    assert cached("other") == (0, text)
    assert cached() == (0, text)
    assert cached() == (48, text)
    for wrong in ("", 5, "x" * 1025):
        answer = server.post("/v1/completions", {"prompt": prompt, "cache_salt": wrong})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "cache_salt"
