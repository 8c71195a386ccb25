"""Whether a server is after many requests what it was before.

    soak.py --url http://127.0.0.1:8080 heap --count 20000      bytes left by each request, kind by kind: 0 +- 8
    soak.py --url http://127.0.0.1:8080 --pid PID mixed --minutes 60

`mixed` sends requests of all kinds from several threads and tells heap, descriptors and threads every minute. The server
should run with `--log-level off` and GLIBC_TUNABLES=glibc.malloc.tcache_count=0, as what threads keep for later counts as
used, and serve nobody else.
"""

import argparse
import pathlib
import random
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
import heap  # noqa: E402


def each_kind(url, count, kinds):
    worst = 0
    for kind in kinds:
        begin = time.monotonic()
        grown = heap.growth(url, kind, count, before=min(count, 1000), still=10)
        worst = max(worst, abs(grown))
        print(f"{kind:24}{grown:10.2f} bytes each, {count / (time.monotonic() - begin):8.0f} requests/s", flush=True)
    return worst <= 8


def mixed(url, pid, minutes, clients):
    end = time.monotonic() + 60 * minutes
    counts, failures = [0] * clients, []

    def work(number):
        rng = random.Random(number)
        caller = heap.Caller(url)
        while time.monotonic() < end:
            kind = rng.choice(list(heap.KINDS))
            try:
                caller.send(kind)
            except Exception as e:  # all are told at the end
                failures.append(f"{kind}: {e!r}")
            counts[number] += 1

    def state():
        descriptors, threads = heap.resources(pid) if pid else (0, 0)
        return heap.heap(url, 10), descriptors, threads

    caller = heap.Caller(url)
    for kind in heap.KINDS:
        for _ in range(50):
            caller.send(kind)
    before = state()
    print(f"before: heap {before[0] / 1e6:.2f} MB, {before[1]} descriptors, {before[2]} threads", flush=True)
    workers = [threading.Thread(target=work, args=(i,)) for i in range(clients)]
    for worker in workers:
        worker.start()
    while any(worker.is_alive() for worker in workers):
        time.sleep(min(60, max(0.1, end - time.monotonic())))
        descriptors, threads = heap.resources(pid) if pid else (0, 0)
        print(f"{sum(counts):10} requests, heap {heap.metric(url, 'troupe_heap_bytes') / 1e6:.2f} MB, "
              f"{descriptors} descriptors, {threads} threads", flush=True)
    after = state()
    each = (after[0] - before[0]) / max(1, sum(counts))
    print(f"after {sum(counts)} requests: heap {after[0] / 1e6:.2f} MB ({each:+.2f} bytes each), "
          f"{after[1]} descriptors, {after[2]} threads, {len(failures)} failures")
    for failure in failures[:10]:
        print(failure)
    return abs(each) <= 8 and after[1] <= before[1] + 2 and after[2] == before[2] and not failures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--pid", type=int, help="of the server, for its descriptors and threads")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("heap")
    one.add_argument("--count", type=int, default=20000)
    one.add_argument("--kinds", nargs="*", default=list(heap.KINDS), choices=list(heap.KINDS))
    all_kinds = commands.add_parser("mixed")
    all_kinds.add_argument("--minutes", type=float, default=60)
    all_kinds.add_argument("--clients", type=int, default=8)
    given = parser.parse_args()
    well = each_kind(given.url, given.count, given.kinds) if given.command == "heap" else mixed(
        given.url, given.pid, given.minutes, given.clients)
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
