"""The page in a headless Chromium, for tests. They are skipped where Debian's package chromium is absent."""

import json
import os
import pathlib
import shutil

import pytest

from server import ROOT, STORYTELLER, Server

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is absent")
CHROMIUM = shutil.which("chromium")
PAGE = ROOT / "api" / "page"
needs_page = [pytest.mark.skipif(not CHROMIUM, reason="Debian's package chromium is absent"),
              pytest.mark.skipif(not STORYTELLER.exists(), reason="the storyteller is absent")]

# TROUPE_PICTURES=MODEL makes the README's pictures, with that model.
SHOWN = pathlib.Path(os.environ.get("TROUPE_PICTURES") or STORYTELLER)


@pytest.fixture(scope="module")
def served():
    server = Server(SHOWN, "--kv-cache", "512MiB") # each cell of the map is one block
    yield server
    assert server.stop() == 0, "".join(server.err)


@pytest.fixture(scope="module")
def chromium():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM)
        yield browser
        browser.close()


class Visit:
    """A page, and all that it asked for and complained of."""

    def __init__(self, browser, url, **context):
        self.context = browser.new_context(**{"viewport": {"width": 1240, "height": 820}, **context})
        self.url, self.requests, self.complaints = url, [], []
        self.page = self.tab()

    def tab(self):
        """A tab of the same browser."""
        page = self.context.new_page()
        page.set_default_timeout(300000)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("websocket", lambda socket: self.requests.append(socket.url.replace("ws", "http", 1)))
        page.on("console", lambda line: line.type in ("error", "warning") and self.complaints.append(line.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(self.url)
        return page

    def ask(self, text):
        self.page.get_by_label("Message", exact=True).fill(text)
        self.page.get_by_label("Message", exact=True).press("Enter")

    def answers(self):
        return self.page.locator(".turn.assistant")

    def wait_for_answer(self, number=0):
        self.page.wait_for_function("n => document.querySelectorAll('.turn.assistant .facts').length > n && "
                                    "!document.querySelector('[aria-busy=true]')", arg=number)

    def text(self, number=-1):
        return self.answers().nth(number).locator(".turn-body > .text:not(.raw)").inner_text()

    def set(self, **values):
        """Values of settings, as text."""
        if not self.page.locator(".settings-pane").is_visible():
            self.page.click("#settings")
        for name, value in values.items():
            field = self.page.locator(f"#set-A-{name}")
            field.select_option(value) if value in ("true", "false") else field.fill(value)

    def picture(self, name, height, width=1240):
        """For READMEs."""
        if os.environ.get("TROUPE_PICTURES"):
            path = PAGE / "pictures" / f"{name}.png"
            path.parent.mkdir(exist_ok=True)
            self.page.set_viewport_size({"width": width, "height": height})
            self.page.wait_for_timeout(120)
            self.page.screenshot(path=path)
            assert path.stat().st_size < 150_000

    def end(self):
        assert self.complaints == []
        assert [url for url in self.requests if not url.startswith((self.url, "data:", "blob:"))] == []
        self.context.close()


class Stream:
    """The tokens of a page's answers, which come when the test says so, however fast the server is."""

    def __init__(self, page, tokens=100):
        self.left, self.held, self.socket = tokens, [], None
        page.route_web_socket("**/v1/ws", self._connect)

    def release(self, tokens):
        self.left += tokens
        held, self.held = self.held, []
        for message in held:
            self._answer(message)

    def lose(self):
        """The connection, and what was on its way."""
        self.held = []
        self.server.close()
        self.socket.close()

    def _connect(self, socket):
        self.socket, self.server, self.held = socket, socket.connect_to_server(), []
        self.server.on_message(self._answer)
        socket.on_message(self._ask)

    def _ask(self, message):
        """A cancel holds what is held for good; the server may have ended already."""
        frame = json.loads(message)
        if frame["type"] != "cancel" or not any(json.loads(one)["type"] == "done" for one in self.held):
            if frame["type"] == "cancel":
                self.held = []
            return self.server.send(message)
        done = json.loads(self.held[-1])
        done["choices"][0]["finish_reason"] = "cancelled"
        self.held = []
        self.socket.send(json.dumps(done))

    def _answer(self, message):
        frame = json.loads(message)
        if frame["type"] == "done" and frame["choices"][0]["finish_reason"] == "cancelled":
            self.held = []
        token = frame["type"] == "token"
        if self.held or token and self.left <= 0:
            return self.held.append(message)
        self.left -= token
        self.socket.send(message)


@pytest.fixture
def visit(chromium, served, launch):  # which stops its servers after the pages have ended: they would complain
    visits = []

    def open(url=served.url, **context):
        visits.append(Visit(chromium, url, **context))
        visits[-1].page.wait_for_selector(".settings-list", state="attached")
        return visits[-1]

    yield open
    for one in visits:
        one.end()


# What is wrong with what is shown: contrast, names of controls, ids.
FAULTS = """() => {
    const numbers = (color) => (color.match(/[\\d.]+/g) || []).map(Number);
    const light = ([r, g, b]) => [r, g, b].map((c) => c / 255)
        .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const behind = (element) => {
        for (let at = element; at; at = at.parentElement) {
            const color = numbers(getComputedStyle(at).backgroundColor);
            if (color.length === 3 || color[3] === 1) return color;
        }
        return [255, 255, 255];
    };
    const faults = [];
    for (const element of document.querySelectorAll('body *')) {
        if (!element.checkVisibility() || element.closest('.unseen, .skip, :disabled')) continue;
        const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
        if (own) {
            const [a, b] = [light(numbers(getComputedStyle(element).color)), light(behind(element))].sort((x, y) => y - x);
            const size = parseFloat(getComputedStyle(element).fontSize);
            const ratio = (a + 0.05) / (b + 0.05);
            if (ratio < (size >= 24 ? 3 : 4.5)) faults.push(`${element.className} ${element.textContent.slice(0, 20)} ${ratio}`);
        }
        if (element.matches('button, input, select, textarea, [role=button], [role=tab], a, canvas')) {
            const label = element.getAttribute('aria-label') || element.textContent.trim() ||
                [...(element.labels || [])].map((one) => one.textContent).join('').trim();
            if (!label) faults.push('no name: ' + element.outerHTML.slice(0, 100));
        }
    }
    const ids = [...document.querySelectorAll('[id]')].map((one) => one.id);
    for (const id of ids) if (ids.indexOf(id) !== ids.lastIndexOf(id)) faults.push('twice: ' + id);
    return faults;
}"""
