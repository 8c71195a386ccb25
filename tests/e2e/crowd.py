"""Clients of every API that keep a server busy and write down what they saw, for test_chaos.py. Some read slowly, leave, or
break off and come back. They judge nothing (chaos_check.py does) and know nothing of trouble."""

import asyncio
import dataclasses
import json
import random
import time
import urllib.parse
import uuid

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidMessage

TEXT = "ROMEO:\nWhat is the matter? "
SCHEMA = {"type": "object", "properties": {
    "title": {"type": "string", "minLength": 60, "maxLength": 90}, "animal": {"enum": ["fox", "bear", "owl"]},
    "age": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["title", "animal", "age"],
    "additionalProperties": False}
PARAMETERS = {"type": "object", "required": ["city", "unit"], "additionalProperties": False, "properties": {
    "city": {"type": "string", "minLength": 30, "maxLength": 50}, "unit": {"enum": ["celsius", "fahrenheit"]}}}
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}


def turns(number):
    return [{"role": "user", "content": f"{TEXT}{number}"}]


def requests(seed, *, features=()):
    """(name, API, path, body) of one request of each kind. `features`: what the server was started with."""
    drawn = {"temperature": 1, "seed": seed, "ignore_eos": True}
    greedy = {"temperature": 0, "ignore_eos": True}
    text = {"prompt": f"{TEXT}{seed} ", "max_tokens": 120, **drawn}
    ids = {"prompt": [3 + (7 + seed) * i % 90 for i in range(150)], "max_tokens": 60, **drawn}
    chat = {"messages": turns(seed), "max_tokens": 120, "logprobs": True, "top_logprobs": 2, **drawn}
    completion, chats = "/v1/completions", "/v1/chat/completions"
    schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
    yield "chat", "chat", chats, chat
    yield "chat of three", "chat", chats, {**chat, "n": 3, "max_tokens": 60}
    yield "chat under a schema", "chat", chats, {**chat, "max_tokens": 250, "response_format": schema, "ignore_eos": False}
    yield "chat with a tool", "chat", chats, {**chat, "max_tokens": 250, "tools": [TOOL], "tool_choice": "required",
                                              "parallel_tool_calls": False, "ignore_eos": False}
    yield "completion", "completion", completion, {**text, "logprobs": 3}
    yield "completion of a long prompt", "completion", completion, {**ids, "logprobs": 1, "echo": True}
    yield "scores of a prompt", "whole", completion, {**ids, "prompt_logprobs": 2, "max_tokens": 1}
    yield "completion by mirostat", "completion", completion, {**text, "mirostat": 2, "mirostat_tau": 4}
    yield "completion with penalties", "completion", completion, {
        **text, "repetition_penalty": 1.2, "frequency_penalty": 0.5, "top_k": 40, "dry_multiplier": 0.8}
    yield "completion by a pattern", "completion", completion, {
        **text, "guided_regex": "[a-z]{4,12}( [a-z]{2,8}){6,9}", "ignore_eos": False}
    yield "completion away from a text", "completion", completion, {
        **text, "guidance_scale": 1.5, "negative_prompt": "JULIET:", "max_tokens": 60}
    yield "completion away from layers", "completion", completion, {**text, "dola_layers": "low", "max_tokens": 60}
    yield "completion with a mark", "completion", completion, {**text, "watermark": {"type": "gumbel", "key": "k"}}
    yield "completion that repeats", "completion", completion, {**text, **greedy, "speculate": "ngram", "logprobs": 0,
                                                                "max_tokens": 200}
    yield "beams", "whole", completion, {"prompt": f"{TEXT}{seed} ", "max_tokens": 30, "temperature": 0,
                                              "use_beam_search": True, "n": 3, "ignore_eos": True}
    yield "best of four", "whole", completion, {**text, "best_of": 4, "n": 2, "max_tokens": 40}
    yield "search", "whole", completion, {
        "prompt": f"{TEXT}{seed} ", "max_tokens": 8, "temperature": 0, "n": 2, "ignore_eos": True,
        "search": {"simulations": 24, "branching": 4, "parallel": 6}}
    yield "two prompts", "completion", completion, {**text, "prompt": [TEXT, f"JULIET: {seed}"], "max_tokens": 60}
    yield "response", "response", "/v1/responses", {"input": f"{TEXT}{seed}", "max_output_tokens": 120, "store": False, **drawn}
    yield "response under a schema", "response", "/v1/responses", {
        "input": f"{TEXT}{seed}", "max_output_tokens": 250, "store": False, "temperature": 1, "seed": seed,
        "text": {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}}}
    yield "message", "message", "/v1/messages", {"messages": turns(seed), "max_tokens": 120, **drawn}
    yield "message with a tool", "message", "/v1/messages", {
        "messages": turns(seed), "max_tokens": 250, "temperature": 1, "seed": seed,
        "tools": [{"name": "get_weather", "input_schema": PARAMETERS}], "tool_choice": {"type": "tool", "name": "get_weather"}}
    yield "Ollama's chat", "ollama", "/api/chat", {
        "messages": turns(seed), "options": {"num_predict": 120, "temperature": 1, "seed": seed}}
    yield "Ollama's text under a schema", "ollama", "/api/generate", {
        "prompt": f"{TEXT}{seed}", "format": SCHEMA, "options": {"num_predict": 250, "temperature": 1, "seed": seed}}
    yield "frames", "socket", "", chat
    yield "frames of a text", "socket", "", {**text, "logprobs": 2, "n": 2, "max_tokens": 60}
    yield "embedding", "whole", "/v1/embeddings", {"input": [TEXT, f"JULIET: {seed}"]}
    if "adapter" in features:
        yield "completion of an adapter", "completion", completion, {**text, "model": "one", "logprobs": 1}
    if "steering" in features:
        yield "completion that is steered", "completion", completion, {**text, "steering": [{"name": "mean", "strength": 8}]}
    if "judge" in features:
        yield "search that is judged", "completion", completion, {
            "prompt": f"{TEXT}{seed} ", "max_tokens": 8, "temperature": 0, "ignore_eos": True,
            "search": {"simulations": 24, "branching": 4, "parallel": 6, "value": "model"}}


@dataclasses.dataclass
class History:
    """What a client saw of one request. `seen`: pieces by channel ("text", index), joined. `end`: whole, left (by itself), cut
    (the connection ended without a last event), or error."""
    name: str
    seed: int
    seen: dict = dataclasses.field(default_factory=dict)
    end: str = "cut"
    error: dict | None = None
    last_events: int = 0
    begun: float = 0
    ended: float = 0
    id: str = ""  # by which the server knows it; empty: frames of a WebSocket

    def add(self, channel, index, piece):
        if piece:
            self.seen[channel, index] = self.seen.get((channel, index), type(piece)()) + piece

    def finish(self, index, reason):
        self.add("finish", index, [reason])

    def fail(self, error):
        self.end, self.error = "error", error
        self.last_events += 1

    def done(self):
        self.end = "whole" if self.error is None else "error"
        self.last_events += 1


def exact(text):
    """Numbers as they are written."""
    return json.loads(text, parse_float=str)


def see_chat(of, event):
    for choice in event.get("choices", []):
        index, delta = choice["index"], choice["delta"]
        of.add("text", index, delta.get("content"))
        of.add("thought", index, delta.get("reasoning_content"))
        for call in delta.get("tool_calls") or []:
            of.add("call", index, call["function"].get("name"))
            of.add("arguments", index, call["function"].get("arguments"))
        of.add("logprobs", index, ((choice.get("logprobs") or {}).get("content")))
        if choice.get("finish_reason"):
            of.finish(index, choice["finish_reason"])


def see_completion(of, event):
    for choice in event.get("choices", []):
        index = choice["index"]
        of.add("text", index, choice.get("text"))
        for key, values in (choice.get("logprobs") or {}).items():
            of.add(key, index, values)
        of.add("prompt_logprobs", index, choice.get("prompt_logprobs"))
        if choice.get("finish_reason"):
            of.finish(index, [choice["finish_reason"], choice.get("score"), choice.get("cumulative_logprob")])


def see_response(of, event):
    kind = event["type"]
    if kind in ("response.output_text.delta", "response.function_call_arguments.delta"):
        of.add(kind, event["output_index"], event["delta"])
    elif kind in ("response.completed", "response.incomplete"):
        of.finish(0, kind)
    elif kind in ("response.failed", "error"):
        of.fail(event.get("response", event).get("error", event))


def see_message(of, event):
    kind = event["type"]
    if kind == "content_block_start":
        of.add("block", event["index"], [event["content_block"]["type"]])
    elif kind == "content_block_delta":
        delta = event["delta"]
        of.add("text", event["index"], delta.get("text") or delta.get("partial_json"))
    elif kind == "message_delta":
        of.finish(0, event["delta"]["stop_reason"])
    elif kind == "message_stop":
        of.done()
    elif kind == "error":
        of.fail(event["error"])


def see_ollama(of, event):
    if "error" in event:
        return of.fail({"message": event["error"]})
    of.add("text", 0, event.get("response") or event.get("message", {}).get("content"))
    of.add("calls", 0, event.get("message", {}).get("tool_calls"))
    if event["done"]:
        of.finish(0, event["done_reason"])
        of.done()


def see_frame(of, event):
    if event["type"] == "token":
        index = event["index"]
        of.add("text", index, event.get("text"))
        of.add("ids", index, event.get("token_ids"))
        of.add("logprobs", index, (event.get("logprobs") or {}).get("content") if isinstance(event.get("logprobs"), dict)
               else event.get("logprobs"))
    elif event["type"] == "error":
        of.fail(event["error"])
    elif event["type"] == "done":
        for choice in event["choices"]:
            of.finish(choice["index"], choice["finish_reason"])
        of.done()


def see_openai(of, event, see):
    of.fail(event["error"]) if "error" in event else see(of, event)


class Reader:
    """Lines of an HTTP answer as they come."""

    def __init__(self, reader):
        self._reader, self._rest, self._chunked, self._left = reader, b"", False, None

    async def head(self):
        text = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        while text.startswith("HTTP/1.1 100"):
            text = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        lines = text.split("\r\n")
        fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
        self._chunked = fields.get("transfer-encoding") == "chunked"
        self._left = int(fields.get("content-length", 0))
        return int(lines[0].split()[1])

    async def piece(self):
        """Empty at the end. Raises IncompleteReadError if the connection ends before."""
        if not self._chunked:
            size, self._left = self._left, 0
            return await self._reader.readexactly(size)
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        return (await self._reader.readexactly(size + 2))[:-2]

    async def lines(self):
        while piece := await self.piece():
            *lines, self._rest = (self._rest + piece).split(b"\n")
            for line in lines:
                yield line
        if self._rest:
            yield self._rest


class Client:
    """Sends requests, and tells what came."""

    def __init__(self, url, model, patience=600):
        self.address, self.model, self.patience = urllib.parse.urlparse(url), model, patience
        self.current = None  # the history of the last request

    async def ask(self, request, seed, leave_after=None, pause=0.0):
        """`leave_after`: events. `pause`: seconds before each event is read."""
        name, api, path, body = request
        of = self.current = History(name, seed, begun=time.monotonic())
        body = {"model": self.model, **body}
        try:
            async with asyncio.timeout(self.patience):
                await (self._frames if api == "socket" else self._answer)(of, api, path, body, leave_after, pause)
        except TimeoutError:
            of.end = "stuck"
        except (OSError, EOFError, ConnectionClosed, InvalidMessage, asyncio.IncompleteReadError) as e:  # InvalidMessage: in its handshake
            if of.end not in ("whole", "error"):
                of.end, of.error = "cut", {"message": repr(e)}
        of.ended = time.monotonic()
        return of

    async def _answer(self, of, api, path, body, leave_after, pause):
        if api != "whole":
            body["stream"] = True
        text = json.dumps(body).encode()
        of.id = uuid.uuid4().hex
        # A slow reader's kernel takes little on its behalf.
        reader, writer = await asyncio.open_connection(self.address.hostname, self.address.port, limit=1 << 22)
        try:
            writer.write(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
                         f"X-Request-Id: {of.id}\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
            answer = Reader(reader)
            status = await answer.head()
            events = 0
            async for line in answer.lines():
                if status != 200:
                    of.fail({"status": status, **errors_in(line)})
                    return
                self._see(of, api, line)
                events += line != b""
                if leave_after is not None and events >= leave_after and of.end == "cut":
                    of.end = "left"
                    return
                if pause and line:
                    await asyncio.sleep(pause)
        finally:
            writer.close()

    @staticmethod
    def _see(of, api, line):
        if api == "whole":
            event = exact(line)
            of.add("data", 0, event.get("data"))
            see_completion(of, event)
            return of.done()
        if api == "ollama":
            return see_ollama(of, exact(line))
        if not line.startswith(b"data: "):
            return None
        if line == b"data: [DONE]":
            return of.done() if of.error is None else None
        see = {"chat": see_chat, "completion": see_completion, "response": see_response, "message": see_message}[api]
        event = exact(line[6:])
        return see_openai(of, event, see) if api in ("chat", "completion") else see(of, event)

    async def _frames(self, of, _, __, body, leave_after, pause):
        url = f"ws://{self.address.hostname}:{self.address.port}/v1/ws"
        async with connect(url, open_timeout=self.patience, max_queue=4, close_timeout=1) as link:
            await link.send(json.dumps({"type": "generate", "id": "a", **body}))
            events = 0
            async for text in link:
                see_frame(of, exact(text))
                events += 1
                if of.end in ("whole", "error"):
                    return
                if leave_after is not None and events >= leave_after:
                    of.end = "left"
                    link.transport.abort()
                    return
                if pause:
                    await asyncio.sleep(pause)


def errors_in(line):
    try:
        error = json.loads(line)
    except ValueError:
        return {"message": line.decode(errors="replace")}
    error = error.get("error", error)
    return error if isinstance(error, dict) else {"message": error}


class Crowd:
    """`size` clients that ask for what `kinds(seed)` yields, again and again, until the time is over; then each finishes its
    request. A third of all requests are left, broken off and asked again, or read slowly."""

    def __init__(self, url, model, kinds, seeds, size, seed):
        self.histories, self._seeds = [], seeds
        self._client = Client(url, model)
        self._kinds = {number: list(kinds(number)) for number in range(seeds)}
        self._size, self._seed = size, seed

    async def alone(self):
        """Each request by itself, in turn: {(name, seed): history}."""
        return {(request[0], seed): await self._client.ask(request, seed)
                for seed, all_kinds in self._kinds.items() for request in all_kinds}

    async def run(self, seconds):
        end = time.monotonic() + seconds
        await asyncio.gather(*(self._member(number, end) for number in range(self._size)))

    async def _member(self, number, end):
        rng = random.Random((self._seed << 16) + number)
        while time.monotonic() < end:
            seed = rng.randrange(self._seeds)
            request = rng.choice(self._kinds[seed])
            habit = rng.choices(("stays", "leaves", "slow", "returns"), (6, 1, 1, 1))[0]
            leaves = rng.randint(1, 40) if habit in ("leaves", "returns") else None
            pause = rng.choice((0.005, 0.02)) if habit == "slow" else 0
            self.histories.append(await self._client.ask(request, seed, leaves, pause))
            if habit == "returns":
                self.histories.append(await self._client.ask(request, seed))
