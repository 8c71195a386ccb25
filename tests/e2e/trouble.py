"""Makes the parts of a server fail, one each period, every kind in turn (POST /debug/faults). Counts what it did."""

import asyncio
import collections
import json
import random
import time

import httpx

# Kinds of actors, and the most messages until the next one is struck: these get many, those few.
BUSY = {"scheduler": 40, "kv_block_manager": 40, "sampler": 40, "executor": 40, "request": 400}
RARE = {"guide_compiler": 4, "guide_worker": 2, "drafter": 10, "kv_mover": 2, "judge": 10}
EFFECTS = ("kill", "exception", "out_of_memory")

# What goes on all the time: messages that are late.
DELAYS = [{"kind": kind, "what": "delay", "pause_ms": 4, "every_messages": 300, "count": 10**9, "seed": 1}
          for kind in ("scheduler", "sampler", "executor", "request")]


class Trouble:
    """`kinds`: of actors that the server has. `without`: pairs of kind and effect to leave out."""

    def __init__(self, url, kinds, seed, period=1.0, without=()):
        self._url, self._period, self._rng = url + "/debug/faults", period, random.Random(seed)
        turns = [(kind, EFFECTS[(place + turn + seed) % len(EFFECTS)])
                 for turn in range(len(EFFECTS)) for place, kind in enumerate(kinds)]
        self._turn = [one for one in turns if one not in without]
        self.struck = collections.Counter()  # by kind and effect

    async def run(self, seconds):
        end = time.monotonic() + seconds
        async with httpx.AsyncClient(timeout=300) as http:
            number = 0
            while time.monotonic() < end:
                kind, effect = self._turn[number % len(self._turn)]
                faults = [{"kind": kind, "what": effect, "count": 1,
                           "every_messages": self._rng.randint(1, (BUSY | RARE)[kind])}, *DELAYS]
                if number % 5 == 4:
                    faults.append({"kind": "socket", "every_messages": self._rng.randint(50, 300)})
                if number % 15 == 14:
                    faults.append({"kind": "disk", "every_messages": 1})
                await self._set(http, faults)
                number += 1
                await asyncio.sleep(self._period)
            await self._set(http, [])

    async def _set(self, http, faults):
        """Its own connection may be the one that breaks."""
        for _ in range(20):
            try:
                answer = await http.post(self._url, json={"faults": faults})
            except httpx.TransportError:
                continue
            if answer.status_code == 503:  # no engine to ask just now
                await asyncio.sleep(0.1)
                continue
            if answer.status_code == 400 and "must be one of those that are there" in answer.text:
                return  # there has been none of this kind yet
            assert answer.status_code == 200, answer.text
            for fault in json.loads(answer.text)["faults"]:
                if fault["struck"] and fault.get("what") != "delay":
                    self.struck[fault["kind"], fault.get("what", "refusal")] += fault["struck"]
            return

    def by_kind(self):
        counts = collections.Counter()
        for (kind, _), count in self.struck.items():
            counts[kind] += count
        return counts
