"""TLS (--tls-cert, --tls-key): public clients, what is refused, handshakes that go wrong, certificates that change, and ends."""

import contextlib
import hashlib
import json
import os
import signal
import socket
import ssl
import struct
import subprocess
import urllib.parse

import openai
import pytest
import requests
from websockets.sync.client import connect

from certificates import make_certificate
from expected import MODEL, PROMPT, greedy_text
from server import ENDLESS, GOLDEN, Server, binary, wait_until

COMPLETION = {"model": MODEL, "prompt": PROMPT, "temperature": 0, "max_tokens": 48}


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    return make_certificate(tmp_path_factory.mktemp("tls"))


def flags_of(own):
    return "--tls-cert", str(own[0]), "--tls-key", str(own[1])


@pytest.fixture(scope="module")
def shared_tls(own):
    server = Server(GOLDEN, *flags_of(own))
    yield server
    assert server.stop() == 0, "".join(server.err)


@pytest.fixture
def tls(shared_tls):
    yield shared_tls
    shared_tls.wait_until_idle()
    wait_until(lambda: shared_tls.metrics()["troupe_connections"] == 1, "all connections but this one to be gone")


@pytest.fixture
def context(own):
    return ssl.create_default_context(cafile=own[0])


def where(server):
    at = urllib.parse.urlsplit(server.url)
    return at.hostname, at.port


def request_of(path, body=None, version="1.1"):
    text = json.dumps(body).encode() if body else b""
    return (f"{'POST' if body else 'GET'} {path} HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(text)}\r\n\r\n").encode() + text


class Wire:
    """TLS over a socket, both in the test's hands; an end without TLS's own word for it is an error."""

    def __init__(self, server, context, buffer=0, session=None):
        self.socket = socket.socket()
        if buffer:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.socket.settimeout(300)
        self.socket.connect(where(server))
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing, server_hostname="localhost", session=session)
        self.done(self.tls.do_handshake)

    def flush(self):
        if data := self.outgoing.read():
            self.socket.sendall(data)

    def done(self, step):
        while True:
            try:
                result = step()
                self.flush()
                return result
            except ssl.SSLZeroReturnError:
                return b""
            except ssl.SSLWantReadError:
                self.flush()
                if data := self.socket.recv(1 << 16):
                    self.incoming.write(data)
                else:
                    self.incoming.write_eof()

    def send(self, data):
        self.tls.write(data)
        self.flush()

    def receive(self):
        return self.done(lambda: self.tls.read(1 << 16))

    def rest(self):
        return b"".join(iter(self.receive, b""))

    def say_end(self):
        with contextlib.suppress(ssl.SSLError):  # the server has not said so yet, or there is more to read
            self.tls.unwrap()
        self.flush()

    def answer(self):
        """The next one, with its length given."""
        told = b""
        while b"\r\n\r\n" not in told:
            told += self.receive()
        head, _, body = told.partition(b"\r\n\r\n")
        length = next(int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length"))
        while len(body) < length:
            body += self.receive()
        return head, body


def closed(connection):
    """Waits for the end of what comes over a plain socket, and returns that."""
    connection.settimeout(300)
    told = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(1 << 16):
            told += data
    return told


def test_curl_requests_and_the_official_client_speak_https(tls, own, context, golden):
    assert tls.url.startswith("https://") and any(f"curl -N {tls.url}/v1/" in line for line in tls.err)
    curl = subprocess.run(["curl", "-sS", "--cacert", own[0], f"{tls.url}/v1/models"], capture_output=True, timeout=300)
    assert json.loads(curl.stdout)["data"][0]["id"] == MODEL, curl.stderr
    expected = greedy_text(tls, golden)
    whole = requests.post(f"{tls.url}/v1/completions", json=COMPLETION, verify=own[0], timeout=300)
    assert whole.json()["choices"][0]["text"] == expected
    with pytest.raises(requests.exceptions.SSLError):
        requests.get(f"{tls.url}/v1/models", timeout=300)  # nobody has signed it
    client = openai.OpenAI(base_url=f"{tls.url}/v1", api_key="none", max_retries=0, timeout=300,
                           http_client=openai.DefaultHttpxClient(verify=context))
    with client:
        for _ in range(2):  # the second on the same connection
            stream = client.completions.create(**COMPLETION, stream=True)
            assert "".join(chunk.choices[0].text for chunk in stream) == expected
        long = client.completions.create(**{**COMPLETION, "prompt": [[10, 11, 12] * 600] * 40, "max_tokens": 1})
        assert len(long.choices) == 40  # of a body of several records


def test_websockets_speak_wss(tls, context, golden):
    with connect(tls.ws_url, ssl=context, open_timeout=300) as ws:
        for id in "ab":
            ws.send(json.dumps({"type": "generate", "id": id, **COMPLETION}))
        ids = {"a": [], "b": []}
        ends = 0
        while ends < 2:
            frame = json.loads(ws.recv(timeout=300))
            ids[frame["id"]] += frame.get("token_ids", [])
            ends += frame["type"] == "done"
    assert ids["a"] == ids["b"] == golden["cases"][0]["greedy"]["ids"]
    assert ws.close_code == 1000


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_both_versions_of_tls_are_spoken(tls, context, version):
    context.minimum_version = context.maximum_version = version
    wire = Wire(tls, context)
    wire.send(request_of("/v1/completions", COMPLETION))
    assert wire.answer()[0].startswith(b"HTTP/1.1 200")
    wire.socket.close()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_old_versions_weak_ciphers_and_unknown_protocols_are_refused(tls, own):
    def why_not(**settings):
        context = ssl.create_default_context(cafile=own[0])
        context.set_ciphers(settings.pop("ciphers", "ALL:@SECLEVEL=0"))
        if protocols := settings.pop("protocols", None):
            context.set_alpn_protocols(protocols)
        for name, value in settings.items():
            setattr(context, name, value)
        with pytest.raises(ssl.SSLError) as refused:
            Wire(tls, context)
        return str(refused.value).lower()

    old = ssl.OP_NO_TLSv1_2 | ssl.OP_NO_TLSv1_3
    assert "protocol version" in why_not(minimum_version=ssl.TLSVersion.MINIMUM_SUPPORTED, options=old)
    assert "handshake failure" in why_not(ciphers="ECDHE-ECDSA-AES128-SHA256:@SECLEVEL=0", maximum_version=ssl.TLSVersion.TLSv1_2)
    assert "no application protocol" in why_not(protocols=["h2"])


def test_of_the_protocols_that_a_client_offers_http_1_1_is_chosen(tls, context):
    context.set_alpn_protocols(["h2", "http/1.1"])
    wire = Wire(tls, context)
    assert wire.tls.selected_alpn_protocol() == "http/1.1"
    wire.socket.close()


def test_a_plain_request_is_told_to_use_https(tls):
    with socket.create_connection(where(tls), timeout=300) as plain:
        plain.sendall(request_of("/v1/models"))
        told = closed(plain).decode()
    assert told.startswith("HTTP/1.1 400") and "https://" in json.loads(told.partition("\r\n\r\n")[2])["error"]["message"]


def hello():
    """What a client says first."""
    outgoing = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("end", ["fin", "reset"])
@pytest.mark.parametrize("first", [
    b"", hello()[:1], hello()[:5], hello()[:60], hello(), b"\x16" * 4000, b"\x16\x03\x01\xff\xff" + bytes(70000),
    hello()[:5] + bytes(len(hello()) - 5), hello()[:9] + b"\xff" * 500, b"\x80\x2e\x01\x03\x01", b"\x00" * 100],
    ids=["nothing", "a byte", "a record's head", "half", "whole", "one byte often", "a long record", "zeros", "wrong sizes",
         "SSL 2", "no TLS"])
def test_handshakes_that_break_off_cost_their_own_connection_alone(tls, first, end):
    with socket.create_connection(where(tls), timeout=300) as broken:
        with contextlib.suppress(OSError):  # the server may have closed it
            broken.sendall(first)
            if end == "fin":
                broken.shutdown(socket.SHUT_WR)
        if end == "fin":
            closed(broken)
        else:
            broken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize("by", ["fin", "close_notify", "both"])
def test_who_has_ended_its_input_still_gets_its_answer(tls, context, by):
    wire = Wire(tls, context)
    wire.send(request_of("/v1/completions", {**COMPLETION, "stream": True}))
    if by != "fin":
        wire.say_end()
    if by != "close_notify":
        wire.socket.shutdown(socket.SHUT_WR)
    told = wire.rest()
    assert told.count(b"data: ") > 20 and told.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    wire.socket.close()


def test_an_answer_that_ends_with_the_connection_ends_by_tls(tls, context):
    wire = Wire(tls, context)
    wire.send(request_of("/v1/completions", {**COMPLETION, "stream": True}, "1.0"))
    assert wire.rest().endswith(b"data: [DONE]\n\n")  # else anybody could have cut it
    wire.socket.close()


@pytest.mark.parametrize("end", ["fin", "reset", "close_notify"])
def test_a_slow_reader_pauses_its_own_request_alone_and_ends_it_when_it_leaves(tls, context, golden, end):
    cancelled = lambda: tls.metrics().get('troupe_requests_total{outcome="cancelled"}', 0)
    before = cancelled()
    wire = Wire(tls, context, buffer=4096)
    wire.send(request_of("/v1/completions", {**COMPLETION, **ENDLESS, "stream": True}))
    assert wire.receive().startswith(b"HTTP/1.1 200")
    wait_until(lambda: tls.metrics()["troupe_sequences_paused"] == 8, "its sequences to pause")
    quick = tls.post("/v1/completions", COMPLETION)
    assert quick.json()["choices"][0]["text"] == greedy_text(tls, golden)
    if end == "close_notify":
        wire.say_end()
    elif end == "reset":
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    wire.socket.close()
    wait_until(lambda: cancelled() == before + 1, "its request to be cancelled")


def test_handshakes_have_a_time_limit_and_a_bound(launch, own, context):
    server = launch(*flags_of(own), "--header-timeout", "1", "--max-connections", "8")
    with socket.create_connection(where(server)) as silent:
        assert closed(silent) == b""
    with socket.create_connection(where(server)) as slow:
        slow.settimeout(0.05)
        for byte in hello()[:-1] * 10:  # which never ends
            with contextlib.suppress(TimeoutError):
                try:
                    slow.sendall(bytes([byte]))
                    if slow.recv(1000) == b"":
                        break
                except ConnectionError:
                    break
        else:
            pytest.fail("the handshake was not ended")
    patient = launch(*flags_of(own), "--header-timeout", "600", "--max-connections", "8")
    with contextlib.ExitStack() as kept:
        silent = [kept.enter_context(socket.create_connection(where(patient))) for _ in range(3)]  # of 2 at once
        assert closed(silent[0]) == b""
        wire = Wire(patient, context)
        assert closed(silent[1]) == b""
        wire.send(request_of("/v1/models"))
        assert wire.answer()[0].startswith(b"HTTP/1.1 200")
        wire.socket.close()
        assert patient.process.poll() is None


def certificate_of(server):
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate(where(server)))).digest()


def digest_of(certificate):
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.read_text())).digest()


def test_a_hangup_reads_the_certificate_again_and_one_that_is_wrong_changes_nothing(launch, tmp_path):
    archive, live = tmp_path / "archive", tmp_path / "live"  # as Let's Encrypt's are: links that are replaced
    archive.mkdir()
    live.mkdir()
    pairs = [make_certificate(archive, name) for name in ("first", "second", "third")]

    def point(certificate, key):
        for name, to in (("new", certificate), ("newer", key)):
            (live / name).symlink_to(os.path.relpath(to, live))
        (live / "new").replace(live / "fullchain.pem")
        (live / "newer").replace(live / "privkey.pem")

    def hang_up(word):
        before = len(server.err)
        server.process.send_signal(signal.SIGHUP)
        return wait_until(lambda: [line for line in server.err[before:] if word in line], lambda: "".join(server.err))

    point(*pairs[0])
    config = tmp_path / "troupe.toml"
    config.write_text(f'[serve]\ntls-cert = "{live}/fullchain.pem"\ntls-key = "{live}/privkey.pem"\n')
    server = launch("--config", str(config))
    context = ssl.create_default_context(cafile=pairs[0][0])
    kept = Wire(server, context)
    kept.send(request_of("/v1/models"))
    kept.answer()
    again = Wire(server, context, session=kept.tls.session)
    assert again.tls.session_reused
    again.socket.close()
    assert certificate_of(server) == digest_of(pairs[0][0])

    point(*pairs[1])
    hang_up(" info reloaded")
    assert certificate_of(server) == digest_of(pairs[1][0])
    with pytest.raises(ssl.SSLCertVerificationError):
        Wire(server, context, session=kept.tls.session)  # what was agreed on with the old key is no more
    kept.send(request_of("/v1/completions", COMPLETION))
    assert kept.answer()[0].startswith(b"HTTP/1.1 200")
    kept.socket.close()

    point(pairs[2][0], pairs[0][1])
    assert "is not the key of the certificate" in hang_up(" error nothing is changed: ")[0]
    (live / "fullchain.pem").unlink()
    assert "fullchain.pem" in hang_up(" error nothing is changed: ")[0]
    config.write_text("[serve]\n")
    assert "TLS is begun or given up by a restart only" in hang_up(" error nothing is changed: ")[0]
    assert certificate_of(server) == digest_of(pairs[1][0])


def test_what_is_wrong_with_the_files_is_told_before_the_model_is_loaded(own, tmp_path):
    certificate, key = own
    other = make_certificate(tmp_path, "other")
    locked = make_certificate(tmp_path, "locked", more=("-passout", "pass:secret"))
    weak = make_certificate(tmp_path, "weak", ("-newkey", "rsa:1024"))
    empty, cut = tmp_path / "empty", tmp_path / "cut"
    empty.touch()
    cut.write_text(certificate.read_text()[:200])

    def refused(*flags):
        ended = subprocess.run([binary(), "serve", "--model", "/nowhere", "--port", "0", *map(str, flags)],
                               capture_output=True, text=True, timeout=300)
        assert ended.stdout == "" and ended.stderr.count("\n") == 1, ended.stderr
        return ended.returncode, ended.stderr

    def pair(certificate, key):
        return refused("--tls-cert", certificate, "--tls-key", key)

    for status, why, (found, told) in [
            (2, "--tls-cert and --tls-key go together", refused("--tls-cert", certificate)),
            (2, "--tls-cert and --tls-key go together", refused("--tls-key", key)),
            (1, "/nowhere/a.crt", pair("/nowhere/a.crt", key)),
            (1, "/nowhere/a.key", pair(certificate, "/nowhere/a.key")),
            (1, str(tmp_path), pair(tmp_path, key)),
            (1, "there is no certificate in PEM format", pair(empty, key)),
            (1, "there is no certificate in PEM format", pair(cut, key)),
            (1, "this is a key, where the certificate is to be", pair(key, certificate)),
            (1, "there is no key in PEM format", pair(certificate, certificate)),
            (1, "this is not the key of the certificate " + str(certificate), pair(certificate, other[1])),
            (1, "the key has a password, which nobody could give", pair(*locked)),
            (1, "OpenSSL refuses the certificate: ee key too small", pair(*weak))]:
        assert found == status and why in told, told


def test_one_file_may_be_both_and_a_key_that_others_can_read_is_told(launch, own, tmp_path):
    both = tmp_path / "both.pem"
    both.write_text(own[1].read_text() + own[0].read_text())
    both.chmod(0o644)
    server = launch("--tls-cert", str(both), "--tls-key", str(both))
    assert any(f"{both}: every user of this machine can read the key" in line for line in server.err)
    assert server.get("/health").status_code == 200


def test_a_server_that_takes_anothers_place_leaves_it_what_speaks_tls(launch, own, context, tmp_path):
    (tmp_path / "control").mkdir(mode=0o700)
    flags = (*flags_of(own), "--control-socket", str(tmp_path / "control" / "socket"))
    old = launch(*flags)
    idle = Wire(old, context)
    idle.send(request_of("/v1/models"))
    idle.answer()
    running = Wire(old, context, buffer=4096)
    running.send(request_of("/v1/completions", {**COMPLETION, "n": 8, "max_tokens": 400, "ignore_eos": True,
                                                "logprobs": 5, "stream": True}))
    assert running.receive().startswith(b"HTTP/1.1 200")
    new = launch("--replace", *flags)
    assert new.url == old.url
    assert idle.rest() == b""  # and TLS says so
    fresh = Wire(new, context)
    fresh.send(request_of("/health"))
    assert fresh.answer()[0].startswith(b"HTTP/1.1 200")
    assert old.process.poll() is None
    told = running.rest()
    assert told.count(b'"finish_reason":"length"') == 8 and told.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    assert old.process.wait(300) == 0
    for wire in (idle, running, fresh):
        wire.socket.close()


def test_a_stop_waits_for_no_client_that_only_listens(launch, own, context):
    server = launch(*flags_of(own), "--stop-grace", "0")
    idle, unread = Wire(server, context), Wire(server, context, buffer=4096)
    idle.send(request_of("/v1/models"))
    idle.answer()
    unread.send(request_of("/v1/completions", {**COMPLETION, **ENDLESS, "stream": True}))
    wait_until(lambda: server.metrics()["troupe_sequences_paused"] == 8, "the unread answer to pause")
    with contextlib.ExitStack() as kept:
        silent, half = (kept.enter_context(socket.create_connection(where(server))) for _ in range(2))
        half.sendall(hello()[:60])
        kept.enter_context(connect(server.ws_url, ssl=context, open_timeout=300))
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(300) == 0
        assert idle.rest() == b""
        for wire in (idle, unread):
            wire.socket.close()
