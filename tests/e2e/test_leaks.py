"""What requests leave behind. The short form of tests/soak.py."""

import heap
import pytest
from server import GOLDEN, Server, wait_until


@pytest.fixture(scope="module")
def quiet_server():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0")  # what threads keep for later counts as used
        server = Server(GOLDEN, "--log-level", "off")
    yield server
    server.wait_until_idle()
    assert server.stop() == 0, "".join(server.err)


@pytest.mark.parametrize("kind", heap.KINDS)
def test_a_request_leaves_nothing_in_the_heap(quiet_server, kind):
    # An actor that stays behind takes 1,500 bytes, the shortest string outside its object 32. Tables that grow once, what
    # is known of the last 1,024 requests, and what is still to be freed, are not in every window, as a leak is.
    grown = [heap.growth(quiet_server.url, kind, 200, before=50, still=0.2)]
    while abs(grown[-1]) > 24 and len(grown) < 12:
        grown.append(heap.growth(quiet_server.url, kind, 200, before=0, still=min(0.2 * len(grown), 1)))
    assert abs(grown[-1]) <= 24, grown


def test_requests_leave_no_descriptor_and_no_thread(quiet_server):
    caller = heap.Caller(quiet_server.url)

    def state():
        quiet_server.wait_until_idle()
        return heap.resources(quiet_server.process.pid)

    for kind in heap.KINDS:
        caller.send(kind)
    before = state()
    for _ in range(10):
        for kind in heap.KINDS:
            caller.send(kind)
    # Connections are just being closed.
    wait_until(lambda: (now := state())[0] <= before[0] + 2 and now[1] <= before[1],
               lambda: f"descriptors and threads {before} to be left, not {state()}")
