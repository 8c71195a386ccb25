"""One request to a Troupe server, and when its tokens came. What benches share whose clients have keys or are refused."""

import asyncio
import dataclasses
import json
import time
import urllib.request

from load import Refused, read_events


@dataclasses.dataclass
class Asked:
    """Times are those of time.perf_counter; `gaps` are seconds for each further token."""
    sent: float
    status: int = 200
    error: dict = dataclasses.field(default_factory=dict)  # of its body
    first: float | None = None
    end: float | None = None
    came: list = dataclasses.field(default_factory=list)  # (when, how many tokens)

    @property
    def ttft(self):
        return self.first - self.sent

    @property
    def gaps(self):
        return [(b - a) / count for (a, _), (b, count) in zip(self.came, self.came[1:]) for _ in range(count)]

    def tokens(self, since=0, until=float("inf")):
        return sum(count for when, count in self.came if since <= when < until)


def head_of(path, body, key=None, id=None):
    own = (f"Authorization: Bearer {key}\r\n" if key else "") + (f"X-Request-Id: {id}\r\n" if id else "")
    return (f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n{own}"
            f"Content-Length: {len(body)}\r\n\r\n").encode()


async def ask(port, fields, key=None, id=None, into=None):
    """A completion as a stream. `into`: a list that gets the result before it is whole."""
    body = json.dumps({"stream": True, "return_token_ids": True, "ignore_eos": True, "temperature": 0, **fields}).encode()
    asked = Asked(time.perf_counter())
    if into is not None:
        into.append(asked)
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 24)
    try:
        writer.write(head_of("/v1/completions", body, key, id) + body)
        await writer.drain()
        async for event in read_events(reader):
            now = time.perf_counter()
            if "error" in event:
                asked.status, asked.error = 500, event["error"]
            if count := sum(len(choice.get("token_ids") or ()) for choice in event.get("choices", ())):
                asked.first = asked.first or now
                asked.came.append((now, count))
    except Refused as refused:
        asked.status, asked.error = refused.status, json.loads(refused.body).get("error", {})
    finally:
        writer.close()
    asked.end = time.perf_counter()
    return asked


def get(port, path, key=None):
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {key}"} if key else {})
    with urllib.request.urlopen(asked) as answer:
        return answer.read().decode()


def metric(port, name, key=None):
    """The sum over labels."""
    return sum(float(line.rsplit(" ", 1)[1]) for line in get(port, "/metrics", key).splitlines()
               if line.startswith((name + " ", name + "{")))
