"""Markdown in the page, in a headless Chromium: CommonMark's examples, what models write, and what nobody should."""

import json
import os
import pathlib
import re

import pytest

from browser import FAULTS, Visit, chromium, needs_page, served, visit # noqa: F401

pytestmark = needs_page
SPEC = pathlib.Path("/usr/share/gocode/src/github.com/yuin/goldmark/_test/spec.json") # of CommonMark 0.30

# What is within a box, without what the page adds: strings, and lists that begin with a tag.
SHAPE = r"""(box) => {
    const allowed = (to) => /^(https?:|mailto:)/i.test(to || '');
    const blocks = /^(p|h\d|ul|ol\d+|li|blockquote|pre|hr|table)$/;
    const shape = (node) => {
        const made = [];
        const add = (one) => {
            if (typeof one === 'string' && typeof made.at(-1) === 'string') made.push(made.pop() + one);
            else if (one !== '') made.push(one);
        };
        for (const child of node.childNodes) {
            const tag = child.localName;
            if (!tag) add(child.data);
            else if (child.matches('.code')) made.push(['pre', child.querySelector('code').textContent]);
            else if (tag === 'pre') made.push(['pre', child.textContent.replace(/\n$/, '')]);
            else if (tag === 'img' && allowed(child.getAttribute('src'))) made.push(['a', child.getAttribute('src'), child.title, child.alt]);
            else if (tag === 'img') add(child.alt || child.getAttribute('src'));
            else if (tag === 'a' && allowed(child.getAttribute('href')))
                made.push(['a', child.getAttribute('href'), child.title, ...shape(child)]);
            else if (['a', 'span'].includes(tag)) shape(child).forEach(add);
            else if (/^h[1-6]$/.test(tag) && !box.ours) made.push([`h${Math.min(6, +tag[1] + 2)}`, ...shape(child)]);
            else made.push([tag === 'ol' ? `ol${child.getAttribute('start') || 1}` : tag, ...shape(child)]);
        }
        const holds = node.matches?.('ul, ol, blockquote') || made.some((one) => blocks.test(one[0]));
        return made.map((one, i) => typeof one !== 'string' ? one : holds ? one.replace(/^\n+|\n+$/g, '')
            : made[i - 1]?.[0] === 'br' ? one.replace(/^\n/, '') : one).filter((one) => one !== '');
    };
    return shape(box);
}"""


def has_html(example):
    """Tags are text here."""
    return example["section"] in ("HTML blocks", "Raw HTML") or re.search(
        r"<(?![a-zA-Z][a-zA-Z0-9.+-]*:|[\w.+-]+@)[A-Za-z/!?]", example["markdown"])


@pytest.mark.skipif(not SPEC.exists(), reason="Debian's package golang-github-yuin-goldmark-dev is absent")
def test_the_examples_of_commonmark(visit):
    it = visit()
    examples = [one for one in json.loads(SPEC.read_text()) if not has_html(one)]
    assert len(examples) == 560
    shown = it.page.evaluate("""async (texts) => {
        const { markdown } = await import('/page/markdown.js');
        const shape = %s;
        return texts.map((text) => shape(Object.assign(markdown(text), { ours: true })));
    }""" % SHAPE, [one["markdown"] for one in examples])
    blank = it.context.new_page() # may make elements of HTML
    right = blank.evaluate("""(texts) => {
        const shape = %s;
        return texts.map((text) => shape(Object.assign(document.createElement('div'), { innerHTML: text })));
    }""" % SHAPE, [one["html"] for one in examples])
    others = {one["example"]: (one["markdown"], a, b) for one, a, b in zip(examples, shown, right) if a != b}
    bare = {601, 607, 610} # addresses without marks are links here
    assert others.keys() == bare, {key: value for key, value in others.items() if key not in bare}


def rendered(it, text):
    """Shows a text and returns its box."""
    it.page.evaluate("""async (text) => {
        const { showMarkdown } = await import('/page/markdown.js');
        const box = document.createElement('div');
        box.className = 'text';
        showMarkdown(box, text);
        document.querySelector('.thread').replaceChildren(box);
    }""", text)
    return it.page.locator(".thread > .text")


def test_lines_sizes_and_tasks(visit):
    it = visit()
    box = rendered(it, "Roses are red,\nviolets are blue.\n\n### Small\n\nA `word`\tand a tab\n\n```\na\tb\n```\n\n"
                       "- [x] done\n- [ ] to do\n\n~~gone~~ and 2 * 3 * 4, f(*args, **kwargs)\n")
    lines = box.inner_text().splitlines()
    assert lines[:2] == ["Roses are red,", "violets are blue."], "line breaks are kept"
    assert box.locator("pre code").inner_text() == "a\tb"
    assert "word\tand a tab" in box.inner_text() and "2 * 3 * 4, f(*args, **kwargs)" in box.inner_text()
    assert [one.is_checked() for one in box.get_by_role("checkbox").all()] == [True, False]
    assert box.get_by_role("checkbox", name="done").count() == 1 and box.locator("s").inner_text() == "gone"
    sizes = box.evaluate("""(box) => ['p', 'h5', 'p code', 'pre code'].map((one) => parseFloat(getComputedStyle(box.querySelector(one)).fontSize))""")
    assert sizes[1] >= sizes[0] and min(sizes[2:]) >= 0.9 * sizes[0]


def test_links(visit):
    it = visit()
    box = rendered(it, "See [Foo](https://en.wikipedia.org/wiki/Foo_(bar)), https://example.org/a_(b), [bad](javascript:alert(1)) "
                       "and [here](/health).")
    assert box.locator("a").evaluate_all("all => all.map((a) => a.href)") == [
        "https://en.wikipedia.org/wiki/Foo_(bar)", "https://example.org/a_(b)"]
    assert "bad and here." in box.inner_text()


def test_mathematics_and_prices(visit):
    it = visit()
    box = rendered(it, r"""The square \(a^2\), $E = mc^2$, and $$\sum_i x_i$$ in a line. It costs $5 or $10, $20-$30/h, US$5/US$6; $HOME/$PATH.

$$
\int_0^1 x\,dx
= \frac{1}{2}
$$

\[ \begin{align} a &= b \\ &= c \end{align} \]

`$x$` and \(\wrong{\).
""")
    sources = box.locator("annotation").all_text_contents()
    assert [one.strip() for one in sources] == [
        "a^2", "E = mc^2", r"\sum_i x_i", "\\int_0^1 x\\,dx\n= \\frac{1}{2}", r"\begin{align} a &= b \\ &= c \end{align}"]
    assert box.locator("math[display=block]").count() == 3 and box.locator(".formula.display").count() == 3
    assert "It costs $5 or $10, $20-$30/h, US$5/US$6; $HOME/$PATH." in box.inner_text()
    assert box.locator("code").inner_text() == "$x$" and r"\(\wrong{\)" in box.inner_text()
    assert "math" in box.aria_snapshot()


def test_colours_of_code(visit):
    it = visit()
    samples = {"python": "def f(x):\n    return 'a' + 1  # why\n", "c++": "#include <a>\nint main() { return 1; /* x */ }\n",
               "js": "const a = () => `b ${1}`; // c\n", "rust": "fn main() { let a = \"b\"; }\n", "sh": "for x in $(ls); do echo \"$x\"; done\n",
               "json": '{"a": [1, true]}\n', "c#": 'public class A { string s = "b"; }\n', "sql": "SELECT a FROM b WHERE c = 'd';\n",
               "html": "<p class=\"a\">b</p>\n", "css": "p { color: red; }\n", "diff": "- a\n+ b\n", "go": "func main() { x := 1 }\n"}
    box = rendered(it, "".join(f"```{name}\n{text}```\n" for name, text in samples.items()) + "```unheard\ndef f\n```\n")
    for theme in ("light", "dark"):
        while it.page.locator("#theme").inner_text().strip() != f"Theme: {theme}":
            it.page.click("#theme")
        assert it.page.evaluate(FAULTS) == [], theme
    assert box.locator("pre code").all_text_contents() == [text.rstrip("\n") for text in [*samples.values(), "def f"]]
    counts = box.locator("pre code").evaluate_all("all => all.map((one) => one.querySelectorAll('[class^=code-]').length)")
    assert min(counts[:-1]) > 0 == counts[-1], dict(zip(samples, counts))


def test_what_grows_keeps_its_beginning(visit):
    """Selections and places in what is complete stay."""
    it = visit()
    kept = it.page.evaluate("""async () => {
        const { showMarkdown } = await import('/page/markdown.js');
        const box = document.createElement('div');
        const text = 'One\\n\\n- two\\n- three\\n\\n```js\\nlet a = 1;\\n```\\n\\nSee [x] and more text';
        let before = [], lost = 0;
        for (let i = 1; i <= text.length; ++i) {
            showMarkdown(box, text.slice(0, i));
            const now = [...box.childNodes];
            lost += before.slice(0, -1).filter((node, k) => now[k] !== node).length;
            before = now;
        }
        const fresh = document.createElement('div');
        showMarkdown(fresh, text);
        const same = fresh.isEqualNode(box);
        showMarkdown(box, text + '\\n\\n[x]: https://example.org');
        return [lost, same, box.querySelectorAll('a').length];
    }""")
    assert kept == [0, True, 1]


def test_tables_on_a_phone_break_between_words(visit):
    it = visit(viewport={"width": 375, "height": 700})
    box = rendered(it, "| Language | First appeared | Typing discipline | Systems programming |\n|---|---:|:---:|---|\n"
                       "| Python | 1991 | dynamic | seldom, everywhere |\n")
    assert it.page.evaluate("() => document.documentElement.scrollWidth") <= 375
    longest = box.locator("th").evaluate_all("""all => all.map((cell) => {
        const range = document.createRange();
        return cell.textContent.split(' ').map((word) => {
            const at = cell.textContent.indexOf(word);
            range.setStart(cell.firstChild, at);
            range.setEnd(cell.firstChild, at + word.length);
            return range.getClientRects().length;
        });
    })""")
    assert all(lines == 1 for words in longest for lines in words), longest
    assert box.get_by_role("region", name="Table").evaluate("(one) => one.scrollWidth > one.clientWidth && one.tabIndex === 0")


def test_right_to_left(visit):
    it = visit()
    box = rendered(it, "שלום **עולם**.\n\n- פריט\n- item\n\nHello, עולם\n\n```\ncode\n```\n")
    assert box.locator(":scope > *").evaluate_all("all => all.map((one) => getComputedStyle(one).direction)") == ["rtl", "rtl", "ltr", "ltr"]
    it.page.get_by_label("Message", exact=True).fill("שלום")
    assert it.page.get_by_label("Message", exact=True).evaluate("(one) => getComputedStyle(one).direction") == "rtl"


ANSWER = r"""The area below $y = x^2$ from 0 to 1 is a third:

$$\int_0^1 x^2\,dx = \left[\frac{x^3}{3}\right]_0^1 = \frac{1}{3}$$

Sums of thin strips come close to it:

```python
def area(strips: int) -> float:
    width = 1 / strips  # each has the height of its middle
    return sum(((i + 0.5) * width) ** 2 * width for i in range(strips))
```

| strips | area | missing |
|---:|---:|---|
| 4 | 0.328125 | 1.6 % |
| 16 | 0.333008 | 0.1 % |

- [x] the integral
- [ ] a proof
"""


@pytest.mark.skipif(not os.environ.get("TROUPE_PICTURES"), reason="makes pictures, with TROUPE_PICTURES=MODEL")
@pytest.mark.parametrize("name, width, height", [("chat", 1240, 820), ("phone", 390, 780)])
def test_pictures_of_an_answer(visit, tmp_path, name, width, height):
    it = visit()
    model = it.page.locator(".model").inner_text()
    turns = {"u": {"id": "u", "parent": None, "role": "user", "content": "What is the area below the square from 0 to 1?"},
             "a": {"id": "a", "parent": "u", "role": "assistant", "content": ANSWER, "model": model, "used": 412}}
    path = tmp_path / "area.json"
    path.write_text(json.dumps({"format": "troupe-conversations-1", "conversations": [{"title": "An area", "turns": turns}]}))
    with it.page.expect_file_chooser() as chooser:
        it.page.get_by_role("button", name="Import").click()
    chooser.value.set_files(path)
    it.page.wait_for_selector(".turn.assistant table")
    it.page.locator(".scroller").evaluate("(one) => { one.scrollTop = 0; }")
    it.picture(name, height, width)


HOSTILE = r"""<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2">
# A heading <b onmouseover=hacked()>bold</b>

[click](javascript:window.hacked=3) [data](data:text/html,<script>alert(1)</script>) ![pixel](https://evil.example/p.png)
<iframe src="https://evil.example"></iframe> [ok](https://example.org "title") <https://evil.example/auto> **bold *it* `code`**

```html
<script>window.hacked = 4</script>
```
> > > quote
- item
  1. nested **list**

| a | b |
|---|--:|
| 1 | <svg onload=window.hacked=5> |
"""


def test_hostile_markdown_does_nothing(visit, tmp_path):
    it = visit()
    path = tmp_path / "hostile.json"
    turns = {"u": {"id": "u", "parent": None, "role": "user", "content": HOSTILE},
             "a": {"id": "a", "parent": "u", "role": "assistant", "content": HOSTILE, "reasoning": HOSTILE,
                   "model": HOSTILE, "calls": [{"id": "c", "name": HOSTILE, "arguments": HOSTILE}]}}
    path.write_text(json.dumps({"format": "troupe-conversations-1", "conversations": [
        {"title": HOSTILE, "system": HOSTILE, "turns": turns, "chosen": {"__proto__": "u"}}]}))
    with it.page.expect_file_chooser() as chooser:
        it.page.get_by_role("button", name="Import").click()
    chooser.value.set_files(path)
    it.page.wait_for_selector(".turn.assistant table")
    found = it.page.evaluate("""() => ({
        hacked: window.hacked ?? null,
        bad: document.querySelectorAll('.turn :is(script, img, iframe, svg, object, style, link, b)').length,
        handlers: [...document.querySelectorAll('.turn *')].flatMap((e) => [...e.attributes])
            .filter((a) => a.name.startsWith('on')).length,
        links: [...document.querySelectorAll('.turn a')].map((a) => a.href + ' ' + a.rel),
        heading: document.querySelector('.turn h3').textContent, code: document.querySelector('.turn pre code').textContent,
        quotes: document.querySelectorAll('.turn blockquote blockquote blockquote').length,
        nested: document.querySelector('.turn ul li ol li strong')?.textContent,
        right: document.querySelectorAll('.turn td.to-right').length})""")
    nofollow = "noopener noreferrer nofollow"
    assert found == {
        "hacked": None, "bad": 0, "handlers": 0, "heading": "A heading <b onmouseover=hacked()>bold</b>",
        "code": "<script>window.hacked = 4</script>", "quotes": 1, "nested": "list", "right": 1,
        "links": [f"https://evil.example/p.png {nofollow}", f"https://evil.example/ {nofollow}", f"https://example.org/ {nofollow}",
                  f"https://evil.example/auto {nofollow}"]}
    # Markup from a string is impossible even for the page's own scripts.
    assert it.page.evaluate("() => { try { document.body.innerHTML = '<p>'; return 'done' } catch { return 'refused' } }") \
        == "refused"
    it.complaints[:] = [line for line in it.complaints if "TrustedHTML" not in line and "violates" not in line]


def test_what_a_model_writes_is_never_html_and_its_thoughts_are_folded(chromium, launch, tmp_path):
    from scripted import write_folder
    model = write_folder(tmp_path / "model", {"attack": [HOSTILE[:150], HOSTILE[150:]], "": ["<think>", "I <b>ponder</b>.", "</think>",
                                                                               "The **answer**", " is `42`."]})
    it = Visit(chromium, launch("--reasoning-parser", "think", model=model).url)
    it.page.wait_for_selector(".settings-list", state="attached")
    it.ask("Well?")
    it.wait_for_answer()
    assert it.text().endswith("The answer is 42.")
    assert it.page.locator(".turn.assistant strong").last.inner_text() == "answer"
    thoughts = it.page.locator("details.reasoning")
    assert not thoughts.locator(".text").is_visible()
    thoughts.locator("summary").click()
    assert thoughts.locator(".text").inner_text() == "I <b>ponder</b>."
    it.ask("attack")
    it.wait_for_answer(1)
    assert "javascript" not in it.text() and "<img src" in it.text()
    assert it.page.evaluate("[window.hacked ?? null, document.querySelectorAll('.turn :is(script, img, iframe, svg)').length]") \
        == [None, 0]
    it.end()


def test_no_markdown_takes_long(visit):
    """Texts that cost renderers quadratic time, of 100 kB each, and code that is as long as may have colours."""
    it = visit()
    texts = it.page.evaluate("""() => {
        const parts = ['[', '![', '`', '``a', '*a', '**a', '_a ', '~~', '<https://', 'https://a', '> ', '- ', '1. ', '|', '| - ',
                       '#', '# ', ' ', '\\\\', 'a*', '*a **b', '](', '\\n- ', '\\n> ', '\\n|a|\\n|-|', '\\n```', '\\n# a #', '* * x',
                       '`a\\n', 'a**b\\n', '[a](', '[a][', '\\n[a]: b', '![[](', '***a', 'http://a*', '[a](<', '**<x>**a', '<!--', '<![CDATA[', '$', '$a',
                       '$a$ ', '\\\\(', '\\\\(a\\\\) ', '\\n$$\\na', '\\n\\\\[\\na', '\\n$$ a $$\\n\\n', '\\n- [ ] a', 'a  \\n', '&amp;',
                       '```js\\nlet a;\\n```\\n'];
        const texts = parts.map((part) => part.repeat(Math.floor(100000 / part.length)));
        for (const [language, part] of [['c#', 'a.'], ['css', 'a '], ['ts', 'a'], ['md', '['], ['py', '"'], ['html', '<a '], ['perl', '\\n']])
            texts.push('```' + language + '\\n' + (part.repeat(Math.floor(380 / part.length)) + '\\n').repeat(25) + '```');
        texts.push('*'.repeat(33000) + 'a' + '*'.repeat(33000) + 'b', 'x' + ' '.repeat(100000) + 'x\\nx', '|' + '-|'.repeat(50000) + '\\n|' + '-|'.repeat(50000));
        return texts;
    }""")
    devtools = it.context.new_cdp_session(it.page)
    devtools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds():
        """Of the page's thread: the machine may be busy."""
        return next(one["value"] for one in devtools.send("Performance.getMetrics")["metrics"] if one["name"] == "ThreadTime")

    before = seconds()
    it.page.evaluate("() => { let x = 0; for (let i = 0; i < 5e7; ++i) x = (31 * x + i) | 0; return x; }")
    most = max(1, 3 * (seconds() - before))  # of a slow machine
    costs = {}
    for text in texts:
        before = seconds()
        it.page.evaluate("async (text) => { (await import('/page/markdown.js')).markdown(text); }", text)
        costs[text[:30]] = seconds() - before
    assert {text: cost for text, cost in costs.items() if cost > most} == {}
