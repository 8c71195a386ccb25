"""Prints a Markdown table of multi-head, multi-query and grouped-query attention, as the notes on inference compare them: a
hidden size of 768 and 8 heads of queries, with 8, 1 and 2 heads of keys and values. Shapes, bytes of K and V of a token, and
the time of a decode step behind a long context, medians of alternating runs.

    python3 tests/bench/kv_heads.py build/release/troupe
    python3 tests/bench/kv_heads.py build/release/troupe --prompt 8000 --batch 8 --kv-dtype int8
"""

import argparse
import json
import statistics
import subprocess
import sys

KINDS = (("MHA", 8), ("MQA", 1), ("GQA, 2 groups", 2))
HIDDEN, HEADS = 768, 8


def told(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr[-600:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("troupe")
    parser.add_argument("--prompt", type=int, default=4000)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--generate", type=int, default=16)
    parser.add_argument("--kv-dtype", default="bf16")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()

    model = {kv: f"synthetic:heads-768+kv{kv}" for _, kv in KINDS}
    sizes = {kv: told([given.troupe, "models", "--estimate", model[kv], "--json"]) for _, kv in KINDS}
    times = {kv: [] for _, kv in KINDS}
    for _ in range(given.rounds):
        for _, kv in KINDS:
            times[kv].append(told([given.troupe, "bench", "model", "-m", model[kv], "--batch", given.batch, "--prompt",
                                   given.prompt, "--generate", given.generate, "--kv-dtype", given.kv_dtype,
                                   "--json"])["decode_ms_per_step"])
    print(f"hidden {HIDDEN}, {HEADS} heads of {HIDDEN // HEADS}; {given.batch} sequences behind {given.prompt} tokens, "
          f"K and V in {given.kv_dtype}\n")
    print("| kind | q | k and v, each | parameters | K and V of a token | ms a step | of MHA's |")
    print("|---|---|---|---|---|---|---|")
    first = statistics.median(times[HEADS])
    for name, kv in KINDS:
        step = statistics.median(times[kv])
        print(f"| {name} | {HIDDEN} x {HIDDEN} | {HIDDEN} x {kv * HIDDEN // HEADS} | {sizes[kv]['parameters'] / 1e6:.1f} M | "
              f"{sizes[kv]['kv_bytes_per_token'][given.kv_dtype]} B | {step:.2f} | {step / first:.2f} |")


if __name__ == "__main__":
    main()
