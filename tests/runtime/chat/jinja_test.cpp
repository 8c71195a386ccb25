
#include "runtime/chat/jinja/program.hpp"
#include "runtime/support/json/json.hpp"
#include "tests/runtime/chat/values.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <random>
#include <stop_token>
#include <thread>

using namespace troupe;
using namespace troupe::test;

namespace {

std::tm some_day() {
  std::tm t{}; // Saturday, 4 July 2026, 09:05:03
  t.tm_year = 126, t.tm_mon = 6, t.tm_mday = 4, t.tm_hour = 9, t.tm_min = 5, t.tm_sec = 3, t.tm_wday = 6,
  t.tm_yday = 184;
  return t;
}

std::string render(std::string_view source, const jinja::value& globals = jinja::value(jinja::dict()),
                   const jinja::render_limits& limits = {}) {
  return jinja::program::parse(source).render(globals, limits, some_day());
}

/// The error that rendering ends with, or one with the code internal if it succeeds.
error template_error(std::string_view source, const jinja::value& globals = jinja::value(jinja::dict()),
                     const jinja::render_limits& limits = {}) {
  try {
    render(source, globals, limits);
  } catch (const failure& f) {
    return f.what_failed();
  }
  return {errc::internal, "nothing was thrown", {}};
}

} // namespace

TEST_CASE("templates render as jinja2 renders them") {
  const auto table = json::document::load(std::filesystem::path(test_data()) / "jinja.json");
  const auto globals = jinja::from_json(table.root().at_key("globals"));
  const json::array cases = table.root().at_key("cases").get_array();
  for (auto one : cases) {
    const std::string source(one.at_key("template").get_string().value());
    CAPTURE(source);
    std::optional<std::string> rendered;
    std::string why;
    try {
      rendered = render(source, globals);
    } catch (const failure& f) {
      why = f.what();
    }
    CAPTURE(why);
    if (const auto expected = json::find(one, "expected"))
      CHECK(rendered.value_or("refused") == std::string(expected->get_string().value()));
    else
      CHECK_FALSE(rendered);
  }
  CHECK(cases.size() > 250);
}

TEST_CASE("a template that refuses without a reason is named in a sentence") {
  for (const auto* source : {"{{ raise_exception('') }}", "{{ raise_exception('\\x00abc') }}"})
    CHECK(template_error(source).message == "template line 1, column 19: the template refuses without a reason");
}

TEST_CASE("a fault is one sentence that begins with its line and column") {
  const auto syntax = template_error("one\ntwo {% for x %}");
  CHECK(syntax.code == errc::bad_file);
  CHECK(syntax.message == "template line 2, column 14: expected 'in', found '%}'");
  const auto missing = template_error("{% set a = 1 %}\n\n  {{ a + nosuch }}");
  CHECK(missing.code == errc::bad_request);
  CHECK(missing.message == "template line 3, column 8: 'nosuch' is undefined");
  CHECK(template_error("{{ {}.a.b }}").message == "template line 1, column 8: 'dict object' has no attribute 'a'");
  CHECK(template_error("{{ x | nosuch }}").message == "template line 1, column 8: no filter named 'nosuch'");
  CHECK(template_error("{{ x is nosuch }}").code == errc::unsupported);
  CHECK(template_error("\n{% include 'x' %}").message ==
        "template line 2, column 1: the tag 'include' is not supported in chat templates");
  CHECK(template_error("{% include 'x' %}").code == errc::unsupported);
  CHECK(template_error("{% if x %}\n").message ==
        "template line 1, column 11: the template ends where 'elif' or 'else' or 'endif' was expected");
  CHECK(template_error("{{ [].append(1) }}").message ==
        "template line 1, column 13: access to attribute 'append' of 'list' object is unsafe.");
  CHECK(template_error("{{ '%\u060b' % 1 }}").message ==
        "template line 1, column 10: unsupported format character '\u060b'");
  CHECK(template_error("{{ raise_exception('Only this.') }}").message == "Only this.");
  CHECK(template_error("\xff").message == "the template is not valid UTF-8");
}

TEST_CASE("JSON keeps the order of keys and the difference between integers and floats") {
  auto unlimited = jinja::meter::unlimited();
  const auto v = parsed(R"({"z": 1, "a": 1.0, "m": [true, null, "\u00fc\n"], "big": 9223372036854775807, "e": 1e22})");
  CHECK(jinja::to_json(unlimited, v) ==
        R"({"z": 1, "a": 1.0, "m": [true, null, "ü\n"], "big": 9223372036854775807, "e": 1e+22})");
  CHECK(jinja::to_json(unlimited, v.map().find(std::string_view("m"))[0], {.indent = "  ", .item_separator = ","}) ==
        "[\n  true,\n  null,\n  \"ü\\n\"\n]");
  CHECK_THROWS_AS(parsed(std::string(300, '[') + std::string(300, ']')), failure);
}

TEST_CASE("no template runs, grows or nests without bound") {
  CHECK(template_error("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}").code ==
        errc::bad_request);
  // A fraction of the default limits, to be quick.
  const jinja::render_limits limits{.steps = 8 << 20, .bytes = 4 << 20, .time = std::chrono::hours(1)};
  for (const std::string source : {
         "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
         "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
         "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
         "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
         "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l }}",
         "{% set ns = namespace(l=[1]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}",
         "{% set ns = namespace(l={}) %}{% for i in range(9999) %}{% set ns.l = {'a': ns.l} %}{% endfor %}",
         "{{ 'x' * 99999999999 }}",
         "{{ [0] * 99999999999 }}",
         "{{ 'x' * 9223372036854775807 }}",
         "{% for i in range(9999) %}{{ 'x' * 999999 }}{% endfor %}",
         "{{ 'x'.center(99999999999) }}",
         "{{ 'x'.ljust(9223372036854775807) }}",
         "{{ '%99999999999d' % 1 }}",
         "{{ '{:99999999999}'.format(1) }}",
         "{{ 'x' | center(9223372036854775807) }}",
         "{{ 'a\nb' | indent(99999999999) }}",
         "{{ '%.99999999f' % 1.5 }}",
         "{{ '%*d' % (99999999999, 1) }}",
         "{{ '-1'.zfill(99999999999) }}",
         "{{ ['x'] | batch(99999999999, 'y') | list }}",
         "{{ ['x'] | slice(99999999999) | list }}",
         "{{ ('x' * 99999).replace('x', 'y' * 99999) }}",
         "{{ ('x' * 99999) | replace('x', 'y' * 99999) }}",
         "{{ ('x' * 99999).join('y' * 99999) }}",
         "{{ range(99999) | join('y' * 99999) }}",
         "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
         "{% macro m(n) %}{{ m(n + 1) ~ m(n + 1) }}{% endmacro %}{{ m(0) }}",
         "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
         "{{ strftime_now('%9999d') }}",
         "{{ 9223372036854775807 + 1 }}",
         "{{ -9223372036854775807 - 2 }}",
         "{{ 9223372036854775807 * 2 }}",
         "{{ 2 ** 64 }}",
         "{{ 9223372036854775808 }}",
         "{{ (-9223372036854775807 - 1) // -1 }}",
         "{{ -(-9223372036854775807 - 1) }}",
         "{{ (-9223372036854775807 - 1) | abs }}",
         "{{ '9223372036854775808' | int }}",
         "{{ 1e300 | int }}",
         "{{ 1e999 }}",
         "{{ range(-9223372036854775807, 9223372036854775807) }}",
         "{{ [[1] * 999] * 999 | sort | list | join }}{% for i in range(99999) %}{{ [[1] * 999] * 999 == [[1] * 999] * "
         "999 }}{% endfor %}",
       }) {
    CAPTURE(source);
    CHECK(template_error(source, jinja::value(jinja::dict()), limits).code != errc::internal);
  }
  CHECK(render("{{ (-9223372036854775807 - 1) % -1 }}") == "0");
  CHECK(render("{{ 'abc'[-9223372036854775807:9223372036854775807:9223372036854775807] }}") == "a");
  CHECK(render("{{ [1, 2][9223372036854775807:-9223372036854775807:-9223372036854775807] }}") == "[2]");
}

TEST_CASE("long work is charged by the size of its input, and ends") {
  // Too little to do any of it many times.
  const jinja::render_limits few{.steps = 6 << 20, .bytes = 4 << 20, .time = std::chrono::hours(1)};
  jinja::dict names;
  names.set("s", std::string(1 << 16, 'a'));
  const auto globals = jinja::value(std::move(names));
  for (const std::string work : {"s | length",
                                 "s.isalpha()",
                                 "s.islower()",
                                 "s is lower",
                                 "s.find('b')",
                                 "s.find(s[:9999] ~ 'b')",
                                 "s.rfind('b' ~ s[:9999])",
                                 "s.count('b' ~ s[:200])",
                                 "('b' ~ s[:9999]) in s",
                                 "s.replace('b', 'c')",
                                 "s.upper()",
                                 "s.split()",
                                 "s.split('b')",
                                 "s.rsplit('b')",
                                 "s.splitlines()",
                                 "s.partition('b')",
                                 "s[1:]",
                                 "s[::-1]",
                                 "s[60000]",
                                 "s[-60000]",
                                 "s.strip('a')",
                                 "s.lstrip('ba')",
                                 "s | title",
                                 "s | tojson",
                                 "s | escape",
                                 "s ~ 'x'",
                                 "s + 'x'",
                                 "s ~ 'x' == s ~ 'y'",
                                 "s ~ 'x' < s ~ 'y'",
                                 "{s: 1}[s]",
                                 "{}.get(s)",
                                 "'%s' % s",
                                 "'{}'.format(s)",
                                 "[s] | join",
                                 "[s] | string",
                                 "[s] | unique | list",
                                 "[s, s ~ 'a'] | sort",
                                 "s | indent",
                                 "s | reverse",
                                 "s | trim('a')",
                                 "s.startswith(s)",
                                 "s.title()",
                                 "s.center(999999)",
                                 "s | replace('', 'b')",
                                 "s.removeprefix(s[1:])",
                                 "s.join(['', ''])",
                                 "range(99999) | list | sort",
                                 "range(99999) | sum",
                                 "'x' in range(99999)",
                                 "range(99999) | list == range(99999) | list",
                                 "range(99999) | map('string') | join | length",
                                 "range(99999) | batch(3) | list",
                                 "range(99999) | select('odd') | list"}) {
    CAPTURE(work);
    error why{errc::internal, "nothing was thrown", {}};
    try {
      jinja::program::parse("{% for i in range(9999) %}{% if " + work + " %}{% endif %}{% endfor %}")
        .render(globals, few);
    } catch (const failure& f) {
      why = f.what_failed();
    }
    CAPTURE(why.message);
    CHECK(why.code == errc::bad_request);
    CHECK(why.message.find("than any chat template should") != std::string::npos);
  }
}

TEST_CASE("searching is linear for all inputs, and finds the right places") {
  CHECK(render("{{ 'abcabc'.find('c') }} {{ 'abcabc'.rfind('c') }} {{ 'abc'.find('') }} {{ 'abc'.rfind('') }} {{ "
               "''.find('') }}") == "2 5 0 3 0");
  CHECK(render("{{ 'aaaa'.count('aa') }} {{ 'aaaa'.replace('aa', 'b', 1) }} {{ 'a,b,,c'.rsplit(',', 2) }}") ==
        "2 baa ['a,b', '', 'c']");
  // Across the parts that a long text is searched in.
  jinja::dict names;
  for (const std::size_t at : {16383u, 16384u, 16385u, 32767u, 49152u, 99999u}) {
    std::string text(100'000, 'a');
    names.set("s", text.insert(at, "bc").insert(at + 2, std::string(40'000, 'd')));
    const auto globals = jinja::value(names);
    CHECK(render("{{ s.find('bc') }} {{ s.rfind('bc') }} {{ s.find('c' ~ 'd' * 40000) }} {{ s.split('bcd') | length }}",
                 globals) == std::to_string(at) + ' ' + std::to_string(at) + ' ' + std::to_string(at + 1) + " 2");
  }
}

TEST_CASE("a rendering ends soon after it is to stop, or its time is over") {
  const auto hostile = jinja::program::parse(
    "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}");
  const auto forever = [](std::stop_token stop, std::chrono::milliseconds time) {
    return jinja::render_limits{
      .steps = std::size_t(1) << 60, .bytes = std::size_t(1) << 60, .time = time, .stop = std::move(stop)};
  };
  const auto fault_of = [&](const jinja::render_limits& limits) {
    try {
      hostile.render(jinja::value(jinja::dict()), limits);
    } catch (const failure& f) {
      return f.what_failed();
    }
    return error{errc::internal, "nothing was thrown", {}};
  };
  std::stop_source stop;
  std::jthread canceller([&] { stop.request_stop(); });
  CHECK(fault_of(forever(stop.get_token(), std::chrono::hours(1))).code == errc::cancelled);
  const auto late = fault_of(forever({}, std::chrono::milliseconds(5)));
  CHECK(late.code == errc::bad_request);
  CHECK(late.message.find("takes longer than") != std::string::npos);
}

TEST_CASE("a template that nests too deeply is refused, one that nests deeply is not") {
  const auto repeated = [](std::string_view part, int times) {
    std::string out;
    for (int i = 0; i < times; ++i)
      out += part;
    return out;
  };
  const auto around = [&](std::string_view open, std::string_view inside, std::string_view close, int times) {
    return repeated(open, times).append(inside).append(repeated(close, times));
  };
  for (const int times : {20, 5000}) {
    const bool accepted = times == 20;
    for (const auto& source : {
           "{{ " + around("(", "1", ")", times) + " }}",
           "{{ " + around("[", "", "]", times) + " }}",
           "{{ " + around("{1:", "1", "}", times) + " }}",
           "{{ " + repeated("not ", times) + "1 }}",
           "{{ " + repeated("- ", times) + "1 }}",
           "{{ 1" + repeated(" + 1", times) + " }}",
           "{{ 1" + repeated(" if 1", times) + " }}",
           "{{ 1" + repeated(" if 1 else 1", times) + " }}",
           "{{ '' " + repeated(" | upper", times) + " }}",
           "{{ 1" + repeated(" and 1", times) + " }}",
           "{{ range(" + repeated("-", times) + "1) }}",
           around("{% if 1 %}", "", "{% endif %}", times),
           around("{% for i in [1] %}", "", "{% endfor %}", times),
           around("{% filter upper %}", "", "{% endfilter %}", times),
           "{% for " + around("(", "a, ", ")", times) + " in [] %}{% endfor %}",
           "{{ x" + repeated(" is defined", times == 20 ? 1 : times) + " }}",
         }) {
      CAPTURE(source.substr(0, 100));
      if (accepted)
        CHECK_NOTHROW(jinja::program::parse(source));
      else
        CHECK_THROWS_AS(jinja::program::parse(source), failure);
    }
  }
  // Long is not deep.
  CHECK(render("{{ 1" + repeated(" ~ 1", 10000) + " }}").size() == 10001);
  CHECK(render("{% if 0 %}" + repeated("{% elif 0 %}", 10000) + "{% else %}x{% endif %}") == "x");
  CHECK(render("{{ [" + repeated("1, ", 10000) + "] | length }}") == "10000");
}

TEST_CASE("values that refer to themselves are freed") {
  // AddressSanitizer reports leaks.
  CHECK(render("{% set ns = namespace() %}{% set ns.self = ns %}{{ ns.self.self is defined }}") == "True");
  CHECK(
    render("{% set ns = namespace() %}{% macro m() %}{{ ns.m is defined }}{% endmacro %}{% set ns.m = m %}{{ m() }}") ==
    "True");
  CHECK(render("{% for i in [1] %}{{ loop.changed(loop) }}{% endfor %}") == "True");
  CHECK(render("{% set ns = namespace() %}{% for i in [1] recursive %}{% set ns.l = loop %}{% set ns.c = cycler(ns) "
               "%}{% endfor %}x") == "x");
}

TEST_CASE("random damage to templates and to their data is refused or rendered, never worse") {
  const auto table = json::document::load(std::filesystem::path(test_data()) / "jinja.json");
  const auto globals = jinja::from_json(table.root().at_key("globals"));
  const json::array cases = table.root().at_key("cases").get_array();
  std::vector<std::string> sources;
  for (auto one : cases)
    sources.emplace_back(one.at_key("template").get_string().value());
  constexpr std::string_view pieces[] = {
    "{{",   "}}",     "{%",    "%}",   "{#",     "#}",   "-",    "(",     ")",    "[",      "]",   "{",
    "}",    "|",      "'",     "\"",   "\\",     ".",    ",",    ":",     "=",    "~",      "*",   "**",
    "9",    "x",      "loop",  " if ", " else ", " in ", " is ", " not ", "for ", "endfor", "raw", "endraw",
    "set ", "macro ", "call ", "\n",   " ",      "ü",    "\xff", "none",  "d",    "xs"};
  std::mt19937 random(20260704);
  const auto below = [&](std::size_t n) { return random() % n; };
  int refused = 0;
  for (int round = 0; round < 6000; ++round) {
    auto source = sources[below(sources.size())];
    if (below(2) == 0)
      source += sources[below(sources.size())];
    for (auto changes = 1 + below(4); changes > 0; --changes) {
      const auto at = below(source.size() + 1);
      switch (below(3)) {
        case 0: source.erase(at, 1 + below(4)); break;
        case 1: source.insert(at, pieces[below(std::size(pieces))]); break;
        default: source.replace(at, below(4), pieces[below(std::size(pieces))]);
      }
    }
    CAPTURE(source);
    try {
      render(source, globals);
    } catch (const failure&) {
      ++refused;
    }
  }
  CHECK(refused > 1000);
  CHECK(refused < 6000);
}
