#include "runtime/techniques/speculation/suffix_automaton.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <vector>

using namespace troupe;

namespace {

using ids = std::vector<token_id>;
using state = suffix_automaton::state;

/// Where a text ends in another.
std::vector<std::size_t> ends_of(const ids& part, const ids& text) {
  std::vector<std::size_t> ends;
  for (auto end = part.size(); end <= text.size(); ++end)
    if (std::equal(part.begin(), part.end(), text.begin() + static_cast<std::ptrdiff_t>(end - part.size())))
      ends.push_back(end);
  return ends;
}

/// Tokens of the longest end of the text that occurs before, too.
std::size_t longest_repeated(const ids& text) {
  for (auto length = text.size() - 1; length > 0; --length)
    if (ends_of({text.end() - static_cast<std::ptrdiff_t>(length), text.end()}, text).size() > 1)
      return length;
  return 0;
}

std::map<token_id, state> followers(const suffix_automaton& a, state s) {
  std::map<token_id, state> all;
  for (auto e = a.first_edge(s); e != suffix_automaton::last_edge; e = a.at(e).next)
    CHECK(all.emplace(a.at(e).token, a.at(e).to).second); // once each
  return all;
}

/// Whether all that is known of a text and what followed it is what a search finds.
void check_text(const suffix_automaton& a, state s, const ids& part, const ids& text) {
  const auto ends = ends_of(part, text);
  REQUIRE_FALSE(ends.empty());
  CHECK(a.first_end(s) == ends.front());
  CHECK(a.last_end(s) == ends.back());
  CHECK(a.occurrences(s) == ends.size());
  CHECK(a.length(s) >= part.size());
  std::map<token_id, std::size_t> expected;
  for (const auto end : ends)
    if (end < text.size())
      ++expected[text[end]];
  const auto found = followers(a, s);
  CHECK(found.size() == expected.size());
  for (const auto& [token, to] : found) {
    CHECK(a.next(s, token) == to);
    CHECK(a.occurrences(to) == expected[token]);
  }
}

} // namespace

TEST_CASE("suffix automaton: what it knows of each end of a text, and of what followed, is what a search finds") {
  std::mt19937 random(1);
  for (const unsigned alphabet : {2u, 3u, 9u, 200u}) {
    CAPTURE(alphabet);
    suffix_automaton a;
    CHECK(a.repeated() == suffix_automaton::empty);
    ids text;
    for (int i = 0; i < 160; ++i) {
      // Passages of before come again.
      const bool copies = text.size() > 20 && random() % 4 > 0;
      text.push_back(copies ? text[text.size() - 17] : static_cast<token_id>(random() % alphabet));
      a.append(text.back());
      CHECK(a.tokens() == text.size());
      auto s = a.repeated();
      const auto longest = longest_repeated(text);
      CHECK(a.length(s) == longest);
      for (auto length = longest; length > 0; length = a.length(s = a.shorter(s)))
        check_text(a, s, {text.end() - static_cast<std::ptrdiff_t>(length), text.end()}, text);
      CHECK(s == suffix_automaton::empty);
    }
    // Texts from the middle, by their tokens, and some that do not occur.
    for (int i = 0; i < 200; ++i) {
      const auto first = random() % text.size(), length = 1 + random() % 6;
      ids part;
      for (std::size_t k = first; k < text.size() && part.size() < length; ++k)
        part.push_back(random() % 20 == 0 ? static_cast<token_id>(alphabet) : text[k]);
      state s = suffix_automaton::empty;
      for (std::size_t k = 0; k < part.size() && s != suffix_automaton::none; ++k)
        s = a.next(s, part[k]);
      if (ends_of(part, text).empty())
        CHECK(s == suffix_automaton::none);
      else
        check_text(a, s, part, text);
    }
  }
}

TEST_CASE("suffix automaton: of one token again and again, the longest texts are counted") {
  suffix_automaton a;
  for (int i = 0; i < 1000; ++i)
    a.append(7);
  CHECK(a.length(a.repeated()) == 999);
  CHECK(a.occurrences(a.repeated()) == 2);
  CHECK(a.last_end(a.repeated()) == 1000);
}

TEST_CASE("suffix automaton: memory is in proportion to the text, whatever it is") {
  std::mt19937 random(2);
  for (const unsigned alphabet : {1u, 2u, 50000u}) {
    suffix_automaton a(1 << 16);
    for (int i = 0; i < 1 << 16; ++i)
      a.append(static_cast<token_id>(random() % alphabet));
    CAPTURE(alphabet);
    CHECK(a.memory() < (std::size_t(1) << 16) * 200);
  }
}
