#!/usr/bin/env python3
"""Compares Troupe's guides with llguidance on a file of schemas with documents, in one run, on one thread.

    pip install llguidance litellm --no-deps; pip install numpy tiktoken
    tests/bench/guides.py --schemas maskbench-sample.jsonl --troupe build/release/troupe --vocabulary cl100k

litellm carries the vocabularies (no download). Prints a table: documents and schemas that pass, and the times of
compiling and of masks in microseconds of the thread's processor time, without what an empty measurement costs.
"""
import argparse, base64, glob, importlib.util, json, os, subprocess, sys, tempfile, time

NAMES = {"cl100k": "9b5ad71b2ce5302211f9c61530b329a4922fc6a4", "o200k": "fb374d419588a4632f3f557e76b4b70aebbca790"}
END = "<|endoftext|>"
WORDS = {
    "cl100k": r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
              r"|\s+(?!\S)|\s+",
    "o200k": r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
             r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
             r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
}


def ranks_of(name):
    folder = os.path.join(os.path.dirname(importlib.util.find_spec("litellm").origin), "litellm_core_utils/tokenizers")
    with open(os.path.join(folder, NAMES[name])) as file:
        pairs = (line.split() for line in file if line.strip())
        return {base64.b64decode(token): int(rank) for token, rank in pairs}


def write_tokenizer(name, folder):
    """A checkpoint's folder with the vocabulary as tokenizer.json; merges are found by undoing them."""
    done = os.path.join(folder, "tokenizer.json")
    if os.path.exists(done):
        return
    ranks = ranks_of(name)
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in printable}
    letters.update({b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in letters)})
    spell = lambda token: "".join(letters[b] for b in token)

    def halves(token, limit):
        parts = [bytes([b]) for b in token]
        while len(parts) > 2:
            rank, i = min((ranks.get(a + b, limit), i) for i, (a, b) in enumerate(zip(parts, parts[1:])))
            if rank >= limit:
                break
            parts[i:i + 2] = [parts[i] + parts[i + 1]]
        return parts

    merges = []
    for token, rank in sorted(ranks.items(), key=lambda item: item[1]):
        parts = halves(token, rank) if len(token) > 1 else []
        if len(parts) == 2:
            merges.append([spell(parts[0]), spell(parts[1])])
    end = max(ranks.values()) + 1
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": WORDS[name]}, "behavior": "Isolated", "invert": False}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": end, "content": END, "single_word": False, "lstrip": False, "rstrip": False,
                          "normalized": False, "special": True}],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, byte_level]},
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {spell(t): r for t, r in ranks.items()}, "merges": merges,
                  "ignore_merges": True},
    }
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
        json.dump({"eos_token": END}, file)
    with open(done + ".part", "w") as file:
        json.dump(tokenizer, file)
    os.rename(done + ".part", done)


def summary(values):
    values = sorted(values)
    at = lambda p: values[min(len(values) - 1, int(len(values) * p))] if values else 0
    return {"average": sum(values) / max(1, len(values)), "p50": at(.5), "p90": at(.9), "p99": at(.99),
            "max": values[-1] if values else 0}


def run_llguidance(schemas, name):
    import llguidance, llguidance.numpy, llguidance.tiktoken, numpy, tiktoken
    ranks = ranks_of(name)
    encoding = tiktoken.Encoding(name, pat_str=WORDS[name], mergeable_ranks=ranks,
                                 special_tokens={END: max(ranks.values()) + 1})
    tokenizer = llguidance.tiktoken.lltokenizer_from_encoding(encoding)
    mask = llguidance.numpy.allocate_token_bitmask(1, tokenizer.vocab_size)
    clock = time.thread_time_ns
    empty = min(timed for timed in ((lambda t: clock() - t)(clock()) for _ in range(10000)))
    compile_us, mask_us, passed, refused, wrong_reject, wrong_accept = [], [], 0, 0, 0, 0
    valid = invalid = 0
    for schema in schemas:
        begin = clock()
        try:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema["schema"]))
            first = llguidance.LLMatcher(tokenizer, grammar)
            if first.is_error():
                raise ValueError(first.get_error())
        except ValueError:
            refused += 1
            continue
        compile_us.append((clock() - begin) / 1e3)
        good = True
        for test in schema["tests"]:
            matcher = llguidance.LLMatcher(tokenizer, grammar) if test is not schema["tests"][0] else first
            accepted = True
            for token in encoding.encode_ordinary(json.dumps(test["data"], ensure_ascii=False)):
                begin = clock()
                llguidance.numpy.fill_next_token_bitmask(matcher, mask, 0)
                mask_us.append((clock() - begin - empty) / 1e3)
                if not mask[0, token // 32] >> (token % 32) & 1 or not matcher.consume_token(token):
                    accepted = False
                    break
            accepted = accepted and matcher.is_accepting()
            if accepted != test["valid"]:
                good = False
                wrong_reject += test["valid"]
                wrong_accept += not test["valid"]
            valid += accepted and test["valid"]
            invalid += not accepted and not test["valid"]
        passed += good
    return {"schemas": len(schemas), "passed": passed, "refused": refused, "valid_accepted": valid,
            "valid_rejected": wrong_reject, "invalid_rejected": invalid, "invalid_accepted": wrong_accept,
            "compile_us": summary(compile_us), "mask_us": summary(mask_us)}


def run_troupe(arguments, folder):
    command = [arguments.troupe, "guide", "bench", "--schemas", arguments.schemas, "--model", folder, "--json"]
    return json.loads(subprocess.run(command + arguments.flags, check=True, stdout=subprocess.PIPE).stdout)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--schemas", required=True)
    parser.add_argument("--troupe", default="build/release/troupe")
    parser.add_argument("--vocabulary", choices=list(NAMES), nargs="+", default=list(NAMES))
    parser.add_argument("--folder", default=os.path.join(tempfile.gettempdir(), "troupe-guides"))
    parser.add_argument("--flags", nargs="*", default=[], help="further flags of `troupe guide bench`")
    parser.add_argument("--only", choices=["troupe", "llguidance"])
    arguments = parser.parse_args()
    schemas = [json.loads(line) for line in open(arguments.schemas)]
    print("| vocabulary | engine | pass | refused | valid rejected | invalid accepted | compile p50 / p99 | "
          "mask avg / p50 / p90 / p99 / max |")
    for name in arguments.vocabulary:
        folder = os.path.join(arguments.folder, name)
        write_tokenizer(name, folder)
        for engine in [arguments.only] if arguments.only else ["llguidance", "troupe"]:
            result = run_llguidance(schemas, name) if engine == "llguidance" else run_troupe(arguments, folder)
            c, m = result["compile_us"], result["mask_us"]
            print(f"| {name} | {engine} | {result['passed']} of {result['schemas']} | {result['refused']} | "
                  f"{result['valid_rejected']} | {result['invalid_accepted']} | {c['p50']:.0f} / {c['p99']:.0f} | "
                  f"{m['average']:.1f} / {m['p50']:.1f} / {m['p90']:.1f} / {m['p99']:.1f} / {m['max']:.0f} |", flush=True)


if __name__ == "__main__":
    main()
