"""What a guide may cost: memory and time of its own request, and what others notice. The bounds are those of
runtime/guide/REFERENCE.md. TROUPE_GUIDE_COSTS=SECONDS lets the generator of costly guides run longer."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import socket
import threading
import time
import urllib.parse

import pytest

from busy import Share
from costly_guides import LISTED, VARIANTS, Generator, overlapping, schema, tools
from server import STORYTELLER, Server, wait_until

MEMORY = 800 << 20  # bytes above rest
LONGEST = 12        # seconds for the costly request
OTHERS = 2          # seconds for those of others
SECONDS = float(os.environ.get("TROUPE_GUIDE_COSTS", "10"))
SEED = int(os.environ.get("TROUPE_GUIDE_SEED", "1"))

STORY = [{"role": "user", "content": "A fox"}]
MINE, OTHER = {"Authorization": "Bearer mine"}, {"Authorization": "Bearer other"}


@pytest.fixture(scope="module")
def costs_server():
    server = Server(STORYTELLER, "--api-key", "mine", "--api-key", "other", "--tool-parser", "hermes")
    yield server
    assert server.stop() == 0, "".join(server.err)


def resident(server, field="VmRSS"):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.split(field + ":")[1].split()[0]) << 10


class Peak:
    """The most memory that the server has while this is open, above what it had before."""

    def __init__(self, server):
        self.server = server

    def __enter__(self):
        self.before = resident(self.server)
        pathlib.Path(f"/proc/{self.server.process.pid}/clear_refs").write_text("5")  # resets VmHWM
        return self

    def __exit__(self, *_):
        self.bytes = resident(self.server, "VmHWM") - self.before


def body_of(request):
    path, fields = request
    prompt = {"prompt": "A fox"} if path == "/v1/completions" else {"messages": STORY}
    more = {"options": {"num_predict": 2}, "model": "storyteller", "stream": False} if path.startswith("/api") else \
        {"max_tokens": 2, "seed": 1}
    return path, {**prompt, **more, **fields}


def send(server, request, headers=MINE):
    """The answer and its seconds."""
    path, body = body_of(request)
    begun = time.monotonic()
    answer = server.post(path, body, headers=headers)
    return answer, time.monotonic() - begun


def send_and_leave(server, request, after=0.2):
    path, body = body_of(request)
    text = json.dumps(body).encode()
    url = urllib.parse.urlparse(server.url)
    with socket.create_connection((url.hostname, url.port)) as s:
        s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer mine\r\n"
                  f"Content-Type: application/json\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
        time.sleep(after)


class Others:
    """Another client's guided requests and those with tools, one after the other, each a guide that is new."""

    def __init__(self, server):
        self.server, self.slowest, self.done, self.wrong = server, 0, False, None
        self.thread = threading.Thread(target=self.run)

    def run(self):
        count = 0
        while not self.wrong and (not self.done or not count):  # once, though the costly request is over
            count += 1
            name = f"{id(self)}_{count}"
            for request in (
                    ("/v1/completions", {"guided_choice": [f"{name} {i}" for i in range(3000)]}),
                    tools({"type": "object", "properties": {name: {"type": "integer"}}, "required": [name]})):
                answer, took = send(self.server, request, OTHER)
                if answer.status_code != 200:
                    self.wrong = answer.text
                self.slowest = max(self.slowest, took)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.done = True
        self.thread.join()
        assert not self.wrong, self.wrong
        assert self.slowest > 0


def in_time(measure):
    """measure(attempt) tells whether no limit on time was passed. It has three attempts, as the machine may be busy, or stand
    still."""
    assert any(measure(attempt) for attempt in range(3)), "each of three times, a limit on time was passed"


def check_costs(server, request, name):
    for attempt in range(3):
        with Peak(server) as peak, Share() as share, Others(server) as others:
            answer, took = send(server, request)
        print(f"{name}: {answer.status_code}, {took:.2f} s, {peak.bytes >> 20} MiB, others {others.slowest:.2f} s, "
              f"share {share.value:.2f}")
        assert answer.status_code in (200, 400), answer.text
        assert peak.bytes < MEMORY
        if took * share.value < LONGEST and others.slowest * share.value < OTHERS:
            return
    raise AssertionError(f"{name}: {took:.1f} s, others {others.slowest:.1f} s, of which {share.value:.2f} were had")


@pytest.mark.parametrize("name", [*LISTED, *VARIANTS])
def test_a_costly_guide_costs_its_own_request_little_and_others_next_to_nothing(costs_server, name):
    check_costs(costs_server, {**LISTED, **VARIANTS}[name], name)


def test_guides_whose_clients_have_left_are_given_up(costs_server):
    def measure(attempt):
        name = f"{attempt} left"
        hard = [schema({"type": "string", "allOf": overlapping(40), "title": f"{name} {i}"}) for i in range(4)] + \
            [tools({"type": "object", "properties": {"a": {"allOf": overlapping(300)}, f"{name} {i}": {}}}) for i in range(2)]
        with Peak(costs_server) as peak, Share() as share:
            with concurrent.futures.ThreadPoolExecutor(len(hard)) as pool:
                list(pool.map(lambda one: send_and_leave(costs_server, one), hard))
            slowest = []
            for _ in range(3):
                for request in (("/v1/completions", {"guided_choice": [f"word {i}" for i in range(3000)]}),
                                tools({"type": "object"})):
                    answer, took = send(costs_server, request, OTHER)
                    assert answer.status_code == 200
                    slowest.append(took)
        assert peak.bytes < MEMORY
        begun = time.monotonic()
        with Share() as again:
            wait_until(lambda: is_idle(costs_server), "the processor to be free")
        took = time.monotonic() - begun
        print(f"others {max(slowest):.2f} s, share {share.value:.2f}; free after {took:.2f} s, share {again.value:.2f}")
        return max(slowest) * share.value < OTHERS and took * again.value < 10

    in_time(measure)


def is_idle(server):
    """Whether hardly any of its threads computes, or would if the machine let it, within half a second."""
    running = 0
    for _ in range(25):
        for stat in pathlib.Path(f"/proc/{server.process.pid}/task").glob("*/stat"):
            with contextlib.suppress(OSError):  # threads may end
                running += stat.read_text().rpartition(")")[2].split()[0] == "R"
        time.sleep(0.02)
    return running <= 5


def test_many_clients_requests_are_compiled_in_turn(costs_server):
    def measure(attempt):
        with Peak(costs_server) as peak, Share() as share, Others(costs_server) as others, \
                concurrent.futures.ThreadPoolExecutor(24) as pool:
            crowd = [schema({"type": "string", "allOf": overlapping(15 + i), "title": f"{attempt} {i}"}) for i in range(24)]
            leaving = [pool.submit(send_and_leave, costs_server, one, 4) for one in crowd]
            concurrent.futures.wait(leaving)
        print(f"others {others.slowest:.2f} s, {peak.bytes >> 20} MiB, share {share.value:.2f}")
        assert peak.bytes < MEMORY
        return others.slowest * share.value < OTHERS

    in_time(measure)


def test_sigterm_ends_a_server_that_compiles(launch):
    def measure(_):
        server = launch("--stop-grace", "1", model=STORYTELLER)
        hard = [schema({"type": "string", "allOf": overlapping(100), "title": f"{i}"}) for i in range(6)]
        for one in hard:
            threading.Thread(target=lambda one=one: ignoring(send_and_leave, server, one, 20), daemon=True).start()
        wait_until(lambda: server.metrics()["troupe_requests_in_flight"] == len(hard), "all of them to have come")
        time.sleep(0.3)
        server.process.terminate()
        begun = time.monotonic()
        with Share() as share:
            assert server.process.wait(300) == 0
        return (time.monotonic() - begun) * share.value < 6

    in_time(measure)


def ignoring(f, *arguments):
    try:
        f(*arguments)
    except OSError:
        pass


def test_a_generator_of_costly_guides_finds_none_beyond_the_bounds(costs_server):
    def measure(attempt):
        generator = Generator(SEED + attempt)
        end = time.monotonic() + SECONDS
        with Peak(costs_server) as peak, Share() as share, Others(costs_server) as others:
            while time.monotonic() < end:
                source = generator.next()
                answer, took = send(costs_server, generator.request(source))
                assert answer.status_code in (200, 400), answer.text
                generator.report(took, source)
        print(f"seed {SEED + attempt}: {generator.tried} guides, {peak.bytes >> 20} MiB, others {others.slowest:.2f} s, "
              f"share {share.value:.2f}")
        for cost, source in generator.best[:3]:
            print(f"{cost:.2f} s: {json.dumps(source)[:400]}")
        assert peak.bytes < MEMORY
        return generator.best[0][0] * share.value < LONGEST and others.slowest * share.value < OTHERS

    in_time(measure)
