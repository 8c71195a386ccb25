"""Prints a Markdown table of perplexities by checkpoint and quantisation.

    python3 tests/bench/quantisation_table.py build/release/troupe

The bundled storyteller reads generated chats whose seed is not that of its training corpus. The golden checkpoints read
the longest text of their reference outputs; it is short, so only large differences mean anything. Further models are
given as MODEL=TEXT. Columns after f32 are differences to it in percent.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
AT_LOAD = [["--dtype", "f32"], ["--dtype", "bf16"], ["--quantize", "int8"], ["--quantize", "int4"]]
FILES = ["q8_0", "q4_1", "q4_0"]


def story_text(folder):
    corpus = folder / "corpus.jsonl"
    script = ROOT / "examples/storyteller/make_corpus.py"
    subprocess.run([sys.executable, script, "--count", "150", "--seed", "held-out", "--out", corpus],
                   check=True, stdout=subprocess.DEVNULL)
    text = ""
    for line in corpus.read_text().splitlines():
        turns = json.loads(line).get("messages", [])
        chat = "".join(f"<|im_start|>{m['role']}\n{m['content'].strip()}<|im_end|>\n" for m in turns)
        text += f"<|begin_of_text|>{chat}" if chat else ""
    return text


def golden_text(folder):
    return max((c["text"] for c in json.loads((folder / "expected.json").read_text())["cases"]), key=len)


def measure(troupe, model, text, flags):
    command = [troupe, "bench", "perplexity", "--model", model, "--text", text, "--json", *flags]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("troupe", type=Path)
    arguments.add_argument("more", nargs="*", metavar="MODEL=TEXT")
    arguments.add_argument("--flags", action="append", metavar="FLAGS",
                           help="a column of the storyteller's table, instead of the quantisations; several are allowed")
    options = arguments.parse_args()
    golden = [] if options.flags else sorted(f for f in (ROOT / "tests/data/golden").iterdir() if f.is_dir())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        texts = {ROOT / "examples/storyteller/model": story_text(folder)} | {g: golden_text(g) for g in golden}
        texts |= {Path(m): Path(t).read_text() for m, t in (pair.split("=") for pair in options.more)}
        titles = ["f32", "bf16", "`--quantize int8`", "`--quantize int4`", *(f"GGUF {f}" for f in FILES)]
        at_load, files = AT_LOAD, FILES
        if options.flags:
            titles, files = ["f32", *(f"`{flags}`" for flags in options.flags)], []
            at_load = [["--dtype", "f32"], *(flags.split() for flags in options.flags)]
        print("| checkpoint | tokens |", " | ".join(titles), "|")
        print("|---|---|" + "---|" * len(titles))
        for model, words in texts.items():
            text = folder / "text.txt"
            text.write_text(words)
            results = [measure(options.troupe, model, text, flags) for flags in at_load]
            for form in files:
                file = folder / "model.gguf"
                subprocess.run([options.troupe, "quantize", "--model", model, "--to", form, "--out", file],
                               check=True, capture_output=True)
                results.append(measure(options.troupe, file, text, []))
            first = results[0]["perplexity"]
            cells = [f"{first:.4g}"] + [f"{r['perplexity'] / first * 100 - 100:+.2f} %" for r in results[1:]]
            title = "storyteller" if model.name == "model" else model.name
            print(f"| {title} | {results[0]['tokens']} |", " | ".join(cells), "|", flush=True)


main()
