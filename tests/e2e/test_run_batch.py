"""`troupe run-batch`: OpenAI's batch files without a server."""

import json
import signal
import subprocess
import time

from scripted import SCRIPTED
from server import GOLDEN, Server, binary

CHAT, COMPLETION, EMBEDDING, RESPONSE = "/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/responses"


def line(id, url, **body):
    return json.dumps({"custom_id": id, "method": "POST", "url": url, "body": body})


def run(folder, lines, *flags, model=GOLDEN, **more):
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n")
    return subprocess.run([binary(), "run-batch", str(folder / "in.jsonl"), "--model", str(model), *flags],
                          capture_output=True, text=True, timeout=300, **more)


def answers(folder, name="in_output.jsonl"):
    return [json.loads(text) for text in (folder / name).read_text().splitlines()]


def test_every_kind_of_request_is_answered_as_by_a_server(tmp_path, server):
    bodies = [(COMPLETION, {"prompt": "The noble", "temperature": 0, "max_tokens": 8}),
              (CHAT, {"messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 8, "n": 2}),
              (EMBEDDING, {"input": ["a", "b"]}),
              (RESPONSE, {"input": "Hello", "temperature": 0, "max_output_tokens": 8}),
              (COMPLETION, {"prompt": ["The", "And"], "seed": 3, "max_tokens": 20, "logprobs": 2})]
    ended = run(tmp_path, [line(str(i), url, **body) for i, (url, body) in enumerate(bodies)])
    assert ended.returncode == 0, ended.stderr
    assert "5 requests answered: " in ended.stderr
    told = answers(tmp_path)
    assert [one["custom_id"] for one in told] == ["0", "1", "2", "3", "4"]
    assert len({one["id"] for one in told}) == 5 and all(one["error"] is None for one in told)
    changing = ("id", "created", "created_at", "completed_at", "usage", "timings", "output")
    for one, (url, body) in zip(told, bodies):
        assert one["response"]["status_code"] == 200 and one["response"]["request_id"]
        expected = server.post(url, body).json()
        got = one["response"]["body"]
        assert {k: v for k, v in got.items() if k not in changing} == {k: v for k, v in expected.items() if k not in changing}
        if "output" in got:
            assert [item["content"] for item in got["output"]] == [item["content"] for item in expected["output"]]


def test_a_line_that_is_wrong_is_answered_with_what_is_wrong(tmp_path):
    ended = run(tmp_path, [line("good", COMPLETION, prompt="x", max_tokens=2), "{", line("good", COMPLETION, prompt="y"),
                           line("bad", COMPLETION, prompt=5), line("where", "/v1/files", prompt="x"),
                           line("stream", COMPLETION, prompt="x", stream=True), line("who", COMPLETION, model="gpt-4o", prompt="x"),
                           "", line("last", COMPLETION, prompt="z", max_tokens=1)])
    assert ended.returncode == 1 and "2 requests answered, 6 failed" in ended.stderr
    told = answers(tmp_path)
    assert [one["custom_id"] for one in told] == ["good", None, "good", "bad", "where", "stream", "who", "last"]
    status = [one["response"] and one["response"]["status_code"] for one in told]
    assert status == [200, None, None, 400, None, 400, 404, 200]
    assert told[3]["response"]["body"]["error"]["param"] == "prompt"
    assert "earlier line" in told[2]["error"]["message"]


def test_a_run_goes_on_where_it_stopped(tmp_path):
    lines = [line(str(i), COMPLETION, prompt=f"Story {i}", max_tokens=60, seed=i) for i in range(60)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    base = [binary(), "run-batch", str(tmp_path / "in.jsonl"), "--model", str(GOLDEN)]
    command = [*base, "--out", str(tmp_path / "out.jsonl"), "--max-sequences", "2", "--quiet"]
    whole = subprocess.run([*base, "--out", str(tmp_path / "whole.jsonl"), "--quiet"], capture_output=True, text=True,
                           timeout=300)
    assert whole.returncode == 0, whole.stderr
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and started.poll() is None:
        if (tmp_path / "out.jsonl").is_file() and (tmp_path / "out.jsonl").stat().st_size > 0:
            break
        time.sleep(0.002)
    started.send_signal(signal.SIGINT)
    assert started.wait(300) in (130, 0)
    before = answers(tmp_path, "out.jsonl")
    assert 0 < len(before) <= 60
    with open(tmp_path / "out.jsonl", "a") as out:
        out.write('{"id":"batch_req_cut')
    again = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert again.returncode == 0, again.stderr
    told = answers(tmp_path, "out.jsonl")
    assert told[:len(before)] == before
    texts = lambda all: [(one["custom_id"], one["response"]["body"]["choices"][0]["text"]) for one in all]
    assert texts(told) == texts(answers(tmp_path, "whole.jsonl"))
    nothing = subprocess.run(command[:-1], capture_output=True, text=True, timeout=300)
    assert nothing.returncode == 0 and "has all answers already" in nothing.stderr


def test_what_cannot_begin_is_one_sentence(tmp_path):
    absent = subprocess.run([binary(), "run-batch", str(tmp_path / "absent.jsonl"), "--model", str(SCRIPTED)],
                            capture_output=True, text=True, timeout=300)
    assert absent.returncode == 1 and len(absent.stderr.strip().splitlines()) == 1
    empty = run(tmp_path, [], model=SCRIPTED)
    assert empty.returncode == 0 and empty.stderr.endswith("in.jsonl has no requests\n")
    (tmp_path / "in_output.jsonl").write_text('{"custom_id": "other"}\n')
    other = run(tmp_path, [line("a", COMPLETION, prompt="x")], model=SCRIPTED)
    assert other.returncode == 2 and "is no answer that this command wrote" in other.stderr
    (tmp_path / "in_output.jsonl").write_text('{"id":"batch_req_1","custom_id":"other"}\n')
    other = run(tmp_path, [line("a", COMPLETION, prompt="x")], model=SCRIPTED)
    assert other.returncode == 2 and "answers another request" in other.stderr
