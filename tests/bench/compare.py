#!/usr/bin/env python3
"""Measures Troupe against llama.cpp, or a fork of it, on this machine with the same GGUF files.

    tests/bench/compare.py --peer L=/usr/bin/llama-bench models/llama-1b-*.gguf

Writes table.md, results.json (every run) and roofline.svg into --out. A peer is NAME=PATH of a llama-bench;
its llama-batched-bench is used if it is in the same folder. A command with arguments, such as
`I="/opt/ik/llama-bench -rtr 1"` or `L="chroot /opt/peer llama-bench"`, is split like a shell command. The
plot needs Debian's python3-matplotlib.

There are three figures per file, in tokens/s: prefill of --prompt tokens, decode of one sequence, and total
decode of --batch sequences, each after a prompt of --batch-prompt tokens; and two for each of --contexts:
prefill of so many tokens, and decode of one sequence behind them. Runs of the engines alternate, so
that drifts of the machine's speed affect all of them; a figure is the median over --runs. The last rows are
Troupe's share of the machine's peaks, which each run measures first.
"""

import argparse
import json
import os
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

FIGURES = {"prefill": "prefill, {prompt} tokens", "decode": "decode, batch 1", "batched": "decode, batch {batch}, total"}
CONTEXT_FIGURES = {"prefill_{}": "prefill, {} tokens", "decode_{}": "decode behind {} tokens"}
SHARES = {"prefill_peak_share": "prefill, of the machine's peak", "decode_bandwidth_share": "decode, of its bandwidth"}


def figures_of(options):
    """{name: title}, those of short prompts unless --contexts-only was given, then those of each context."""
    short = {} if options.contexts_only else {key: title.format(**vars(options)) for key, title in FIGURES.items()}
    return short | {key.format(n): title.format(n) for n in options.contexts for key, title in CONTEXT_FIGURES.items()}


def output_of(command, with_log=False):
    """Runs a command and returns its stdout, followed by its stderr if `with_log`."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:]
        sys.exit(f"{shlex.join(command)} ended with status {done.returncode}: {' '.join(last)}")
    return done.stdout + done.stderr if with_log else done.stdout


class Troupe:
    def __init__(self, command, options):
        self.command, self.options = shlex.split(command), options

    def bench(self, model, prompt, generate, batch, *more):
        words = [*self.command, "bench", "model", "--model", model, "--prompt", str(prompt), "--generate", str(generate),
                 "--batch", str(batch), "--threads", str(self.options.threads), "--repeat", "1", "--json", *more]
        return json.loads(output_of(words).splitlines()[-1])

    def measure(self, model):
        o, found = self.options, {}
        for n in o.contexts:
            long = self.bench(model, n, o.generate, 1)
            found |= {f"prefill_{n}": long["prefill_tps"], f"decode_{n}": long["decode_tps"]}
        if o.contexts_only:
            return found
        one = self.bench(model, o.prompt, o.generate, 1, "--peaks")
        many = self.bench(model, o.batch_prompt, o.batch_generate, o.batch)
        return {"prefill": one["prefill_tps"], "decode": one["decode_tps"], "batched": many["decode_tps"], **found,
                "weight_bytes": one["weight_bytes"], "multiply_adds": one["multiply_adds_per_token"],
                "device": one["device"], **{key: one.get(key) for key in SHARES}}

    def peaks(self):
        """The peaks of all threads together. The program prints those of one thread first."""
        words = [*self.command, "bench", "machine", "--threads", str(self.options.threads), "--json"]
        return json.loads(output_of(words).splitlines()[-1])


def runs(command):
    """Whether the program exists. It is tried, because its path may be relative to the root that `chroot` sets."""
    try:
        done = subprocess.run([*command, "--help"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    except FileNotFoundError:
        return False
    return done.returncode not in (126, 127)


class Peer:
    def __init__(self, command, options):
        self.command, self.options = shlex.split(command), options

    def rate(self, model, prompt, generate):
        words = [*self.command, "-m", model, "-p", str(prompt), "-n", str(generate), "-t", str(self.options.threads),
                 "-r", "1", "-o", "json"]
        text = output_of(words)
        return json.loads(text[text.index("["):])[0]["avg_ts"]

    def batched(self, model, prompt, generate, batch):
        """(prefill, decode) of llama-batched-bench, in tokens/s of all sequences; nothing where there is none."""
        o = self.options
        # Another program, such as `nice` or `chroot FOLDER`, may come before llama-bench.
        index = next((i for i, word in enumerate(self.command) if Path(word).name == "llama-bench"), None)
        if index is None:
            return None, None
        program = Path(self.command[index]).with_name("llama-batched-bench")
        if not runs([*self.command[:index], str(program)]):
            return None, None
        tokens = batch * (prompt + generate)
        words = [*self.command[:index], str(program), *(["-rtr"] if "-rtr" in self.command else []), "-m", model,
                 "-c", str(tokens + 256), "-b", "2048", "-ub", "512", "-npp", str(prompt),
                 "-ntg", str(generate), "-npl", str(batch), "-t", str(o.threads), "-tb", str(o.threads)]
        # llama.cpp prints the table on stdout, ik_llama.cpp on stderr:
        # | PP | TG | B | N_KV | T_PP s | S_PP t/s | T_TG s | S_TG t/s | T s | S t/s |
        for line in output_of(words, with_log=True).splitlines():
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if len(cells) >= 8 and cells[0] == str(prompt):
                return float(cells[5]), float(cells[7])
        sys.exit(f"{shlex.join(words)} printed no table of the expected form")

    def measure(self, model):
        o, found = self.options, {}
        for n in o.contexts:
            found[f"prefill_{n}"], found[f"decode_{n}"] = self.batched(model, n, o.generate, 1)
        if o.contexts_only:
            return found
        return {"prefill": self.rate(model, o.prompt, 0), "decode": self.rate(model, 0, o.generate),
                "batched": self.batched(model, o.batch_prompt, o.batch_generate, o.batch)[1], **found}


def machine():
    """Describes the processor, for headings."""
    info = Path("/proc/cpuinfo").read_text()
    name = re.search(r"model name\s*:\s*(.*)", info)
    return f"{name.group(1) if name else 'unknown processor'}, {os.cpu_count()} cores"


def medians(results, options):
    """{model: {engine: {figure: median}}}"""
    def median(values):
        return None if None in values else statistics.median(values)
    return {model: {engine: {f: median([run[f] for run in runs]) for f in figures_of(options)} for engine, runs in engines.items()}
            for model, engines in results.items()}


def table(results, options):
    figures = figures_of(options)
    middle = medians(results, options)
    lines = [f"{machine()}, {options.threads} threads, medians of {options.runs} alternating runs, tokens/s; in brackets Troupe's ratio to the peer", "",
             "| | | " + " | ".join(Path(model).stem for model in middle) + " |", "|---|---|" + "---|" * len(middle)]
    for key, title in figures.items():
        lines.append(f"| {title} | Troupe | " + " | ".join(f"{m['Troupe'][key]:.1f}" for m in middle.values()) + " |")
        for peer in options.peers:
            cells = (f"{m[peer][key]:.1f} ({m['Troupe'][key] / m[peer][key]:.2f}×)" if m[peer][key] else "–"
                     for m in middle.values())
            lines.append(f"| | {peer} | " + " | ".join(cells) + " |")
    for key, title in ({} if options.contexts_only else SHARES).items():
        shares = [statistics.median(run[key] or 0 for run in results[model]["Troupe"]) for model in results]
        lines.append(f"| {title} | Troupe | " + " | ".join(f"{100 * share:.0f} %" for share in shares) + " |")
    return "\n".join(lines) + "\n"


def roofline(results, peaks, options):
    """Plots the achieved operation rates over operations per byte of weights, below the machine's peaks."""
    import matplotlib
    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5))
    intensities = [2 ** (i / 4) for i in range(0, 48)]
    for name, peak in peaks.items():
        if name.endswith(("_gflops", "_gops")) and peak:
            axes.plot(intensities, [min(peak, peaks["read_gbps"] * x) for x in intensities], "-", linewidth=0.8,
                      label=name.rsplit("_", 1)[0].replace("_", " "))
    middle = medians(results, options)
    markers = dict(zip(["Troupe", *options.peers], "o^sv*"))
    rows = {"prefill": options.prompt, "decode": 1, "batched": options.batch}
    for index, (model, engines) in enumerate(middle.items()):  # one colour per model, one marker per engine
        first = results[model]["Troupe"][0]
        for engine, figures in engines.items():
            known = [f for f in FIGURES if figures[f] is not None]
            x = [2 * first["multiply_adds"] * rows[f] / first["weight_bytes"] for f in known]
            y = [2 * first["multiply_adds"] * figures[f] / 1e9 for f in known]
            axes.plot(x, y, markers[engine], color=f"C{index + 2}", markersize=4, label=f"{engine}, {Path(model).stem}")
    axes.set(xscale="log", yscale="log", xlabel="operations per byte of weights", ylabel="10⁹ operations/s", title=machine())
    axes.legend(fontsize=5, ncols=2)
    figure.savefig(options.out / "roofline.svg")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help="GGUF files")
    parser.add_argument("--troupe", default="build/release/troupe")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--generate", type=int, default=32)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--batch-prompt", type=int, default=32)
    parser.add_argument("--batch-generate", type=int, default=16)
    parser.add_argument("--contexts", type=int, nargs="*", default=[], metavar="TOKENS")
    parser.add_argument("--contexts-only", action="store_true", help="no figures of short prompts, and no plot")
    parser.add_argument("--out", type=Path, default=Path("bench"))
    options = parser.parse_args()
    options.peers = dict(peer.split("=", 1) for peer in options.peer)
    options.out.mkdir(parents=True, exist_ok=True)

    engines = {"Troupe": Troupe(options.troupe, options)} | {name: Peer(command, options) for name, command in options.peers.items()}
    results = {}
    for model in options.models:
        results[model] = {name: [] for name in engines}
        for run in range(options.runs):
            for name, engine in engines.items():
                measured = engine.measure(model)
                results[model][name].append(measured)
                shown = ", ".join(f"{f} {measured[f]:.1f}" for f in figures_of(options) if measured[f] is not None)
                print(f"{Path(model).stem}, run {run + 1}, {name}: {shown}", file=sys.stderr, flush=True)
    peaks = {} if options.contexts_only else engines["Troupe"].peaks()
    (options.out / "results.json").write_text(json.dumps({"machine": machine(), "peaks": peaks, "runs": results}, indent=1) + "\n")
    (options.out / "table.md").write_text(table(results, options))
    print(table(results, options))
    if options.contexts_only:
        return
    try:
        roofline(results, peaks, options)
    except ModuleNotFoundError:
        print("no plot: python3-matplotlib is not installed", file=sys.stderr)


if __name__ == "__main__":
    main()
