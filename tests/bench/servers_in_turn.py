"""What benches share that start one server after the other, one per set of flags, and print medians over rounds."""

import contextlib
import json
import pathlib
import re
import shlex
import statistics
import subprocess
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def add_arguments(parser, model, common, rounds):
    parser.add_argument("--troupe", type=pathlib.Path, default=ROOT / "build" / "release" / "troupe")
    parser.add_argument("--model", default=model)
    parser.add_argument("--common", default=common, help="flags for every server")
    parser.add_argument("--flags", action="append", required=True, help="flags for one server; repeat to compare")
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true")


@contextlib.contextmanager
def serving(options, flags):
    """The port of a server that is ready."""
    server = subprocess.Popen([str(options.troupe), "serve", "--port", "0", "--quiet", "--model", options.model,
                               *shlex.split(options.common), *shlex.split(flags)], stdout=subprocess.PIPE, text=True)
    try:
        port = int(re.search(r":(\d+)", server.stdout.readline()).group(1))
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/health").close()
                break
            except urllib.error.HTTPError:
                time.sleep(0.2)
        yield port
    finally:
        server.terminate()
        server.wait()


def medians_of(options, measure):
    """The medians of what `measure(flags, options, seed)` returns, by flags. None if they were printed as JSON."""
    runs = {flags: [] for flags in options.flags}
    for round_ in range(options.rounds):
        for flags in options.flags:
            runs[flags].append(measure(flags, options, options.seed + round_))
    medians = {flags: {key: statistics.median(run[key] for run in all_) for key in all_[0]}
               for flags, all_ in runs.items()}
    if not options.json:
        return medians
    print(json.dumps({"runs": runs, "medians": medians}))
    return None
