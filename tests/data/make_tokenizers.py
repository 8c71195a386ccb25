"""Writes tokenizers.json: small tokenizers that differ in one part each, with texts as the `tokenizers` package encodes
and decodes them. The unit tests replay it. Needs `pip install tokenizers sentencepiece` (0.23, 0.2)
and older_tokenizers/, which make_older_tokenizers.py writes. Usage:

    python make_tokenizers.py tokenizers.json

`--texts N --seed S` writes another, larger set of cases for a more thorough comparison.
"""

import argparse
import base64
import json
import random
import sys

from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

CORPUS = [
    "The quick brown fox jumps over the lazy dog. It's what they've done, isn't it? I'll say we'd rather not.",
    "Once upon a time there was a little fox who lived in the forest; she was happy, and so were her friends.",
    "In 2024, 12345 people paid $3.50 for 67 apples (and 8 pears)!  Indented:\n    def f(x):\n\treturn x + 1\n\n",
    "Élève, naïve café, garçon; Größe, Straße; señor. Ångström. Ελληνικά και άλλα. Привет, как дела?",
    "你好，世界。今天天气很好。こんにちは、元気ですか。안녕하세요. नमस्ते दुनिया",
    "😀 😃 👍🏽 👨‍👩‍👧 🎉🎉 … – — “quotes” ‘single’ ½ ² Ⅷ ﬁ ﬂ",
]

PIECES = (
    [
        "\v",
        "Q",
        "the",
        "The",
        "fox",
        " fox",
        "'s",
        "'S",
        "'ll",
        "isn't",
        "I'm",
        "WE'VE",
        "Über",
        "café",
        "cafe\u0301",
        "naïve",
        "Größe",
    ]
    + [
        " ",
        "  ",
        "   ",
        "\t",
        "\n",
        "\r\n",
        "\n\n",
        " \n ",
        "\u00a0",
        "\u3000",
        "\u2028",
        "\u0085",
        "\u180e",
        "\u200b",
        "\u200d",
    ]
    + ["1", "23", "456", "7890", "½", "Ⅷ", "²", "٣", "１２", "3.50", "1,000"]
    + [
        "你",
        "好",
        "世界",
        "。",
        "，",
        "こん",
        "ガ",
        "カ\u3099",
        "안녕",
        "\u1112\u1161\u11ab",
        "नमस्ते",
        "ไทย",
        "שלום",
        "مرحبا",
    ]
    + ["😀", "👍🏽", "👨‍👩‍👧", "🇫🇷", "𝒜", "𐍈", "\U000e0041", "\ufeff", "\ufffd"]
    + [
        "e\u0301",
        "o\u0302\u0323",
        "\u0323\u0302",
        "a\u0316\u0301\u0316",
        "Å",
        "\u212b",
        "ﬁ",
        "ſ",
        "ẞ",
        "İ",
        "ı",
        "ǅ",
        "Σ",
        "ς",
    ]
    + [
        ".",
        ",",
        "!?",
        "...",
        "—",
        "“",
        "”",
        "(",
        ")",
        "[",
        "]",
        "{}",
        "<",
        ">",
        "#",
        "@",
        "_",
        "a_b",
        "-",
        "--",
        "$",
        "+",
        "`",
        "^",
    ]
    + ["▁", "▁▁", "Ġ", "<0x41>", "<s>", "</s>", "<unk>", "\\", '"', "\x00", "\x07", "\x1f", "\x7f", "Ⓐ", "🄰"]
    + ["supercalifragilistic", "aaaaaaaa", "abababab", "zzz", "QQQ"]
)


def random_text(rng, extra):
    pieces = PIECES + extra * 4
    parts = [rng.choice(pieces) for _ in range(rng.randint(1, 12))]
    if rng.random() < 0.5:
        parts = [p + rng.choice(["", " "]) for p in parts]
    if rng.random() < 0.1:
        parts.append(
            "".join(chr(c) for c in (rng.randrange(0x20, 0x3000) for _ in range(6)) if not 0xD800 <= c < 0xE000)
        )
    return "".join(parts)


def byte_level(vocab_size=420):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.train_from_iterator(
        CORPUS,
        trainers.BpeTrainer(
            vocab_size=vocab_size, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False
        ),
    )
    return json.loads(t.to_str())["model"]


def characters(vocab_size, tokens=(), **options):
    t = Tokenizer(models.BPE())
    t.normalizer = normalizers.Replace(" ", "▁")
    t.train_from_iterator(
        [line.lower() for line in CORPUS[:3]] + CORPUS[:3],
        trainers.BpeTrainer(vocab_size=vocab_size, special_tokens=list(tokens), show_progress=False),
    )
    model = json.loads(t.to_str())["model"]
    model.update(options)
    return model


def unigram(vocab_size, tokens=(), **options):
    t = Tokenizer(models.Unigram())
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.train_from_iterator(
        CORPUS + [line.lower() for line in CORPUS[:3]],
        trainers.UnigramTrainer(
            vocab_size=vocab_size, special_tokens=["<unk>", *tokens], unk_token="<unk>", show_progress=False
        ),
    )
    model = json.loads(t.to_str())["model"]
    model["vocab"] = [[token, round(score, 6)] for token, score in model["vocab"]]
    model.update(options)
    return model


def wordpiece(**options):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(
        CORPUS,
        trainers.WordPieceTrainer(
            vocab_size=260, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False
        ),
    )
    model = json.loads(t.to_str())["model"]
    model.update(options)
    return model


def charsmap():
    """The small map that make_older_tokenizers.py trained a SentencePiece model with."""
    from sentencepiece import sentencepiece_model_pb2 as pb

    proto = pb.ModelProto()
    proto.ParseFromString((Path(__file__).parent / "older_tokenizers/unigram-rules/tokenizer.model").read_bytes())
    return base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()


def models_by_name():
    byte = byte_level()
    spelled = dict(byte, merges=[" ".join(m) for m in byte["merges"]])
    whole = dict(byte, vocab=dict(byte["vocab"]), ignore_merges=True)
    for word in ["Ġrather", "forest", "123", "ĠWE", "ðŁĺĢ"]:
        whole["vocab"].setdefault(word, len(whole["vocab"]))
    bytes_ = [f"<0x{b:02X}>" for b in range(256)]
    start = ["<unk>", "<s>", "</s>"]
    return {
        "byte": byte,
        "byte_spelled": spelled,
        "byte_whole": whole,
        "sp": characters(420, start + bytes_, unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        "sp_some_bytes": characters(300, start + bytes_[:0xA0], unk_token="<unk>", fuse_unk=True, byte_fallback=True),
        "sp_fused": characters(160, start, unk_token="<unk>", fuse_unk=True),
        "sp_unfused": characters(160, start, unk_token="<unk>"),
        "sp_silent": characters(160, start),
        "unigram": unigram(250, ["<s>", "</s>"]),
        "unigram_bytes": unigram(500, bytes_, byte_fallback=True),
        "wordpiece": wordpiece(),
        "wordpiece_short": wordpiece(max_input_chars_per_word=7),
    }


GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
POSSESSIVE = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
DEEPSEEK = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def regex(r):
    return {"Regex": r}


def string(s):
    return {"String": s}


def split(pattern, behavior="Isolated", invert=False):
    return {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert}


def bytes_pre(prefix=False, use_regex=True):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": use_regex}


def sequence(key, *steps):
    return {"type": "Sequence", key: list(steps)}


def metaspace(scheme="always", split=True):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": split}


def template(before, after=()):
    tokens = {name: {"id": name, "ids": ids, "tokens": [name] * len(ids)} for name, ids in (*before, *after)}
    piece = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    text = lambda id: {"Sequence": {"id": id, "type_id": 0}}
    single = [piece(n) for n, _ in before] + [text("A")] + [piece(n) for n, _ in after]
    return {"type": "TemplateProcessing", "single": single, "pair": single + [text("B")], "special_tokens": tokens}


def added(content, **flags):
    base = dict(content=content, single_word=False, lstrip=False, rstrip=False, normalized=False, special=False)
    return {**base, **flags}


BYTES = bytes_pre()
BYTES_OUT = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
REPLACE_OUT = {"type": "Replace", "pattern": string("▁"), "content": " "}
FALLBACK, FUSE = {"type": "ByteFallback"}, {"type": "Fuse"}


def strip_out(start, stop, content=" "):
    return {"type": "Strip", "content": content, "start": start, "stop": stop}


SP_OUT = sequence("decoders", REPLACE_OUT, FALLBACK, FUSE, strip_out(1, 0))
SP_IN = sequence(
    "normalizers", {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": string(" "), "content": "▁"}
)
SPACES = {"type": "Replace", "pattern": string(" "), "content": "▁"}
SP_TOKENS = [added("<unk>", special=True), added("<s>", special=True), added("</s>", special=True)]
ODD_TOKENS = [
    added("<|end|>", special=True),
    added("<|endless|>"),
    added("Fox", normalized=True),
    added("[left]", lstrip=True),
    added("[right]", rstrip=True),
    added("[both]", lstrip=True, rstrip=True, special=True),
    added("word", single_word=True),
    added("Café", normalized=True, single_word=True),
    added("  "),
    added("é"),
    added("[norm special]", normalized=True, special=True),
    added("ends ", normalized=True, rstrip=True),
]
ODD_TEXTS = [
    "<|end|>",
    "<|endless|>",
    "<|end",
    "Fox",
    "fox",
    "[left]",
    "[right]",
    "[both]",
    " [both] ",
    "word",
    "words",
    "sword",
    "_word",
    "word.",
    "Café",
    "cafe",
    "Cafés",
    "CAFÉ",
    "[norm special]",
    "[NORM special]",
    "ends ",
    "ends  ",
    "é",
]


def variants():
    """Yields name, model, parts of tokenizer.json, and texts to mix in."""
    for name in ["byte", "byte_spelled", "byte_whole"]:
        yield name, name, dict(pre_tokenizer=BYTES, decoder=BYTES_OUT), []
    yield "prefix space", "byte", dict(pre_tokenizer=bytes_pre(True), decoder=BYTES_OUT), []
    yield "bytes without regex", "byte", dict(pre_tokenizer=bytes_pre(False, False), decoder=BYTES_OUT), []
    yield "byte-level post-processor", "byte", dict(
        pre_tokenizer=BYTES,
        decoder=BYTES_OUT,
        post_processor=sequence("processors", BYTES_OUT, template([("!", [0]), ('"#', [1, 2])], [("$", [3])])),
    ), []
    yield "roberta", "byte", dict(
        pre_tokenizer=BYTES,
        decoder=BYTES_OUT,
        post_processor={
            "type": "RobertaProcessing",
            "sep": ["#", 2],
            "cls": ["!", 0],
            "trim_offsets": True,
            "add_prefix_space": False,
        },
    ), []
    for name, r in [
        ("gpt-4", GPT4),
        ("o200k", O200K),
        ("possessive", POSSESSIVE),
        ("deepseek", DEEPSEEK),
        ("spaces", r"\s+"),
        ("last spaces", r"\s+$"),
        ("spaces before", r"\s+(?=[a-z\n])"),
        ("not space", r"\S"),
        ("words", r"\w+"),
        ("hex", r"[\h_]+|\W"),
        ("boundary", r"\b\w|\B\W"),
        ("han", r"\p{Han}+|\p{Greek}"),
        ("escapes", r"[\u4e00-\u9fff]+|\x{1F600}|[\d\s]+"),
        ("lines", r"^.|.$"),
        ("empty", r"x*"),
        ("dot", r"(?m:a.)|."),
        ("vertical tab", r"[\v\t]|\v|\Q+"),
        ("posix", r"[[:alpha:]]+|[[:punct:]]|[[:space:][:digit:]]"),
        ("word class", r"[[:word:]]+|[^\w\s]"),
    ]:
        yield "regex " + name, "byte", dict(
            pre_tokenizer=sequence("pretokenizers", split(regex(r)), bytes_pre(False, False)), decoder=BYTES_OUT
        ), []
    yield "deepseek-v3", "byte", dict(
        pre_tokenizer=sequence(
            "pretokenizers",
            split(regex(r"\p{N}{1,3}")),
            split(regex("[一-龥぀-ゟ゠-ヿ]+")),
            split(regex(DEEPSEEK)),
            bytes_pre(False, False),
        ),
        decoder=BYTES_OUT,
    ), []
    for behavior in ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
        for invert in [False, True]:
            for kind, p in [("string", string(" ")), ("regex", regex("[aeo ]"))]:
                yield f"split {kind} {behavior} {invert}", "byte", dict(
                    pre_tokenizer=sequence("pretokenizers", split(p, behavior, invert), bytes_pre(False, False)),
                    decoder=BYTES_OUT,
                ), []
    yield "split nothing", "byte", dict(
        pre_tokenizer=sequence("pretokenizers", split(string("")), bytes_pre(False, False))
    ), []
    for name, step in [
        ("digits", {"type": "Digits", "individual_digits": True}),
        ("numbers", {"type": "Digits", "individual_digits": False}),
        ("punctuation", {"type": "Punctuation", "behavior": "Isolated"}),
        ("punctuation runs", {"type": "Punctuation", "behavior": "Contiguous"}),
        ("punctuation removed", {"type": "Punctuation", "behavior": "Removed"}),
        ("whitespace", {"type": "Whitespace"}),
        ("whitespace split", {"type": "WhitespaceSplit"}),
    ]:
        yield name, "byte", dict(
            pre_tokenizer=sequence("pretokenizers", step, bytes_pre(True, False)), decoder=BYTES_OUT
        ), []
    yield "bytes, then digits", "byte", dict(
        pre_tokenizer=sequence("pretokenizers", bytes_pre(True), {"type": "Digits", "individual_digits": True}),
        decoder=BYTES_OUT,
    ), []
    for form in ["NFC", "NFD", "NFKC", "NFKD", "Lowercase"]:
        yield form, "byte", dict(normalizer={"type": form}, pre_tokenizer=BYTES, decoder=BYTES_OUT), []
    for left in [False, True]:
        for right in [False, True]:
            yield f"strip {left} {right}", "byte", dict(
                normalizer={"type": "Strip", "strip_left": left, "strip_right": right}, pre_tokenizer=BYTES
            ), []
    yield "replace regex", "byte", dict(
        normalizer=sequence(
            "normalizers",
            {"type": "Replace", "pattern": regex(r"\s+"), "content": " "},
            {"type": "Replace", "pattern": regex(r"x+(?=y|$)"), "content": "-"},
            {"type": "Replace", "pattern": string("''"), "content": ""},
        ),
        pre_tokenizer=BYTES,
    ), ["''", "xx"]
    yield "added", "byte", dict(pre_tokenizer=BYTES, decoder=BYTES_OUT, added_tokens=ODD_TOKENS), ODD_TEXTS
    yield "added, lower case", "byte", dict(
        normalizer=sequence("normalizers", {"type": "NFD"}, {"type": "Lowercase"}),
        pre_tokenizer=BYTES,
        decoder=BYTES_OUT,
        added_tokens=ODD_TOKENS,
    ), ODD_TEXTS
    for name in ["sp", "sp_some_bytes", "sp_fused", "sp_unfused", "sp_silent"]:
        yield name, name, dict(
            normalizer=SP_IN,
            decoder=SP_OUT,
            added_tokens=SP_TOKENS,
            post_processor=template([("<s>", [1])], [("</s>", [2])]),
        ), []
    yield "sp, added", "sp", dict(normalizer=SP_IN, decoder=SP_OUT, added_tokens=SP_TOKENS + ODD_TOKENS), ODD_TEXTS
    yield "gemma", "sp", dict(
        normalizer=SPACES,
        pre_tokenizer=split(string(" "), "MergedWithPrevious"),
        decoder=sequence("decoders", REPLACE_OUT, FALLBACK, FUSE),
        added_tokens=SP_TOKENS,
    ), []
    for scheme in ["always", "first", "never"]:
        for whole in [False, True]:
            yield f"metaspace {scheme} {whole}", "sp", dict(
                pre_tokenizer=metaspace(scheme, not whole),
                decoder=metaspace(scheme, not whole),
                added_tokens=SP_TOKENS + ODD_TOKENS,
            ), ODD_TEXTS
    yield "metaspace first after strip", "sp", dict(
        normalizer={"type": "Strip", "strip_left": True, "strip_right": True},
        pre_tokenizer=metaspace("first"),
        decoder=metaspace("first"),
    ), []
    yield "metaspace first after replace", "sp", dict(
        normalizer={"type": "Replace", "pattern": regex("[aT\\s]+"), "content": "e"},
        pre_tokenizer=metaspace("first"),
        decoder=metaspace("first"),
    ), []
    yield "whitespace and metaspace", "sp", dict(
        pre_tokenizer=sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace("first")),
        decoder=sequence("decoders", FALLBACK, metaspace()),
    ), []
    for name, steps in [
        ("no fuse", [REPLACE_OUT, FALLBACK, strip_out(1, 0)]),
        ("both ends", [REPLACE_OUT, FALLBACK, FUSE, strip_out(2, 1)]),
        ("late replace", [FALLBACK, FUSE, {"type": "Replace", "pattern": string("▁t"), "content": " T"}]),
        ("late regex", [FALLBACK, FUSE, {"type": "Replace", "pattern": regex("▁+"), "content": " "}]),
        ("fused bytes", [FUSE, FALLBACK]),
        ("fused metaspace", [FUSE, metaspace()]),
        ("bytes twice", [FUSE, BYTES_OUT]),
        ("strip letters", [strip_out(1, 1, "e")]),
    ]:
        yield "decoder " + name, "sp", dict(
            normalizer=SPACES, decoder=sequence("decoders", *steps), added_tokens=SP_TOKENS
        ), []
    precompiled = {"type": "Precompiled", "precompiled_charsmap": charsmap()}
    squeezed = {"type": "Replace", "pattern": regex(" {2,}"), "content": " "}
    mapped = ["A", "AB", "É", "e\u0301", "ﬁ", "…", "\u200b", "カ\u3099", "\r\n", "Å"]
    yield "unigram", "unigram", dict(pre_tokenizer=metaspace(), decoder=metaspace(), added_tokens=SP_TOKENS), []
    yield "unigram whole", "unigram", dict(normalizer=SPACES, decoder=metaspace()), []
    yield "t5", "unigram", dict(
        normalizer=precompiled,
        pre_tokenizer=metaspace(),
        decoder=metaspace(),
        added_tokens=SP_TOKENS,
        post_processor=template([], [("</s>", [2])]),
    ), mapped
    yield "xlm-roberta", "unigram", dict(
        normalizer=sequence("normalizers", precompiled, squeezed),
        pre_tokenizer=sequence("pretokenizers", {"type": "WhitespaceSplit"}, metaspace()),
        decoder=metaspace(),
        added_tokens=SP_TOKENS,
        post_processor=template([("<s>", [1])], [("</s>", [2])]),
    ), mapped
    yield "unigram with bytes", "unigram_bytes", dict(
        normalizer=SPACES, decoder=sequence("decoders", REPLACE_OUT, FALLBACK, FUSE)
    ), []
    yield "nmt", "unigram", dict(
        normalizer=sequence("normalizers", {"type": "Nmt"}, {"type": "NFKC"}, {"type": "StripAccents"}),
        pre_tokenizer=metaspace("first"),
        decoder=metaspace("first"),
    ), ["\x01", "\u200b", "\u2581", "\ufeff"]
    bert = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None, "lowercase": True}
    bert_tokens = [added(t, special=True) for t in ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]]
    out = lambda cleanup: {"type": "WordPiece", "prefix": "##", "cleanup": cleanup}
    odd = ["[CLS]", "don't", "do not", " n't", "isn't", " .", "\u00ad", "\ue000", "\U0001d165", "ĳ", "Ё", "㐀", "豈"]
    for name, change in [
        ("bert", {}),
        ("bert cased", {"lowercase": False}),
        ("bert accents", {"strip_accents": False}),
        ("bert plain", {"clean_text": False, "handle_chinese_chars": False, "strip_accents": True, "lowercase": False}),
    ]:
        yield name, "wordpiece", dict(
            normalizer={**bert, **change},
            pre_tokenizer={"type": "BertPreTokenizer"},
            decoder=out(name == "bert"),
            added_tokens=bert_tokens,
            post_processor=template([("[CLS]", [2])], [("[SEP]", [3])]),
        ), odd
    yield "bert, short words", "wordpiece_short", dict(
        normalizer=bert, pre_tokenizer={"type": "BertPreTokenizer"}, decoder=out(True)
    ), odd


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("output")
    arguments.add_argument("--texts", type=int, default=8)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    rng = random.Random(options.seed)
    models_ = models_by_name()
    result = {"models": models_, "tokenizers": []}
    for name, model, parts, extra in variants():
        vocab = models_[model]["vocab"]
        if isinstance(vocab, list):
            vocab = {token: i for i, (token, _) in enumerate(vocab)}
        tokens, next_id = [], len(vocab)
        for token in parts.get("added_tokens", []):
            if token["content"] in vocab:
                tokens.append({"id": vocab[token["content"]], **token})
            else:
                tokens.append({"id": next_id, **token})
                next_id += 1
        whole = dict(
            version="1.0",
            truncation=None,
            padding=None,
            added_tokens=tokens,
            normalizer=None,
            pre_tokenizer=None,
            post_processor=None,
            decoder=None,
        )
        whole.update({k: v for k, v in parts.items() if k != "added_tokens"})
        t = Tokenizer.from_str(json.dumps(dict(whole, model=models_[model])))
        cases = []
        for _ in range(options.texts):
            text = random_text(rng, extra)
            try:
                plain = t.encode(text, add_special_tokens=False).ids
                cases.append([text, plain] + [t.encode(text).ids] * ("post_processor" in parts))
            except BaseException:  # tokenizers panics if alignments with the original text become inconsistent
                print(f"{name}: tokenizers cannot encode {text!r}", file=sys.stderr)
        decodes = []
        for _ in range(options.texts):
            ids = [rng.randrange(next_id + 2) for _ in range(rng.randint(0, 12))]
            if model == "sp" and rng.random() < 0.5:
                ids = [3 + b for b in rng.choice(PIECES).encode() + rng.choice([b"", b"\xe4\xbd", b"\xff"])] + ids
            try:
                both = [t.decode(ids, skip_special_tokens=False), t.decode(ids, skip_special_tokens=True)]
            except BaseException:  # Strip panics on texts shorter than it may strip
                continue
            decodes.append([ids, both[0]] + both[1:] * (both[0] != both[1]))
        result["tokenizers"].append({"name": name, "model": model, "parts": whole, "encode": cases, "decode": decodes})
    with open(options.output, "w", encoding="utf-8") as f:
        json.dump(result, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


if __name__ == "__main__":
    main()
