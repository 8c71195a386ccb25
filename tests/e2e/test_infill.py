"""Fill-in-the-middle: `suffix` of completions and of Ollama's API, llama.cpp's /infill, from folders and GGUF files."""

import json

import openai
import pytest

from conftest import client_of
from scripted import SCRIPTED, write_folder, write_gguf
from server import Server

PIECES = [f"p{i} " for i in range(30)]
MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")
# A byte is a token, and what the model says depends on the length of the prompt: marks, "ab" and "cd" are 7 tokens.
SAID = "".join(PIECES[6:])


@pytest.fixture(scope="module", params=["folder", "gguf"])
def filler(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("infill")
    if request.param == "folder":
        model = write_folder(folder / "filler", {"": PIECES}, special=MARKS)
    else: # by keys, as the names say nothing
        names = ("<a>", "<b>", "<c>")
        model = write_gguf(folder / "filler.gguf", {"": PIECES}, special=names, keys=[
            (f"tokenizer.ggml.fim_{key}_token_id", 4, 258 + at) for at, key in enumerate(("pre", "suf", "mid"))])
    server = Server(model)
    yield server
    server.wait_until_idle()
    assert server.stop() == 0, "".join(server.err)


def test_suffix_of_completions(filler):
    create = client_of(filler).completions.create
    answer = create(model="filler", prompt="ab", suffix="cd", temperature=0, max_tokens=40)
    assert (answer.choices[0].text, answer.usage.prompt_tokens) == (SAID, 7)
    parts = [chunk.choices[0].text for chunk in create(model="filler", prompt="ab", suffix="cd", temperature=0, max_tokens=40,
                                                       stream=True)]
    assert "".join(parts) == SAID and len(parts) > 3
    assert create(model="filler", prompt="ab", suffix="", temperature=0, max_tokens=2).usage.prompt_tokens == 2


def test_infill_of_llama_cpp(filler):
    asked = {"input_prefix": "a", "input_suffix": "cd", "prompt": "b", "temperature": 0}
    whole = filler.post("/infill", asked).json()
    assert (whole["content"], whole["stop_type"], whole["tokens_evaluated"]) == (SAID, "eos", 7)
    assert whole["timings"]["predicted_n"] == whole["tokens_predicted"] > 20
    cut = filler.post("/infill", asked | {"n_predict": 2, "samplers": ["top_k", "infill"]})
    assert cut.json()["content"] == "p6 p7 " and cut.json()["stop_type"] == "limit"
    assert "infill" in cut.headers["x-troupe-warning"]
    lines = filler.post("/infill", asked | {"stream": True}).text.splitlines()
    parts = [json.loads(line[6:]) for line in lines if line]
    assert "".join(part["content"] for part in parts) == SAID and [part["stop"] for part in parts][-1]
    others = filler.post("/infill", asked | {"input_extra": [{"filename": "f", "text": "t"}], "n_predict": 1}).json()
    assert others["tokens_evaluated"] > 7
    assert filler.post("/infill", asked | {"n_predict": 0}).json()["content"] == ""


def test_suffix_of_ollama(filler):
    answer = filler.post("/api/generate", {"model": "filler", "prompt": "ab", "suffix": "cd", "stream": False,
                                           "options": {"temperature": 0}}).json()
    assert answer["response"] == SAID


def test_a_model_that_was_not_taught_says_so(launch_scripted):
    with pytest.raises(openai.BadRequestError, match="`suffix` needs a model that was taught to fill in the middle"):
        client_of(launch_scripted).completions.create(model="scripted", prompt="a", suffix="b")
    refused = launch_scripted.post("/infill", {"input_prefix": "a", "input_suffix": "b"})
    assert refused.status_code == 400 and "no tokens for that" in refused.json()["error"]["message"]


@pytest.fixture
def launch_scripted():
    server = Server(SCRIPTED)
    yield server
    assert server.stop() == 0, "".join(server.err)
