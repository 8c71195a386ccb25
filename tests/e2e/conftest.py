import json
import signal

import openai
import pytest

from server import GOLDEN, STORYTELLER, Server


def pytest_addoption(parser):
    parser.addoption("--programs", action="store_true", help="also run programs that take gigabytes to install")


def pytest_configure(config):
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # below nohup, servers would ignore it, too
    config.addinivalue_line("markers", "programs: takes gigabytes to install; run with --programs only")


def pytest_collection_modifyitems(config, items):
    left_out = [] if config.getoption("--programs") else [item for item in items if item.get_closest_marker("programs")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in left_out]


def client_of(server, key="none"):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=0, timeout=600)


@pytest.fixture(scope="session")
def shared_server():
    server = Server(GOLDEN)
    yield server
    assert server.stop() == 0, "".join(server.err)


@pytest.fixture
def server(shared_server):
    """A server shared by all tests, with llama-gqa. Each test must leave it idle, with no block in use."""
    yield shared_server
    assert shared_server.process.poll() is None, "".join(shared_server.err)
    shared_server.wait_until_idle()


@pytest.fixture
def client(server):
    return client_of(server)


@pytest.fixture(scope="session")
def golden():
    return json.loads((GOLDEN / "expected.json").read_text())


@pytest.fixture(scope="session")
def story_server():
    if not (STORYTELLER / "config.json").is_file():
        pytest.skip("the bundled storyteller is absent")
    server = Server(STORYTELLER)
    yield server
    server.wait_until_idle()
    assert server.stop() == 0, "".join(server.err)


@pytest.fixture
def launch():
    """Starts servers with flags of the test: launch("--max-queue", "1")."""
    started = []

    def start(*flags, model=GOLDEN, **more):
        started.append(Server(model, *flags, **more))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            assert server.stop() == 0, "".join(server.err)
