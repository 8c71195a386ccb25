"""`prompt_embeds` of /v1/completions: rows of numbers in place of tokens, as torch.save writes them, in base64."""

import base64
import concurrent.futures
import io
import json
import struct
import zipfile

import pytest

from expected import MODEL
from server import GOLDEN, Server

SIZES = {"Double": 8, "Float": 4, "Half": 2, "BFloat16": 2}


def pickled(value):
    if isinstance(value, str):
        return b"X" + struct.pack("<I", len(value)) + value.encode()
    if value < 0 or value >= 1 << 16:
        return b"J" + struct.pack("<i", value)
    return b"K" + bytes([value]) if value < 256 else b"M" + struct.pack("<H", value)


def pickle_of(kind, sizes, strides, numbers, offset=0, call="torch._utils\n_rebuild_tensor_v2"):
    """As torch pickles a tensor."""
    def tuple_of(values):
        return b"".join(map(pickled, values)) + {1: b"\x85", 2: b"\x86", 3: b"\x87"}[len(values)]

    storage = pickled("storage") + f"ctorch\n{kind}Storage\n".encode() + pickled("0") + pickled("cpu") + pickled(numbers)
    return (b"\x80\x02c" + call.encode() + b"\n((" + storage + b"tQ" + pickled(offset) + tuple_of(sizes) + tuple_of(strides)
            + b"\x89ccollections\nOrderedDict\n)RtR.")


def archive(files, method=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as made:
        for name, content in files.items():
            made.writestr("archive/" + name, content)
    return out.getvalue()


def saved(data, width, kind="Float", sizes=None, strides=None, numbers=None, method=zipfile.ZIP_STORED, **more):
    """A file of torch.save; by default a tensor of all the numbers in `data`, `width` in a row."""
    count = len(data) // SIZES[kind]
    sizes = sizes or (count // width, width)
    strides = strides or (width, 1)
    pickle = pickle_of(kind, sizes, strides, count if numbers is None else numbers, **more)
    return archive({"data.pkl": pickle, "byteorder": "little", "data/0": data, "version": "3\n"}, method)


def text_of(file):
    return base64.b64encode(file).decode()


class Embeddings:
    """The rows of the checkpoint's table, as bytes."""

    def __init__(self, folder):
        raw = (folder / "model.safetensors").read_bytes()
        length = struct.unpack("<Q", raw[:8])[0]
        about = json.loads(raw[8:8 + length])["model.embed_tokens.weight"]
        assert about["dtype"] == "F32"
        self.width = about["shape"][1]
        self.table = raw[8 + length + about["data_offsets"][0]:]

    def of(self, ids):
        size = 4 * self.width
        return b"".join(self.table[id * size:(id + 1) * size] for id in ids)


ROWS = Embeddings(GOLDEN)


@pytest.fixture(scope="module")
def open_server():
    server = Server(GOLDEN, "--enable-prompt-embeds")
    yield server
    server.wait_until_idle()
    assert server.stop() == 0, "".join(server.err)


@pytest.fixture(scope="module")
def ids():
    cases = json.loads((GOLDEN / "expected.json").read_text())["cases"]
    return [case["ids"] for case in cases]


def ask(server, **body):
    return server.post("/v1/completions", {"model": MODEL, "max_tokens": 16, "temperature": 0, "ignore_eos": True,
                                           "logprobs": 2, "return_token_ids": True, **body})


def heard(reply):
    assert reply.status_code == 200, reply.text
    answer = reply.json()
    return [(choice["text"], choice["token_ids"], choice["logprobs"]) for choice in answer["choices"]], answer["usage"]["prompt_tokens"]


def test_rows_of_tokens_have_the_answer_of_these_tokens(open_server, ids):
    for prompt, body in [(ids[0], {}), (ids[1], {"temperature": 0.9, "seed": 3, "n": 2}), (ids[2] * 4, {"max_tokens": 40})]:
        expected = heard(ask(open_server, prompt=prompt, **body))
        for file in (saved(ROWS.of(prompt), ROWS.width),
                     saved(ROWS.of(prompt), ROWS.width, sizes=(1, len(prompt), ROWS.width),
                           strides=(len(prompt) * ROWS.width, ROWS.width, 1)),
                     saved(ROWS.of(ids[3] + prompt), ROWS.width, sizes=(len(prompt), ROWS.width),
                           offset=len(ids[3]) * ROWS.width)):
            assert heard(ask(open_server, prompt_embeds=text_of(file), **body)) == expected


def test_the_types_of_numbers_that_torch_writes_are_read(open_server, ids):
    floats = struct.unpack(f"<{len(ids[0]) * ROWS.width}f", ROWS.of(ids[0]))
    doubles = saved(struct.pack(f"<{len(floats)}d", *floats), ROWS.width, "Double")
    assert heard(ask(open_server, prompt_embeds=text_of(doubles))) == heard(ask(open_server, prompt=ids[0]))
    halves = struct.pack(f"<{len(floats)}e", *floats)
    rounded = struct.pack(f"<{len(floats)}f", *struct.unpack(f"<{len(floats)}e", halves))
    assert heard(ask(open_server, prompt_embeds=text_of(saved(halves, ROWS.width, "Half")))) == heard(
        ask(open_server, prompt_embeds=text_of(saved(rounded, ROWS.width))))
    cut = b"".join(b"\0\0" + rounded[at + 2:at + 4] for at in range(0, len(rounded), 4))
    brief = b"".join(cut[at + 2:at + 4] for at in range(0, len(cut), 4))
    assert heard(ask(open_server, prompt_embeds=text_of(saved(brief, ROWS.width, "BFloat16")))) == heard(
        ask(open_server, prompt_embeds=text_of(saved(cut, ROWS.width))))


def test_several_prompts_and_crowds_of_both_kinds(open_server, ids):
    several = heard(ask(open_server, prompt_embeds=[text_of(saved(ROWS.of(one), ROWS.width)) for one in ids[:3]]))
    assert several == heard(ask(open_server, prompt=ids[:3]))
    bodies = [{"prompt": ids[i % 4]} if i % 2 else {"prompt_embeds": text_of(saved(ROWS.of(ids[i % 4]), ROWS.width))}
              for i in range(12)]
    alone = [heard(ask(open_server, **body))[0] for body in bodies]
    with concurrent.futures.ThreadPoolExecutor(len(bodies)) as pool:
        assert list(pool.map(lambda body: heard(ask(open_server, **body))[0], bodies)) == alone
    streamed = open_server.post("/v1/completions", {
        "model": MODEL, "max_tokens": 16, "temperature": 0, "ignore_eos": True, "stream": True, **bodies[0]}).text
    chunks = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == alone[0][0][0]


def test_the_field_is_off_unless_a_flag_allows_it(server, ids):
    reply = ask(server, prompt_embeds=text_of(saved(ROWS.of(ids[0]), ROWS.width)))
    assert 400 <= reply.status_code < 502
    assert reply.json()["error"] | {"type": "", "code": ""} == {
        "message": "`prompt_embeds` is off on this server (--enable-prompt-embeds)", "param": "prompt_embeds", "type": "", "code": ""}


def test_what_is_no_such_tensor_is_refused_with_a_sentence(open_server, ids, tmp_path):
    data, width = ROWS.of(ids[0]), ROWS.width
    good = saved(data, width)
    marker = tmp_path / "run"
    command = f"touch {marker}"
    program = b"\x80\x02cposix\nsystem\n(" + pickled(command) + b"tR."
    no_tensor = "`prompt_embeds` is no tensor that torch.save wrote: "
    shape = no_tensor + "it must hold one dense tensor of two dimensions"
    hostile = {
        "": no_tensor + "it is too short for a zip archive",
        "not base64!": "`prompt_embeds` must be base64",
        text_of(b"PK" * 50): no_tensor + "it is no zip archive",
        text_of(good[:-30]): no_tensor + "it is no zip archive",
        text_of(good[40:]): no_tensor,
        text_of(archive({"data.pkl": program, "data/0": data})): shape,
        text_of(saved(data, width, call="torch._utils\n_rebuild_sparse_tensor")): shape,
        text_of(saved(data, width, sizes=(width,), strides=(1,))): shape,
        text_of(saved(data, width, sizes=(2, 1, width), strides=(width, width, 1))): shape,
        text_of(saved(data * 2, width, method=zipfile.ZIP_DEFLATED)): no_tensor + "its files are compressed",
        text_of(archive({"data.pkl": pickle_of("Float", (1, width), (width, 1), width)})): no_tensor + "it has no file",
        text_of(archive({"data.pkl": b"(" * 100_000, "data/0": data})): no_tensor + "it holds more than a tensor",
        text_of(archive({"data.pkl": b"X\xff\xff\xff\x7f", "data/0": data})): no_tensor + "it ends early",
        text_of(saved(data, width, sizes=(1 << 30, 1 << 30), strides=(1 << 30, 1))): no_tensor + "it is too large",
        text_of(saved(data, width, sizes=(1 << 20, width))): no_tensor + "its storage is too short",
        text_of(saved(data, width, sizes=(0, width))): no_tensor + "it is empty",
        text_of(saved(data, width, sizes=(-4, width))): no_tensor + "it is empty",
        text_of(saved(data, width, offset=-1)): no_tensor + "it is empty",
        text_of(saved(data, width, offset=(1 << 31) - 1)): no_tensor + "its storage is too short",
        text_of(saved(data, width, strides=(1, width))): no_tensor + "it must be contiguous",
        text_of(saved(data, width, strides=(0, 1))): no_tensor + "it must be contiguous",
        text_of(archive({"data.pkl": pickle_of("Long", (1, width), (width, 1), width), "data/0": data})):
            no_tensor + "its numbers must be float, half, bfloat16 or double",
        text_of(saved(data, width - 1)): f"`prompt_embeds` must have rows of {width} numbers",
        text_of(saved(struct.pack("<f", float("nan")) + data[4:], width)): "`prompt_embeds` must hold finite numbers",
        text_of(saved(struct.pack("<f", float("inf")) + data[4:], width)): "`prompt_embeds` must hold finite numbers",
    }
    for text, sentence in hostile.items():
        reply = ask(open_server, prompt_embeds=text)
        assert reply.status_code == 400, (sentence, reply.text)
        assert reply.json()["error"]["message"].startswith(sentence), sentence
        assert reply.json()["error"]["param"] == "prompt_embeds"
    for value in (7, {"a": 1}, [], [3], [[text_of(good)]], [text_of(good)] * 1025):
        reply = ask(open_server, prompt_embeds=value)
        assert reply.status_code == 400, reply.text
        assert "prompt_embeds" in reply.json()["error"]["message"]
    assert not marker.exists()
    for beside in ({"prompt": "a"}, {"suffix": "b"}, {"echo": True}, {"prompt_logprobs": 1}):
        assert ask(open_server, prompt_embeds=text_of(good), **beside).status_code == 400
    assert heard(ask(open_server, prompt_embeds=text_of(good))) == heard(ask(open_server, prompt=ids[0]))


def test_what_is_large_is_bounded(open_server, ids):
    context = open_server.get("/v1/models").json()["data"][0]["max_model_len"]
    many = saved(ROWS.of(ids[0][:1]) * (context + 1), ROWS.width)
    reply = ask(open_server, prompt_embeds=text_of(many))
    assert reply.status_code == 400
    assert str(context) in reply.json()["error"]["message"]
    reply = ask(open_server, prompt_embeds="A" * (80 << 20))
    assert reply.status_code == 413
    assert open_server.get("/health").status_code == 200
