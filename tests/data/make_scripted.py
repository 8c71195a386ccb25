"""Makes models whose answers are written down: for tests of parsers, endings and clients without a trained model.

The model is a GPT-2 with one layer whose next token depends on the position alone: position embeddings are the identity,
token embeddings, attention and MLP are zero, and the head has one column per position. A script is one answer, a list of
pieces of text; each is one token, whatever its length. Each script has positions of its own, and the chat template pads
the prompt up to those of the script whose keyword stands in the last message.

    write_folder(path, {"weather": ["The ", "sun ", "shines."], "": ["Hello."]})   # a Hugging Face folder
    write_gguf(path, ...)                                                          # the same as a GGUF file

Keys are looked for in order in the role of the last message, a space, and its text; "" matches always. Behind its
pieces a script ends with EOS, unless `ends` names another piece for it: {"weather": "<|call|>"}. `special` lists pieces
that are special tokens. `template` stands in front of the chat template, for example to mention a tool format.
Prompts of /v1/completions start at the position of their length: `prompt_of(scripts, key)` is one for a key's script.

    python make_scripted.py scripted    # writes the folder and the GGUF file of tests/data/scripted
"""

import json
import pathlib
import struct
import sys

import numpy as np

EOS, PAD = "<|endoftext|>", "<|pad|>"
HEAD_DIM = 64


def byte_pieces():
    """GPT-2's printable stand-ins for the 256 bytes."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]


def starts(scripts):
    """The length of the prompt behind which each script stands."""
    found, next_start = {}, 1
    for key, pieces in scripts.items():
        found[key] = next_start
        next_start += len(pieces) + 1
    return found, next_start


def prompt_of(scripts, key):
    return PAD * starts(scripts)[0][key]


def template_of(scripts, head):
    found, _ = starts(scripts)
    quoted = lambda text: "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    lines = [
        head,
        "{%- set last = messages[-1] -%}",
        "{%- set said = namespace(text=last.role + ' ') -%}",
        "{%- if last.content is string -%}{%- set said.text = said.text + last.content -%}",
        "{%- elif last.content -%}{%- for part in last.content -%}",
        "{%- if part.text is string -%}{%- set said.text = said.text + part.text -%}{%- endif -%}",
        "{%- endfor -%}{%- endif -%}",
        "{%- set length = namespace(value=1) -%}",
    ]
    for at, (key, start) in enumerate(found.items()):
        word = "if" if at == 0 else "elif"
        lines.append("{%%- %s %s in said.text -%%}{%%- set length.value = %d -%%}" % (word, quoted(key), start))
    lines.append("{%- endif -%}")
    lines.append("{%- for _ in range(length.value) -%}" + PAD + "{%- endfor -%}")
    return "".join(lines)


class Model:
    def __init__(self, scripts, ends=None, special=(), template="", positions=0):
        ends = ends or {}
        self.special = [EOS, PAD, *special]
        texts = list(self.special)
        for key, pieces in scripts.items():
            texts += [*pieces, *([ends[key]] if key in ends else [])]
        assert all(texts), "a piece is empty"
        known = {text: id for id, text in enumerate(byte_pieces())} # a piece of one such character needs no other token
        self.added = [text for text in dict.fromkeys(texts) if text not in known]
        self.vocabulary = byte_pieces() + self.added
        self.ids = known | {text: 256 + at for at, text in enumerate(self.added)}
        first, last = starts(scripts)
        self.positions = -(-max(last + 1, positions) // HEAD_DIM) * HEAD_DIM
        said = [self.ids[EOS]] * self.positions
        for key, start in first.items():
            for at, piece in enumerate([*scripts[key], ends.get(key, EOS)]):
                said[start - 1 + at] = self.ids[piece]
        hidden = self.positions
        self.head = np.zeros((len(self.vocabulary), hidden), np.float32)
        self.head[said, np.arange(hidden)] = 4
        self.template = template_of(scripts, template)

    def tensors(self):
        """Hugging Face's names and shapes. Matrices of layers are stored as [inputs, outputs]."""
        hidden, ffn = self.positions, 64
        zeros, ones = (lambda *shape: np.zeros(shape, np.float32)), (lambda *shape: np.ones(shape, np.float32))
        made = {"wte.weight": zeros(len(self.vocabulary), hidden), "wpe.weight": 8 * np.eye(hidden, dtype=np.float32)}
        for norm in ("h.0.ln_1", "h.0.ln_2", "ln_f"):
            made[norm + ".weight"], made[norm + ".bias"] = ones(hidden), zeros(hidden)
        # What the norm takes off the other positions would add up in EOS's row, which is that of most.
        made["ln_f.bias"] += (hidden - 1) ** -0.5
        shapes = {"attn.c_attn": (hidden, 3 * hidden), "attn.c_proj": (hidden, hidden), "mlp.c_fc": (hidden, ffn),
                  "mlp.c_proj": (ffn, hidden)}
        for name, shape in shapes.items():
            made[f"h.0.{name}.weight"], made[f"h.0.{name}.bias"] = zeros(*shape), zeros(shape[1])
        made = {"transformer." + name: values for name, values in made.items()}
        made["lm_head.weight"] = self.head
        return made


def write_safetensors(path, tensors):
    header, data, at = {}, [], 0
    for name, values in tensors.items():
        raw = values.astype("<f2").tobytes()
        header[name] = {"dtype": "F16", "shape": list(values.shape), "data_offsets": [at, at + len(raw)]}
        data.append(raw)
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(data))


def write_folder(path, scripts, **options):
    """Returns the folder."""
    model = Model(scripts, **options)
    path = pathlib.Path(path)
    path.mkdir(parents=True, exist_ok=True)
    dump = lambda name, value: (path / name).write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")
    eos = model.ids[EOS]
    dump("config.json", {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
        "n_embd": model.positions, "n_head": model.positions // HEAD_DIM, "n_inner": 64, "n_layer": 1,
        "n_positions": model.positions, "vocab_size": len(model.vocabulary), "layer_norm_epsilon": 1e-5,
        "bos_token_id": eos, "eos_token_id": eos, "tie_word_embeddings": False, "dtype": "float16"})
    dump("generation_config.json", {"bos_token_id": eos, "eos_token_id": eos})
    dump("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "bos_token": EOS, "eos_token": EOS, "pad_token": PAD,
        "clean_up_tokenization_spaces": False})
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    dump("tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [{"id": model.ids[text], "content": text, **flags, "special": text in model.special}
                         for text in model.added],
        "normalizer": None, "pre_tokenizer": level, "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {text: id for id, text in enumerate(byte_pieces())}, "merges": []}})
    (path / "chat_template.jinja").write_text(model.template)
    write_safetensors(path / "model.safetensors", model.tensors())
    return path


GGUF_NAMES = {
    "transformer.wte": "token_embd", "transformer.wpe": "position_embd", "transformer.ln_f": "output_norm",
    "lm_head": "output", "transformer.h.0.ln_1": "blk.0.attn_norm", "transformer.h.0.ln_2": "blk.0.ffn_norm",
    "transformer.h.0.attn.c_attn": "blk.0.attn_qkv", "transformer.h.0.attn.c_proj": "blk.0.attn_output",
    "transformer.h.0.mlp.c_fc": "blk.0.ffn_up", "transformer.h.0.mlp.c_proj": "blk.0.ffn_down"}
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def gguf_value(kind, value):
    if kind == STRING:
        raw = value.encode()
        return struct.pack("<Q", len(raw)) + raw
    return struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], value)


def write_gguf(path, scripts, keys=(), **options):
    """`keys`: further metadata as (name, type, value); an array's type is (ARRAY, type). A name written before is replaced,
    a value of None removes it. Returns the file."""
    model = Model(scripts, **options)
    eos = model.ids[EOS]
    kinds = [1] * 256 + [3 if text in model.special else 4 for text in model.added] # normal, control, user-defined
    metadata = {name: (kind, value) for name, kind, value in [
        ("general.architecture", STRING, "gpt2"), ("general.name", STRING, "scripted"), ("general.file_type", U32, 1),
        ("gpt2.context_length", U32, model.positions), ("gpt2.embedding_length", U32, model.positions),
        ("gpt2.feed_forward_length", U32, 64), ("gpt2.block_count", U32, 1),
        ("gpt2.attention.head_count", U32, model.positions // HEAD_DIM), ("gpt2.attention.layer_norm_epsilon", F32, 1e-5),
        ("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "gpt-2"),
        ("tokenizer.ggml.tokens", (ARRAY, STRING), model.vocabulary), ("tokenizer.ggml.token_type", (ARRAY, I32), kinds),
        ("tokenizer.ggml.merges", (ARRAY, STRING), []), ("tokenizer.ggml.bos_token_id", U32, eos),
        ("tokenizer.ggml.eos_token_id", U32, eos), ("tokenizer.ggml.add_bos_token", BOOL, False),
        ("tokenizer.chat_template", STRING, model.template), *keys]}
    metadata = {name: (kind, value) for name, (kind, value) in metadata.items() if value is not None}
    tensors = []
    for name, values in model.tensors().items():
        base, part = name.rsplit(".", 1)
        is_layer_matrix = part == "weight" and values.ndim == 2 and ".h.0." in name
        raw = values.T if is_layer_matrix else values # GGUF stores [outputs, inputs]
        f16 = raw.ndim == 2
        tensors.append((GGUF_NAMES[base] + "." + part, raw.astype("<f2" if f16 else "<f4"), int(f16)))
    out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)))
    for name, (kind, value) in metadata.items():
        out += gguf_value(STRING, name)
        if isinstance(kind, tuple):
            out += struct.pack("<IIQ", ARRAY, kind[1], len(value)) + b"".join(gguf_value(kind[1], v) for v in value)
        else:
            out += struct.pack("<I", kind) + gguf_value(kind, value)
    data = bytearray()
    for name, values, kind in tensors:
        out += gguf_value(STRING, name) + struct.pack("<I", values.ndim)
        out += b"".join(struct.pack("<Q", size) for size in reversed(values.shape)) + struct.pack("<IQ", kind, len(data))
        data += np.ascontiguousarray(values).tobytes()
        data += b"\0" * (-len(data) % 32)
    out += b"\0" * (-len(out) % 32)
    pathlib.Path(path).write_bytes(out + data)
    return pathlib.Path(path)


# The model of tests/data/scripted.
SCRIPTS = {
    "tool ": ["It ", "is ", "18 ", "degrees."],
    "weather": ['<tool_call>\n{"name": "get_weather", ', '"arguments": {"city": ', '"Paris"}}\n</tool_call>'],
    "two calls": ['<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>', "\n",
                  '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>'],
    "think": ["<think>\n", "The user ", "wants thought.\n", "</think>\n\n", "Thought ", "it over."],
    "json": ['{"name": ', '"Martha", ', '"age": 55}'],
    "count": ["one ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight ", "nine ", "ten"],
    "": ["Hello, ", "world", "!"],
}
TEMPLATE = ("{%- if tools -%}{#- <tool_call>{\"name\": ..., \"arguments\": ...}</tool_call> -#}{%- endif -%}"
            "{%- if false -%}<think></think>{%- endif -%}")

if __name__ == "__main__":
    here = pathlib.Path(sys.argv[1])
    write_folder(here, SCRIPTS, template=TEMPLATE)
    write_gguf(here / "scripted.gguf", SCRIPTS, template=TEMPLATE)
