#!/usr/bin/env python3
"""Servers that take each other's place (`troupe serve --replace`) under streams of every API: torn streams, those that
differ from the same ones alone, and the longest silence of each stream around a hand-over.

    tests/bench/handovers.py --replacements 100 --streams 64
"""

import argparse
import pathlib
import random
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "e2e"))
from server import STORYTELLER, Server, wait_until
from streams import KINDS, Stream


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else float("nan")


class Client(threading.Thread):
    def __init__(self, url, number, expected, stop):
        super().__init__(daemon=True)
        self.url, self.rng, self.expected, self.stop = url, random.Random(number), expected, stop
        self.chunks, self.wrong, self.torn, self.whole = [], [], [], 0

    def run(self):
        while not self.stop.is_set():
            kind, tokens = self.rng.choice(list(self.expected))
            try:
                stream = Stream(self.url, kind, tokens, buffer=65536)
                begun = time.monotonic()
                while stream.chunk():
                    now = time.monotonic()
                    self.chunks.append((begun, now))
                    begun = now
                stream.close()
                if stream.told() == self.expected[kind, tokens]:
                    self.whole += 1
                else:
                    self.wrong.append((kind, stream.told(), self.expected[kind, tokens]))
            except Exception as e:
                self.torn.append(f"{kind}: {e!r}")


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", default=STORYTELLER)
    options.add_argument("--replacements", type=int, default=100)
    options.add_argument("--streams", type=int, default=64)
    options.add_argument("--pause", type=float, default=0.5, help="seconds between two replacements")
    options.add_argument("--seconds", type=float, default=1e9, help="ends after so long, if it has not made all")
    asked = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--control-socket", folder + "/control", "--max-sequences", str(2 * asked.streams)]
        server = Server(asked.model, *flags)
        expected = {(kind, tokens): Stream(server.url, kind, tokens, buffer=1 << 20).rest().told()
                    for kind in KINDS for tokens in (40, 150)}
        stop = threading.Event()
        clients = [Client(server.url, i, expected, stop) for i in range(asked.streams)]
        for client in clients:
            client.start()
        begun, handed, moved, loads, servers = time.monotonic(), [], 0, [], [server]
        while len(handed) < asked.replacements and time.monotonic() - begun < asked.seconds:
            time.sleep(asked.pause)
            start = time.monotonic()
            after = Server(asked.model, *flags, "--replace", ready=False)
            wait_until(lambda: any("replaced" in line for line in list(server.err)), lambda: "".join(after.err), 300)
            handed.append(time.monotonic())
            loads.append(handed[-1] - start)
            assert server.process.wait(300) == 0, "".join(server.err)
            moved += sum("moved" in line for line in server.err)
            server = after
            servers.append(server)
        stop.set()
        for client in clients:
            client.join(300)
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(60)
    longest = [max((until - since for since, until in client.chunks if since <= at + 1 and until >= at - 1), default=0)
               for at in handed for client in clients]
    ordinary = [until - since for client in clients for since, until in client.chunks]
    torn, wrong = [t for c in clients for t in c.torn], [w for c in clients for w in c.wrong]
    print(f"{len(handed)} replacements, {asked.streams} streams at once: {sum(c.whole for c in clients)} whole and equal, "
          f"{len(torn)} torn or refused, {len(wrong)} different; {moved} went on in the next process")
    print(f"from start to hand-over: median {percentile(loads, 0.5):.2f} s")
    print(f"silence around a hand-over, the longest of each stream: median {percentile(longest, 0.5):.2f} s, "
          f"p99 {percentile(longest, 0.99):.2f} s, max {max(longest, default=0):.2f} s; "
          f"of all silences between chunks: p99 {percentile(ordinary, 0.99):.2f} s, max {max(ordinary, default=0):.2f} s")
    for line in torn[:5]:
        print(line)
    for kind, told, alone in wrong[:3]:
        at = next((i for i, (a, b) in enumerate(zip(told, alone)) if a != b), min(len(told), len(alone)))
        print(kind, "differs at line", at, told[at:at + 2], alone[at:at + 2])
    return bool(torn or wrong)


if __name__ == "__main__":
    sys.exit(main())
