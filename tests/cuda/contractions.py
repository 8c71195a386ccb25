#!/usr/bin/env python3
"""Checks that nvcc fuses products and sums of floats only where the kernels say so.

    contractions.py build/release/compile_commands.json

Every unit of kernels/cuda must be compiled with -fmad=false; two of them are compiled to PTX by their own commands, in
which every product and sum must be rounded (.rn), and fused ones must be there.
"""
import json
import re
import shlex
import subprocess
import sys
import tempfile

EXAMPLES = ("kernels/cuda/device/linear/plain_linear.cu", "kernels/cuda/device/rows.cu")


def ptx(entry):
    words = shlex.split(entry["command"])
    if words[0].endswith("ccache"):
        words = words[1:]
    for flag in ("-o", "-MF", "-MT"):
        if flag in words:
            at = words.index(flag)
            del words[at:at + 2]
    while (at := next((i for i, w in enumerate(words) if w in ("-Xcicc", "-Xptxas")), None)) is not None:
        del words[at:at + 2]  # CI compiles without optimisation
    words = [w for w in words if w not in ("-c", "-MD") and not w.startswith(("--generate-code", "-arch"))]
    with tempfile.NamedTemporaryFile(suffix=".ptx") as out:
        subprocess.run([*words, "-arch=compute_80", "-ptx", "-o", out.name], cwd=entry["directory"], check=True)
        return open(out.name).read()


def main():
    units = {e["file"]: e for e in json.load(open(sys.argv[1])) if e["file"].endswith(".cu") and "nvcc" in e["command"]}
    problems = [f"{file}: compiled without -fmad=false" for file, e in units.items() if "-fmad=false" not in e["command"]]
    for example in EXAMPLES:
        entry = next((e for file, e in units.items() if file.endswith(example)), None)
        if entry is None:
            problems.append(f"{example}: no command")
            continue
        code = ptx(entry)
        fusible = re.findall(r"\b(?:add|sub|mul|mad)(?:\.ftz)?\.f32\b", code)
        if fusible:
            problems.append(f"{example}: {len(fusible)} operations that may be fused")
        if not re.search(r"\bfma\.rn\.f32\b", code):
            problems.append(f"{example}: has no fused operation")
    print("\n".join(problems) or f"{len(units)} units: nothing is fused unasked")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
