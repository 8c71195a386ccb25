#!/usr/bin/env python3
"""Runs the program once for each kind of processor and compares what it answers, to the last bit of log-probabilities.

    answers.py [--emulator COMMAND] PROGRAM NAME=CPU...

NAME is an instruction set (--device cpu:NAME), CPU what QEMU_CPU gets. In f32 all answers are alike; in bf16, with
weights in int8 too, those of sets that multiply pairs of bf16 by BFDOT. Golden checkpoints' greedy answers are those of
transformers, on the last two kinds. Prints what was compared; exits with 1 if anything differs."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

DATA = pathlib.Path(__file__).resolve().parents[1] / "data"
PAIRS = ("neon-i8mm", "sve-128", "sve-256", "sve-512")
GOLDEN = ("llama-gqa", "qwen2", "qwen3", "mistral-swa")
MODES = (("f32", ["--dtype", "f32"]), ("bf16", ["--dtype", "bf16"]), ("int8", ["--dtype", "bf16", "--quantize", "int8"]))


def ask(run, cpu, requests, flags):
    """The choices of each request, in order."""
    with tempfile.TemporaryDirectory() as folder:
        file, out = pathlib.Path(folder, "in.jsonl"), pathlib.Path(folder, "out.jsonl")
        file.write_text("".join(
            json.dumps({"custom_id": str(i), "method": "POST", "url": url, "body": body}) + "\n"
            for i, (url, body) in enumerate(requests)))
        done = subprocess.run([*run, "run-batch", str(file), "--out", str(out), "--threads", "1", "--speculate", "off",
                               "--packed-cache", "none", *flags],
                              env={**os.environ, "QEMU_CPU": cpu}, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"answers.py: {' '.join(flags)} on {cpu} ended with {done.returncode}: {done.stderr[-2000:]}")
        answered = [json.loads(line) for line in out.read_text().splitlines()]
        assert len(answered) == len(requests), f"{len(answered)} answers to {len(requests)} requests"
        return [one["response"]["body"]["choices"] for one in answered]


def bundled_requests(tokens):
    chat = {"messages": [{"role": "user", "content": "Tell me a story about a fox"}], "logprobs": True, "top_logprobs": 3}
    return [("/v1/chat/completions", {**chat, "temperature": 0, "max_tokens": tokens}),
            ("/v1/completions", {"prompt": "Once upon a time", "temperature": 0.8, "seed": 4, "logprobs": 2, "n": 2,
                                 "max_tokens": tokens})]


def text_of(choices):
    return [choice.get("text") or choice["message"]["content"] for choice in choices]


def check_golden(run, name, cpu, model):
    """The number of tokens compared, and what is wrong."""
    cases = json.loads((DATA / "golden" / model / "expected.json").read_text())["cases"]
    requests = [("/v1/completions", {"prompt": case["ids"], "temperature": 0, "max_tokens": len(case["greedy"]["ids"]),
                                     "ignore_eos": True, "return_token_ids": True, "logprobs": 1}) for case in cases]
    answers = ask(run, cpu, requests, ["--model", str(DATA / "golden" / model), "--dtype", "f32", "--device", f"cpu:{name}"])
    wrong, tokens = [], 0
    for number, (case, (choice,)) in enumerate(zip(cases, answers)):
        expected = case["greedy"]
        for i, (got, wanted) in enumerate(zip(choice["token_ids"], expected["ids"])):
            if got != wanted:
                if expected["margins"][i] > 2e-4:  # else another order of sums may decide
                    wrong.append(f"case {number}, token {i}: {got} instead of {wanted}")
                break
            if abs(choice["logprobs"]["token_logprobs"][i] - expected["logprobs"][i]) > 2e-4:
                wrong.append(f"case {number}, token {i}: log-probability {choice['logprobs']['token_logprobs'][i]}")
            tokens += 1
    return tokens, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("kinds", nargs="+", metavar="NAME=CPU")
    parser.add_argument("--emulator", default="", metavar="COMMAND", help="with its arguments, such as qemu-aarch64-static")
    parser.add_argument("--tokens", type=int, default=16, help="of each answer of the bundled model")
    arguments = parser.parse_args()
    run = [*arguments.emulator.split(), arguments.program]
    kinds = [kind.split("=", 1) for kind in arguments.kinds]
    failed = False
    for mode, flags in MODES:
        first = None
        for name, cpu in kinds:
            if mode != "f32" and name not in PAIRS:
                continue
            answers = ask(run, cpu, bundled_requests(arguments.tokens), ["--device", f"cpu:{name}", *flags])
            if first is None:
                first = name, answers
                print(f"{mode}, {name}: {text_of(answers[0])[0]!r}", flush=True)
                if not all(text_of(answers[0])) or len(answers[1]) != 2:
                    failed = True
                    print(f"{mode}, {name}: there is no answer")
            else:
                same = answers == first[1]
                failed |= not same
                print(f"{mode}, {name}: " + ("the same bits" if same else f"NOT those of {first[0]}: {text_of(answers[0])}"),
                      flush=True)
    for name, cpu in kinds[-2:]:
        for model in GOLDEN:
            tokens, wrong = check_golden(run, name, cpu, model)
            failed |= bool(wrong) or tokens == 0
            print(f"golden/{model}, {name}: " + ("; ".join(wrong) or f"{tokens} greedy tokens are transformers'"), flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
