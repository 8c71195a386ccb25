"""tests/contract/invariance.py: finds nothing in Troupe, and what a server that depends on its load does."""

import http.server
import json
import subprocess
import sys
import threading

from server import ROOT, STORYTELLER

INVARIANCE = ROOT / "tests" / "contract" / "invariance.py"


def ask(url, *flags):
    return subprocess.run([sys.executable, INVARIANCE, url, "--json", *flags], capture_output=True, text=True, timeout=600)


def test_answers_do_not_depend_on_the_load(launch):
    server = launch(model=STORYTELLER)
    told = ask(server.url, "--requests", "12", "--tokens", "24", "--longest", "120", "--crowd", "6")
    assert told.returncode == 0, told.stdout + told.stderr
    rounds = json.loads(told.stdout)
    assert rounds["logprobs"]
    assert [row["requests"] for row in rounds["rounds"].values()] == [6] * 6
    assert all(row["texts_differ"] == row["logprobs_differ"] == 0 for row in rounds["rounds"].values())


REQUESTS = 4
ALONE = 1 + 2 * REQUESTS  # a first one, then each alone, twice


class Fickle(http.server.BaseHTTPRequestHandler):
    """Takes whatever comes behind those that come alone for a crowd: log-probabilities differ, of draws the text, too."""

    seen, lock = 0, threading.Lock()

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with Fickle.lock:
            Fickle.seen += 1
            crowded = Fickle.seen > ALONE
        text = body["prompt"][:4] + ("!" if crowded and body["temperature"] else "")
        answer = json.dumps({"choices": [{"text": text, "logprobs": {"token_logprobs": [None, -1.5 if crowded else -1]}}]})
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer.encode())

    def log_message(self, *_):
        pass


def test_a_server_whose_answers_depend_on_the_load_is_found():
    fickle = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Fickle)
    threading.Thread(target=fickle.serve_forever, daemon=True).start()
    try:
        told = ask(f"http://127.0.0.1:{fickle.server_port}", "--requests", str(REQUESTS), "--crowd", "4")
    finally:
        fickle.shutdown()
    assert told.returncode == 1, told.stderr
    rounds = json.loads(told.stdout)["rounds"]
    assert rounds["alone, in reverse, drawn"]["texts_differ"] == 0
    assert rounds["at once, drawn"]["texts_differ"] == 2
    assert rounds["at once, likeliest"]["texts_differ"] == 0
    assert rounds["at once, likeliest"]["logprobs_differ"] == 2
    assert rounds["at once, likeliest"]["largest_difference"] == 0.5


def test_a_server_that_cannot_be_asked_is_told():
    told = ask("http://127.0.0.1:9")
    assert told.returncode == 2
    assert "cannot be asked" in told.stderr
