#!/usr/bin/env python3
"""Counts the machine instructions of CUDA kernels, as a table; of two builds, before and after.

    count_sass.py build/release/kernels/cuda/libtroupe_cuda.a
    count_sass.py --only flat before.a after.a

Needs cuobjdump (part of CUDA, or of the wheel nvidia-cuda-cuobjdump; CUOBJDUMP may name it) and c++filt. Counts are
static: an instruction in a loop counts once. Of several architectures in a file, the last is counted. "loop" is the
shortest loop with the most products of tensor cores (mma), "loop mma" how many it has, and "per mma" the issue slots
that it takes for each, conditional parts included: a stage takes that times its products, however often it is unrolled.
"""
import argparse
import collections
import os
import re
import shutil
import subprocess
import sys

CLASSES = {  # column: opcodes, without their modifiers
    "mma": ("HMMA", "IMMA", "HGMMA"),
    "fma": ("FFMA",),
    "f32": ("FADD", "FMUL", "FMNMX", "FSETP", "FSEL"),
    "exp": ("MUFU",),
    "int": ("IADD3", "IMAD", "LEA", "LOP3", "SHF", "ISETP", "SEL", "PRMT", "IABS", "IMNMX", "VIADD"),
    "move": ("MOV", "UMOV", "CS2R", "R2UR", "S2R"),
    "load": ("LDG", "LD", "LDC", "ULDC"),
    "store": ("STG", "ST"),
    "shared": ("LDS", "STS", "LDSM", "ATOMS", "LDGSTS"),
    "spill": ("LDL", "STL"),
    "sync": ("BAR", "SHFL", "DEPBAR", "LDGDEPBAR", "WARPSYNC", "BSYNC", "BSSY"),
    "branch": ("BRA", "BRX", "CALL", "RET", "EXIT"),
}
COLUMN_OF = {code: column for column, codes in CLASSES.items() for code in codes}


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def demangled(names):
    output = subprocess.run(["c++filt"], input="\n".join(names), check=True, capture_output=True, text=True).stdout
    return dict(zip(names, output.splitlines()))


def short(name):
    """`flat_kernel<q4, 2>` from the name of an instantiation of run_kernel."""
    found = re.search(r"run_kernel<(.*)>\(", name)
    name = found.group(1) if found else name
    name = re.sub(r"\(anonymous namespace\)::|troupe::kernels::(cuda::)?", "", name)
    return re.sub(r"\((?:weight_kind|int|bool|unsigned int)\)", "", name)


def add_loop(counts, addresses, products, jumps):
    """The columns of the loop. `addresses` of instructions, in order; those of `products`; `jumps`: from, to."""
    loops = [(first, last) for last, first in jumps if first < last]
    within = lambda of, loop: sum(loop[0] <= at <= loop[1] for at in of)
    best = max(loops, key=lambda loop: (within(products, loop), loop[0] - loop[1]), default=None)
    if best and (mma := within(products, best)):
        counts["loop"], counts["loop mma"] = within(addresses, best), mma
        counts["per mma"] = round(counts["loop"] / mma, 1)


def count(cuobjdump, path):
    """{kernel: Counter of columns}, with the keys total, registers and static shared memory."""
    kernels, name = {}, None
    addresses, products, jumps = [], [], []
    for line in run(cuobjdump, "-sass", path).splitlines():
        if found := re.match(r"\s*Function : (\S+)", line):
            if name:
                add_loop(kernels[name], addresses, products, jumps)
            name = found.group(1)
            kernels[name] = collections.Counter()
            addresses, products, jumps = [], [], []
        elif name and (found := re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9]*)((?:\.\w+)*)", line)):
            at, code, modifiers = int(found.group(1), 16), *found.groups()[1:]
            if code == "NOP":
                continue
            addresses.append(at)
            if code in CLASSES["mma"]:
                products.append(at)
            if code == "BRA" and (to := re.search(r"BRA\S*\s+(?:\S+,\s*)?0x([0-9a-f]+)", line)):
                jumps.append((at, int(to.group(1), 16)))
            column = COLUMN_OF.get(code, "other")
            if code == "IMAD" and modifiers.startswith(".MOV"):
                column = "move"
            kernels[name][column] += 1
            kernels[name]["total"] += 1
    if name:
        add_loop(kernels[name], addresses, products, jumps)
    for line in run(cuobjdump, "-res-usage", path).splitlines():
        if found := re.match(r"\s*Function (\S+):", line):
            name = found.group(1)
        elif name in kernels and "REG:" in line:
            for column, key in (("registers", "REG"), ("stack", "STACK"), ("static shared", "SHARED")):
                kernels[name][column] = int(re.search(rf"{key}:(\d+)", line).group(1))
    names = demangled(list(kernels))
    return {short(names[mangled]): counts for mangled, counts in kernels.items()}


def table(builds, only, chosen):
    columns = ["total", "loop", "loop mma", "per mma", *CLASSES, "other", "registers", "stack", "static shared"]
    columns = [c for c in columns if not chosen or c in chosen]
    names = sorted({name for build in builds for name in build if only in name})
    yield "| kernel | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for name in names:
        cells = []
        for column in columns:
            values = [str(build[name][column]) if name in build else "-" for build in builds]
            cells.append(values[0] if len(set(values)) == 1 else " → ".join(values))
        yield f"| `{name}` | " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", nargs="+", metavar="FILE", help="a library or an object; two: before and after")
    parser.add_argument("--only", default="", metavar="TEXT", help="only kernels whose names have this")
    parser.add_argument("--columns", nargs="*", metavar="NAME", help="only these, such as loop, \"per mma\", registers")
    parser.add_argument("--changed", action="store_true", help="only kernels whose counts differ")
    arguments = parser.parse_args()
    if len(arguments.builds) > 2:
        parser.error("at most two builds can be compared")
    cuobjdump = os.environ.get("CUOBJDUMP") or shutil.which("cuobjdump")
    if not cuobjdump:
        sys.exit("count_sass.py: there is no cuobjdump; CUOBJDUMP may name it")
    builds = [count(cuobjdump, path) for path in arguments.builds]
    if arguments.changed and len(builds) == 2:
        same = {name for name in builds[0] if builds[1].get(name) == builds[0][name]}
        builds = [{name: counts for name, counts in build.items() if name not in same} for build in builds]
    print("\n".join(table(builds, arguments.only, arguments.columns)))


if __name__ == "__main__":
    main()
