// Regular expressions: what they match, derivatives with intersection and complement, patterns inside JSON strings,
// decimal numbers, and bounds on hostile ones.
#include "runtime/guide/regex/lexer.hpp"
#include "runtime/guide/regex/pattern.hpp"

#include <doctest/doctest.h>

#include <random>
#include <regex>
#include <string>

using namespace troupe;
using namespace troupe::guides;

namespace {

/// Walked with the lexer, which also leaves out dead states.
bool lexer_matches(lexer& l, expression e, std::string_view text) {
  const tagged_expression one{7, e};
  auto s = l.start({&one, 1});
  for (const unsigned char c : text)
    s = l.next(s, c);
  const auto tags = l.accepts(s);
  return tags.size() == 1 && tags[0] == 7;
}

bool whole_match(std::string_view pattern, std::string_view text) {
  lexer l;
  const auto e = whole_pattern(l.regex(), pattern);
  const bool result = l.regex().matches(e, text);
  CHECK(lexer_matches(l, e, text) == result);
  return result;
}

/// `inside`: what stands between the quotes of the JSON string.
bool json_match(std::string_view pattern, std::string_view inside) {
  expressions regex;
  return regex.matches(pattern_in_json_string(regex, pattern), inside);
}

std::string regex_error(std::string_view pattern) {
  try {
    expressions regex;
    whole_pattern(regex, pattern);
  } catch (const failure& f) {
    CHECK(f.what_failed().code == errc::bad_request);
    return f.what();
  }
  return "accepted";
}

} // namespace

TEST_CASE("a regular expression matches what it says, as a whole") {
  CHECK(whole_match("a(b|c)*d", "abcbd"));
  CHECK(!whole_match("a(b|c)*d", "abc"));
  CHECK(whole_match("[a-c]{2,3}", "abc"));
  CHECK(!whole_match("[a-c]{2,3}", "abca"));
  CHECK(whole_match("[^a]", "é"));
  CHECK(!whole_match("[^é]", "é"));
  CHECK(whole_match("^\\d+\\.\\d{2}$", "12.50"));
  CHECK(whole_match("(?i)stra\\u00dfe", "STRAßE"));
  CHECK(whole_match("(?i:a(?-i:b))c", "Abc"));
  CHECK(!whole_match("(?i:a(?-i:b))c", "ABc"));
  CHECK(!whole_match("(?i:a(?-i:b))c", "AbC"));
  CHECK(whole_match("(?s:.)(?:.)", "\nb"));
  CHECK(!whole_match("(?s:.)(?:.)", "b\n"));
  CHECK(whole_match("\\p{Lu}\\p{Ll}+", "Ärger"));
  CHECK(!whole_match("\\p{Lu}\\p{Ll}+", "ärger"));
  CHECK(whole_match("(?=.*\\d)(?!.*x)[a-z\\d]+", "ab1"));
  CHECK(!whole_match("(?=.*\\d)(?!.*x)[a-z\\d]+", "abc"));
  CHECK(!whole_match("(?=.*\\d)(?!.*x)[a-z\\d]+", "ax1"));
  CHECK(whole_match("(a*)*b", "aaab"));
  CHECK(whole_match("", ""));
  CHECK(whole_match("a{0}b|c{,2}", "c{,2}"));
}

TEST_CASE("random regular expressions match as std::regex says") {
  std::mt19937 random(5);
  const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto make = [&](auto& self, int depth) -> std::string {
    switch (pick(depth > 2 ? 3 : 8)) {
      case 0: return "a";
      case 1: return "b";
      case 2: return "[ab]";
      case 3: return self(self, depth + 1) + self(self, depth + 1);
      case 4: return "(?:" + self(self, depth + 1) + "|" + self(self, depth + 1) + ")";
      case 5: return "(?:" + self(self, depth + 1) + ")*";
      case 6: return "(?:" + self(self, depth + 1) + "){1,2}";
      default: return "(?:" + self(self, depth + 1) + ")?";
    }
  };
  for (int i = 0; i < 300; ++i) {
    const auto pattern = make(make, 0);
    const std::regex reference(pattern);
    lexer l;
    const auto e = whole_pattern(l.regex(), pattern);
    for (int k = 0; k < 20; ++k) {
      std::string text;
      for (int n = pick(6); n > 0; --n)
        text += static_cast<char>('a' + pick(2));
      INFO(pattern, " ", text);
      CHECK(lexer_matches(l, e, text) == std::regex_match(text, reference));
    }
  }
}

TEST_CASE("a pattern in a JSON string is searched for in the string's value") {
  CHECK(json_match("b", "abc"));
  CHECK(!json_match("^b", "abc"));
  CHECK(json_match("^a|c$", "xc"));
  CHECK(json_match("^[^\\n]*$", "ab"));
  CHECK(!json_match("^[^\\n]*$", "a\\nb"));
  CHECK(json_match("^a\\nb$", "a\\nb"));
  CHECK(json_match("^a\\nb$", "a\\u000Ab"));
  CHECK(json_match("^\"$", "\\\""));
  CHECK(!json_match("^.$", "\""));
  CHECK(json_match("^\\\\d$", "\\\\d"));
  CHECK(json_match("^.{2}$", "éü"));
  CHECK(!json_match("^(?!foo).*$", "food"));
  CHECK(json_match("^(?!foo$).*$", "food"));
}

TEST_CASE("intersections and complements are exact, and dead ends are seen") {
  expressions r;
  const auto a = whole_pattern(r, "[a-z]{3,5}"), b = whole_pattern(r, ".*x.*");
  CHECK(r.matches(r.intersection(a, b), "axb"));
  CHECK(!r.matches(r.intersection(a, b), "abc"));
  CHECK(r.matches(r.difference(a, b), "abc"));
  CHECK(!r.alive(r.intersection(whole_pattern(r, "a*b"), whole_pattern(r, "(a|c)*"))));
  CHECK(!r.alive(r.intersection(whole_pattern(r, "(aa)+"), whole_pattern(r, "a(aa)*"))));
  lexer l;
  auto& e = l.regex();
  const tagged_expression only{0, e.intersection(whole_pattern(e, "(ab|cd)x*"), whole_pattern(e, "(ab|ce).?"))};
  CHECK(l.live(l.start({&only, 1})) == byte_set::of('a'));
}

TEST_CASE("decimal numbers are compared and divided by their value") {
  std::mt19937 random(11);
  for (int i = 0; i < 2000; ++i) {
    const int bound = static_cast<int>(random() % 3000), value = static_cast<int>(random() % 3000);
    const auto fixed = [](int hundredths) {
      auto f = std::to_string(hundredths % 100);
      f.insert(0, 2 - f.size(), '0');
      return std::pair(std::to_string(hundredths / 100), f);
    };
    auto [whole, fraction] = fixed(bound);
    while (!fraction.empty() && fraction.back() == '0')
      fraction.pop_back();
    const auto [value_whole, value_fraction] = fixed(value);
    auto text = value_whole;
    if (value % 100 != 0 || random() % 2)
      text += "." + value_fraction;
    expressions r;
    INFO(text, " against ", bound);
    CHECK(r.matches(r.compared(comparison::less, {whole, fraction}), text) == (value < bound));
    CHECK(r.matches(r.compared(comparison::at_most, {whole, fraction}), text) == (value <= bound));
    CHECK(r.matches(r.compared(comparison::greater, {whole, fraction}), text) == (value > bound));
    CHECK(r.matches(r.compared(comparison::at_least, {whole, fraction}), text) == (value >= bound));
    const auto step = 1 + random() % 40;
    CHECK(r.matches(r.multiple_of(step, 2), text) == (static_cast<unsigned>(value) % step == 0));
  }
}

TEST_CASE("characters that leave a state where it is are found") {
  lexer l;
  const tagged_expression string{0, any_json_string(l.regex())};
  const auto inside = l.next(l.start({&string, 1}), '"');
  CHECK(l.after(inside, alphabet::plain) == inside);
  CHECK(l.after(l.next(inside, '\\'), alphabet::plain) == lexer::not_uniform);
  const tagged_expression name{0, whole_pattern(l.regex(), "[a-z]*")};
  CHECK(l.after(l.start({&name, 1}), alphabet::plain) == lexer::not_uniform);
}

TEST_CASE("what is wrong or not supported is refused with a sentence") {
  for (const auto* bad : {"(", ")", "a**+", "[a", "[b-a]", "a{3,2}", "\\", "(?<=a)b", "(a)\\1", "\\bword", "*", "(?z)",
                          "\\p{Foo}", "(^a)*", "\\q", "\xff"}) {
    INFO(bad);
    CHECK(regex_error(bad).starts_with("the regular expression "));
  }
  CHECK(regex_error(std::string(100'000, '(')).find("nested deeper") != std::string::npos);
}

TEST_CASE("hostile regular expressions meet a limit") {
  lexer l({.expressions = 20'000, .states = 5'000});
  const auto walk = [&] {
    const tagged_expression hostile{0, whole_pattern(l.regex(), "(.*a){20}.*|[ab]*a[ab]{60}c")};
    auto s = l.start({&hostile, 1});
    std::mt19937 random(1);
    for (int i = 0; i < 100'000; ++i)
      s = l.next(s, random() % 2 ? 'a' : 'b');
  };
  CHECK_THROWS_AS(walk(), failure);
}
