"""Writes older_tokenizers/: tokenizers in formats other than tokenizer.json, with texts as the `sentencepiece`, `tiktoken`
and `tokenizers` packages encode and decode them. The unit tests replay cases.json. Needs
`pip install sentencepiece tiktoken tokenizers gguf` (0.2, 0.12, 0.23, 0.17). Usage:

    python make_older_tokenizers.py older_tokenizers

`--texts N --seed S` writes another, larger set of cases for a more thorough comparison.
"""

import argparse
import base64
import io
import json
import random
import tempfile
from pathlib import Path

import sentencepiece as spm
import tiktoken
from gguf import GGUFWriter
from make_tokenizers import CORPUS, GPT4, O200K, random_text
from sentencepiece import sentencepiece_model_pb2 as pb
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

# Source, replacement: as `normalization_rule_tsv`, in hexadecimal code points. Several begin alike, one deletes, one
# makes spaces, one makes two characters of one, one joins two.
RULES = ["41\t61", "41 42\t7a", "C9\t65", "65 301\t65", "FB01\t66 69", "2026\t2e 2e 2e", "A0\t20", "3000\t20 20", "200B\t",
         "FF11\t31", "30AB 3099\t30AC", "9\t20", "A\t20", "212B\tC5", "1F600\t3a 29"]  # fmt: skip

SENTENCEPIECE = {
    "unigram": dict(model_type="unigram", vocab_size=260),
    "unigram-rules": dict(model_type="unigram", vocab_size=260, rules=True),
    "unigram-bytes": dict(
        model_type="unigram", vocab_size=520, byte_fallback=True, add_dummy_prefix=False,
        remove_extra_whitespaces=False, normalization_rule_name="identity",
    ),
    "unigram-symbols": dict(model_type="unigram", vocab_size=280, rules=True, user_defined_symbols=["<|a|>", "▁▁", "AB", "é"]),
    "bpe": dict(model_type="bpe", vocab_size=300),
    "bpe-bytes": dict(
        model_type="bpe", vocab_size=560, byte_fallback=True, remove_extra_whitespaces=False,
        normalization_rule_name="identity", split_digits=True,
    ),
    "bpe-symbols": dict(
        model_type="bpe", vocab_size=560, byte_fallback=True, add_dummy_prefix=False, remove_extra_whitespaces=False,
        user_defined_symbols=["<|a|>", "▁▁", "▁▁▁", "\n", "AB"], allow_whitespace_only_pieces=True, rules=True,
    ),
}  # fmt: skip
SYMBOLS = ["<|a|>", "<|a", "  ", "    ", "AB", "ABAB", "A", "é", "\n\n"]


def train(folder, options):
    options = dict(options)
    with tempfile.TemporaryDirectory() as temporary:
        if options.pop("rules", False):
            rules = Path(temporary) / "rules.tsv"
            rules.write_text("\n".join(RULES) + "\n")
            options["normalization_rule_tsv"] = str(rules)
        elif "normalization_rule_name" not in options:
            options["normalization_rule_name"] = "identity"
        model = io.BytesIO()
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(CORPUS * 4 + [c.lower() for c in CORPUS]), model_writer=model, hard_vocab_limit=False,
            num_threads=1, minloglevel=2, **options,
        )  # fmt: skip
    proto = pb.ModelProto()
    proto.ParseFromString(model.getvalue())
    proto.trainer_spec.ClearField("input")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.model").write_bytes(proto.SerializeToString())
    return proto


def texts_of(rng, count, extra=()):
    fixed = ["", " ", "  a", "a  ", "The fox\n", "a" * 300, "the fox " * 40, "😀" * 20, "你好世界" * 30, " \t \n "]
    texts = fixed + [random_text(rng, list(extra)) for _ in range(count)]
    return [t for t in texts if not any(c in t for c in ["<s>", "</s>", "<unk>", "\x00"])]


def sentencepiece_cases(rng, count, folder, symbols):
    processor = spm.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    cases = []
    for text in texts_of(rng, count, SYMBOLS if symbols else []):
        ids = processor.encode(text)
        known = processor.unk_id() not in ids
        cases.append([text, ids] + [processor.decode(ids)] * known)
    return cases


def write_scored_gguf(file, proto):
    w = GGUFWriter(file, "t5")
    w.add_tokenizer_model("t5")
    w.add_token_list([p.piece for p in proto.pieces])
    w.add_token_scores([p.score for p in proto.pieces])
    w.add_token_types([int(p.type) for p in proto.pieces])
    w.add_add_space_prefix(proto.normalizer_spec.add_dummy_prefix)
    w.add_remove_extra_whitespaces(proto.normalizer_spec.remove_extra_whitespaces)
    if proto.normalizer_spec.precompiled_charsmap:
        w.add_precompiled_charsmap(proto.normalizer_spec.precompiled_charsmap)
    w.add_unk_token_id(0)
    w.add_eos_token_id(2)
    w.add_add_eos_token(True)
    finish(w)


def finish(w):
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def ranks_of(vocab_size):
    """Ranks by bytes: of the alphabet, then of the merges in order."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(GPT4), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    t.train_from_iterator(
        CORPUS * 2,
        trainers.BpeTrainer(vocab_size=vocab_size, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False),
    )
    model = json.loads(t.to_str())["model"]
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    of = {chr(b): b for b in printable}
    of.update({chr(256 + i): b for i, b in enumerate(b for b in range(256) if b not in printable)})
    spelled = lambda token: bytes(of[c] for c in token)
    ranks = {bytes([b]): b for b in range(256)}
    for left, right in model["merges"]:
        ranks.setdefault(spelled(left) + spelled(right), len(ranks))
    return ranks


TIKTOKEN = {
    "cl100k_base": (
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
        {"<|endoftext|>": 100257, "<|fim_prefix|>": 100258, "<|fim_middle|>": 100259, "<|fim_suffix|>": 100260, "<|endofprompt|>": 100276},
    ),
    "o200k_base": (O200K, {"<|endoftext|>": 199999, "<|endofprompt|>": 200018}),
    "r50k_base": (r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s", {"<|endoftext|>": 50256}),
}  # fmt: skip


def write_tiktoken(folder, name, ranks):
    folder.mkdir(parents=True, exist_ok=True)
    lines = [base64.b64encode(token).decode() + f" {rank}" for token, rank in ranks.items()]
    (folder / f"{name}.tiktoken").write_text("\n".join(lines) + "\n")


def tiktoken_cases(rng, count, name, ranks):
    pattern, special = TIKTOKEN[name]
    encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
    cases = []
    for text in texts_of(rng, count, list(special)[:2]):
        ids = encoding.encode(text, allowed_special="all")
        cases.append([text, ids, text])
    return cases


def wordpiece():
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    t.normalizer = normalizers.BertNormalizer()
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.train_from_iterator(
        CORPUS, trainers.WordPieceTrainer(vocab_size=300, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"], show_progress=False)
    )
    return t


def write_wordpiece_gguf(file, t):
    vocab = t.get_vocab()
    tokens = sorted(vocab, key=vocab.get)
    phantom = lambda t: t if t.startswith("[") and t.endswith("]") else t[2:] if t.startswith("##") else "▁" + t
    w = GGUFWriter(file, "bert")
    w.add_tokenizer_model("bert")
    w.add_token_list([phantom(t) for t in tokens])
    w.add_token_types([3 if t in ("[PAD]", "[CLS]", "[SEP]", "[MASK]") else 2 if t == "[UNK]" else 1 for t in tokens])
    w.add_unk_token_id(vocab["[UNK]"])
    w.add_bos_token_id(vocab["[CLS]"])
    w.add_sep_token_id(vocab["[SEP]"])
    finish(w)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("out", type=Path)
    arguments.add_argument("--texts", type=int, default=30)
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    rng = random.Random(options.seed)
    result = []
    for name, how in SENTENCEPIECE.items():
        folder = options.out / name
        proto = train(folder, how)
        cases = sentencepiece_cases(rng, options.texts, folder, "symbols" in name)
        result.append({"folder": name, "cases": cases})
        if name in ("unigram", "unigram-symbols"):
            write_scored_gguf(options.out / f"{name}.gguf", proto)
            result.append({"folder": f"{name}.gguf", "cases": cases})
    ranks = ranks_of(600)
    for name in TIKTOKEN:
        write_tiktoken(options.out / name, name, ranks)
        result.append({"folder": name, "cases": tiktoken_cases(rng, options.texts, name, ranks)})
    t = wordpiece()
    write_wordpiece_gguf(options.out / "wordpiece.gguf", t)
    texts = texts_of(rng, options.texts)
    result.append({"folder": "wordpiece.gguf", "cases": [[x, t.encode(x, add_special_tokens=False).ids] for x in texts]})
    (options.out / "cases.json").write_text(json.dumps(result, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
