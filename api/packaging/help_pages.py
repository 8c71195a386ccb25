#!/usr/bin/env python3
"""Makes the manual pages and the completions of bash, zsh and fish from what `troupe --help-all` prints.

    api/packaging/help_pages.py [EMULATOR...] PROGRAM FOLDER

writes FOLDER/man/man1/*.1.gz, FOLDER/bash-completion/completions/troupe, FOLDER/zsh/vendor-completions/_troupe and
FOLDER/fish/vendor_completions.d/troupe.fish: the names that they have below share/.
"""

import gzip
import os
import pathlib
import re
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass, field


@dataclass
class Entry:
    """A flag, an argument or a command: `-m,--model PATH=...` and its help."""
    head: str
    help: str = ""

    @property
    def flags(self):
        return re.findall(r"-[\w-]+", self.head.split(" ")[0]) if self.head.startswith("-") else []

    @property
    def value(self):
        """The name of its value, such as FILE, or of the part behind `=`; empty for a switch."""
        names = re.match(r"\S+ ([A-Z][A-Z-]*)(?:=([A-Z]+))?", self.head)
        return "" if not names else names[2] if names[1] == "NAME" and names[2] else names[1]

    @property
    def repeats(self):
        return self.head.endswith(" ...")


@dataclass
class Page:
    """What `troupe COMMAND --help-all` prints."""
    words: tuple
    summary: str = ""
    usage: str = ""
    groups: dict = field(default_factory=dict)  # title: entries
    notes: list = field(default_factory=list)
    examples: list = field(default_factory=list)
    endpoints: list = field(default_factory=list)

    @property
    def name(self):
        return "-".join(("troupe", *self.words))

    @property
    def commands(self):
        return self.groups.get("Commands", [])

    @property
    def options(self):
        return [entry for entries in self.groups.values() for entry in entries if entry.flags]


def read_page(program, words):
    environment = {**os.environ, "COLUMNS": "100"}
    text = subprocess.run([*program, *words, "--help-all"], capture_output=True, text=True, check=True,
                          env=environment).stdout
    text = text.replace(" configs/", " /usr/share/troupe/configs/")  # where the package has them
    page, group, entry = Page(words), None, None
    first, rest = text.split("\n\nUsage: ", 1)
    page.summary = " ".join(first.split())
    page.usage, rest = rest.split("\n", 1)
    for line in rest.split("\n"):
        if title := re.fullmatch(r"([A-Z][\w ]*):", line):
            group = page.groups.setdefault(title[1], [])
            for name, lines in (("Examples", page.examples), ("Endpoints", page.endpoints)):
                if title[1] == name:
                    group = lines
                    del page.groups[name]
        elif group is page.endpoints and line.startswith("  "):
            group += line.strip().rstrip(",").split(", ")
        elif group is page.examples and line.startswith("  "):
            group.append(line.strip())
        elif found := re.fullmatch(r"  (\S.*?)(?:  +(\S.*))?", line):
            head, help = found.groups()
            entry = Entry(head, help or "")
            group.append(entry)
        elif line.startswith(" " * 30) and entry is not None:
            entry.help = (entry.help + " " + line.strip()).strip()
        elif line.strip():
            page.notes.append(line.strip())
    return page


def read_pages(program, words=()):
    page = read_page(program, words)
    pages = [page]
    for command in page.commands:
        pages += read_pages(program, (*words, command.head))
    return pages


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def manual(page, pages, version, date):
    title = page.name.upper().replace("-", "\\-")
    summary = page.summary.split(": ")[-1] if not page.words else page.summary
    lines = [f'.TH {title} 1 "{date}" "troupe {version}" "User Commands"', ".SH NAME",
             f"{roff(page.name)} \\- {roff(summary[0].lower() + summary[1:])}",
             ".SH SYNOPSIS", f".B {roff(page.usage)}", ".SH DESCRIPTION", roff(page.summary).rstrip(".") + "."]
    if page.notes:
        lines += [".PP", roff(" ".join(page.notes))]
    for title, entries in page.groups.items():
        lines.append(f".SH {title.upper()}")
        for entry in entries:
            flags, _, value = entry.head.partition(" ")
            lines += [".TP", f"\\fB{roff(flags)}\\fR" + (f" \\fI{roff(value)}\\fR" if value else ""),
                      roff(entry.help) or "\\&"]
    if page.endpoints:
        lines += [".SH ENDPOINTS", ".nf", *map(roff, page.endpoints), ".fi"]
    if page.examples:
        lines += [".SH EXAMPLES", ".nf", *map(roff, page.examples), ".fi"]
    if not page.words:
        lines += [".SH FILES", ".TP", "\\fI/etc/troupe/troupe.toml\\fR", "Settings of the service troupe.service."]
    near = [other.name for other in pages if other is not page and
            (other.words[:-1] == page.words or other.words == page.words[:-1])]
    lines += [".SH SEE ALSO", *(f".BR {roff(name)} (1){',' if name != near[-1] else ''}" for name in near)]
    return "\n".join(lines) + "\n"


def is_file(entry):
    return entry.value in ("FILE", "PATH")


def has_choices(entry):
    """Whether the program may know its values: `troupe --values COMMAND --flag` lists them."""
    return entry.value not in ("", "FILE", "FOLDER", "INT", "NUMBER", "SECONDS", "SIZE", "TEXT")


def is_folder(entry):
    return entry.value == "FOLDER"


def bash(pages):
    cases = "\n".join(
        f'    "{" ".join(page.words)}")\n'
        f'      commands="{" ".join(entry.head for entry in page.commands)}"\n'
        f'      flags="{" ".join(flag for entry in page.options for flag in entry.flags)}"\n'
        f'      files="{" ".join(flag for e in page.options if is_file(e) for flag in e.flags)}"\n'
        f'      folders="{" ".join(flag for e in page.options if is_folder(e) for flag in e.flags)}"\n'
        f'      choices="{" ".join(flag for e in page.options if has_choices(e) for flag in e.flags)}"\n'
        f'      values="{" ".join(flag for e in page.options if e.value for flag in e.flags)}" ;;' for page in pages)
    return textwrap.dedent("""\
        # Completions of bash for troupe, made from its --help-all.

        _troupe_of() {
          case $1 in
        @CASES@
          esac
        }

        _troupe() {
          local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} path="" i
          local commands="" flags="" files="" folders="" values="" choices=""
          _troupe_of ""
          for ((i = 1; i < COMP_CWORD; i++)); do
            if [[ " $commands " == *" ${COMP_WORDS[i]} "* ]]; then
              path="${path:+$path }${COMP_WORDS[i]}"
              _troupe_of "$path"
            fi
          done
          COMPREPLY=()
          if [[ " $files " == *" $before "* ]]; then
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
          elif [[ " $folders " == *" $before "* ]]; then
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -d -- "$word")
          elif [[ " $values " != *" $before "* ]]; then
            mapfile -t COMPREPLY < <(compgen -W "$commands $flags" -- "$word")
          fi
          if [[ " $choices " == *" $before "* ]]; then
            mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(
              compgen -W "$("${COMP_WORDS[0]}" --values $path "$before" 2>/dev/null)" -- "$word")
          fi
          # Names may have colons, at which bash parts words.
          declare -F __ltrim_colon_completions >/dev/null && __ltrim_colon_completions "$word"
        }

        complete -F _troupe troupe
        """).replace("@CASES@", cases)


def first_sentence(text):
    return re.split(r"[.;:] |\n", text)[0]


def zsh(pages):
    def quoted(text):
        return "'" + text.replace("'", "'\\''") + "'"

    def description(entry):
        return re.sub(r"([\[\]\\:])", r"\\\1", first_sentence(entry.help))

    def action(entry, page, flag):
        files = "_files" if is_file(entry) else "_files -/" if is_folder(entry) else " "
        if not has_choices(entry):
            return files
        listed = f"compadd -- ${{(f)\"$(troupe --values {' '.join((*page.words, flag))} 2>/dev/null)\"}}"
        return f"{{{listed}{'; _files' if is_file(entry) else ''}}}"

    def specification(entry, page):
        return " ".join(quoted(f"{'*' if entry.repeats else ''}{flag}[{description(entry)}]" +
                               (f":{entry.value}:{action(entry, page, flag)}" if entry.value else ""))
                        for flag in entry.flags)

    functions = []
    for page in pages:
        name = "_" + page.name.replace("-", "_")
        lines = [f"{name}() {{"]
        options = " \\\n    ".join(specification(entry, page) for entry in page.options)
        if page.commands:
            listed = " ".join(quoted(f"{entry.head}:{description(entry)}") for entry in page.commands)
            cases = " ".join(f"{entry.head}) {name}_{entry.head} ;;" for entry in page.commands)
            lines += ["  local context state state_descr line", "  typeset -A opt_args",
                      f"  _arguments -C \\\n    {options} \\\n    '1:command:->command' '*::argument:->argument'",
                      "  case $state in", f"    command) local -a commands=({listed})",
                      "      _describe command commands ;;", f"    argument) case $line[1] in {cases} esac ;;",
                      "  esac"]
        else:
            lines.append(f"  _arguments \\\n    {options} \\\n    '*:argument:_files'")
        functions.append("\n".join([*lines, "}"]))
    return "#compdef troupe\n# Completions of zsh for troupe, made from its --help-all.\n\n" + \
        "\n\n".join(functions) + '\n\n_troupe "$@"\n'


def fish(pages):
    def quoted(text):
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    lines = ["# Completions of fish for troupe, made from its --help-all.", "complete -c troupe -f"]
    for page in pages:
        within = [f"__fish_seen_subcommand_from {word}" for word in page.words]
        within += [f"not __fish_seen_subcommand_from {entry.head}" for entry in page.commands]
        condition = quoted("; and ".join(within))
        for entry in page.commands:
            lines.append(f"complete -c troupe -n {condition} -a {entry.head} -d {quoted(first_sentence(entry.help))}")
        for entry in page.options:
            names = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}" for flag in entry.flags)
            value = " -r -F" if is_file(entry) or is_folder(entry) else " -x" if entry.value else ""
            if has_choices(entry):
                value += " -a " + quoted(f"(troupe --values {' '.join((*page.words, entry.flags[-1]))} 2>/dev/null)")
            lines.append(f"complete -c troupe -n {condition} {names}{value} -d {quoted(first_sentence(entry.help))}")
    return "\n".join(lines) + "\n"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    program, folder = sys.argv[1:-1], pathlib.Path(sys.argv[-1])
    version = subprocess.run([*program, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    # The same files from the same sources: reproducible-builds.org's SOURCE_DATE_EPOCH.
    date = time.strftime("%Y-%m-%d", time.gmtime(int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))))
    pages = read_pages(program)
    files = {f"man/man1/{page.name}.1.gz": manual(page, pages, version, date) for page in pages}
    files["bash-completion/completions/troupe"] = bash(pages)
    files["zsh/vendor-completions/_troupe"] = zsh(pages)
    files["fish/vendor_completions.d/troupe.fish"] = fish(pages)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode(), mtime=0) if path.suffix == ".gz" else text.encode())


if __name__ == "__main__":
    main()
