#!/usr/bin/env python3
"""Counts the instructions that kernels execute for each output, on ARM beside x86-64, as a table. Counted, not measured:
processors differ in how many they execute at once, and registers of SVE may be longer than a unit that computes.

    count_instructions.py                        all, after a build
    count_instructions.py --only avx2 sve-256    some instruction sets
    count_instructions.py --built                as built before

x86-64 counts on this machine, by single steps, so only sets that it has; less than a minute each. ARM counts in QEMU by a plugin
(instruction_plugin.cpp), for which Debian's qemu-user is needed: qemu-user-static loads none; QEMU_AARCH64 may name the
program. Its kernels are those of tests/arm/run.sh, from build/arm-kernels.
"""
import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARM = {  # QEMU's processors, as in tests/arm/run.sh
    "neon": "cortex-a53",
    "neon-dotprod": "neoverse-n1",
    "neon-i8mm": "max,sve=off",
    "sve-128": "max,sve128=on,sve256=off,sve512=off",
    "sve-256": "max,sve256=on,sve512=off",
    "sve-512": "max,sve512=on,sve-default-vector-length=64",
}
X86 = ["avx2", "avx512-vnni", "avx512-bf16"]
PROGRAM = "troupe_instruction_cases"


def run(*command, **more):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **more)
    if done.returncode != 0:
        sys.exit(f"count_instructions.py: {command[0]} ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
    return done


def lines_of(output):
    return [line.split("|") for line in output.splitlines()]


def count_x86(folder, name):
    return {case: (unit, int(count) / float(units)) for case, unit, units, count in lines_of(run(folder / PROGRAM, name).stdout)}


def count_arm(folder, sysroot, qemu, name, plugin):
    done = run(qemu, "-L", sysroot, "-cpu", ARM[name], "-plugin", plugin, folder / PROGRAM, name)
    counts = dict(map(int, line.split()) for line in done.stderr.splitlines())
    return {case: (unit, counts[i] / float(units)) for i, (case, unit, units, _) in enumerate(lines_of(done.stdout))}


def table(columns):
    names = list(columns)
    yield "| instructions | for each | " + " | ".join(names) + " |"
    yield "|---" * (len(names) + 2) + "|"
    for case in next(iter(columns.values())):
        if case == "nothing":
            continue
        cells = (columns[name][case][1] for name in names)
        numbers = " | ".join(f"{cell:,.0f}" if cell >= 100 else f"{cell:.3g}" for cell in cells)
        yield f"| {case} | {next(iter(columns.values()))[case][0]} | {numbers} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[*X86, *ARM], choices=[*X86, *ARM], metavar="SET")
    parser.add_argument("--built", action="store_true", help="builds nothing")
    parser.add_argument("--x86", type=pathlib.Path, default=ROOT / "build/release", metavar="FOLDER", help="a build")
    parser.add_argument("--arm", type=pathlib.Path, default=ROOT / "build/arm-kernels", metavar="FOLDER")
    parser.add_argument("--sysroot", type=pathlib.Path, default=ROOT / "build/arm-sysroot", metavar="FOLDER")
    arguments = parser.parse_args()
    arm = [name for name in arguments.only if name in ARM]
    for folder, needed, made_by in ((arguments.x86, len(arm) < len(arguments.only), "cmake --preset release"),
                                    (arguments.arm, bool(arm), "tests/arm/run.sh")):
        if not needed:
            continue
        if not arguments.built:
            if not (folder / "build.ninja").exists():
                sys.exit(f"count_instructions.py: there is no {folder}; run `{made_by}`")
            run("cmake", "--build", folder, "--target", PROGRAM)
        if not (folder / PROGRAM).exists():
            sys.exit(f"count_instructions.py: {folder} has no {PROGRAM}")
    columns = {}
    with tempfile.TemporaryDirectory() as room:
        plugin = pathlib.Path(room, "plugin.so")
        for name in arguments.only:
            if name in ARM:
                qemu = os.environ.get("QEMU_AARCH64") or shutil.which("qemu-aarch64")
                if not qemu:
                    sys.exit("count_instructions.py: there is no qemu-aarch64 (Debian's qemu-user); QEMU_AARCH64 may name it")
                if not plugin.exists():
                    run("g++", "-std=c++20", "-O2", "-shared", "-fPIC", ROOT / "tests/bench/instruction_plugin.cpp", "-o", plugin)
                columns[name] = count_arm(arguments.arm, arguments.sysroot, qemu, name, plugin)
            else:
                columns[name] = count_x86(arguments.x86, name)
    print("\n".join(table(columns)))


if __name__ == "__main__":
    main()
