"""Random tokenizers, each run by the `tokenizers` package and by `troupe tokenize`: ids and texts must be the same.

TOKENIZER_SEED and TOKENIZER_COUNT draw others, and more.
"""

import concurrent.futures
import json
import os
import random
import subprocess
import sys
import unicodedata

import pytest

from server import ROOT, binary

tokenizers = pytest.importorskip("tokenizers")
sys.path.append(str(ROOT / "tests" / "data"))
import make_tokenizers as make  # noqa: E402

SEED = int(os.environ.get("TOKENIZER_SEED", "7"))
COUNT = int(os.environ.get("TOKENIZER_COUNT", "60"))
TEXTS = 8
BEHAVIORS = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]
CONTENTS = [" ", "  ", "\n", "\t", "<x>", "<xy>", "[both]", "ab", "Fox", "é", "e\u0301", "word", " a", "▁", "ends ",
            "12"]


def normalizer(rng):
    flag = lambda: rng.random() < 0.5
    return rng.choice([
        lambda: {"type": rng.choice(["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"])},
        lambda: {"type": "Strip", "strip_left": flag(), "strip_right": flag()},
        lambda: {"type": "Prepend", "prepend": rng.choice(["▁", " ", "_", "ab", "\n", "é"])},
        lambda: {"type": "Replace", "pattern": rng.choice([make.string(" "), make.string("ab"), make.regex(r"\s+"),
                                                           make.regex("[aeiou]"), make.regex(r"^\w")]),
                 "content": rng.choice(["", "▁", "x", "ab", " "])},
        lambda: {"type": "BertNormalizer", "clean_text": flag(), "handle_chinese_chars": flag(),
                 "strip_accents": rng.choice([None, True, False]), "lowercase": flag()},
    ])()


def pre_tokenizer(rng):
    flag = lambda: rng.random() < 0.5
    return rng.choice([
        lambda: {"type": rng.choice(["Whitespace", "WhitespaceSplit"])},
        lambda: {"type": "Punctuation", "behavior": rng.choice(BEHAVIORS)},
        lambda: {"type": "Digits", "individual_digits": flag()},
        lambda: make.metaspace(rng.choice(["always", "first", "never"]), flag()),
        lambda: make.split(rng.choice([make.string(" "), make.string("a"), make.regex(r"\s+"), make.regex(r"\d"),
                                       make.regex(r"\w+|[^\w\s]+")]), rng.choice(BEHAVIORS), flag()),
        lambda: make.bytes_pre(flag(), flag()),
    ])()


def sequence(rng, key, step, most):
    steps = [step(rng) for _ in range(rng.randint(0, most))]
    return make.sequence(key, *steps) if len(steps) > 1 or (steps and rng.random() < 0.3) else (steps or [None])[0]


def text_of(rng, extra):
    """Without characters whose class is newer than the package's tables of Unicode."""
    old = unicodedata.ucd_3_2_0.category
    return "".join(c for c in make.random_text(rng, extra) if old(c) != "Cn" and old(c) == unicodedata.category(c))


def added_tokens(rng, model, normalize):
    """With ids as the package gives them, and distinct: of equal ones, it takes any."""
    vocab = model["vocab"]
    known = {w: i for w, i in vocab.items()} if isinstance(vocab, dict) else {w: i for i, (w, _) in enumerate(vocab)}
    size, highest, result, seen = len(known), -1, [], set()
    for content in rng.sample(CONTENTS, rng.randint(0, 4)):
        flags = {k: rng.random() < 0.3 for k in ("single_word", "lstrip", "rstrip", "normalized", "special")}
        matched = normalize(content) if flags["normalized"] else content
        if (matched, flags["normalized"]) in seen or not matched:
            continue
        seen.add((matched, flags["normalized"]))
        token_id = known.get(content, max(size, highest + 1))
        highest = max(highest, token_id)
        result.append({"id": token_id, **make.added(content, **flags)})
    return result


def decoder(rng, name):
    if name.startswith("byte"):
        return make.BYTES_OUT
    if name.startswith("wordpiece"):
        return {"type": "WordPiece", "prefix": "##", "cleanup": rng.random() < 0.5}
    return rng.choice([make.SP_OUT, make.REPLACE_OUT, make.metaspace(rng.choice(["always", "first", "never"]))])


def normalization(steps):
    """What the package makes of a text by these steps."""
    bare = {"version": "1.0", "added_tokens": [], "normalizer": steps,
            "model": {"type": "BPE", "vocab": {}, "merges": []}}
    made = tokenizers.Tokenizer.from_str(json.dumps(bare)).normalizer
    return made.normalize_str if made else str


def tokenizer(rng, models):
    name = rng.choice(sorted(models))
    model = models[name]
    pre = sequence(rng, "pretokenizers", pre_tokenizer, 2)
    if name.startswith("byte"):
        pre = make.sequence("pretokenizers", *([pre] if pre else []), make.bytes_pre(rng.random() < 0.3, False))
    steps = sequence(rng, "normalizers", normalizer, 3)
    return {"version": "1.0", "truncation": None, "padding": None, "normalizer": steps, "pre_tokenizer": pre,
            "added_tokens": added_tokens(rng, model, normalization(steps)), "post_processor": None,
            "decoder": decoder(rng, name), "model": model}


def troupe(folder, text, *flags):
    done = subprocess.run([binary(), "tokenize", "--json", "--model", str(folder), *flags, "-"],
                          input=text.encode(), capture_output=True)
    return json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr.decode().strip()}


def reference(theirs, text):
    """Nothing where the package panics."""
    try:
        ids = theirs.encode(text, add_special_tokens=False).ids
        return ids, theirs.decode(ids, skip_special_tokens=False)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return None


def differences(folder, theirs, text):
    """How the two differ, or nothing; and whether texts were compared at all."""
    expected = reference(theirs, text)
    if expected is None:
        return None, False
    ids, decoded = expected
    ours = troupe(folder, text)
    if ours.get("tokens") != ids:
        return f"ids {ours.get('tokens', ours)}, expected {ids}", True
    back = troupe(folder, " ".join(map(str, ids)), "--decode", "--keep-special") if ids else {"text": decoded}
    if back.get("text", back) != decoded:
        return f"ids {ids} are decoded as {back}, expected {decoded!r}", True
    return None, True


def test_random_tokenizers_are_the_same_as_in_the_tokenizers_package(tmp_path):
    rng = random.Random(SEED)
    models = make.models_by_name()
    jobs = []
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for number in range(COUNT):
            description = tokenizer(rng, models)
            extra = [t["content"] for t in description["added_tokens"]] or ["a"]
            texts = [text_of(rng, extra) for _ in range(TEXTS)]
            folder = tmp_path / str(number)
            folder.mkdir()
            (folder / "tokenizer.json").write_text(json.dumps(description))
            try:
                theirs = tokenizers.Tokenizer.from_str(json.dumps(description))
            except BaseException:  # a combination that the package refuses
                continue
            jobs += [(description, text, pool.submit(differences, folder, theirs, text)) for text in texts]
        wrong, compared = [], 0
        for description, text, job in jobs:
            difference, counts = job.result()
            compared += counts
            if difference:
                parts = {k: v for k, v in description.items() if k not in ("model", "version")}
                wrong.append(f"{text!r}: {difference}\n  {json.dumps(parts, ensure_ascii=False)}")
    assert compared > 0.9 * COUNT * TEXTS
    assert not wrong, f"{len(wrong)} of {compared} texts:\n" + "\n".join(wrong[:5])
