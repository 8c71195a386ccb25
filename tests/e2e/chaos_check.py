"""Judges what the clients of a server saw (crowd.py) while its parts died. Knows what each request answers alone, and nothing
of what was done to the server but which losses were bought: requests whose own actor was killed, connections that were
broken."""

import collections
import dataclasses
import itertools

INJECTED = "a fault was injected"


@dataclasses.dataclass
class Verdict:
    streams: int = 0
    whole: int = 0
    left: int = 0
    lost: collections.Counter = dataclasses.field(default_factory=collections.Counter)  # by why
    wrong: list = dataclasses.field(default_factory=list)  # sentences
    longest: float = 0  # seconds of a stream

    def told(self):
        lost = ", ".join(f"{count} {why}" for why, count in sorted(self.lost.items())) or "none"
        return (f"{self.streams} streams: {self.whole} whole and equal to their solo runs, {self.left} left by their clients; "
                f"lost: {lost}; {len(self.wrong)} wrong; the longest took {self.longest:.1f} s")


def is_prefix(part, whole):
    """Of every channel: what a client has seen until it stopped is how the answer begins."""
    return all(channel in whole and whole[channel][:len(seen)] == seen for channel, seen in part.items())


def why_lost(history):
    """What a client was told. Nothing: it was told nothing."""
    error = history.error or {}
    if history.end == "stuck":
        return "stuck"
    if history.end == "cut":
        return "connections that ended"
    message = str(error.get("message", ""))
    if error.get("code") == "poisoned":
        return "refused as the cause of failures"
    if "reward model" in message or "judge" in message:
        return "searches without their judge"
    if INJECTED in message:
        return "requests that died themselves"
    if error.get("status") == 503 or "not able to run" in message:
        return "refused while nothing ran"
    if "memory" in message:
        return "without memory"
    return f"error: {message}"


def judge(histories, alone):
    verdict = Verdict(streams=len(histories))
    for name, solo in alone.items():
        if solo.end != "whole":
            verdict.wrong.append(f"{name} alone ended as {solo.end}: {solo.error}")
    for history in histories:
        solo = alone[history.name, history.seed]
        verdict.longest = max(verdict.longest, history.ended - history.begun)
        what = f"{history.name} ({history.seed}), {history.end}"
        if history.end == "whole":
            verdict.whole += 1
            if history.seen != solo.seen:
                verdict.wrong.append(f"{what}: differs {first_difference(history.seen, solo.seen)}")
        else:
            if history.end == "left":
                verdict.left += 1
            else:
                verdict.lost[why_lost(history)] += 1
            if not is_prefix(history.seen, solo.seen):
                verdict.wrong.append(f"{what}: is no beginning {first_difference(history.seen, solo.seen)}")
        if history.last_events != (history.end in ("whole", "error")):
            verdict.wrong.append(f"{what}: {history.last_events} last events")
    return verdict


def first_difference(seen, solo):
    for channel in sorted(set(seen) | set(solo), key=str):
        a, b = seen.get(channel, []), solo.get(channel, [])
        if a != b:
            at = next((i for i, (x, y) in enumerate(itertools.zip_longest(a, b)) if x != y), 0)
            return f"in {channel} at {at} of {len(b)}: {a[max(0, at - 2):at + 3]!r} for {b[max(0, at - 2):at + 3]!r}"
    return "nowhere"
