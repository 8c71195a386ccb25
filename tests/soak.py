"""Whether a server bears much for long, and is afterwards what it was before. Not in CI; results in tests/bench/results.

    soak.py overload --minutes 60          twice what it can bear: heap, /health and cancelling meanwhile
    soak.py short --count 1000000          short requests of all kinds from several clients: heap, descriptors, threads
    soak.py heap --count 20000             bytes left by each request, kind by kind: 0 +- 8
    soak.py sockets --count 10000          idle WebSockets: memory of all
    soak.py streams --count 1000           streams at once: each equals its solo run
    soak.py watchers --count 1000          watchers of the engine that do not read: memory, other clients meanwhile

Each starts a server of its own with the golden model, or that of --model, and more flags behind `--`. The exit status says whether
the bounds hold. Times are those of this machine, whatever else it does: the share of its time that a thread got is told
besides.
"""

import argparse
import asyncio
import collections
import functools
import json
import multiprocessing
import os
import pathlib
import random
import re
import resource
import statistics
import sys
import threading
import time
import urllib.parse

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "e2e"))
import heap  # noqa: E402
from busy import Share  # noqa: E402
from chaos_check import judge  # noqa: E402
from crowd import Client, Crowd, requests  # noqa: E402
from server import GOLDEN, Server  # noqa: E402

HANDSHAKE = (b"GET /v1/ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
             b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


def told_ms(values):
    return (f"median {1e3 * percentile(values, 0.5):.1f} ms, p99 {1e3 * percentile(values, 0.99):.1f} ms of {len(values)}")


def resident(pid):
    """Bytes of memory that the process has to itself."""
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    return 1024 * sum(int(value) for value in re.findall(r"^Private_\w+:\s+(\d+)", text, re.MULTILINE))


def frame(text):
    """A masked text frame."""
    data = json.dumps(text).encode()
    size = bytes([0x80 | len(data)]) if len(data) < 126 else b"\xfe" + len(data).to_bytes(2, "big")
    return b"\x81" + size + bytes(4) + data


async def upgraded(server):
    """A WebSocket without a library, which would take more memory than the server does."""
    url = urllib.parse.urlparse(server.url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port, limit=4096)
    writer.write(HANDSHAKE)
    head = await reader.readuntil(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101"), head
    return reader, writer


# -- all kinds of requests ----------------------------------------------------------------------------------------------

def each_kind(server, count, kinds):
    worst = 0
    for kind in kinds:
        begin = time.monotonic()
        grown = heap.growth(server.url, kind, count, before=min(count, 1000), still=10)
        worst = max(worst, abs(grown))
        print(f"{kind:24}{grown:10.2f} bytes each, {count / (time.monotonic() - begin):8.0f} requests/s", flush=True)
    return worst <= 8


def short(server, count, clients, minutes):
    asked, lock, failures, begun = [0], threading.Lock(), [], time.monotonic()

    def work(number):
        rng = random.Random(number)
        caller = heap.Caller(server.url)
        while True:
            with lock:
                if asked[0] == count or time.monotonic() - begun > 60 * minutes:
                    return
                asked[0] += 1
            kind = rng.choice(list(heap.KINDS))
            try:
                caller.send(kind)
            except Exception as e:  # all are told at the end
                failures.append(f"{kind}: {e!r}")

    def state():
        return heap.heap(server.url, 10), *heap.resources(server.process.pid)

    caller = heap.Caller(server.url)
    for kind in heap.KINDS:
        for _ in range(50):
            caller.send(kind)
    before = state()
    print(f"before: heap {before[0] / 1e6:.2f} MB, {before[1]} descriptors, {before[2]} threads", flush=True)
    workers = [threading.Thread(target=work, args=(i,)) for i in range(clients)]
    for worker in workers:
        worker.start()
    told = time.monotonic()
    while any(worker.is_alive() for worker in workers):
        time.sleep(0.1)
        if time.monotonic() - told >= 60:
            told = time.monotonic()
            print(f"{asked[0]:10} requests, heap {heap.metric(server.url, 'troupe_heap_bytes') / 1e6:.2f} MB, "
                  f"{heap.resources(server.process.pid)}", flush=True)
    taken = time.monotonic() - begun
    after = state()
    each = (after[0] - before[0]) / asked[0]
    print(f"after {asked[0]} requests of {len(heap.KINDS)} kinds in {taken:.0f} s: heap {after[0] / 1e6:.2f} MB ({each:+.2f} bytes "
          f"each), {after[1]} descriptors, {after[2]} threads, {len(failures)} failures")
    for failure in failures[:10]:
        print(failure)
    return abs(each) <= 8 and after[1] <= before[1] + 2 and after[2] == before[2] and not failures


# -- more than it can bear ----------------------------------------------------------------------------------------------

async def capacity(client, kinds, seconds, clients):
    """Requests a second when each client asks again at once."""
    end, done = time.monotonic() + seconds, 0

    async def member(number):
        nonlocal done
        rng = random.Random(number)
        while time.monotonic() < end:
            await client.ask(rng.choice(kinds), 0)
            done += 1

    await asyncio.gather(*(member(i) for i in range(clients)))
    return done / seconds


def in_process_of_its_own(work):
    """Runs `work(ends)` beside this one, whose clients keep it from measuring, until it is called; then gives its result."""
    here, there = multiprocessing.Pipe()

    def run():
        ends = asyncio.Event()

        async def both():
            asyncio.get_running_loop().add_reader(there.fileno(), ends.set)
            return await work(ends)

        there.send(asyncio.run(both()))

    process = multiprocessing.get_context("fork").Process(target=run)
    process.start()

    def end():
        here.send("end")
        result = here.recv()
        process.join()
        return result

    return end


async def probe(server, ends):
    """/health, again and again: seconds until its answer; answers that do not say that it is well."""
    url, times, others = urllib.parse.urlparse(server.url), [], collections.Counter()
    while not ends.is_set():
        begun = time.monotonic()
        reader, writer = await asyncio.open_connection(url.hostname, url.port)
        writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        answer = await reader.read()
        writer.close()
        if answer.startswith(b"HTTP/1.1 200"):
            times.append(time.monotonic() - begun)
        else:
            others[answer.split(b"\r\n")[0].decode()] += 1
        await asyncio.sleep(0.05)
    return times, others


async def cancel(server, ends):
    """Streams over a WebSocket that are cancelled: seconds until the last event; how many were refused before."""
    reader, writer = await upgraded(server)
    times, refused, number = [], 0, 0
    while not ends.is_set():
        number += 1
        writer.write(frame({"type": "generate", "id": f"c{number}", "prompt": "ROMEO:", "max_tokens": 1000, "ignore_eos": True,
                            "temperature": 1}))
        await asyncio.sleep(0.05)
        begun = time.monotonic()
        writer.write(frame({"type": "cancel", "id": f"c{number}"}))
        text = b""
        while not (last := re.search(rb'"type":"(done|error)","id":"c%d"' % number, text)):
            text = text[-80:] + await reader.read(65536)
        if last[1] == b"done":
            times.append(time.monotonic() - begun)
        else:
            refused += 1
        await asyncio.sleep(0.1)
    writer.close()
    return times, refused


def overload(server, minutes, clients):
    names = "chat", "completion", "message", "response", "completion of a long prompt", "chat under a schema"
    kinds = [one for one in requests(1) if one[0] in names]
    client = Client(server.url, json.loads(server.get("/v1/models").text)["data"][0]["id"])
    heaps, outcomes, sent = [], collections.Counter(), 0

    async def one(request):
        seen = await client.ask(request, 0)
        outcomes[seen.end if seen.end != "error" else (seen.error or {}).get("status", "error")] += 1

    async def run(rate):
        nonlocal sent
        tasks, rng, begun, next_heap = set(), random.Random(1), time.monotonic(), 0
        while (now := time.monotonic() - begun) < 60 * minutes:
            while sent < 2 * rate * now:
                task = asyncio.create_task(one(rng.choice(kinds)))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
                sent += 1
            if now >= next_heap:
                next_heap = now + max(1, 60 * minutes / 120)
                heaps.append(await asyncio.get_running_loop().run_in_executor(
                    None, heap.metric, server.url, "troupe_heap_bytes"))
            await asyncio.sleep(0.01)
        for task in list(tasks):
            task.cancel()

    rate = asyncio.run(capacity(client, kinds, 20, clients))
    print(f"capacity: {rate:.1f} requests/s of {clients} clients", flush=True)
    ends = [in_process_of_its_own(functools.partial(work, server)) for work in (probe, cancel)]
    with Share() as share:
        asyncio.run(run(rate))
    (health, others), (cancels, refused) = [end() for end in ends]
    quarter = len(heaps) // 4
    early, late = statistics.median(heaps[quarter:2 * quarter]), statistics.median(heaps[3 * quarter:])
    print(f"{sent} requests at twice that rate in {minutes:g} min: {dict(outcomes)}")
    print(f"heap: {early / 1e6:.2f} MB in the second quarter, {late / 1e6:.2f} MB in the last ({100 * (late / early - 1):+.2f} %)")
    print(f"/health: {told_ms(health)}, others {dict(others)}; cancel: {told_ms(cancels)}, {refused} refused; "
          f"share of a core: {share.value:.2f}")
    server.wait_until_idle(300)
    in_time = max(percentile(health, 0.99), percentile(cancels, 0.99)) * share.value < 0.05
    return late <= 1.01 * early and in_time and not others


# -- many connections ---------------------------------------------------------------------------------------------------

def sockets(server, count):
    before = heap.metric(server.url, "troupe_heap_bytes"), resident(server.process.pid)

    async def run():
        links = []
        for start in range(0, count, 200):
            links += await asyncio.gather(*(upgraded(server) for _ in range(min(200, count - start))))
        await asyncio.sleep(1)
        during = heap.metric(server.url, "troupe_heap_bytes"), resident(server.process.pid)
        begun = time.monotonic()
        assert server.post("/v1/completions", {"prompt": "ROMEO:", "max_tokens": 4}).status_code == 200
        taken = time.monotonic() - begun
        for _, writer in links:
            writer.close()
        return during, taken

    during, taken = asyncio.run(run())
    grown = [now - then for now, then in zip(during, before)]
    print(f"{count} idle WebSockets: heap {grown[0] / 1e6:+.1f} MB, memory of its own {grown[1] / 1e6:+.1f} MB "
          f"({grown[1] / count / 1e3:.1f} kB each); an answer of four tokens beside them: {1e3 * taken:.0f} ms")
    return grown[1] < 100e6 * max(1, count / 10000)


def streams(server, count):
    kinds = {seed: [one for one in requests(seed) if one[0] in ("chat", "completion", "message", "response", "Ollama's chat")]
             for seed in range(4)}
    crowd = Crowd(server.url, json.loads(server.get("/v1/models").text)["data"][0]["id"], lambda seed: kinds[seed], 4, count, 1)
    client = Client(server.url, crowd._client.model, patience=1800)

    async def run():
        alone = await crowd.alone()
        begun = time.monotonic()
        rng = random.Random(1)
        asked = [(rng.choice(kinds[seed]), seed) for seed in (rng.randrange(4) for _ in range(count))]
        seen = await asyncio.gather(*(client.ask(request, seed) for request, seed in asked))
        return alone, seen, time.monotonic() - begun

    alone, seen, taken = asyncio.run(run())
    verdict = judge(seen, alone)
    print(f"{count} streams at once in {taken:.1f} s: {verdict.told()}")
    server.wait_until_idle(60)
    return not verdict.wrong and verdict.whole == count


def watchers(server, count):
    work = {"prompt": "ROMEO:", "max_tokens": 200, "ignore_eos": True, "temperature": 1, "n": 8}
    for _ in range(20):  # what it takes by itself
        assert server.post("/v1/completions", work).status_code == 200
    before = heap.metric(server.url, "troupe_heap_bytes")  # without K and V, which fill their pool by and by

    async def run():
        links = []
        for start in range(0, count, 200):
            links += await asyncio.gather(*(upgraded(server) for _ in range(min(200, count - start))))
        linked = heap.metric(server.url, "troupe_heap_bytes")
        for _, writer in links:
            writer.write(frame({"type": "watch", "id": "w", "interval_ms": 100}))
        probing = in_process_of_its_own(functools.partial(probe, server))
        loop = asyncio.get_running_loop()
        most, end = 0, time.monotonic() + 20
        while time.monotonic() < end:
            answer = await loop.run_in_executor(None, lambda: server.post("/v1/completions", work))
            assert answer.status_code == 200
            most = max(most, heap.metric(server.url, "troupe_heap_bytes"))
        health, _ = probing()
        places = 0
        for reader, writer in links:
            try:
                text = await asyncio.wait_for(reader.read(4096), 5)
                places += b'"error"' not in text
            except TimeoutError:
                pass
            writer.close()
        return linked, most, health, places

    linked, most, health, places = asyncio.run(run())
    server.wait_until_idle(60)
    print(f"{count} watchers that do not read, {places} with a place: heap {1e-6 * (linked - before):+.1f} MB for the "
          f"connections, {1e-6 * (most - linked):+.1f} MB more in 20 s of steps; "
          f"/health beside them: {told_ms(health)}")
    return most - linked < 20e6


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(GOLDEN))
    commands = parser.add_subparsers(dest="command", required=True)
    for name, count in (("heap", 20000), ("short", 1_000_000), ("sockets", 10000), ("streams", 1000), ("watchers", 1000)):
        commands.add_parser(name).add_argument("--count", type=int, default=count)
    commands.choices["heap"].add_argument("--kinds", nargs="*", default=list(heap.KINDS), choices=list(heap.KINDS))
    commands.choices["short"].add_argument("--clients", type=int, default=8)
    commands.choices["short"].add_argument("--minutes", type=float, default=1e9, help="at most; then fewer requests")
    more = commands.add_parser("overload")
    more.add_argument("--minutes", type=float, default=60)
    more.add_argument("--clients", type=int, default=64)
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    flags = sys.argv[at + 1:]
    given = parser.parse_args(sys.argv[1:at])
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.environ["GLIBC_TUNABLES"] = "glibc.malloc.tcache_count=0"  # what threads keep for later counts as used
    if given.command in ("sockets", "streams", "watchers"):
        flags = ["--max-connections", str(2 * given.count + 100), "--max-queue", "4096", "--idle-timeout", "3600", *flags]
    elif given.command == "overload":
        flags = ["--max-connections", "8192", "--max-queue", "256", *flags]
    server = Server(given.model, "--log-level", "off", *flags)
    try:
        if given.command == "heap":
            well = each_kind(server, given.count, given.kinds)
        elif given.command == "short":
            well = short(server, given.count, given.clients, given.minutes)
        elif given.command == "overload":
            well = overload(server, given.minutes, given.clients)
        else:
            well = {"sockets": sockets, "streams": streams, "watchers": watchers}[given.command](server, given.count)
    finally:
        status = server.stop()
    sys.exit(0 if well and status == 0 else 1)


if __name__ == "__main__":
    main()
