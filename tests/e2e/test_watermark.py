"""Watermarks, from the request to the judgement of the text."""

import subprocess

import httpx
import pytest

from server import GOLDEN, STORYTELLER, binary

SECRET = "the key of the test"


def told(server, prompt="Once upon a time", **fields):
    body = {"prompt": prompt, "max_tokens": 150, "temperature": 1, "seed": 7, "ignore_eos": True, **fields}
    answer = httpx.post(server.url + "/v1/completions", json=body, timeout=300)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"]


def detected(server, text, **fields):
    answer = httpx.post(server.url + "/v1/watermark/detect", json={"text": text, **fields}, timeout=300)
    assert answer.status_code == 200, answer.text
    return answer.json()


# The storyteller is so sure of most tokens that usual marks show in long texts only.
STRONG = {"delta": 10}


@pytest.mark.parametrize("kind", [{"type": "green", **STRONG}, {"type": "gumbel"}])
def test_a_marked_story_is_found_with_its_key_alone(story_server, kind):
    mark = {**kind, "key": SECRET}
    told_so = {"watermark": mark, "temperature": 1.5}
    story = told(story_server, **told_so)
    assert story == told(story_server, **told_so)
    assert detected(story_server, story, watermark=mark)["p"] < 1e-3
    assert detected(story_server, story, watermark={**mark, "key": "another"})["p"] > 1e-4
    assert detected(story_server, told(story_server), watermark=mark)["p"] > 1e-4


def test_a_server_marks_every_answer_and_keeps_its_key(launch, tmp_path):
    if not (STORYTELLER / "config.json").is_file():
        pytest.skip("the bundled storyteller is absent")
    key = tmp_path / "key"
    key.write_text(SECRET + "\n")
    mark = '{"type":"green","delta":10}'
    server = launch(
        "--watermark", mark, "--watermark-key-file", str(key), "--log-level", "debug", model=STORYTELLER)
    story = told(server, temperature=1.5)
    assert detected(server, story)["p"] < 1e-3
    refused = httpx.post(server.url + "/v1/completions", json={"prompt": "a", "watermark": "gumbel"}, timeout=300)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "watermark"
    command = [binary(), "detect", "--model", str(STORYTELLER), "--watermark", mark, "--watermark-key-file", str(key), "-"]
    judged = subprocess.run(command, input=story, capture_output=True, text=True, timeout=300)
    assert judged.returncode == 0, judged.stderr
    assert float(judged.stdout.split(", ")[1].removeprefix("p ")) < 1e-3
    metrics = httpx.get(server.url + "/metrics", timeout=300).text
    assert server.stop() == 0
    assert not any(SECRET in text for text in [metrics, refused.text, judged.stdout, *server.err, *server.out])


def test_a_key_on_the_command_line_is_refused(tmp_path):
    for flags in [["--watermark", '{"type":"green","key":"hush"}'], ["--watermark", "green"]]:
        refused = subprocess.run(
            [binary(), "detect", "--model", str(GOLDEN), "text", *flags], capture_output=True, text=True, timeout=300)
        assert refused.returncode != 0
        assert "--watermark-key-file" in refused.stderr
        assert "hush" not in refused.stderr
