"""Guides that are made to cost: those that once took gigabytes or minutes, variants of them, and a generator that keeps
whatever costs more."""

import functools
import json
import random


def schema(value):
    return "/v1/completions", {"guided_json": value}


def grammar(text):
    return "/v1/completions", {"guided_grammar": text}


def regex(text):
    return "/v1/completions", {"guided_regex": text}


def tools(*parameters, **more):
    return "/v1/chat/completions", {"tools": [
        {"type": "function", "function": {"name": f"f{i}", "parameters": p}} for i, p in enumerate(parameters)], **more}


def ollama(value):
    return "/api/chat", {"format": value}


def overlapping(count, offset=0):
    """Patterns whose product of automata is exponential."""
    return [{"pattern": f"a.{{{i + offset}}}b"} for i in range(1, count + 1)]


LONG_LIST = {"k" * 50_000: [0] * 50_000}
ANCHORS = {"$id": "http://a/" + "x" * 100_000,
           "$defs": {f"d{i}": {"$anchor": f"a{i}", "type": "null"} for i in range(12_000)}}

# As they were found.
LISTED = {
    "a path for each of 50,000 items": schema(LONG_LIST),
    "the same, longer": schema({"k" * 200_000: [0] * 300_000}),
    "the same, of a tool": tools({"type": "object", **LONG_LIST}),
    "the same, as Ollama has it": ollama(LONG_LIST),
    "anchors of a long identifier": schema(ANCHORS),
    "a repeated choice that is not regular": grammar(
        'root ::= (' + "|".join('"a"' for _ in range(5_000)) + ' | root){90000}'),
    "45,000 constants": schema({"anyOf": [{"const": f"c{i}"} for i in range(45_000)]}),
    "14 patterns at once": schema({"type": "string", "allOf": overlapping(14)}),
    "250 patterns at once": schema({"type": "string", "allOf": overlapping(250)}),
    "40 patterns of names": schema({"type": "object", "patternProperties": {
        f"a.{{{i}}}b": {"type": "integer"} for i in range(40)}}),
    "1,000 patterns of a tool": tools({"type": "object", "properties": {
        "a": {"type": "string", "allOf": overlapping(1_000)}}}),
}

VARIANTS = {
    "paths in objects": schema({"type": "object", "properties": {
        "k" * 30_000: {"properties": {f"p{i}": {} for i in range(40_000)}}}}),
    "deep long paths": schema(functools.reduce(
        lambda inner, i: {"properties": {f"{i}" + "k" * 2_000: inner}}, range(60), [0] * 100_000)),
    "relative identifiers": schema({"$id": "http://a/" + "x/" * 40_000, "$defs": {
        f"d{i}": {"$id": f"r{i}", "type": "null"} for i in range(8_000)}}),
    "references to a long base": schema({"$id": "http://a/" + "x" * 100_000, "$defs": {"a": {"type": "null"}},
                                         "anyOf": [{"$ref": "#/$defs/a"}] * 20_000}),
    "45,000 constant objects": schema({"anyOf": [{"const": {"a": i}} for i in range(40_000)]}),
    "one of 3,000 patterns": schema({"oneOf": [{"pattern": f"^a{{{i}}}b"} for i in range(3_000)]}),
    "20,000 names": schema({"type": "object", "properties": {f"property{i}": {"type": "integer"}
                                                             for i in range(20_000)}}),
    "20,000 names, some": schema({"type": "object", "minProperties": 2, "maxProperties": 9_000,
                                  "properties": {f"property{i}": {"type": "integer"} for i in range(20_000)}}),
    "names in any order": ("/v1/completions", {"structured_outputs": {"any_order": True, "json": {
        "type": "object", "properties": {f"p{i}": {} for i in range(20_000)}}}}),
    "a chain of references": schema({"$ref": "#/$defs/d0", "$defs": {
        **{f"d{i}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/d{i + 1}"}], "minItems": 1}
           for i in range(15_000)}, "d15000": {"type": "null"}}}),
    "products of alternatives": schema({"allOf": [{"anyOf": [{"type": "object", "required": [f"r{i}_{k}"]}
                                                             for k in range(30)]} for i in range(30)]}),
    "negated alternatives": schema({"type": "object", "not": {"oneOf": [
        {"properties": {f"p{i}": {"pattern": f"a.{{{i % 9}}}b"}}} for i in range(300)]}}),
    "any case of any character": regex("(?i)" + "[^a]" * 100_000),
    "letters, often": regex("\\p{L}" * 60_000),
    "a large bracket": regex("[" + "".join(chr(0x4E00 + 2 * i) for i in range(10_000)) * 20 + "]{1000}"),
    "an exponential automaton": regex("(a|b)*a(a|b){60}" * 200 + "(x|y|xy)*"),
    "nested repetitions": regex("((((a{1,100}b?){1,100}c?){1,100}d?){1,100}e?){1,100}"),
    "lookaheads": regex("".join(f"(?=.{{{i}}}a)" for i in range(300)) + ".*"),
    "a rule of 20,000 ways": grammar("root ::= " + " | ".join(f'"w{i}" root' for i in range(20_000)) + ' | "e"'),
    "rules that double": grammar("root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(60)) +
                                 '\nr60 ::= "a"?'),
    "an ambiguous grammar": grammar('root ::= ' + " | ".join(f"root r{i} root" for i in range(60)) + ' | "a"\n' +
                                    "\n".join(f'r{i} ::= root? "b"? root' for i in range(60))),
    "optional repetitions": grammar("root ::= " + " ".join(f"(x{i}){{0,3000}}" for i in range(30)) + "\n" +
                                    "\n".join(f'x{i} ::= "a" (x{i} "b")?' for i in range(30))),
    "16,000 choices": ("/v1/completions", {"guided_choice": ["c" * (i % 50) + f"{i * 7919}" for i in range(16_000)]}),
    "hard tools": tools(*({"type": "object", "properties": {"a": {"allOf": overlapping(9, i)}}}
                                for i in range(20))),
    "hard tools that must be called": tools(*({"type": "object", "properties": {"a": {"allOf": overlapping(12, i)}}}
                                              for i in range(20)), tool_choice="required"),
    "nested triggers": ("/v1/chat/completions", {"response_format": {"type": "structural_tag", "structures": [
        {"begin": "<" * 60 + f"{i}", "schema": {"type": "object"}, "end": "/"} for i in range(300)],
        "triggers": ["<" * i for i in range(1, 60)]}}),
}


class Generator:
    """Random schemas, patterns and grammars of at most `size` bytes. What costs more is kept and varied further."""

    def __init__(self, seed, size=20_000):
        self.random = random.Random(seed)
        self.size = size
        self.best = []  # (cost, source), the most costly first
        self.tried = 0

    def next(self):
        self.tried += 1
        for _ in range(100):
            if self.best and self.random.random() < 0.7:
                source = self.vary(self.random.choice(self.best[:8])[1])
            else:
                source = self.fresh()
            if len(json.dumps(source)) <= self.size:
                return source
        return self.fresh()

    def report(self, cost, source):
        self.best = sorted([*self.best, (cost, source)], key=lambda one: -one[0])[:12]

    @staticmethod
    def request(source):
        kind, value = source
        return {"schema": schema, "regex": regex, "grammar": grammar, "tools": lambda v: tools(*v)}[kind](value)

    def fresh(self):
        kind = self.random.choice(["schema", "schema", "regex", "grammar", "tools"])
        if kind == "schema":
            return kind, self.schema(4)
        if kind == "regex":
            return kind, self.pattern(5)
        if kind == "tools":
            return kind, [self.object(3) for _ in range(self.random.randint(1, 8))]
        return kind, self.rules()

    def schema(self, depth):
        pick = self.random.random()
        if depth == 0 or pick < 0.15:
            return self.random.choice([
                {"type": "string", "pattern": self.pattern(3)}, {"type": "integer", "minimum": -7, "maximum": 10**6},
                {"enum": [f"e{self.random.randint(0, 99)}" for _ in range(self.random.randint(1, 30))]},
                {"const": {"a": [1, {"b": None}]}}, {"type": "number", "multipleOf": 0.017}, {"$ref": "#"}, True,
                {"type": "string", "minLength": self.random.randint(0, 500), "format": "uri"}])
        if pick < 0.4:
            return self.object(depth - 1)
        if pick < 0.55:
            return {"type": "array", "items": self.schema(depth - 1), "minItems": self.random.randint(0, 40),
                    "maxItems": self.random.randint(40, 4_000), "contains": self.schema(depth - 1)}
        if pick < 0.65:
            return {"not": self.schema(depth - 1)}
        if pick < 0.72:
            return {"if": self.schema(depth - 1), "then": self.schema(depth - 1), "else": self.schema(depth - 1)}
        return {self.random.choice(["allOf", "anyOf", "oneOf"]): [
            self.schema(depth - 1) for _ in range(self.random.randint(2, 12))]}

    def object(self, depth):
        result = {"type": "object", "properties": {
            f"p{i}": self.schema(depth) for i in range(self.random.randint(1, 6))}}
        if self.random.random() < 0.4:
            result["patternProperties"] = {self.pattern(2): self.schema(depth) for _ in range(3)}
        if self.random.random() < 0.4:
            result["required"] = [f"p{i}" for i in range(self.random.randint(0, 8))]
        if self.random.random() < 0.3:
            result.update(minProperties=1, maxProperties=self.random.randint(1, 20))
        if self.random.random() < 0.3:
            result["propertyNames"] = {"pattern": self.pattern(2)}
        return result

    def pattern(self, depth):
        pick = self.random.random()
        if depth == 0 or pick < 0.2:
            return self.random.choice(["a", "b", ".", "[^a]", "\\w", "\\p{L}", "é", "(a|ab)"])
        inner = self.pattern(depth - 1)
        if pick < 0.5:
            return f"({inner}){self.random.choice(['*', '+', '?', '{3,40}', '{200}', '{0,900}'])}"
        if pick < 0.6:
            return f"(?{self.random.choice('=!')}{inner}){self.pattern(depth - 1)}"
        return self.random.choice(["({0}|{1})", "{0}{1}", "{0}.{{9}}{1}"]).format(inner, self.pattern(depth - 1))

    def rules(self):
        count = self.random.randint(2, 12)

        def body(depth):
            pick = self.random.random()
            if depth == 0 or pick < 0.35:
                return self.random.choice([f"r{self.random.randrange(count)}", '"a"', '"ab"', "[a-z]", "[^b]"])
            if pick < 0.6:
                return "(" + " | ".join(body(depth - 1) for _ in range(self.random.randint(2, 6))) + ")"
            if pick < 0.8:
                return body(depth - 1) + self.random.choice(["*", "?", "+", "{0,60}", "{700}"])
            return body(depth - 1) + " " + body(depth - 1)
        return "root ::= r0\n" + "\n".join(f'r{i} ::= {body(4)} | "x"' for i in range(count))

    def vary(self, source):
        kind, value = source
        if kind in ("regex", "grammar"):
            lines = value.split("\n")
            i = self.random.randrange(len(lines))
            if kind == "grammar" and " ::= " in lines[i]:
                name, rest = lines[i].split(" ::= ", 1)
                lines[i] = f"{name} ::= " + self.random.choice(
                    [f"({rest}) ({rest})", f"({rest}){{2,30}}", f"{rest} | r0 r1", f"({rest}) | ({rest}) r0"])
                return kind, "\n".join(lines)
            return kind, self.random.choice([f"({value}){{2,30}}", value + self.pattern(3), f"(?={value}).*{value}",
                                             f"({value}|{self.pattern(4)})*", value * 2])
        return kind, self.vary_value(value)

    def vary_value(self, value):
        if isinstance(value, dict) and value:
            key = self.random.choice(list(value))
            if isinstance(value[key], int) and not isinstance(value[key], bool):
                return {**value, key: value[key] * 2 + 1}
            if key == "pattern":
                return {**value, key: self.vary(("regex", value[key]))[1]}
            if self.random.random() < 0.2:
                return {self.random.choice(["allOf", "anyOf", "oneOf"]): [value, self.schema(3)]}
            return {**value, key: self.vary_value(value[key])}
        if isinstance(value, list) and value:
            i = self.random.randrange(len(value))
            if self.random.random() < 0.5:
                return [*value, *(self.vary_value(one) for one in value[:8])]
            return [*value[:i], self.vary_value(value[i]), *value[i + 1:]]
        return value
