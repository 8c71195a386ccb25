#!/usr/bin/env python3
"""Compares templates, regular expressions, schemas and tokenizers with jinja2, Python's re, jsonschema and tokenizers, on
random inputs. Not in CI: `differential.py PROGRAM [--kind template|regex|schema|tokenizer] [--seconds N] [--seed N]`, with the
program troupe_fuzz_answers and the packages of tests/e2e/requirements.txt. Prints each difference once by its kind.

What may differ: a program may refuse what the other takes (counted); a schema's guide may leave out valid documents (counted), but
never lets in an invalid one."""

import argparse
import collections
import json
import pathlib
import random
import re
import subprocess
import sys
import time
import warnings

DATA = pathlib.Path(__file__).parent.parent / "data"


class Program:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)

    def ask(self, **question):
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"the program ended at {json.dumps(question)}")
        return json.loads(line)


class Templates:
    """Pieces of the templates in tests/data/jinja.json put together anew."""

    def __init__(self, rng):
        import jinja2.ext
        import jinja2.sandbox
        self.rng = rng
        table = json.loads((DATA / "jinja.json").read_text())
        self.globals = table["globals"]
        self.environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                                        extensions=[jinja2.ext.loopcontrols])
        # as transformers has it
        self.environment.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: \
            json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        sources = [case["template"] for case in table["cases"]]
        self.expressions = [e for s in sources for e in re.findall(r"\{\{-? *(.*?) *-?\}\}", s)]
        self.filters = [f for s in sources for f in re.findall(r"\| *(\w+(?:\([^()]*\))?)", s)] + [
            f for f in "abs capitalize center(9) count default('d') dictsort escape first float forceescape groupby('age') indent int "
            "items join join('-') last length list lower map('upper') max min reject('odd') replace('a','b') reverse round safe "
            "select sort string striptags sum title trim truncate(5) unique upper urlencode wordcount wordwrap(4) xmlattr "
            "batch(2) slice(2) tojson".split()]
        self.tests = "boolean callable defined divisibleby(2) eq(1) even false float in(xs) integer iterable lower mapping none number odd " \
            "sameas(none) sequence string true undefined upper".split()
        self.names = [*self.globals, "nosuch", "'a b'", "[1, 'x', none]", "{'k': 1}", "0", "-3", "2.5", "true", "'Ünï'", "range(4)", "(1, 2)"]

    def expression(self, depth=3):
        pick = self.rng.random()
        if depth == 0 or pick < 0.15:
            return self.rng.choice(self.names)
        if pick < 0.35:
            return self.rng.choice(self.expressions)
        if pick < 0.6:
            return f"({self.expression(depth - 1)}) | {self.rng.choice(self.filters)}"
        if pick < 0.7:
            return f"({self.expression(depth - 1)}) is {self.rng.choice(['', 'not '])}{self.rng.choice(self.tests)}"
        if pick < 0.8:
            return f"({self.expression(depth - 1)})[{self.rng.choice(['0', '-1', '1:', '::-1', ':2', repr('a')])}]"
        if pick < 0.85:
            method = self.rng.choice("upper() lower() strip() split() title() items() keys() values() startswith('a') replace('l', 'L') "
                                     "count('l') find('l') rsplit('l', 1) isdigit() capitalize() lstrip('H') zfill(9) index('o')".split(" "))
            return f"({self.expression(depth - 1)}).{method}"
        op = self.rng.choice("+ - * / // % ** ~ == != < > <= >= and or in".split())
        return f"({self.expression(depth - 1)}) {op} ({self.expression(depth - 1)})"

    def source(self):
        pick = self.rng.random()
        e = self.expression
        if pick < 0.6:
            return "{{ " + e() + " }}"
        if pick < 0.75:
            return "{% for x in " + e(2) + " %}{{ loop.index }}:{{ x }},{% else %}none{% endfor %}"
        if pick < 0.85:
            return " {%- if " + e(2) + " -%} yes {% else %}no{% endif %}\n"
        return "{% set v = " + e(2) + " %}{{ v }}|{{ v | tojson }}"

    def compare(self, program, count):
        import jinja2
        source = self.source()
        if re.search(r"\*\*|lipsum|random|pprint|strftime", source):  # powers may take for ever in Python
            return
        try:
            expected = self.environment.from_string(source).render(**self.globals)
        except Exception:
            expected = None
        if expected is not None and (len(expected) > 100_000 or re.search(" object |<function|<macro", expected)):  # addresses
            return
        got = program.ask(template=source, globals=self.globals)
        if got == expected:
            count["equal" if got is not None else "both refuse"] += 1
        elif got is None:
            count["refused here alone"] += 1
            yield "refused", source, expected
        else:
            count["DIFFERENT"] += 1
            yield "different" if expected is not None else "taken here alone", source, (expected, got)


class Patterns:
    def __init__(self, rng):
        self.rng = rng

    def piece(self, depth):
        r = self.rng
        if depth == 0 or r.random() < 0.4:
            return r.choice(["a", "b", "c", "é", "[ab]", "[^a]", r"\d", r"\w", r"\s", r"\D", r"\W", ".", "[a-c1-3]", r"\.", r"\x61", r"\u00e9",
                             r"[\w-]", "x", "1", " ", r"[^\d\s]"])
        pick = r.random()
        if pick < 0.3:
            return f"({r.choice(['', '?:'])}{self.alternatives(depth - 1)})"
        if pick < 0.8:
            quantifier = r.choice(["*", "+", "?", "{2}", "{1,3}", "{2,}", "{0,2}", "*?", "+?", "??"])
            return f"(?:{self.piece(depth - 1)}){quantifier}"
        if pick < 0.86:
            return f"(?{r.choice('=!')}{self.piece(depth - 1)})"
        return self.piece(depth - 1)

    def alternatives(self, depth):
        return "|".join("".join(self.piece(depth) for _ in range(self.rng.randint(1, 3))) for _ in range(self.rng.choice([1, 1, 2, 3])))

    def compare(self, program, count):
        pattern = self.alternatives(3)
        texts = ["".join(self.rng.choice("abcéx1.2 -\n_") for _ in range(self.rng.randint(0, 7))) for _ in range(40)]
        compiled = re.compile(pattern, re.ASCII)  # as guides have it
        got = program.ask(regex=pattern, texts=texts)
        if got is None:
            count["refused here"] += 1
            return
        for text, mine in zip(texts, got):
            expected = compiled.fullmatch(text) is not None
            count["texts equal" if mine == expected else "DIFFERENT"] += 1
            if mine != expected:
                yield "different", pattern, (text, expected, mine)


class Schemas:
    def __init__(self, rng):
        import jsonschema
        self.validator = jsonschema.Draft202012Validator
        self.rng = rng

    def schema(self, depth=3):
        r = self.rng
        pick = r.random()
        if depth == 0 or pick < 0.25:
            return r.choice([{"type": "string", "maxLength": r.randint(0, 4)}, {"type": "integer", "minimum": r.randint(-5, 5)}, {"type": "boolean"},
                             {"type": "null"}, {"const": r.choice([1, "a", None, [1], {"a": 2}])}, {"enum": [1, "b", 2.5, None]}, {},
                             {"type": "number", "multipleOf": r.choice([1, 0.5, 3])}, {"type": "string", "pattern": r.choice(["^a", "b$", "[0-9]+"])},
                             {"type": "integer", "exclusiveMaximum": 12, "minimum": -12}, {"type": ["string", "null"]},
                             {"type": "string", "minLength": 2}, True])
        if pick < 0.5:
            names = r.sample("abcd", r.randint(0, 3))
            out = {"type": "object", "properties": {n: self.schema(depth - 1) for n in names}}
            if r.random() < 0.6:
                out["required"] = r.sample("abcd", r.randint(0, 2))
            if r.random() < 0.5:
                out["additionalProperties"] = r.choice([False, {"type": "integer"}, True])
            if r.random() < 0.2:
                out["maxProperties"] = r.randint(0, 3)
            if r.random() < 0.2:
                out["minProperties"] = r.randint(0, 2)
            if r.random() < 0.15:
                out["propertyNames"] = {"pattern": "^[a-c]"}
            if r.random() < 0.15:
                out["patternProperties"] = {"^d": self.schema(depth - 1)}
            if r.random() < 0.1:
                out["dependentRequired"] = {"a": ["b"]}
            return out
        if pick < 0.7:
            out = {"type": "array"}
            if r.random() < 0.8:
                out["items"] = self.schema(depth - 1)
            if r.random() < 0.3:
                out["prefixItems"] = [self.schema(depth - 1) for _ in range(r.randint(1, 2))]
            if r.random() < 0.4:
                out["maxItems"] = r.randint(0, 3)
            if r.random() < 0.3:
                out["minItems"] = r.randint(0, 2)
            if r.random() < 0.2:
                out["uniqueItems"] = True
            if r.random() < 0.2:
                out["contains"] = self.schema(0)
            return out
        if pick < 0.8:
            return {r.choice(["anyOf", "oneOf", "allOf"]): [self.schema(depth - 1) for _ in range(r.randint(1, 3))]}
        if pick < 0.9:
            return {"not": self.schema(0)}
        return {"if": self.schema(0), "then": self.schema(depth - 1), "else": self.schema(depth - 1)}

    def document(self, depth=3):
        r = self.rng
        pick = r.random()
        if depth == 0 or pick < 0.5:
            return r.choice([0, 1, -3, 7, 12, 1.5, 2.5, "a", "", "b", "ab", "a1", "abcd", True, False, None])
        if pick < 0.75:
            return {n: self.document(depth - 1) for n in r.sample("abcd", r.randint(0, 3))}
        return [self.document(depth - 1) for _ in range(r.randint(0, 3))]

    def compare(self, program, count):
        schema = self.schema()
        validator = self.validator(schema)
        text = json.dumps(schema)
        documents = [self.document() for _ in range(40)]
        got = program.ask(schema=text, texts=[json.dumps(d) for d in documents])
        if got is None:
            count["schemas refused here"] += 1
            return
        for document, mine in zip(documents, got):
            valid = validator.is_valid(document)
            if mine and not valid:
                count["INVALID LET IN"] += 1
                yield "invalid let in", text, json.dumps(document)
            elif valid and not mine:
                count["valid left out"] += 1
                yield "valid left out", text, json.dumps(document)
            else:
                count["documents equal"] += 1
        for written in program.ask(schema=text, walks=self.rng.randrange(1 << 32)) or []:
            if re.search(r"\d{8}|\d{3}\.\d{3}", written):  # jsonschema computes with doubles, guides exactly
                count["written with long numbers"] += 1
            elif validator.is_valid(json.loads(written)):
                count["written and valid"] += 1
            else:
                count["WRITTEN INVALID"] += 1
                yield "written invalid", text, written


class Tokenizers:
    """Those of tests/data/tokenizers.json and new texts, with parts of one exchanged for those of another."""

    def __init__(self, rng):
        import tokenizers
        self.library = tokenizers.Tokenizer
        self.rng = rng
        table = json.loads((DATA / "tokenizers.json").read_text())
        self.all = [{**one["parts"], "model": table["models"][one["model"]]} for one in table["tokenizers"]]
        self.pieces = [text for one in table["tokenizers"] for text, *_ in one["encode"]]

    def text(self):
        text = "".join(self.rng.choice(self.pieces)[self.rng.randint(0, 9):][:self.rng.randint(1, 12)] for _ in range(self.rng.randint(0, 5)))
        return text.encode(errors="ignore").decode()

    def compare(self, program, count):
        made = dict(self.rng.choice(self.all))
        for part in ("normalizer", "pre_tokenizer", "decoder"):
            if self.rng.random() < 0.3:
                made[part] = self.rng.choice(self.all)[part]
        source = json.dumps(made)
        try:
            reference = self.library.from_str(source)
        except BaseException:
            count["refused there"] += 1
            return
        texts = [self.text() for _ in range(10)]
        got = program.ask(tokenizer=source, texts=texts)
        if got is None:
            count["refused here"] += 1
            return
        for text, mine in zip(texts, got):
            try:
                plain = reference.encode(text, add_special_tokens=False).ids
                expected = [plain, reference.encode(text).ids, reference.decode(plain, skip_special_tokens=False)]
            except BaseException:
                count["fails there"] += 1
                continue
            count["texts equal" if mine == expected else "DIFFERENT"] += 1
            if mine != expected:
                yield "different", source[:200] + "...", (text, expected, mine)


KINDS = {"template": Templates, "regex": Patterns, "schema": Schemas, "tokenizer": Tokenizers}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--kind", choices=KINDS, action="append")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--show", type=int, default=10, help="differences of each kind")
    options = parser.parse_args()
    program = Program(options.program)
    warnings.simplefilter("ignore")  # of Python, about templates that jinja2 has compiled
    for kind in options.kind or KINDS:
        comparison, count, shown = KINDS[kind](random.Random(options.seed)), collections.Counter(), collections.Counter()
        end = time.monotonic() + options.seconds
        while time.monotonic() < end:
            count["inputs"] += 1
            for what, source, about in comparison.compare(program, count):
                shown[what] += 1
                if shown[what] <= options.show:
                    print(f"{kind}, {what}: {source}\n    {about}")
        print(f"{kind}: " + ", ".join(f"{n} {what}" for what, n in count.items()))


if __name__ == "__main__":
    main()
