"""The page's chat in a headless Chromium: what lasts, what is said when something is wrong, and who can use it."""

import json
import re

import pytest

from browser import FAULTS, Stream, Visit, chromium, needs_page, served, visit # noqa: F401
from server import STORYTELLER, wait_until

pytestmark = needs_page
STORY = "Tell me a story about a fox"
LONG = {"temperature": "0", "max_tokens": "8000", "ignore_eos": "true"}


def shown(page):
    return page.locator(".turn.assistant .text").last.inner_text()


def grows(page, least):
    """Waits until the answer has more characters."""
    page.wait_for_function("n => [...document.querySelectorAll('.turn.assistant .text')].at(-1)?.innerText.length > n", arg=least)


def begin(it, tokens=100):
    """Asks for a long answer, which stands still behind so many tokens."""
    stream = Stream(it.page, tokens)
    it.set(**LONG)
    it.page.click("#settings")
    it.ask(STORY)
    grows(it.page, 2 * tokens)
    return stream


def stop(it):
    it.page.click("#send")
    it.page.wait_for_function("() => !document.querySelector('[aria-busy=true]')")


# -- what lasts -----------------------------------------------------------------------------------------------------------

def test_a_reload_within_an_answer_keeps_it(visit, served):
    it = visit()
    stream = begin(it)
    seen = shown(it.page)
    it.page.reload()
    it.page.locator(".cut").wait_for()
    assert "This answer was interrupted." in it.page.locator(".cut").inner_text()
    kept = shown(it.page)
    assert kept.startswith(seen.rstrip()), (seen, kept)
    it.page.wait_for_selector(".settings-list", state="attached")
    stream.left = 100
    it.page.get_by_role("button", name="Continue").click()
    grows(it.page, len(kept) + 50)
    stop(it)
    assert shown(it.page).startswith(kept.rstrip())
    served.wait_until_idle()


def test_an_answer_that_was_cut_goes_on_as_if_it_had_not_been(visit):
    it = visit()
    it.set(temperature="0", max_tokens="12")
    it.ask(STORY)
    it.wait_for_answer()
    assert "This answer was cut at the limit of tokens." in it.page.locator(".cut").inner_text()
    it.page.get_by_role("button", name="Continue").click()
    it.page.wait_for_function("() => document.querySelector('.facts')?.innerText.includes('24 tokens')")
    continued = it.text()
    it.set(max_tokens="24")
    it.page.get_by_role("button", name="Regenerate").click()
    it.page.wait_for_function("() => document.querySelector('.branches')?.innerText.includes('2/2')")
    it.wait_for_answer()
    assert it.text() == continued
    # A form cannot be gone on with.
    it.page.get_by_label("Form of the answer A").select_option("json")
    it.set(max_tokens="2")
    it.ask("Write JSON about a fox")
    it.wait_for_answer(1)
    assert "raise max_tokens" in it.page.locator(".cut").last.inner_text()


def test_two_tabs_keep_what_both_said(visit):
    it = visit()
    it.set(max_tokens="5")
    it.ask(STORY)
    it.wait_for_answer()
    other = it.tab()
    other.wait_for_selector(".turn.user")
    for page, text in ((it.page, "From tab one"), (other, "From tab two")):
        page.get_by_label("Message", exact=True).fill(text)
        page.get_by_label("Message", exact=True).press("Enter")
    for page, text in ((it.page, "From tab one"), (other, "From tab two")):
        page.wait_for_function("""() => document.querySelectorAll('.turn.assistant .facts').length > 1
            && !document.querySelector('[aria-busy=true]')""")
        assert text in page.locator(".thread").inner_text(), "each goes on with its own"
    for page in (it.page, other):
        page.wait_for_function("""async () => {
            const { isChanged } = await import('/page/conversation.js');
            return (await import('/page/conversations.js')).all.every((one) => !isChanged(one));
        }""")
    third = it.tab()
    third.wait_for_function("() => document.querySelectorAll('.turn.user').length > 1")
    users = third.evaluate("""async () => {
        const { all } = await import('/page/conversations.js');
        return all.flatMap((one) => Object.values(one.turns)).filter((turn) => turn.role === 'user').map((turn) => turn.content);
    }""")
    assert sorted(users) == sorted([STORY, "From tab one", "From tab two"])
    # A name and a deletion reach the others, too.
    third.get_by_role("button", name=re.compile("^Rename")).click()
    third.keyboard.type("Foxes")
    third.keyboard.press("Enter")
    it.page.get_by_role("button", name="Foxes", exact=True).wait_for()
    third.get_by_role("button", name="Delete Foxes").click()
    third.get_by_role("dialog").get_by_role("button", name="Delete").click()
    it.page.locator(".welcome").wait_for()
    assert it.page.locator(".conversations li").count() == 0


def test_another_tab_shows_an_answer_as_it_is_written(visit):
    it = visit()
    stream = begin(it)
    other = it.tab()
    other.wait_for_selector(".turn.assistant .text")
    early = len(shown(other))
    stream.release(100)
    grows(other, early + 100)
    assert other.get_by_text("being written in another tab").is_visible() and other.locator(".cut").count() == 0
    stop(it)
    wait_until(lambda: "stopped" in other.locator(".turn.assistant").inner_text(), "the other tab to show the end")
    assert shown(other) == shown(it.page)
    # A tab that is closed writes no more. A busy browser may end it before it can say so: the others notice after 65 s.
    stream.left = 50
    it.page.get_by_role("button", name="Continue").click()
    other.get_by_text("being written in another tab").wait_for()
    it.page.goto("about:blank")
    other.locator(".cut", has_text="interrupted").wait_for()


@pytest.mark.parametrize("way", ["throws", "aborts"])
def test_full_storage_is_said(visit, way):
    it = visit()
    it.set(max_tokens="5")
    throws = "throw new DOMException('full', 'QuotaExceededError');"
    it.page.evaluate("() => { window.put = IDBObjectStore.prototype.put; IDBObjectStore.prototype.put = function () { %s }; }" % (
        throws if way == "throws" else "this.transaction.abort();"))
    it.ask(STORY)
    it.page.locator(".trouble", has_text="not saved").wait_for()
    assert ("storage is full" in it.page.locator(".trouble:visible").inner_text()) == (way == "throws")
    it.wait_for_answer()
    with it.page.expect_download() as download:
        it.page.get_by_role("button", name="Export all").click()
    assert STORY in download.value.path().read_text()
    # Once there is room, all of it is stored.
    it.page.evaluate("() => { IDBObjectStore.prototype.put = window.put; }")
    it.ask("Go on")
    it.wait_for_answer(1)
    wait_until(lambda: not it.page.locator(".trouble:visible").count(), "the trouble to be over")
    it.page.reload()
    it.page.wait_for_function("() => document.querySelectorAll('.turn.user').length === 2")


def test_an_edit_survives_what_happens_meanwhile(visit):
    it = visit()
    begin(it, 10)
    user = it.page.locator(".turn.user").first
    user.hover()
    user.get_by_role("button", name="Edit").click()
    it.page.get_by_label("Edit the text").fill("half a thou")
    stop(it)
    assert it.page.get_by_label("Edit the text").input_value() == "half a thou"
    it.page.get_by_role("button", name="Cancel").click()
    assert user.locator(".text").inner_text() == STORY


def test_conversations_have_names_and_are_found(visit):
    it = visit()
    it.set(max_tokens="5")
    for text in ("About an owl", "About the sea"):
        it.page.get_by_role("button", name="New conversation").click()
        it.ask(text)
        it.wait_for_answer()
    it.page.locator(".conversations li").last.hover()
    it.page.get_by_role("button", name="Rename About an owl").click()
    it.page.keyboard.type("Night birds")
    it.page.keyboard.press("Enter")
    wait_until(lambda: it.page.get_by_role("button", name="Night birds", exact=True).count(), "the name")
    assert it.page.evaluate("document.activeElement.ariaLabel") == "Rename Night birds"
    it.page.get_by_label("Search conversations").fill("OWL") # in its texts
    assert it.page.locator(".conversations li").count() == 1
    it.page.get_by_label("Search conversations").fill("neither")
    assert it.page.get_by_text("No conversation has this").is_visible()
    it.page.reload()
    it.page.get_by_role("button", name="Night birds", exact=True).wait_for()


# -- what is said -----------------------------------------------------------------------------------------------------------

def test_a_busy_server_is_asked_again(chromium, launch):
    it = Visit(chromium, launch(model=STORYTELLER).url)
    it.page.wait_for_selector(".settings-list", state="attached")
    refused = []

    def through(socket):
        server = socket.connect_to_server()

        def ask(message):
            frame = json.loads(message)
            if frame["type"] == "generate" and len(refused) < 2:
                refused.append(frame)
                error = {"message": "the queue is full", "type": "rate_limit_error", "param": None, "code": "rate_limit_exceeded"}
                socket.send(json.dumps({"type": "error", "id": frame["id"], "error": error, "retry_after": 1}))
            else:
                server.send(message)

        socket.on_message(ask)

    it.page.route_web_socket("**/v1/ws", through)
    it.page.reload()
    it.page.wait_for_selector(".settings-list", state="attached")
    it.set(max_tokens="5")
    it.page.evaluate("""() => {
        window.said = '';
        new MutationObserver(() => { window.said += document.querySelector('.thread').innerText; })
            .observe(document.body, { childList: true, characterData: true, subtree: true });
    }""")
    it.ask(STORY)
    it.wait_for_answer()
    assert re.search(r"The server is busy\. Next try in 1 s \(2 of 8\)", it.page.evaluate("window.said"))
    assert len(refused) == 2 and "5 tokens" in it.page.locator(".facts").inner_text()
    # Over HTTP.
    times = []

    def busy(route):
        times.append(1)
        if len(times) == 1:
            route.fulfill(status=429, headers={"Retry-After": "1"}, json={"error": {"message": "busy"}})
        else:
            route.continue_()

    it.page.route("**/v1/models", busy)
    it.page.reload()
    it.page.wait_for_selector(".settings-list", state="attached")
    assert len(times) >= 2
    it.complaints[:] = [line for line in it.complaints if "429" not in line]
    it.end()


def test_a_lost_connection_offers_to_continue(visit):
    it = visit()
    stream = begin(it, 400) # more than its limit leaves of the context
    stream.lose()
    it.page.locator(".wrong", has_text="The connection to the server was lost.").wait_for()
    kept = shown(it.page)
    stream.left = 100
    it.page.get_by_role("button", name="Continue").click()
    grows(it.page, len(kept) + 50)
    assert shown(it.page).startswith(kept.rstrip()) and it.page.locator(".wrong").count() == 0
    stop(it)


def test_a_server_that_is_gone_and_another_in_its_place(chromium, launch):
    first = launch(model=STORYTELLER)
    it = Visit(chromium, first.url)
    it.page.wait_for_selector(".settings-list", state="attached")
    assert first.stop() == 0
    it.ask(STORY)
    message = it.page.locator(".turn .wrong")
    message.wait_for()
    assert "cannot be reached" in message.inner_text() and it.url.split("//")[1] in message.inner_text()
    it.page.locator("#state", has_text="cannot be reached; trying again").wait_for()
    assert "Failed to fetch" not in it.page.locator("body").inner_text()
    launch("--port", it.url.rsplit(":", 1)[1], "--model-name", "other", model=STORYTELLER)
    it.page.locator(".model", has_text="other").wait_for()
    it.set(max_tokens="5")
    it.page.get_by_role("button", name="Continue").click()
    it.wait_for_answer()
    assert "5 tokens" in it.page.locator(".facts").inner_text()
    it.complaints.clear() # connections that were refused
    it.end()


def test_the_first_screen_names_the_model(visit, launch, served):
    it = visit()
    name = served.get("/v1/models").json()["data"][0]["id"]
    assert it.page.locator(".model").inner_text() == it.page.locator(".welcome h2").inner_text() == name
    other = visit(launch("--model-name", "other", model=STORYTELLER).url)
    assert other.page.locator(".model").inner_text() == "other"
    assert other.page.locator(".welcome button").count() == 0, "nothing is suggested to models that nobody knows"


def models(it, *made):
    """The page sees these models, and what it sends is returned."""
    it.page.route("**/v1/models", lambda route: route.fulfill(json={"data": made}))
    sent = []

    def through(socket):
        server = socket.connect_to_server()

        def ask(message):
            frame = json.loads(message)
            if frame["type"] == "generate":
                sent.append(frame)
                frame = {name: value for name, value in frame.items() if name != "model"}
            server.send(json.dumps(frame))

        socket.on_message(ask)

    it.page.route_web_socket("**/v1/ws", through)
    it.page.route("**/tokenize", lambda route: route.fulfill(json={"tokens": [1, 2, 3], "count": 3}))
    it.page.reload()
    it.page.wait_for_selector(".settings-list", state="attached")
    return sent


def test_a_switcher_between_models_and_what_is_used_where_nothing_is_set(visit):
    it = visit()
    named = {"temperature": 0.7, "top_p": 0.9, "named_by_model": True, "source": "generation_config.json"}
    usual = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "named_by_model": False,
             "source": "defaults, as the model names none"}
    sent = models(it, {"id": "big", "max_model_len": 8192, "sampling": usual},
                  {"id": "small", "max_model_len": 2000, "sampling": named}, {"id": "reader", "max_model_len": 512})
    choice = it.page.locator(".model").get_by_label("Model", exact=True)
    assert choice.locator("option").all_inner_texts() == ["big", "small"], "one that only reads is no choice"
    it.set(seed="1")
    assert it.page.locator(".sampling").inner_text() == \
        "Unless set below: temperature 0.8, top_k 40, top_p 0.95, min_p 0.05 (defaults, as the model names none)."
    assert it.page.locator("#set-A-temperature").get_attribute("placeholder") == "0.8"
    assert it.page.locator("#set-A-max_tokens").get_attribute("placeholder") == "4096"
    it.ask(STORY)
    it.wait_for_answer()
    assert {name: sent[0].get(name) for name in ("model", "temperature", "top_k", "top_p", "min_p", "max_tokens", "seed")} == {
        "model": None, "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "max_tokens": 4096, "seed": 1}
    choice.select_option("small")
    assert "0.7" in it.page.locator(".sampling").inner_text() and "generation_config.json" in it.page.locator(".sampling").inner_text()
    it.set(temperature="0")
    it.ask("Go on")
    it.wait_for_answer(1)
    assert sent[1]["model"] == "small" and sent[1]["temperature"] == 0
    assert "top_p" not in sent[1], "what the model names is the server's to fill in"
    assert sent[1]["max_tokens"] == 2000 - 3, "what fits behind the prompt"
    assert it.page.locator(".turn.assistant header").all_inner_texts() == ["big", "small"]
    it.page.reload() # the choice is kept, and a model that is gone is not asked for
    models(it, {"id": "big", "max_model_len": 8192})
    assert it.page.locator(".model").inner_text() == "big"


def test_going_on_is_the_same_models(visit):
    it = visit()
    sent = models(it, {"id": "big", "max_model_len": 8192}, {"id": "small", "max_model_len": 8192})
    it.set(max_tokens="3")
    it.ask(STORY)
    it.wait_for_answer()
    it.page.locator(".model").get_by_label("Model", exact=True).select_option("small")
    it.page.get_by_role("button", name="Continue").click()
    it.page.wait_for_function("() => document.querySelector('.facts')?.innerText.includes('6 tokens')")
    assert "model" not in sent[1] and len(sent[1]["prompt"]) == 3 + 3, "its tokens, and its own model"
    it.page.get_by_role("button", name="Regenerate").click()
    it.page.wait_for_function("() => document.querySelector('.branches')?.innerText.includes('2/2')")
    it.wait_for_answer()
    assert sent[2]["model"] == "small"


def test_how_full_the_context_is(visit):
    it = visit()
    models(it, {"id": "tiny", "max_model_len": 60})
    it.set(max_tokens="8")
    it.ask(STORY)
    it.wait_for_answer()
    facts = it.page.locator(".facts").inner_text()
    used = sum(int(re.search(pattern, facts)[1]) for pattern in (r"(\d+) tokens ", r"prompt of (\d+)"))
    assert it.page.locator(".context").inner_text().strip().startswith(f"{used} of 60 tokens")
    bar = it.page.get_by_role("meter", name="How full the context is")
    assert abs(bar.evaluate("(one) => one.value") - used / 60) < 1e-6
    models(it, {"id": "tiny", "max_model_len": used})
    assert "nearly full" in it.page.locator(".context").inner_text()


def test_token_colours_have_a_legend_and_causes_colours_of_their_own(visit):
    it = visit()
    it.page.get_by_label("Token view").check()
    it.set(max_tokens="5")
    it.ask(STORY)
    it.wait_for_answer()
    legend = it.page.locator(".token-legend")
    assert "90 % and more" in legend.inner_text() and legend.locator("span").count() == 5
    for theme in ("light", "dark"):
        while it.page.locator("#theme").inner_text().strip() != f"Theme: {theme}":
            it.page.click("#theme")
        twice = it.page.evaluate("""async () => {
            const { ledger, parts } = await import('/page/steps.js');
            const style = getComputedStyle(document.documentElement);
            const groups = [ledger.map((one) => one[1]), parts.map((one) => one[1]), ['c-free', 'c-cached', 'c-disk', 'c-used', 'c-shared', 'c-forced']];
            const rgb = (name) => [1, 3, 5].map((i) => parseInt(style.getPropertyValue(`--${name}`).trim().slice(i, i + 2), 16));
            return groups.flatMap((names) => names.flatMap((a, i) => names.slice(i + 1).filter((b) => {
                const [x, y] = [rgb(a), rgb(b)];
                return Math.hypot(...x.map((value, k) => value - y[k])) < 40;
            }).map((b) => `${a} ${b}`)));
        }""")
        assert twice == [], theme


# -- who can use it ---------------------------------------------------------------------------------------------------------

def test_input_methods_send_nothing_by_their_enter(visit):
    it = visit()
    box = it.page.get_by_label("Message", exact=True)
    box.fill("にほん")
    for event in ("{key: 'Enter', keyCode: 229}", "{key: 'Enter', isComposing: true}", "{key: 'Enter', shiftKey: true}"):
        box.evaluate("(box, event) => box.dispatchEvent(new KeyboardEvent('keydown', { ...event, bubbles: true, cancelable: true }))",
                     json.loads(re.sub(r"(\w+):", r'"\1":', event.replace("'", '"'))))
    assert it.page.locator(".turn").count() == 0
    it.set(max_tokens="3")
    box.press("Enter")
    it.wait_for_answer()
    assert it.page.locator(".turn.user .text").inner_text() == "にほん"


def test_buttons_below_turns_appear_on_hover_and_focus(visit):
    it = visit()
    it.set(max_tokens="3")
    it.page.click("#settings")
    it.ask(STORY)
    it.wait_for_answer()
    it.page.mouse.move(0, 0)
    user = it.page.locator(".turn.user")
    opacity = "(one) => getComputedStyle(one).opacity"
    edit = user.get_by_role("button", name="Edit")
    assert edit.evaluate(opacity) == "0" and it.page.get_by_role("button", name="Regenerate").evaluate(opacity) == "1"
    user.hover()
    assert edit.evaluate(opacity) == "1"
    it.page.mouse.move(0, 0)
    user.get_by_role("button", name="Copy").focus()
    assert edit.evaluate(opacity) == "1"


PHONE = {"viewport": {"width": 375, "height": 700}, "has_touch": True, "is_mobile": True}


def test_a_phone_has_targets_for_fingers_and_fields_that_do_not_zoom(visit):
    it = visit(**PHONE)
    page = it.page
    box = page.get_by_label("Message", exact=True)
    box.fill(STORY)
    box.press("Enter") # a new line: keyboards on screens have no other
    assert box.input_value() == STORY + "\n" and page.locator(".turn").count() == 0
    page.click("#more")
    page.get_by_label("Token view").check()
    page.click("#settings")
    page.locator("#set-A-max_tokens").fill("20")
    small = """() => [...document.querySelectorAll('button, select, input, textarea, summary, label.check')].filter((one) => {
        const at = one.getBoundingClientRect();
        if (!at.width || one.closest('label.check') && one.localName === 'input') return false;
        return at.height < 44 || at.width < 44 || one.matches('input, select, textarea') && parseFloat(getComputedStyle(one).fontSize) < 16;
    }).map((one) => one.outerHTML.slice(0, 90))"""
    assert page.evaluate(small) == []
    page.get_by_role("button", name="Close").click()
    page.click("#send")
    it.wait_for_answer()
    page.locator(".tok").first.click()
    page.locator(".popover").wait_for()
    assert page.evaluate(small) == []
    page.get_by_role("button", name="Conversations", exact=True).click()
    page.locator(".sidebar").wait_for()
    assert page.evaluate(small) == []
    assert page.evaluate(FAULTS) == []
    page.keyboard.press("Escape")
    for tab in ("Engine", "Figures", "Chat"):
        page.get_by_role("tab", name=tab).click()
        assert page.evaluate("() => document.documentElement.scrollWidth") <= 375, tab


def test_what_a_screen_reader_reads(visit):
    it = visit()
    it.set(max_tokens="3", temperature="0")
    it.page.click("#settings")
    it.ask(STORY)
    it.wait_for_answer()
    name = it.page.locator(".model").inner_text()
    tree = it.page.locator("body").aria_snapshot()
    wanted = ["banner:", 'heading "Troupe" [level=1]', 'tab "Chat" [selected]', "main:", 'complementary "Conversations":', 'button "New conversation"',
              'searchbox "Search conversations"', f'button "Rename {STORY}"', f'button "Delete {STORY}"', "meter ", 'article "You":',
              f'article "{name}":', 'button "Continue"', 'textbox "Message"', 'button "Send"', 'checkbox "Token view"']
    assert [one for one in wanted if one not in tree] == [], tree
    assert it.page.locator("#announcer").inner_text() == "The answer is complete"
    # By the keyboard alone: to the field, send, and to the answer's buttons.
    it.page.get_by_label("Message", exact=True).focus()
    for _ in range(30):
        it.page.keyboard.press("Shift+Tab")
        if it.page.evaluate("document.activeElement.textContent") == "Continue":
            break
    it.page.keyboard.press("Enter")
    it.page.wait_for_function("() => document.querySelector('.facts')?.innerText.includes('6 tokens')")
