"""The web page in a headless Chromium. Skipped where Debian's packages chromium and node-typescript are absent."""

import concurrent.futures
import gzip
import json
import os
import re
import shutil
import subprocess
import threading

import httpx
import pytest

from browser import FAULTS, PAGE, SHOWN, Stream, Visit, chromium, needs_page, served, visit # noqa: F401
from server import ROOT, STORYTELLER, wait_until

pytestmark = needs_page


def test_a_chat_streams_stops_and_remembers(visit, served):
    it = visit()
    it.set(temperature="0", max_tokens="8000", ignore_eos="true")
    it.page.click("#settings")
    stream = Stream(it.page, 40)  # it cannot end before it is stopped
    it.ask("Tell me a story about a fox")
    it.page.wait_for_function("() => document.querySelector('.turn.assistant .text')?.innerText.length > 20")
    early = len(it.text())
    stream.release(40)
    it.page.wait_for_function("n => document.querySelector('.turn.assistant .text').innerText.length > n", arg=early)
    assert it.page.locator("#send").inner_text() == "Stop"
    it.page.click("#send")
    it.wait_for_answer()
    assert "stopped" in it.answers().first.locator(".facts").inner_text()
    served.wait_until_idle()
    text = it.text()
    it.page.reload()
    it.wait_for_answer()
    assert it.text() == text, "a conversation lasts over a reload"


def test_an_answer_shows_where_its_time_went(visit):
    it = visit()
    it.set(temperature="0", max_tokens="40")
    it.page.click("#settings")
    it.ask("Tell me a story about a fox")
    it.wait_for_answer()
    spent = it.page.locator(".spent")
    told = spent.locator(".spent-bar").get_attribute("aria-label")
    assert "prefill " in told and "decode " in told
    assert not spent.locator(".legend").is_visible()
    spent.locator("summary").click()
    assert spent.locator(".legend").is_visible()
    *parts, whole = [float(text.split()[-2]) for text in spent.locator(".legend > span").all_inner_texts()]
    assert whole > 0 and abs(sum(parts) - whole) <= 0.1 * len(parts)
    sizes = spent.locator(".spent-bar i").evaluate_all("all => all.map((one) => one.getBoundingClientRect()).map((r) => [r.width, r.height])")
    assert len(sizes) == len(parts) and all(wide >= 1 and high >= 5 for wide, high in sizes), "each cause is seen"


def test_versions_of_a_turn_side_by_side_and_a_file_of_all(visit, tmp_path):
    it = visit()
    it.set(seed="1", max_tokens="12")
    it.ask("Tell me a story about a fox")
    it.wait_for_answer()
    first = it.text()
    it.set(seed="2")
    it.page.get_by_role("button", name="Regenerate").click()
    it.page.wait_for_function("() => document.querySelector('.branches')?.innerText.includes('2/2')")
    it.wait_for_answer()
    second = it.text()
    assert second != first
    it.page.get_by_role("button", name="The version before").click()
    wait_until(lambda: it.text() == first, "the first version")
    it.page.locator(".turn.user").get_by_role("button", name="Edit").click()
    it.page.get_by_label("Edit the text").fill("Tell me a story about the sea")
    it.page.locator(".turn.user").get_by_role("button", name="Send").click()
    it.page.wait_for_function("() => document.querySelector('.turn.user .branches')?.innerText.includes('2/2')")
    it.wait_for_answer()
    assert it.text() not in (first, second)
    it.page.get_by_label("Side by side").check()
    it.page.get_by_role("button", name="Answer B").click()
    it.page.locator("#set-B-max_tokens").fill("3")
    it.ask("Go on")
    it.page.wait_for_selector(".pair")
    it.wait_for_answer(2)
    pair = it.page.locator(".pair .turn")
    assert pair.count() == 2 and "12 tokens" in pair.nth(0).inner_text() and "3 tokens" in pair.nth(1).inner_text()
    pair.nth(1).get_by_role("button", name="Go on with this").click()
    wait_until(lambda: "picked" in it.page.locator(".pair .turn").nth(1).get_attribute("class"), "the choice to be marked")
    with it.page.expect_download() as download:
        it.page.get_by_role("button", name="Export").click()
    path = tmp_path / "export.json"
    download.value.save_as(path)
    assert len(json.loads(path.read_text())["conversations"]) == 1
    shown = it.page.locator(".thread").inner_text()
    with it.page.expect_file_chooser() as chooser:
        it.page.get_by_role("button", name="Import").click()
    chooser.value.set_files(path)
    it.page.wait_for_function("() => document.querySelectorAll('.conversations li').length === 2")
    wait_until(lambda: it.page.locator(".thread").inner_text() == shown, "the imported conversation to look the same")


def test_the_token_view_shows_alternatives_and_branches(visit):
    it = visit()
    it.set(temperature="0", max_tokens="30")
    it.page.click("#settings")
    it.page.get_by_label("Token view").check()
    it.ask("Tell me a story about a fox")
    it.wait_for_answer()
    tokens = it.page.locator(".tok")
    wait_until(lambda: tokens.count() == 30, "30 tokens")
    before = tokens.all_inner_texts()
    tokens.nth(9).click()
    it.picture("tokens", 600)
    other = it.page.locator(".alternative:not(.chosen)").first
    chosen = other.locator("code").inner_text().replace("␣", " ")
    other.click()
    it.page.wait_for_function("() => document.querySelector('.facts')?.innerText.includes('branched after 10 tokens')")
    it.wait_for_answer()
    wait_until(lambda: tokens.count() == 40, "the tokens of both")
    after = tokens.all_inner_texts()
    assert after[:9] == before[:9] and after[9].strip() == chosen.strip() != before[9].strip()
    assert "shared" in it.page.locator(".facts").inner_text()
    # The keyboard does the same.
    it.page.locator(".tok").first.focus()
    it.page.keyboard.press("ArrowRight")
    it.page.keyboard.press("Enter")
    it.page.wait_for_function("() => document.activeElement.className.startsWith('alternative')")
    # The answer may be drawn again meanwhile.
    it.page.evaluate("for (const t of document.querySelectorAll('.tok')) t.replaceWith(t.cloneNode(true))")
    it.page.keyboard.press("Escape")
    wait_until(lambda: it.page.locator(".popover").count() == 0, "the alternatives to close")
    wait_until(lambda: it.page.evaluate("document.activeElement.dataset.place") == "1",
               "the keyboard to go on from the same token")


def test_calls_of_tools_are_answered_in_a_sandbox_and_by_hand(visit):
    it = visit()
    it.set(temperature="0")
    it.page.click("#settings")
    it.page.click("#tools")
    it.page.get_by_role("button", name="Add a tool").click()
    it.page.get_by_label("Name", exact=True).fill("get_weather")
    it.page.get_by_label("Parameters, a JSON Schema").fill(
        '{"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}')
    it.page.get_by_label("JavaScript").fill(
        "let cut = 'cut off'; try { await fetch('/health'); cut = 'reached'; } catch {}\n"
        "try { localStorage.length; cut = 'reached'; } catch {}\n"
        "return {weather: 'sunny', temperature: cut === 'cut off' ? 21 : 99};")
    it.page.get_by_role("button", name="Done").click()
    it.ask("What is the weather in Paris?")
    it.page.wait_for_selector(".turn.tool")
    it.wait_for_answer(1)
    result = json.loads(it.page.locator(".turn.tool .turn-body").inner_text())
    assert result == {"weather": "sunny", "temperature": 21}, "functions must reach nothing"
    assert "Paris" in it.text() and "21 degrees" in it.text()
    it.complaints[:] = [line for line in it.complaints if "Content Security Policy" not in line and "fetch" not in line.lower()]
    it.page.click("#tools")
    it.page.get_by_label("JavaScript").fill("")
    it.page.get_by_role("button", name="Done").click()
    it.page.get_by_role("button", name="New conversation").click()
    it.ask("What is the weather in Paris?")
    it.page.get_by_label("Result of get_weather").fill('{"weather": "rainy", "temperature": 7}')
    it.page.get_by_role("button", name="Send the results").click()
    it.wait_for_answer(1)
    assert "7" in it.text()


def load(server, requests=12, tokens=60):
    """Requests side by side, with prompts that share their beginning."""
    with concurrent.futures.ThreadPoolExecutor(requests) as pool:
        done = [pool.submit(server.post, "/v1/chat/completions", {
            "messages": [{"role": "user", "content": "Tell me a story about a fox " + "and an owl " * number}],
            "max_tokens": tokens, "ignore_eos": True, "seed": number}) for number in range(requests)]
        assert all(one.result().status_code == 200 for one in done)


SEEN = """async () => {
    const { steps, latest } = (await import('/page/engine.js')).state();
    const sum = (name) => steps.reduce((all, step) => all + (step[name] || 0), 0);
    const map = latest ? latest.replicas.map((one) => one.map).join('') : '';
    const scheduler = latest?.actors.find((one) => one.kind === 'scheduler');
    return {count: steps.length, decode: sum('decode'), prefill: sum('prefill'),
            copied: sum('copied'), lanes: steps.reduce((all, step) => all + (step.lanes || []).length, 0),
            used: [...map].filter((c) => c >= '1' && c <= '9').length, cached: [...map].filter((c) => c === 'c').length,
            blocks: map.length, handled: scheduler?.handled ?? 0};
}"""


def test_the_engine_view_moves_and_equals_the_metrics(visit, served, tmp_path):
    it = visit()
    before = served.metrics()
    it.page.get_by_role("tab", name="Engine").click()
    wait_until(lambda: it.page.evaluate(SEEN)["blocks"], "the first frame")

    def crowded():
        """Twelve more requests, which come one after the other where this machine is busy."""
        load(served)
        served.wait_until_idle()
        seen = it.page.evaluate(SEEN)
        return seen["lanes"] > seen["count"]

    wait_until(crowded, "steps of several requests")
    after = served.metrics()

    def gained(name):
        return after[name] - before[name]

    def settled():
        seen = it.page.evaluate(SEEN)
        return seen if seen["count"] >= gained("troupe_steps_total") and seen["used"] == 0 else None

    seen = wait_until(settled, "the last step to be shown")
    assert seen["count"] == gained("troupe_steps_total") > 20
    assert seen["prefill"] == gained("troupe_prefill_rows_total") > 100
    assert seen["decode"] + gained("troupe_spec_decode_num_draft_tokens_total") == gained("troupe_decode_rows_total")
    assert seen["copied"] == gained("troupe_kv_blocks_copied_total")
    assert seen["blocks"] == after["troupe_kv_blocks"]
    assert seen["cached"] == after["troupe_kv_blocks_cached"] and seen["used"] == 0
    assert seen["lanes"] > seen["count"] and seen["handled"] > seen["count"]
    # Where the time of each sequence went: the parts sum to the whole.
    it.page.get_by_text("Where their time went").click()
    it.page.wait_for_function("() => document.querySelectorAll('#ledger tbody tr').length > 0")
    for row in it.page.evaluate("""[...document.querySelectorAll('#ledger tbody tr')].map((row) =>
            [...row.cells].slice(1).map((cell) => cell.textContent === '–' ? 0 : Number(cell.textContent.replace(' k', 'e3'))))"""):
        *parts, whole = row
        assert whole > 0 and abs(sum(parts) - whole) <= 0.01 * whole + 0.5, row
    # Frozen, it goes through the steps.
    it.page.click("#freeze")
    last = it.page.locator(".detail").first.inner_text()
    it.page.locator("canvas").first.focus()
    it.page.keyboard.press("ArrowLeft")
    wait_until(lambda: it.page.locator(".detail").first.inner_text() != last, "another step's detail")
    assert it.page.evaluate(FAULTS) == []
    with it.page.expect_download() as download:
        it.page.get_by_role("button", name="Save as a trace").click()
    path = tmp_path / "trace.json"
    download.value.save_as(path)
    spans = [event for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    assert len([event for event in spans if event["tid"] == 0]) == seen["count"]
    assert len([event for event in spans if event["tid"] > 0]) == seen["lanes"]
    # Nobody looks: nothing is recorded.
    it.page.get_by_role("tab", name="Chat").click()

    def unseen():
        count = it.page.evaluate(SEEN)["count"]
        load(served, 2, 8)
        it.page.wait_for_timeout(300)  # a frame and a half
        return it.page.evaluate(SEEN)["count"] == count

    wait_until(unseen, "steps to pass unseen")


@pytest.mark.skipif(not os.environ.get("TROUPE_PICTURES"), reason="makes a picture, with TROUPE_PICTURES=MODEL")
def test_a_picture_of_the_engine_under_load(visit, launch):
    busy = launch("--kv-cache", "48MiB", "--kv-dtype", "bf16", model=SHOWN)
    it = visit(busy.url)
    it.page.get_by_role("tab", name="Engine").click()
    wait_until(lambda: it.page.evaluate(SEEN)["blocks"], "the first frame")
    done = threading.Event()

    def work(number):
        while not done.is_set():
            load(busy, 1 + number % 2, 90 + 60 * number)

    with concurrent.futures.ThreadPoolExecutor() as pool:
        loads = [pool.submit(work, number) for number in range(5)]
        try:
            it.page.set_viewport_size({"width": 1240, "height": 1130})
            wait_until(lambda: it.page.evaluate(SEEN)["count"] > 400 and it.page.evaluate(SEEN)["used"] > 10, "many steps")
            it.picture("engine", 1130)
        finally:
            done.set()
        assert all(one.result() is None for one in loads)


def test_the_figures_are_those_of_the_metrics(visit, served):
    it = visit()
    figures = it.page.get_by_role("tab", name="Figures")
    figures.click()
    it.page.wait_for_selector("#view-figures .number")
    load(served, 6, 40)
    served.wait_until_idle()
    it.page.get_by_role("tab", name="Chat").click()
    figures.click()
    generated = served.metrics()["troupe_generated_tokens_total"]
    it.page.wait_for_function("n => document.querySelector('#view-figures .number b')?.textContent === n", arg=f"{generated:,.0f}")
    labels = it.page.locator("#view-figures canvas").evaluate_all("all => all.map((one) => one.ariaLabel)")
    assert len(labels) == 6 and all("now: " in label for label in labels)
    assert "none" not in labels[2], labels # there was a first token in the last minute
    assert it.page.evaluate(FAULTS) == []


def test_the_figures_of_several_models_are_their_sums(visit, launch):
    both = launch("-m", f"b={STORYTELLER}", "--kv-cache", "64MiB", model=f"a={STORYTELLER}")
    for model in "ab":
        asked = {"model": model, "prompt": "Once upon", "max_tokens": 5, "ignore_eos": True}
        assert both.post("/v1/completions", asked).status_code == 200
    it = visit(both.url)
    it.page.get_by_role("tab", name="Figures").click()
    it.page.wait_for_function("() => document.querySelector('#view-figures .number b')?.textContent === '10'") # of tokens
    values = it.page.evaluate("""async () => Object.fromEntries((await import('/page/figures.js')).state().samples.at(-1).values)""")
    assert values["troupe_kv_blocks"] == sum(int(line.split()[-1]) for line in both.get("/metrics").text.splitlines()
                                             if line.startswith("troupe_kv_blocks{"))


def test_gaps_have_causes(visit, launch):
    """More requests than may run: those that wait say why, in the lanes, the ledger and the trace."""
    narrow = launch("--max-sequences", "1", "--speculate", "off", model=STORYTELLER)
    it = visit(narrow.url)
    it.page.get_by_role("tab", name="Engine").click()
    wait_until(lambda: it.page.evaluate(SEEN)["blocks"], "the first frame")

    def ledgers():
        return it.page.evaluate("""async () => {
            const { steps } = (await import('/page/engine.js')).state();
            const { ledgerOf } = await import('/page/steps.js');
            return [...ledgerOf(steps).values()].map((own) => Object.fromEntries(own));
        }""")

    def contended():
        """Three more requests, which come one after the other where this machine is busy."""
        load(narrow, 3, 30)
        return sum(own.get("queue", 0) > 0 for own in ledgers()) >= 2

    wait_until(contended, "two requests that waited for others", 60)
    found = wait_until(lambda: (own := ledgers()) and all(one.get("decode", 0) > 0 for one in own) and own, "their steps")
    lanes = it.page.evaluate("""async () => (await import('/page/engine.js')).state().steps.map((step) => step.lanes)""")
    assert all(len([lane for lane in step if lane[2] != "queue"]) == 1 for step in lanes), lanes  # one runs at a time
    assert {name for own in found for name in own} <= {"decode", "prefill", "queue", "turn"}


def test_figures_begin_with_the_hour_before_the_page_was_opened(visit, served):
    kept = wait_until(lambda: (now := served.get("/debug/figures").json())["samples"] and now, "the first figures")
    assert "troupe_generated_tokens_total" in kept["names"]
    assert all(0 <= kept["now"] - at <= 3600 for at, *_ in kept["samples"])
    it = visit()
    names = ["troupe_generated_tokens_total", "troupe_kv_blocks", "troupe_kv_blocks_in_use"]
    made = {"now": 1000.0, "names": names, "samples": [[1000.0 - 10 * (300 - i), 50 * i, 100, 25] for i in range(300)]}
    it.page.route("**/debug/figures", lambda route: route.fulfill(json=made))
    it.page.get_by_role("tab", name="Figures").click()
    it.page.wait_for_selector("#view-figures .number")
    last = it.page.evaluate("""async () => {
        const { state } = await import('/page/figures.js');
        const { samples, rates } = state();
        return { count: samples.length, span: samples.at(-1).at - samples[0].at, rates: rates.slice(1, 300) };
    }""")
    assert last["count"] >= 301 and 2900 < last["span"] < 3100
    assert all(abs(rate - 5) < 0.01 for rate in last["rates"])


def test_a_trace_of_the_next_seconds(served):
    def traced():
        """The requests of a second, which may be few where this machine is busy."""
        with concurrent.futures.ThreadPoolExecutor() as pool:
            trace = pool.submit(served.get, "/debug/trace?seconds=1")
            loads = 0
            while not trace.done():  # whenever it begins
                load(served, 4, 20)
                loads += 1
            events = trace.result().json()["traceEvents"]
        tracks = [event["args"]["name"] for event in events if event["name"] == "thread_name"]
        requests = [name for name in tracks if name.startswith("request ")]
        assert not tracks or tracks[0] == "steps"
        assert len(requests) == len(set(requests)) <= 4 * loads
        return len(requests) >= 4

    wait_until(traced, "a trace of several requests")


def test_an_answer_follows_a_json_schema_and_has_a_file(visit, tmp_path):
    it = visit()
    it.page.click("#settings")
    it.page.get_by_label("Form of the answer A").select_option("schema")
    it.page.get_by_label("What it must follow A").fill(
        '{"type": "object", "properties": {"age": {"type": "integer", "maximum": 99}}, "required": ["age"]}')
    it.page.get_by_label("Search settings A").fill("penalt")
    it.page.locator("#set-A-temperature").wait_for(state="hidden")
    assert "frequency_penalty" in it.page.locator(".settings-list").inner_text()
    notes = tmp_path / "notes.txt"
    notes.write_text("The owl is brave.")
    with it.page.expect_file_chooser() as chooser:
        it.page.get_by_role("button", name="Attach").click()
    chooser.value.set_files(notes)
    it.page.wait_for_selector(".attached .tag")
    it.page.locator("details.system summary").click()
    it.page.get_by_label("System prompt").fill("You know owls.")
    it.ask("How old is the owl?")
    it.wait_for_answer()
    assert json.loads(it.text()).keys() == {"age"}
    assert it.page.locator(".file summary").inner_text() == "notes.txt, 17 characters"
    it.set()
    it.page.get_by_label("What it must follow A").fill("{")
    it.page.get_by_label("What it must follow A").blur()
    it.ask("Again")
    it.page.locator(".wrong", has_text="JSON Schema is not JSON.").wait_for()


def test_texts_have_contrast_and_controls_have_names(visit):
    it = visit()
    it.page.click("#settings")
    it.page.get_by_label("Token view").check()
    it.set(max_tokens="40")
    it.ask("Tell me a story about a fox")
    it.wait_for_answer()
    for theme in ("light", "dark"):
        while it.page.locator("#theme").inner_text() != f"Theme: {theme}":
            it.page.click("#theme")
        assert it.page.evaluate(FAULTS) == [], theme


def test_the_page_asks_for_the_key(chromium, launch):
    guarded = launch("--api-key", "se/cret+1", model=STORYTELLER)
    it = Visit(chromium, guarded.url)
    field = it.page.get_by_label("API key", exact=True).locator("input")
    field.fill("wrong")
    it.page.get_by_role("button", name="Use it").click()
    it.page.get_by_text("The server does not know this key.").wait_for()
    field.fill("se/cret+1")
    it.page.get_by_role("button", name="Use it").click()
    it.page.wait_for_selector(".settings-list", state="attached")
    it.set(max_tokens="5")
    it.ask("Tell me a story about a fox")
    it.wait_for_answer()
    it.complaints[:] = [line for line in it.complaints if "401" not in line]
    it.end()


def test_settings_are_those_that_the_server_knows(launch):
    names = re.findall(r"^  \{ name: '(\w+)'", (PAGE / "settings.js").read_text(), re.MULTILINE)
    assert len(names) > 20
    server = launch("--unknown-fields", "reject", model=STORYTELLER)
    asked = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    for name in names:
        answer = httpx.post(server.url + "/v1/chat/completions", json={**asked, name: asked.get(name)}, timeout=300)
        assert answer.status_code == 200, answer.text


@pytest.mark.skipif(not shutil.which("tsc"), reason="Debian's package node-typescript is absent")
def test_types():
    done = subprocess.run(["tsc", "-p", str(PAGE / "jsconfig.json")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_page_is_small(served):
    files = [path.read_bytes() for path in PAGE.iterdir() if path.suffix in (".html", ".js", ".css", ".svg")]
    files.append(served.get("/page/libraries.js").content)
    assert sum(len(gzip.compress(one)) for one in files) < 250_000


def test_a_server_without_the_page(launch):
    bare = launch("--no-page")
    assert bare.get("/", headers={"Accept": "text/html"}).text == "Ollama is running"
