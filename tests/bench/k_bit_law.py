#!/usr/bin/env python3
"""The k-bit law: the loss of models of several sizes, each with 16, 8, 4 and 3 bits per weight, against the bits of all
their weights (Dettmers and Zettlemoyer, 2023: 4 bits are best almost everywhere). Prints a Markdown table, and draws
--picture (with matplotlib).

    python3 tests/bench/k_bit_law.py build/release/troupe --text held-out.txt --calibration other.txt N 2N 4N

    python3 tests/bench/k_bit_law.py build/release/troupe --text held-out.txt --calibration other.txt --by tokens N-500000 N-2000000

N, 2N, 4N: Hugging Face folders of models that were trained alike and share a tokenizer. With --by tokens, one model after as
many tokens of training as the names end with (examples/storyteller/train.py --keep): how much more rounding costs, the longer
a model was trained. Weights are rounded by GPTQ with the
calibration text, but for embeddings and norms, which keep 16 bits; both ways of counting are in the table.
"""

import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BYTES = {"BF16": 2, "F16": 2, "F32": 4, "I32": 4, "I64": 8, "I8": 1, "U8": 1}


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr[-600:]}{done.stdout[-300:]}")
    return json.loads(done.stdout.splitlines()[-1])


def sizes(folder):
    """Bits of all tensors, and of those alone that GPTQ rounds."""
    every = rounded = 0
    for file in folder.glob("*.safetensors"):
        with file.open("rb") as data:
            tensors = json.loads(data.read(int.from_bytes(data.read(8), "little")))
        for name, tensor in tensors.items():
            if name == "__metadata__":
                continue
            bits = 8 * BYTES[tensor["dtype"]] * math.prod(tensor["shape"])
            every += bits
            rounded += bits if "proj" in name else 0
    return every, rounded


def measure(options, folder):
    rows = []
    with tempfile.TemporaryDirectory() as work:
        for bits in options.bits:
            made = folder if bits == 16 else Path(work) / str(bits)
            if bits != 16:
                run(options.troupe, "quantize", "--model", folder, "--to", "gptq", "--bits", bits, "--group-size", options.group,
                    "--text", options.calibration, "--out", made, "--json")
            said = run(options.troupe, "bench", "perplexity", "--model", made, "--text", options.text, "--context",
                       options.context, "--json")
            every, rounded = sizes(made)
            rows.append({"model": folder.name, "bits": bits, "every": every, "rounded": rounded, "loss": said["loss"],
                         "error": said["loss_error"]})
            row = rows[-1]
            print(f"| {row['model']} | {bits} | {every / 1e6:.2f} | {rounded / 1e6:.2f} | {row['loss']:.4f} ± {row['error']:.4f} |",
                  flush=True)
    return rows


def tokens_of(row):
    return int(re.search(r"(\d+)$", row["model"])[1]) / 1e6


def excess(rows):
    """Of each row, its loss above that of the same model with the most bits."""
    exact = {row["model"]: row["loss"] for row in sorted(rows, key=lambda row: row["bits"])}
    return [{**row, "excess": row["loss"] - exact[row["model"]]} for row in rows]


def draw(rows, by, path):
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plot

    rows = excess(rows)
    law = "millions of bits of all rounded weights", lambda row: row["rounded"] / 1e6, "loss"
    trained = "millions of tokens of training", tokens_of, "loss"
    panels = [law] if by == "bits" else [trained, (*trained[:2], "excess")]
    figure, all_axes = plot.subplots(1, len(panels), figsize=(6 * len(panels), 4), squeeze=False)
    for axes, (label, x, y) in zip(all_axes[0], panels):
        for bits in sorted({row["bits"] for row in rows}, reverse=True):
            line = sorted((x(row), row[y]) for row in rows if row["bits"] == bits)
            axes.plot(*zip(*line), marker="o", label=f"{bits} bits")
        axes.set_xscale("log")
        axes.set_xlabel(label)
        axes.set_ylabel("loss, nats per token" if y == "loss" else "loss above that of most bits, nats per token")
        axes.legend()
    figure.tight_layout()
    figure.savefig(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe", type=Path)
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--calibration", type=Path, required=True)
    parser.add_argument("--bits", type=int, nargs="+", default=[16, 8, 4, 3])
    parser.add_argument("--group", type=int, default=32, help="weights that share a scale")
    parser.add_argument("--context", type=int, default=0, help="tokens of a window of --text; 0: 512")
    parser.add_argument("--by", choices=["bits", "tokens"], default="bits", help="what models differ in")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    print("| model | bits | all bits, millions | of rounded weights | loss |\n|---|---|---|---|---|")
    rows = [row for folder in options.models for row in measure(options, folder)]
    if options.picture:
        draw(rows, options.by, options.picture)


main()
