"""The manual pages and the shells' completions that api/packaging/help_pages.py makes name what the program has."""

import gzip
import re
import shutil
import subprocess
import sys

import pytest

import server
from server import ROOT


def told(*words):
    return subprocess.run([server.binary(), *words, "--help-all"], capture_output=True, text=True, timeout=300,
                          check=True).stdout


def flags_in(text):
    heads = [line.split()[0] for line in text.splitlines() if re.match(r"  -", line)]
    return {flag for head in heads for flag in head.split(",")}


def commands_in(text):
    listed = re.search(r"^Commands:\n((?: .*\n)+)", text, re.MULTILINE)
    return re.findall(r"^  ([\w-]+)", listed[1], re.MULTILINE) if listed else []


@pytest.fixture(scope="module")
def helps():
    """What every command tells, by its words."""
    found = {(): told()}
    for words in found.copy():
        for command in commands_in(found[words]):
            found[(command,)] = text = told(command)
            for below in commands_in(text):
                found[(command, below)] = told(command, below)
    assert len(found) > 15
    return found


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("share")
    subprocess.run([sys.executable, ROOT / "api" / "packaging" / "help_pages.py", server.binary(), folder], check=True,
                   timeout=300)
    return folder


def test_every_command_has_a_manual_page_with_all_its_flags(helps, pages):
    assert len(list((pages / "man" / "man1").iterdir())) == len(helps)
    for words, text in helps.items():
        page = gzip.decompress((pages / "man" / "man1" / ("-".join(("troupe", *words)) + ".1.gz")).read_bytes()).decode()
        plain = page.replace("\\-", "-")
        assert plain.startswith(".TH ")
        heads = {flag for line in re.findall(r"^\\fB(-.*?)\\fR", plain, re.MULTILINE) for flag in line.split(",")}
        assert heads == flags_in(text), words
        # All that the program says is on the page.
        for word in set(re.findall(r"[a-z]{5,}", text)) - {"troupe"}:
            assert word.lower() in plain.lower(), (words, word)


def test_the_page_of_serve_lists_endpoints_and_the_packages_configuration(helps, pages):
    page = gzip.decompress((pages / "man" / "man1" / "troupe-serve.1.gz").read_bytes()).decode().replace("\\-", "-")
    section = re.search(r"^\.SH ENDPOINTS\n\.nf\n(.*?)\.fi$", page, re.MULTILINE | re.DOTALL)[1].splitlines()
    assert "POST /v1/chat/completions" in section and all(re.fullmatch(r"\w+ /\S*", line) for line in section)
    assert "--config /usr/share/troupe/configs/server.toml" in page
    assert "--config configs/server.toml" in helps[("serve",)] and (ROOT / "configs" / "server.toml").is_file()


@pytest.mark.skipif(not shutil.which("groff"), reason="groff is absent")
def test_the_manual_pages_can_be_set(pages):
    for page in (pages / "man" / "man1").iterdir():
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-K", "utf8"], input=gzip.decompress(page.read_bytes()),
                              capture_output=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, b""), page.name


def test_bash_completes_commands_and_flags(helps, pages):
    script = pages / "bash-completion" / "completions" / "troupe"
    lines = [f'COMP_WORDS=(troupe {" ".join(words)} ""); COMP_CWORD={len(words) + 1}; _troupe; echo "${{COMPREPLY[*]}}"'
             for words in helps]
    done = subprocess.run(["bash", "-c", f'. "{script}"\n' + "\n".join(lines)], capture_output=True, text=True, timeout=300)
    assert done.stderr == ""
    for (words, text), offered in zip(helps.items(), done.stdout.splitlines(), strict=True):
        assert set(offered.split()) == flags_in(text) | set(commands_in(text)), words


def test_bash_completes_files_behind_flags_that_want_one(pages, tmp_path):
    (tmp_path / "some.toml").touch()
    (tmp_path / "folder").mkdir()
    for flag, offered in {"--config": "folder some.toml", "--packed-cache": "folder", "--host": ""}.items():
        done = subprocess.run(
            ["bash", "-c", f'. "{pages}/bash-completion/completions/troupe"; COMP_WORDS=(troupe serve {flag} ""); '
             'COMP_CWORD=3; _troupe; echo "${COMPREPLY[*]}"'], capture_output=True, text=True, timeout=300, cwd=tmp_path)
        assert " ".join(sorted(done.stdout.split())) == offered, flag


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is absent")
def test_fish_completes_commands_and_flags(helps, pages, tmp_path):
    script = pages / "fish" / "vendor_completions.d" / "troupe.fish"
    lines = [f'echo "== {" ".join(words)}"; complete -C "troupe {" ".join((*words, ending))}"'
             for words in helps for ending in ("", "-", "--")]
    done = subprocess.run(["fish", "-c", f'source "{script}"\n' + "\n".join(lines)], capture_output=True, text=True,
                          timeout=300, env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    assert done.stderr == ""
    offered = {}
    for part in done.stdout.split("== ")[1:]:
        words, *rest = part.split("\n")
        offered.setdefault(tuple(words.split()), set()).update(line.split("\t")[0] for line in rest if line)
    for words, text in helps.items():
        assert {one for one in offered[words] if one.startswith("-")} == flags_in(text), words
        assert set(commands_in(text)) <= offered[words], words


def test_zsh_knows_every_flag(helps, pages):
    script = pages / "zsh" / "vendor-completions" / "_troupe"
    text = script.read_text()
    for words, told_text in helps.items():
        body = re.search(rf"^_{'_'.join(('troupe', *words)).replace('-', '_')}\(\) {{\n(.*?)^}}", text, re.MULTILINE | re.DOTALL)[1]
        assert set(re.findall(r"'\*?(--?[\w-]+)\[", body)) == flags_in(told_text), words
    if shutil.which("zsh"):
        done = subprocess.run(["zsh", "-n", script], capture_output=True, text=True, timeout=300)
        assert (done.returncode, done.stderr) == (0, "")
