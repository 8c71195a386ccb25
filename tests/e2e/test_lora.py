"""LoRA adapters of a server: named at its start, loaded and unloaded by clients."""

import array
import json
import random
import struct

import httpx

from server import GOLDEN

MODEL = GOLDEN
PROMPT = {"prompt": "ROMEO:", "max_tokens": 24, "temperature": 0, "ignore_eos": True}


def write_adapter(folder, seed, **changes):
    """As PEFT writes it, of rank 4, for q, v and down."""
    config = json.loads((MODEL / "config.json").read_text())
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    dim = config.get("head_dim") or hidden // heads
    shapes = {
        "self_attn.q_proj": (heads * dim, hidden),
        "self_attn.v_proj": (config.get("num_key_value_heads", heads) * dim, hidden),
        "mlp.down_proj": (hidden, config["intermediate_size"]),
    }
    drawn = random.Random(seed)
    header, data = {}, b""
    for layer in range(config["num_hidden_layers"]):
        for module, (outputs, inputs) in shapes.items():
            for half, shape in (("A", (4, inputs)), ("B", (outputs, 4))):
                values = array.array("f", (drawn.gauss(0, 0.3) for _ in range(shape[0] * shape[1]))).tobytes()
                header[f"base_model.model.model.layers.{layer}.{module}.lora_{half}.weight"] = {
                    "dtype": "F32", "shape": shape, "data_offsets": [len(data), len(data) + len(values)]}
                data += values
    text = json.dumps(header).encode()
    folder.mkdir()
    (folder / "adapter_model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 4, "lora_alpha": 8, **changes}))
    return folder


def completed(server, model=None, status=200):
    body = {**PROMPT, **({"model": model} if model else {})}
    answer = httpx.post(server.url + "/v1/completions", json=body, timeout=300)
    assert answer.status_code == status, answer.text
    return answer.json()["choices"][0]["text"] if status == 200 else answer.json()["error"]


def listed(server):
    return [m["id"] for m in httpx.get(server.url + "/v1/models", timeout=300).json()["data"]]


def test_adapters_are_models(launch, tmp_path):
    one, two = write_adapter(tmp_path / "one", 1), write_adapter(tmp_path / "two", 2)
    server = launch("--lora", f"one={one}", "--lora", f"two={two}", model=MODEL)
    base = listed(server)[0]
    assert listed(server) == [base, "one", "two"]
    assert httpx.get(server.url + "/v1/models/one", timeout=300).json()["parent"] == base
    plain, first, second = completed(server), completed(server, "one"), completed(server, "two")
    assert len({plain, first, second}) == 3
    assert completed(server, base) == plain
    assert completed(server, "three", 404)["code"] == "model_not_found"

    chat = {"messages": [{"role": "user", "content": "Speak"}], "max_tokens": 8, "model": "one"}
    answer = httpx.post(server.url + "/v1/chat/completions", json=chat, timeout=300).json()
    assert answer["model"] == "one"
    response = {"input": "Speak", "max_output_tokens": 8, "model": "two"}
    assert httpx.post(server.url + "/v1/responses", json=response, timeout=300).json()["model"] == "two"

    body = {"lora_name": "three", "lora_path": str(one)}
    refused = httpx.post(server.url + "/v1/load_lora_adapter", json=body, timeout=300)
    assert refused.status_code == 404 and "--lora-endpoints" in refused.text


def test_clients_load_and_unload(launch, tmp_path):
    one = write_adapter(tmp_path / "one", 1)
    other = write_adapter(tmp_path / "other", 1, use_dora=True)
    twice = write_adapter(tmp_path / "twice", 1)
    (twice / "adapter_config.json").write_text('{"peft_type": "LORA", "r": 4, "r": 4}')
    server = launch("--lora-endpoints", model=MODEL)
    base = listed(server)[0]

    def post(path, body):
        return httpx.post(f"{server.url}/v1/{path}_lora_adapter", json=body, timeout=300)

    plain = completed(server)
    loaded = post("load", {"lora_name": "mine", "lora_path": str(one)})
    assert loaded.status_code == 200 and loaded.text == "Success: LoRA adapter 'mine' added successfully."
    assert listed(server) == [base, "mine"]
    assert completed(server, "mine") != plain
    for body, wanted in (({"lora_name": "mine", "lora_path": str(one)}, "already"),
                         ({"lora_name": base, "lora_path": str(one)}, "already"),
                         ({"lora_name": "x", "lora_path": str(other)}, "`use_dora` is true"),
                         ({"lora_name": "x", "lora_path": str(twice)}, "`r` is given twice"),
                         ({"lora_name": "x", "lora_path": f"{one}\0"}, "must have no zero bytes"),
                         ({"lora_name": "x", "lora_path": str(MODEL / "config.json")}, "is not an adapter"),
                         ({"lora_name": "x"}, "`lora_path` is required"),
                         ({"lora_path": str(one)}, "`lora_name` is required")):
        refused = post("load", body)
        error = refused.json()["error"]
        assert 400 <= refused.status_code < 500 and wanted in error["message"], refused.text
        assert error["param"] in ("lora_name", "lora_path")
    assert post("unload", {"lora_name": "mine"}).text == "Success: LoRA adapter 'mine' removed successfully."
    assert post("unload", {"lora_name": "mine"}).status_code == 404
    assert listed(server) == [base]
    assert completed(server, "mine", 404)["code"] == "model_not_found"
    assert completed(server) == plain
