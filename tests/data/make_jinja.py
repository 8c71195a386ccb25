#!/usr/bin/env python3
"""Writes jinja.json: small templates, rendered by jinja2 3.1 with transformers' settings.

    python3 -m venv venv && venv/bin/pip install jinja2==3.1.6 && venv/bin/python make_jinja.py

Each case is {"template", "globals"?, "expected"}. If "expected" is null, parsing or rendering must fail.
"""
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
from jinja2.sandbox import ImmutableSandboxedEnvironment


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_support"), [], [], body).set_lineno(line)

    def _support(self, caller):
        return caller()


def raise_exception(message):
    raise jinja2.exceptions.TemplateError(message)


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                            extensions=[Generation, jinja2.ext.loopcontrols])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = datetime.datetime(2026, 7, 4, 9, 5, 3).strftime

# The globals of cases without their own.
GLOBALS = {
    "n": 7, "x": 2.5, "t": True, "nothing": None, "s": "Hello, World", "u": "Grüße – 你好 🎭", "e": "",
    "xs": [3, 1, 2], "words": ["pear", "Apple", "fig"], "nested": [[1, 2], [3, [4]]],
    "d": {"b": 1, "a": [1, "two", None], "items": "shadowed"},
    "people": [{"name": "Ann", "age": 30, "home": {"city": "Paris"}}, {"name": "bob", "age": 25, "home": {"city": "Rome"}},
               {"name": "Cy", "age": 30, "home": {"city": "Paris"}, "admin": True}],
    "tree": [{"v": 1, "c": [{"v": 2, "c": []}, {"v": 3, "c": [{"v": 4, "c": []}]}]}],
    "text": "one two\nthree  four\n\n  five\t<b>&amp;</b>\n", "quote": "it's \"so\" \\ \t\x07é",
    "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi! "},
                 {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": {"q": "ü<>&'", "n": 1.0}}}]}],
}

# One expression per line, each rendered as {{ EXPRESSION }}.
EXPRESSIONS = r"""
1 + 2 * 3 - 4
(1 + 2) * 3
2 ** 3 ** 2
-2 ** 2
-n
+n
+t
7 / 2
6 / 2
7 // 2
-7 // 2
7 // -2
7 % 3
-7 % 3
7 % -3
7.5 // 2
-7.5 % 2
7.5 % -2
2 ** -1
2 ** 0.5
10 ** 15
1e3
1e16
1e15
1.5e-5
0.0001
1e-5
1.0
100000.0
123456789.123456789
1_000_000
0x1F
0o17
0b101
1_0.5_0
0.1 + 0.2
3 * 1.0
true + 1
true
false
none
True
None
n == 7.0
n != 7
1 < 2 < 3
1 < 3 < 2
3 > 2 >= 2
1 == 1 == 1
'a' < 'b'
[1, 2] < [1, 3]
(1, 2) == [1, 2]
[1, [2, 3]] == [1, [2, 3]]
{'a': 1} == {'a': 1.0}
not true
not none and true
not (1 == 2)
1 and 0
'' or 'fallback'
0 or none
none or 0 or []
1 in xs
5 not in xs
not 5 in xs
'ell' in s
'' in ''
'b' in d
'z' not in d
1 in (1, 2)
2 in range(3)
'a' ~ 1 ~ none ~ 2.0 ~ true
'a' ~ missing ~ 'b'
'a' + 'b' * 3
3 * 'ab'
[1] * 3
[1] + [2, 'x']
(1,) + (2,)
(1, 2)
(1,)
()
1, 2
[]
{}
[1, 2.0, 'it''s', "q\"", none, true]
{'a': 1, 2: 'b', none: [], (1, 2): {}}
'a' 'b' "c"
'tab\tnew\nline\\ \' \" \x41 \u00e9 \U0001F600 \101 \q'
'x' if t else 'y'
'x' if not t else 'y'
'x' if false
('x' if false) is defined
'a' if false else 'b' if false else 'c'
s[0]
s[-1]
s[1:4]
s[:-3]
s[::2]
s[::-1]
s[5:2]
s[4:1:-1]
s[-100:100]
u[1]
u[2:5]
u | length
u[::-1]
xs[0]
xs[-1]
xs[1:]
xs[::-1]
xs[10]
xs[10] is defined
(1, 2, 3)[1:]
range(5)[2]
nested[1][1][0]
nested.0.1
xs.0
d.b
d['b']
d.a
d['a'][1]
d.items
d['items']
d['missing']
d.missing is defined
d.missing.deeper
missing
missing.attribute
missing is defined
missing is undefined
missing | default('x')
missing | d
e | default('x')
e | default('x', true)
none | default('x')
missing or 'x'
missing == missing
missing == none
[missing]
missing + 1
missing < 1
not missing
missing | length
missing | upper
missing | list
missing | join(',')
missing | first is defined
missing()
missing[0]
s.upper()
s.lower()
'hello wORLD'.capitalize()
"they're bill's friends".title()
"they're bill's-friends (and so) on" | title
' x '.strip()
' x '.lstrip() ~ '|'
' x '.rstrip() ~ '|'
'xxaxx'.strip('x')
'abcab'.lstrip('ab')
'abcab'.rstrip('ab')
'a,b,,c'.split(',')
' a  b c '.split()
'a b c d'.split(' ', 1)
'a b c d'.split(none, 1)
' a b  c d '.split(none, 2)
'a b c d'.rsplit(' ', 1)
' a b  c d '.rsplit(none, 2)
'a,b'.split(',')[-1]
'x</think>y</think>z'.split('</think>')[-1].lstrip('\n')
'a,b,c'.rsplit(',')
'ab'.split('')
'a\nb\r\nc\rd\n'.splitlines()
'a\nb\n'.splitlines(true)
s.startswith('Hell')
s.startswith(('x', 'H'))
s.startswith('ello', 1)
s.endswith('World')
s.endswith(('x', 'd'))
s.find('o')
s.find('o', 5)
s.find('zz')
s.rfind('o')
u.find('你')
s.index('W')
s.index('zz')
s.count('l')
'aaaa'.count('aa')
'abc'.count('')
s.replace('l', 'L')
s.replace('l', 'L', 1)
'abc'.replace('', '-')
'a'.join(['x', 'y', 'z'])
', '.join(words)
','.join([1])
'prefix-x'.removeprefix('prefix-')
'x.txt'.removesuffix('.txt')
'a-b-c'.partition('-')
'a-b-c'.rpartition('-')
'abc'.partition('-')
'12'.isdigit()
''.isdigit()
'1a'.isalnum()
'aé'.isalpha()
' \t'.isspace()
'abc1'.islower()
'ABC1'.isupper()
'1'.islower()
'-5'.zfill(4)
'5'.zfill(3)
'x'.center(4) ~ '|'
'x'.center(5, '*')
'ab'.center(5, '*')
'x'.ljust(3, '.')
'x'.rjust(3)
'aBc'.swapcase()
'{} and {}'.format('a', 1)
'{1} {0} {name}'.format('a', 'b', name='c')
'{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c')
'{:05d} {:.2f} {:x} {:,}'.format(42, 3.14159, 255, 1234567)
'{:+d} {:e} {:%} {:*^7}'.format(5, 12345.678, 0.25, 'x')
'{0[name]} {0.age}'.format(people[0])
'{{}} {!r}'.format('q')
'{}'.format()
'%s is %d years' % ('Ann', 30)
'%s' % 'x'
'%s' % none
'%5.2f|%-6s|%06d|%x|%+d|%%' % (3.14159, 'ab', 42, 255, 7)
'%(a)s-%(b)r' % {'a': 1, 'b': 'x'}
'%s' % [1, 2]
'%s %s' % ('a',)
'%s' % ('a', 'b')
'%d' % 'x'
'%c%c' % (72, 'i')
'%e %g %g' % (12345.678, 0.00001, 100000)
d.items()
{'b': 1, 'a': 2}.items() | list
{'b': 1, 'a': 2}.keys()
{'b': 1, 'a': 2}.values() | list
{'b': 1}.get('b')
{'b': 1}.get('c')
{'b': 1}.get('c', 'x')
d.get('items')
xs.index(1)
xs.count(1)
xs.append(1)
xs.pop()
xs.append is defined
d.update({'c': 1})
d.pop('b')
s.__class__
s.__class__ is defined
people | map(attribute='name') | list
people | map(attribute='home.city') | unique | list
people | map(attribute='admin', default=false) | list
people | map(attribute='admin') | list
words | map('upper') | list
words | map('replace', 'p', 'q') | join(' ')
words | map('nosuch') | list
words | map | list
[1, 2, 3, 4] | select('odd') | list
[1, 2, 3, 4] | reject('odd') | list
[0, 1, '', 'a', none] | select | list
[1, 5, 9] | select('gt', 4) | list
[1, 5, 9] | select('in', [1, 9]) | list
['a', 'b'] | reject('equalto', 'a') | list
people | selectattr('admin') | map(attribute='name') | list
people | selectattr('age', 'eq', 30) | map(attribute='name') | join(', ')
people | rejectattr('age', 'equalto', 30) | map(attribute='name') | join(', ')
people | selectattr('admin', 'defined') | list | length
people | rejectattr('home.city', '==', 'Paris') | list | length
messages | selectattr('role', 'equalto', 'user') | list | length
xs | sort
xs | sort(reverse=true)
words | sort
words | sort(case_sensitive=true)
people | sort(attribute='age') | map(attribute='name') | list
people | sort(attribute='age,name', reverse=true) | map(attribute='name') | list
[1, 'a'] | sort
people | groupby('age') | map('first') | list
people | groupby('home.city') | list | length
{'b': 1, 'A': 3, 'c': 2} | dictsort
{'b': 1, 'A': 3, 'c': 2} | dictsort(true)
{'b': 1, 'A': 3, 'c': 2} | dictsort(by='value')
{'b': 1, 'A': 3, 'c': 2} | dictsort(false, 'value', true)
{0: 'a', 512: 'b'} | dictsort
xs | max
xs | min
words | max
words | min(case_sensitive=true)
people | max(attribute='age')
[] | max is defined
xs | sum
people | sum(attribute='age')
[[1], [2]] | sum(start=[])
['a'] | sum
xs | first
xs | last
s | first
'abc' | last
[] | first is defined
xs | length
d | length
5 | length
xs | select | length
xs | select | first
xs | select | last
xs | reverse | list
'abc' | reverse
xs | join('-')
people | join(', ', attribute='name')
[1, none, 2.5, true] | join('|')
'abc' | join('.')
s | list
d | list
d | items | list
xs | items | list
missing | items | list
[1, 2, 3, 4, 5] | batch(2) | list
[1, 2, 3] | batch(2, 'x') | list
[1, 2, 3, 4, 5] | slice(3) | list
[1, 2, 3, 4] | slice(3, 'x') | list
['a', 'A', 'b'] | unique | list
['a', 'A', 'b'] | unique(true) | list
[1, 1.0, true] | unique | list
-5 | abs
(-5) | abs
(-2.5) | abs
'x' | abs
2.5 | round
3.5 | round
2.675 | round(2)
2.5 | round(method='ceil')
2.4 | round(0, 'floor')
1234 | round(-2)
7 | round
'42' | int
'42.9' | int
'x' | int
'x' | int(-1)
'ff' | int(base=16)
'0x1f' | int(0, 16)
' 7 ' | int
3.99 | int
true | int
none | int
'3.5' | float
'x' | float
'x' | float(1.5)
3 | float
'1e3' | float
42 | string
[1, 'a'] | string
x | string
s | upper
s | lower
'ß' | upper
'İ' | lower
'İI' | lower | length
'ﬁ' | title
'ﬁt ﬁt'.title()
'ﬁt' | capitalize
'ﬃ ŉ ΐ և ᾳ ῼ' | upper
'ǆ ß ﬀ ᾳ'.title()
'ß ﬁ Σ ǅ ⓐⒷ Ⅷ'.swapcase()
'ΟΔΟΣ' | lower
'ΣΑΣ. ΑΣ Σ Α.Σ.Α Σ' | lower
'ΑΣ ΟΔΟΣ-ΑΣ' | title
'ΑΣ ΟΔΟΣ'.title()
'ΑΣΣ' | capitalize
'你a ªa ⅰa 1a'.title()
'one two_three  four-five' | wordcount
'' | wordcount
'  …  ' | wordcount
'Grüße – 你好 你 x² नमस्ते' | wordcount
42 | wordcount
none | wordcount
text | wordcount(1)
'éà' | upper
'hello world' | capitalize
s | trim('Hd')
'  x  ' | trim ~ '|'
s | replace('o', '0')
s | replace('o', '0', 1)
1234 | replace(2, 'x')
'x' | center(5) ~ '|'
text | indent
text | indent(2, first=true)
text | indent('> ', blank=true)
5 | indent
'<a href="x">&\'' | e
'<b>' | escape
'<b>' | safe
'%s-%s' | format('a', 1)
'%(x)s' | format(x=1)
'Hello' | attr('upper') is callable
d | attr('b') is defined
d | tojson
xs | tojson
u | tojson
u | tojson(ensure_ascii=true)
quote | tojson
quote
[quote]
d | tojson(indent=2)
d | tojson(indent=4, sort_keys=true)
d | tojson(separators=(',', ':'))
d | tojson(sort_keys=true)
[] | tojson(indent=2)
{} | tojson(indent=2)
[[], {}, [1]] | tojson(indent=1)
'</script>&\'' | tojson
[1.0, 1e100, 0.1, 1e-7, true, none, -0.0] | tojson
{1: 'a', true: 'b', none: 'c', 2.5: 'd'} | tojson
(1, 2) | tojson
missing | tojson
range(2) | tojson
[missing] | tojson
messages[2].tool_calls | tojson
messages[2].tool_calls[0].function.arguments | tojson
n is number
x is number
t is number
t is boolean
n is boolean
n is integer
t is integer
x is float
n is float
s is string
n is string
xs is sequence
s is sequence
d is sequence
5 is sequence
xs is iterable
5 is iterable
missing is iterable
d is mapping
xs is mapping
none is none
missing is none
nothing is not none
n is odd
n is even
n is divisibleby 7
n is divisibleby(2)
'abc' is lower
'ABC' is upper
n is eq 7
n is gt(3)
n is lt 3
n is ge 7
n is le 6
n is ne 7
n is equalto 7
n is in [7, 8]
n is not in [7, 8]
none is sameas none
t is sameas true
1 is sameas true
t is true
t is false
0 is false
'upper' is filter
'nosuch' is filter
'odd' is test
range is callable
s is callable
n is defined and n is number
n is not defined or n == 7
n is nosuch
range(5) | list
range(2, 8, 3) | list
range(5, 0, -2) | list
range(3)
range(0, 6, 2)
range(100001) | list
range(0, 5, 0)
range('a')
dict(a=1, b=2)
dict([('a', 1)], b=2)
dict({'a': 1}, b=2)
namespace(a=1).a
namespace({'a': 1}, b=2).b
namespace(a=1).missing
cycler('a', 'b').next()
cycler()
joiner('-')() ~ 'x'
strftime_now('%d %b %Y')
strftime_now('%Y-%m-%d %H:%M:%S %% %A %B %j')
strftime_now('')
raise_exception('no')
1 / 0
1 // 0
1 % 0
1.0 / 0
'a' + 1
1 + 'a'
'a' - 'b'
none + 1
none.x
none.x is defined
none['x'] is defined
n.x is defined
s.nosuch
s.nosuch()
[1] + (2,)
'a' < 1
[] < 1
none < 1
'a' in 5
1 in 'abc'
5[0]
{[1]: 2}
{'a': 1}[[1]]
s()
xs()
s | nosuch
nosuch(1)
1 +
(1
[1, 2
{'a' 1}
'unclosed
1 2
a.
a[
a b
1 ~
{{ 1 }}
foo(a=1, 2)
foo(*xs, *xs)
range(*[1, 4]) | list
range(**{'start': 1}) | list
dict(**{'a': 1})
s.split(sep=' ', maxsplit=1)
s.upper(1)
s | replace('a')
s | upper(1)
s | default
[1, 2, 3,]
{'a': 1,}
range(3,) | list
(((((1)))))
[[[[[]]]]]
- - 1
not not true
1 if 1 if 0 else 1 else 2
-1 | abs
2 * 3 | string
'a' ~ 'b' | upper
xs | sort | first + 1
1 == 1 and 2 == 2 or false
1 < 2 == true
xs[0] if xs else 'none'
messages[-1].tool_calls[0].function.name
messages[0]['role'] == 'system' and messages[1].content | trim == 'Hi!'
messages | map(attribute='role') | join('>')
(messages | last).content is none
(messages | selectattr('role', 'equalto', 'tool') | list) or 'empty'
u | upper
u | lower
u | title
'ǆ' | upper
'Straße' | capitalize
"\u00a0x\u2003" | trim
'a\u2028b'.splitlines() | length
"é" < "z"
'\x00' | length
['\x00\x1f\x7f\x80\u200b\ue000é']
1.5 | tojson
x | tojson
9223372036854775807
-9223372036854775807 - 1
1e308 * 10
0.1 | round(20)
12345.678 | round(-2)
"%.3f" | format(2.0005)
'%5s|%-5s|' % ('é', 'é')
1.0 == 1
'1' == 1
[1, 2] == (1, 2)
none == false
{'a': 1, 'b': 2} == {'b': 2, 'a': 1}
()|length
(1,2)|list
d.keys() | list
d.values()
{'x': {'y': {'z': 1}}}.x.y.z
{'x': 1}.x is defined
{'x': 1}['x']
{1: 'one'}[1]
{1: 'one'}[1.0]
{1: 'one'}[true]
{1: 'one'}.1
"a" if missing else "b"
missing if true
[1,2,3] | map('string') | list
['1','2'] | map('int') | sum
[{'a': 1}, {'a': 2}] | sum('a')
[3, 1] | sort | tojson
'a' is in 'abc'
'a' is not in ['b']
x is not string
[[1, 2], [3, 4]] | map('last') | list
[[1, 2], [3, 4]] | map('join', '-') | join(' ')
[{'k': {'v': 1}}] | map(attribute='k.v') | first
['b', 'a'] | sort(reverse=false)
[] | join(', ')
[''] | join(', ')
"A" ~ ("b" if t) ~ "c"
""
"{% raw %}"
'it''s'
"\\n"
'\N{BULLET}x' | length == 2
none | select | list
missing | selectattr('a') | list
none | rejectattr('a') | list
none | selectattr('a', 'nosuch') | list
'' | reject('nosuch') | list
none | map('upper') | list
missing | map(attribute='x') | join(',')
0 | map('nosuch') | list
false | select | list
5 | select | list
messages[0].tool_calls | selectattr('type', 'equalto', 'x') | list | length
'a' | safe + '"'
'a'|safe + '"'
('<b>'|safe) + '<i>'
'<b>' + ('<i>'|safe)
('<b>'|safe) + ('<i>'|safe)
('<b>'|safe) + 1
('<b>'|safe) ~ '<i>'
(('<b>'|safe) ~ '<i>') + '<u>'
('<b>'|safe) * 2 + '<i>'
2 * ('<b>'|safe) + '<i>'
('<%s>'|safe) % '<i>'
('<%s>'|safe) % ('<i>'|safe)
('<%s|%r|%d>'|safe) % ('<i>', '<', 3)
('<%(x)s>'|safe) % {'x': '<i>'}
('%5s|%-5s|'|safe) % ('<', '>')
('%s'|safe) % ['<']
'<%s>' % ('<i>'|safe)
('<%s>' % ('<i>'|safe)) + '<'
('<{}>'|safe).format('<i>')
('<{}>{:>3}{!r}'|safe).format('<i>'|safe, '<', "<")
('<{:>3}>'|safe).format('<'|safe)
'<{}>'.format('<i>'|safe) + '<'
['<', '<'|safe] | join('&')
['<', '<'|safe] | join('&'|safe) + '<'
('&'|safe).join(['<', '<'|safe, 1])
'&'.join(['<', '<'|safe]) + '<'
('<b>'|safe) | e
'<b>' | e | e
'<b>' | e | forceescape
('<b>'|safe) | forceescape
5 | e + '<'
none | safe + '<'
missing | safe + '<'
('<b>'|safe) | upper + '<'
('<b>'|safe).upper() + '<'
('<b>'|safe) | lower + '<'
('<b>'|safe) | capitalize + '<'
('<b>'|safe) | title + '<'
('<b>'|safe).title() + '<'
(' <b> '|safe) | trim + '<'
(' <b> '|safe).strip() + '<'
('<b>'|safe) | replace('b', '<') + '<'
('<b>'|safe).replace('b', '<') + '<'
'<b>'.replace('b', '<'|safe) + '<'
('<b>'|safe) | center(7) + '<'
('<b>'|safe).center(7, '*') + '<'
('<b>'|safe).ljust(7, '<')
('a\n<b>'|safe) | indent + '<'
('<b>'|safe) | string + '<'
('<%s>'|safe) | format('<') + '<'
('<b>'|safe) | reverse + '<'
('<b>'|safe)[0] + '<'
('<b>'|safe)[:2] + '<'
('<b>'|safe)[::-1] + '<'
('<b>'|safe) | first + '<'
('<b>'|safe) | last + '<'
('<b>'|safe) | list
('<b>'|safe).split('b')
('<b>'|safe).partition('b')
('<b>'|safe).splitlines() | first + '<'
('<b>'|safe).removeprefix('<') + '<'
('5'|safe).zfill(3) + '<'
['<b>'|safe]
('<b>'|safe) | tojson
('<b>'|safe) | tojson + '<'
'<' | tojson + ('<'|safe)
('<b>'|safe) == '<b>'
{'<b>': 1}['<b>'|safe]
'b' in ('<b>'|safe)
('<b>'|safe) is string
('<b>'|safe) is escaped
'<b>' is escaped
('<b>'|safe) | length
('12'|safe) | int + 1
('<b>'|safe) | default('x') + '<'
['<b>'|safe, 'a'] | sort | first + '<'
['<b>', 'c'] | map('safe') | map('upper') | list
('<b>'|safe) < '<c>'
('<b>'|safe) - 'a'
d | attr('nosuch') | e
s|length>5
s|length > 5 and n>3
d|length==3
xs|first|string + 'x'
d[:2]
nothing[1:]
n[::-1]
(xs | select)[1:]
d.items()[:1]
nosuch is sequence
d.nosuch is sequence
nothing is sequence
xs | unique | reverse
words | select | reverse | first
""" .strip("\n").split("\n")

# Left out: whether these fail is a matter of taste or of Python's internals.
EXPRESSIONS = [e for e in EXPRESSIONS if e not in ("'\\N{BULLET}x' | length == 2", "words | map | list", "d.items")]

TEMPLATES = [
    # text and white space
    "plain", "", "a\n", "a\n\n", "\n", "{", "{ {", "{{ 1 }}}", "a{{ 1 }}b", "a\r\nb\rc",
    "a {{- 1 -}} b", "a\n{{- 1 -}}\nb", "a {{+ 1 }} b", "{% if true %}\nx\n{% endif %}\ny", "  {% if true %}\n  x\n  {% endif %}\ny",
    "a  {% if true %}  x  {% endif %}  b", "  {%+ if true %}\nx{% endif %}", "{% if true +%}\nx{% endif +%}\ny", "a \n {%- if true -%} \n x \n {%- endif -%} \n b",
    "a\n  {# comment #}\nb", "a {#- c -#} b", "{# a\n{{ x }} #}b", "{# not closed", "  {{ 1 }}\n  {{ 2 }}\n", "x{# c #}\ny", "x {#+ c +#}\ny", "{#-#}x", "a{#- c #}\n b",
    "{% raw %}{{ x }}{% endraw %}", "a  {%- raw -%}  {{ x }} {%- endraw -%}  b", "{% raw %}\n {% x %}\n{% endraw %}\ny", "{% raw %}{{", "  {% raw %}  x  {% endraw %}\n  y", "{% raw %}{% endraw",
    "\t{% if true %}\n\tx\n\t{% endif %}", "{% if true %}{% endif %}\n\nx", "{{ 1 }}\n\n", "x\n{% set a = 1 %}\ny", "a{{ '\n' }}b", "{{ 'a\r\nb' | length }}", "{{\n1\n}}", "{%\nif true\n%}x{%\nendif\n%}",
    "{{ 1 }", "{% if true", "{{", "{%", "{% %}", "{{ }}", "{% 1 %}", "{{ '{{' }}{{ '%}' }}", "{% if '%}' %}x{% endif %}", "{{ {'a': {'b': 1}}.a.b }}", "{{ {'a': {}} }}", "{{ '}}' }}", "{{ {} }}",
    # if
    "{% if n == 7 %}a{% elif n == 8 %}b{% else %}c{% endif %}", "{% if n == 6 %}a{% elif n == 7 %}b{% else %}c{% endif %}", "{% if n == 6 %}a{% elif n == 8 %}b{% else %}c{% endif %}",
    "{% if missing %}a{% endif %}b", "{% if n: %}a{% endif %}", "{% if %}{% endif %}", "{% if n %}", "{% endif %}", "{% if n %}{% endfor %}", "{% if n %}{% else %}{% else %}{% endif %}", "{% else %}", "{% if 1, %}tuple{% endif %}",
    "{% if x is nosuch %}{% endif %}", "{% if false %}{{ x | nosuch }}{% endif %}ok", "{% if true %}{{ x | nosuch }}{% endif %}ok", "{{ x | nosuch if false else 'ok' }}", "{% if 'nosuch' is filter %}{{ x | nosuch }}{% else %}without{% endif %}",
    # for
    "{% for i in xs %}{{ i }},{% endfor %}", "{% for i in [] %}{{ i }}{% else %}empty{% endfor %}", "{% for i in xs %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }} {% endfor %}",
    "{% for i in xs if i > 1 %}{{ i }}/{{ loop.index }}/{{ loop.length }} {% else %}none{% endfor %}", "{% for i in xs if i > 9 %}{{ i }}{% else %}none{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}", "{% for k, v in d | items %}{{ k }}{% if not loop.last %}, {% endif %}{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}", "{% for c in 'héy' %}{{ c }}.{% endfor %}", "{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "{% for a, b in [(1, 2, 3)] %}{% endfor %}", "{% for a, b in [1] %}{% endfor %}", "{% for (a, b) in [[1, 2]] %}{{ a + b }}{% endfor %}", "{% for a, in [[1]] %}{{ a }}{% endfor %}",
    "{% for i in 1, 2, 3 %}{{ i }}{% endfor %}", "{% for i in missing %}{{ i }}{% else %}none{% endfor %}", "{% for i in 5 %}{% endfor %}", "{% for i in none %}{% endfor %}", "{% for i in range(3) %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }} {% endfor %}", "{% for i in range(5) %}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for i in [1, 1, 2, 2, 1] %}{% if loop.changed(i) %}{{ i }}{% endif %}{% endfor %}", "{% for i in xs %}{% for j in xs %}{{ loop.index }}{% endfor %}{{ loop.index }};{% endfor %}", "{% for i in xs %}{% set outer = loop %}{% for j in [1, 2] %}{{ outer.index }}{{ loop.index }} {% endfor %}{% endfor %}",
    "{% for i in xs %}{% if i == 1 %}{% break %}{% endif %}{{ i }}{% endfor %}", "{% for i in xs %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "{% for i in xs %}{% break %}{% else %}E{% endfor %}", "{% for i in xs %}{{ i }}{% continue %}{% else %}E{% endfor %}", "{% for i in xs %}{% if loop.last %}{% break %}{% endif %}{{ i }}{% else %}E{% endfor %}", "{% break %}", "{% for i in xs %}{% macro m() %}{% break %}{% endmacro %}{% endfor %}",
    "{% for n in tree recursive %}{{ n.v }}@{{ loop.depth }}{% if n.c %}({{ loop(n.c) }}){% endif %}{% endfor %}", "{% for i in xs %}{{ loop(xs) }}{% endfor %}", "{% for i in xs %}{% endfor %}{{ i }}{{ loop is defined }}", "{% for i in xs %}{{ x }}{% set x = i %}{{ x }} {% endfor %}{{ x }}", "{% for i in xs %}{% if loop.first %}{% set y = i %}{% endif %}{{ y }},{% endfor %}",
    "{% for i in xs %}x", "{% for i xs %}{% endfor %}", "{% for in xs %}{% endfor %}", "{% for 1 in xs %}{% endfor %}", "{% for true in xs %}{% endfor %}", "{% for i in xs %}{% endif %}", "{% for loop in xs %}{% endfor %}", "{% for i in xs | reverse %}{{ i }}{% endfor %}", "{% for i in xs[:2] %}{{ i }}{% endfor %}", "{% for i in (xs if t else []) %}{{ i }}{% endfor %}", "{% for m in messages if m.role != 'system' %}{{ m.role }} {% endfor %}",
    "{% for i in xs %}\n{{ i }}\n{% endfor %}\n", "{%- for i in xs -%}\n  {{ i }}\n{%- endfor -%}\n", "{% for i in range(100000) %}{% endfor %}done", "{% for i in xs %}{{ loop.nosuch }}{{ loop.nosuch is defined }}{% endfor %}", "{% for i in xs if loop %}{% endfor %}x", "{% set g = xs | select %}{{ g | list }}{{ g | list }}", "{% for k, v in d.items() if v is string %}{{ k }}{% endfor %}",
    # set, namespace, with
    "{% set a = 1 %}{{ a }}", "{% set a, b = 1, 2 %}{{ a }}{{ b }}", "{% set a = 1, 2 %}{{ a }}", "{% set (a, b) = xs[:2] %}{{ a }}{{ b }}", "{% set a %}x{{ n }}y{% endset %}{{ a }}|{{ a | length }}", "{% set a | upper %}x{{ s }}{% endset %}{{ a }}", "{% set a | replace('x', 'y') | upper %}xa{% endset %}{{ a }}", "{% set a %}{% set b = 1 %}{{ b }}{% endset %}{{ a }}{{ b is defined }}", "{% set a = 1 %}{% if true %}{% set a = 2 %}{% endif %}{{ a }}", "{% set a = 1 %}{% for i in xs %}{% set a = i %}{% endfor %}{{ a }}", "{% set ns = namespace(a=1) %}{% for i in xs %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}",
    "{% set ns = namespace() %}{% set ns.x %}block{% endset %}{{ ns.x }}", "{% set ns = namespace() %}{% set ns.a, ns.b = 1, 2 %}{{ ns.a + ns.b }}", "{% set ns = namespace() %}{{ ns.a is defined }}{{ ns['a'] is defined }}", "{% set ns = namespace(found=false) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.found = true %}{% endif %}{% endfor %}{{ ns.found }}", "{% set d.x = 1 %}", "{% set missing.x = 1 %}", "{% set x.y.z = 1 %}", "{% set 'a' = 1 %}", "{% set a = %}", "{% set a %}x", "{% set none = 1 %}", "{% set a + 1 = 2 %}",
    "{% set messages = messages[1:] %}{{ messages | length }}", "{% set x = x + 1 %}{{ x }}", "{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}", "{% set a = 1 %}{% with a = 2, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}", "{% with %}{% set z = 1 %}{{ z }}{% endwith %}{{ z is defined }}", "{% with a %}{% endwith %}", "{% for i in [1, 2, 3] %}{% with j = i %}{% if j == 2 %}{% continue %}{% endif %}{{ j }}{% endwith %}{% endfor %}", "{% for i in [1, 2] %}{% set a %}x{% break %}{% endset %}{{ a }}{% endfor %}done",
    # macros
    "{% macro m() %}x{% endmacro %}{{ m() }}{{ m() }}", "{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(b=4, a=5) }}", "{% macro m(a) %}[{{ a }}]{{ a is defined }}{% endmacro %}{{ m() }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}", "{% macro m(a) %}{% endmacro %}{{ m(z=1) }}", "{% macro m(a) %}{{ varargs }}{% endmacro %}{{ m(1, 2, 3) }}", "{% macro m(a) %}{{ kwargs }}{% endmacro %}{{ m(1, z=2) }}", "{% macro m(a, b=a) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}", "{% macro m(a=1, b) %}{% endmacro %}", "{% macro m(a, a2=xs | length) %}{{ a2 }}{% endmacro %}{{ m(1) }}",
    "{% macro fact(k) %}{% if k > 1 %}{{ k }}*{{ fact(k - 1) }}{% else %}1{% endif %}{% endmacro %}{{ fact(5) }}", "{% macro m() %}{{ later }}{% endmacro %}{% set later = 5 %}{{ m() }}", "{% macro m() %}{% set inner = 1 %}{% endmacro %}{{ m() }}{{ inner is defined }}", "{% macro outer() %}{% macro inner() %}i{% endmacro %}{{ inner() }}{% endmacro %}{{ outer() }}{{ inner is defined }}", "{% set a = 1 %}{% macro m() %}{{ a }}{% endmacro %}{% for i in [1] %}{% set a = 2 %}{{ m() }}{% endfor %}", "{% macro m(x) %}{{ x }}{% endmacro %}{{ m('a') | upper }}{{ m('b') ~ 'c' }}", "{% macro m() %}  x  {% endmacro %}{{ m() | trim }}|", "{{ m() }}{% macro m() %}x{% endmacro %}", "{% macro m() %}", "{% macro %}{% endmacro %}", "{% macro m %}{% endmacro %}",
    "{% macro m() %}<{{ caller() }}>{% endmacro %}{% call m() %}x{{ n }}{% endcall %}", "{% macro m() %}{{ caller(1) }}{{ caller(2) }}{% endmacro %}{% call(a) m() %}[{{ a }}]{% endcall %}", "{% macro m() %}{{ caller() }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}", "{% macro m() %}x{% endmacro %}{% call m() %}y{% endcall %}", "{% call n %}{% endcall %}", "{% call(a, b=2) m() %}{% endcall %}", "{% macro m(caller=none) %}{{ caller }}{% endmacro %}{{ m() }}", "{% macro m() %}{{ caller('a', b='c') }}{% endmacro %}{% call(a, b='x') m() %}{{ a }}{{ b }}{% endcall %}", "{% macro render(tools) -%}\n  {%- for t in tools %}{{ t }}{% if not loop.last %},{% endif %}{% endfor -%}\n{%- endmacro -%}\n{{ render(xs) }}", "{{ m.name }}{% macro m() %}{% endmacro %}",
    "{% macro m() %}{% endmacro %}{{ m.name }}", "{% macro t(x) %}{% if x is string %}s{% elif x is mapping %}m{% else %}o{% endif %}{% endmacro %}{{ t('a') }}{{ t({}) }}{{ t(1) }}",
    # filter, print, generation
    "{% filter upper %}a{{ s }}{% endfilter %}", "{% filter replace('a', 'b') | upper %}aA{% endfilter %}", "{% filter nosuch %}{% endfilter %}", "{% filter upper %}x", "{% print n %}", "{% print n, s %}", "{% generation %}x{{ n }}{% endgeneration %}", "{% for m in messages %}{% generation %}{{ m.role }}{% endgeneration %}{% endfor %}", "{% generation %}", "{% generation %}{% set q = 1 %}{% endgeneration %}{{ q is defined }}", "{% filter indent(2) %}a\nb{% endfilter %}",
    # markup
    "{% filter safe %}<{% endfilter %}", "{% set a | safe %}<{% endset %}{{ a + '<' }}", "{% set a %}{{ '<' | safe }}{% endset %}{{ a + '<' }}", "{% macro m() %}<{% endmacro %}{{ m() + '<' }}{{ m() | e }}", "{% for c in '<a>' | safe %}{{ c + '<' }}{% endfor %}", "{% set ns = namespace(s='' | safe) %}{% for x in ['<', '&'] %}{% set ns.s = ns.s + x %}{% endfor %}{{ ns.s }}", "{{ '<' | safe }}{{ '<' }}",
    # refusals
    "{% extends 'x' %}", "{% include 'x' %}", "{% import 'x' as y %}", "{% from 'x' import y %}", "{% do xs.append(1) %}", "{% nosuch %}", "{% if x %}{% nosuch %}{% endif %}", "{% debug %}", "{% set x = 1 %}{{ x", "{{ x }", "{{ x %}", "{% if x }}", "{{ a.b.c.d }}", "{{ ) }}", "{{ (] }}", "{{ $ }}", "{{ a ! b }}", "{{ a = b }}", "{{ a; b }}", "{{ 'a' is }}", "{{ a is b is c }}", "{{ 1 | }}", "{{ |upper }}", "{{ . }}", "{{ a..b }}", "{{ 0x }}", "{{ 012 }}", "{{ 1a }}", "{{ 1.2.3 }}", "{{ 1. }}", "{{ [1 2] }}", "{{ '\\x4' }}", "{{ '\\u12' }}",
    "{% for i in range(200000) %}{% endfor %}", "{{ raise_exception('stop: ' ~ n) }}", "{% if messages[0].role != 'user' %}{{ raise_exception('Conversation must start with a user message') }}{% endif %}",
    # idioms of published templates
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + (message['content'] or '') + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}", "{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('Conversation roles must alternate') }}{% endif %}{% endfor %}", "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}{%- if ns.multi_step_tool and message.role == 'user' %}{%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}{%- endif %}{%- endfor %}{{ ns.last_query_index }}",
    "{%- for tool_call in messages[2].tool_calls %}{%- if tool_call.function %}{%- set tool_call = tool_call.function %}{%- endif %}{{- '{\"name\": \"' }}{{- tool_call.name }}{{- '\", \"arguments\": ' }}{{- tool_call.arguments | tojson }}{{- '}' }}{%- endfor %}", "{{ 'a' if messages[2].content is string else 'b' }}{{ messages[2].content | string }}{{ messages[2].content }}", "{% set content = messages[1].content %}{% if '</think>' in content %}x{% else %}{{ content | trim }}{% endif %}", "{% if not date is defined %}{% set date = strftime_now('%d %b %Y') %}{% endif %}{{ date }}", "{%- macro json_type(t) -%}\n{%- if t == 'string' -%}str{%- else -%}any{%- endif -%}\n{%- endmacro -%}\n{{ json_type('string') }}/{{ json_type('x') }}", "{% set roles = ['user', 'tool'] %}{% for m in messages if m.role in roles %}{{ m.role }}{% endfor %}",
]

cases = [{"template": "{{ " + e + " }}"} for e in EXPRESSIONS] + [{"template": t} for t in TEMPLATES]


def render(template):
    try:
        return environment.from_string(template).render(**GLOBALS)
    except Exception:  # any exception of Python's means that Troupe must fail, too
        return None


for case in cases:
    case["expected"] = render(case["template"])

path = pathlib.Path(__file__).with_name("jinja.json")
path.write_text(json.dumps({"globals": GLOBALS, "cases": cases}, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
print(len(cases), "cases,", sum(c["expected"] is None for c in cases), "of them refused")
