"""Models that say what is written down say it from a folder and from a GGUF file."""

import pytest

from conftest import client_of
from scripted import SCRIPTED, SCRIPTS, prompt_of, write_folder


@pytest.mark.parametrize("model", [SCRIPTED, SCRIPTED / "scripted.gguf"], ids=["folder", "gguf"])
def test_a_keyword_chooses_the_answer(launch, model):
    client = client_of(launch(model=model))
    for key, pieces in SCRIPTS.items():
        answer = client.completions.create(model="scripted", prompt=prompt_of(SCRIPTS, key), temperature=1)
        assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("".join(pieces), "stop")
    asked = client.chat.completions.create(model="scripted", messages=[{"role": "user", "content": "now count"}])
    assert asked.choices[0].message.content == "".join(SCRIPTS["count"])


def test_an_answer_ends_as_its_script_says(launch, tmp_path):
    model = write_folder(tmp_path, {"": ["one", " two"]}, ends={"": "<|end|>"}, special=["<|end|>"])
    client = client_of(launch(model=model))
    answer = client.chat.completions.create(model=tmp_path.name, messages=[{"role": "user", "content": "hi"}],
                                            max_tokens=10, extra_body={"skip_special_tokens": False})
    assert answer.choices[0].message.content.startswith("one two<|end|>")
