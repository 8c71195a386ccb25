// Bounded reasoning, and texts that never occur: what answers follow beside, or without, a guide.
#include "runtime/support/error.hpp"
#include "runtime/techniques/guides/guide_cache.hpp"
#include "tests/runtime/techniques/guides/golden_answers.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::guides;

namespace {

guide_source thinking(bool is_open, guide_source source = {.what = guide_source::kind::anything}) {
  source.thinking = {"<think>", "</think>", "</think>", is_open};
  return source;
}

guide_source banning(std::vector<std::string> texts, guide_source source = {.what = guide_source::kind::anything}) {
  source.banned = std::move(texts);
  return source;
}

std::vector<std::uint64_t> bits_of(answer_state state) {
  std::vector<std::uint64_t> mask(golden_vocabulary()->words());
  state.mask(mask);
  return mask;
}

bool allows(const std::vector<std::uint64_t>& mask, token_id id) {
  return (mask[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) != 0;
}

std::size_t count_of(const std::vector<std::uint64_t>& mask) {
  std::size_t sum = 0;
  for (const auto word : mask)
    sum += static_cast<std::size_t>(std::popcount(word));
  return sum;
}

/// Masks and forced tokens are what `advance` takes.
void check_agreement(const answer_state& state) {
  const auto mask = bits_of(state);
  for (token_id id = 0; id < static_cast<token_id>(golden_vocabulary()->size()); ++id) {
    CAPTURE(id);
    CHECK(allows(mask, id) == answer_state(state).advance(id));
  }
  if (const auto forced = answer_state(state).forced())
    CHECK(allows(mask, *forced));
}

bool say(answer_state& state, const std::string& text) {
  for (const auto id : golden_tokens()->encode(text, false))
    if (!state.advance(id))
      return false;
  return true;
}

/// Takes what is forced; returns its text.
std::string closed(answer_state& state) {
  std::string text;
  while (const auto token = state.forced()) {
    REQUIRE(state.advance(*token));
    text += golden_tokens()->token_bytes(*token);
  }
  return text;
}

std::size_t tokens_in(const std::string& text) { return golden_tokens()->encode(text, false).size(); }

token_id token_of(const std::string& text) {
  const auto ids = golden_tokens()->encode(text, false);
  REQUIRE(ids.size() == 1);
  return ids.front();
}

} // namespace

TEST_CASE("reasoning is closed when its budget is spent, and anything may follow") {
  answer_state state(answer_to(thinking(true)), {.budget = 3});
  const auto the = token_of("The");
  for (int i = 0; i < 3; ++i) {
    CHECK_FALSE(state.forced());
    CHECK_FALSE(state.can_end()); // not within the reasoning
    CHECK(allows(bits_of(state), begin_of_text));
    REQUIRE(state.advance(the));
  }
  check_agreement(state);
  CHECK(count_of(bits_of(state)) == 1);
  CHECK_FALSE(state.advance(the));
  CHECK_FALSE(state.can_end());
  CHECK(closed(state) == "</think>");
  CHECK(state.can_end());
  CHECK(count_of(bits_of(state)) > 100);
  REQUIRE(say(state, "The <think>The The The The The The The")); // only the first is bounded
  CHECK_FALSE(state.forced());
  CHECK(state.can_end());
}

TEST_CASE("reasoning that the answer opens itself is counted from there; without it there is nothing to bound") {
  answer_state state(answer_to(thinking(false)), {.budget = tokens_in("The The")});
  CHECK(state.can_end());
  auto plain = state;
  REQUIRE(say(plain, "The The The The The"));
  CHECK_FALSE(plain.forced());
  CHECK(plain.can_end());
  REQUIRE(say(state, "\n<think>"));
  CHECK_FALSE(state.can_end());
  REQUIRE(say(state, "The The"));
  CHECK(closed(state) == "</think>");
  CHECK(state.can_end());
  answer_state none(answer_to(thinking(false)), {.budget = 0});
  REQUIRE(say(none, "<think>"));
  CHECK(closed(none) == "</think>");
}

TEST_CASE("reasoning that ends by itself is left alone, also while its end is being written") {
  answer_state state(answer_to(thinking(true)), {.budget = 100});
  REQUIRE(say(state, "The end</think>"));
  CHECK(state.can_end());
  CHECK_FALSE(state.forced());
  const auto end = golden_tokens()->encode("</think>", false);
  REQUIRE(end.size() > 1);
  for (std::size_t written = 1; written < end.size(); ++written) { // the rest is written, nothing twice
    answer_state half(answer_to(thinking(true)), {.budget = written});
    std::string text;
    for (std::size_t i = 0; i < written; ++i) {
      REQUIRE(half.advance(end[i]));
      text += golden_tokens()->token_bytes(end[i]);
    }
    check_agreement(half);
    CHECK(text + closed(half) == "</think>");
  }
}

TEST_CASE("some tokens are left for an answer") {
  const auto end = golden_tokens()->encode("</think>", false).size();
  for (const std::size_t most : {1u, 2u, 12u, 20u, 100u, 1000u}) {
    answer_state state(answer_to(thinking(true)), {.budget = 1u << 30, .answer = most});
    std::size_t taken = 0;
    while (!state.forced() && taken < 2000) {
      REQUIRE(state.advance(token_of("The")));
      ++taken;
    }
    CAPTURE(most);
    closed(state);
    if (most > end)
      CHECK(taken + end < most);
    CHECK(taken + end + 65 >= most);
  }
}

TEST_CASE("a character is not cut") {
  const auto bytes = golden_tokens()->encode("\xF0\x9F\x98\x80", false); // four tokens of one byte
  REQUIRE(bytes.size() > 1);
  answer_state state(answer_to(thinking(true)), {.budget = 1});
  REQUIRE(state.advance(bytes.front()));
  CHECK_FALSE(state.forced());
  for (std::size_t i = 1; i < bytes.size(); ++i)
    REQUIRE(state.advance(bytes[i]));
  CHECK(closed(state) == "</think>");
}

TEST_CASE("behind bounded reasoning a guide decides, whether the prompt or the answer opened it") {
  auto opened = thinking(true, {.what = guide_source::kind::regex, .text = "[0-9]{2}", .after = "</think>"});
  answer_state state(answer_to(opened), {.budget = tokens_in("The The")});
  REQUIRE(say(state, "The The"));
  check_agreement(state);
  CHECK(closed(state) == "</think>");
  check_agreement(state);
  CHECK_FALSE(say(state, "x"));
  CHECK(say(state, "42"));
  CHECK(state.can_end());
  auto own = thinking(
    false,
    {.what = guide_source::kind::regex, .text = "[0-9]{2}", .preface_begin = "<think>", .preface_end = "</think>"});
  answer_state other(answer_to(own), {.budget = tokens_in("The The")});
  auto without = other;
  CHECK(say(without, "42"));
  REQUIRE(say(other, "<think>The The"));
  check_agreement(other);
  CHECK(closed(other) == "</think>");
  CHECK(say(other, "42"));
  CHECK(other.can_end());
}

TEST_CASE("what closes reasoning may be longer than its end") {
  auto source = thinking(false);
  source.thinking = {"<a>", "</a>", "</a> so: ", false};
  answer_state state(answer_to(source), {.budget = 1});
  REQUIRE(say(state, "<a>The"));
  CHECK(closed(state) == "</a> so: ");
  CHECK(state.can_end());
}

TEST_CASE("a banned text does not occur, however it is cut into tokens, and all else may") {
  const std::vector<std::string> banned = {"secret", "The citizens", "e c", "\xC3\xA9"};
  const auto guide = answer_to(banning(banned));
  std::mt19937 random(7);
  std::uniform_int_distribution<int> byte('a', 'z');
  // Texts of pieces of them, so that they come close.
  const std::vector<std::string> pieces = {"se",   "cret",  "s",     "e", "c",   "r", "et",       "The",
                                           " cit", "izens", "secre", "T", "he ", " ", "\xC3\xA9", "t"};
  std::uniform_int_distribution<std::size_t> piece(0, pieces.size() - 1);
  for (int round = 0; round < 60; ++round) {
    answer_state state(guide);
    std::string text;
    for (int i = 0; i < 12; ++i) {
      const auto next = pieces[piece(random)];
      const auto ids = golden_tokens()->encode(next, false);
      for (const auto id : ids) {
        const auto longer = text + golden_tokens()->token_bytes(id);
        const bool bad = std::ranges::any_of(banned, [&](auto& b) { return longer.find(b) != longer.npos; });
        CAPTURE(longer);
        CHECK(state.advance(id) == !bad);
        if (!bad)
          text = longer;
      }
    }
    if (round < 4)
      check_agreement(state);
  }
}

TEST_CASE("tokens that a policy withholds are named, unless the guide forbids them anyway") {
  answer_state state(answer_to(banning({"The"})));
  std::vector<std::uint64_t> mask(golden_vocabulary()->words());
  std::vector<token_id> withheld;
  state.mask(mask, &withheld);
  CHECK(std::ranges::find(withheld, token_of("The")) != withheld.end());
  CHECK_FALSE(allows(mask, token_of("The")));
  answer_state digits(answer_to(banning({"The", "7"}, {.what = guide_source::kind::regex, .text = "[0-9]+"})));
  withheld.clear();
  digits.mask(mask, &withheld);
  for (const auto id : withheld)
    CHECK(golden_tokens()->token_bytes(id).find('7') != std::string::npos);
  CHECK(say(digits, "123"));
  CHECK_FALSE(say(digits, "7"));
}

TEST_CASE("patterns and choices are not begun where only a banned text could go on") {
  const auto ends_well = [](const std::string& text, const guide_source& source) {
    answer_state state(answer_to(banning({"e", "it is"}, source)));
    return say(state, text) && state.can_end();
  };
  const auto begins = [](const std::string& text, const guide_source& source) {
    answer_state state(answer_to(banning({"e", "it is"}, source)));
    return say(state, text);
  };
  const guide_source pattern{.what = guide_source::kind::regex, .text = "(he|no|it|is| )+"};
  CHECK(ends_well("no it no", pattern));
  CHECK_FALSE(begins("h", pattern));
  CHECK_FALSE(begins("no h", pattern));
  CHECK(ends_well("it", pattern));
  CHECK_FALSE(begins("it is", pattern));
  CHECK(begins("it i", {.what = guide_source::kind::regex, .text = "it i[st]+"}));
  CHECK_THROWS_WITH_AS(answer_to(banning({"it is"}, {.what = guide_source::kind::regex, .text = "it is+"})),
                       "`guide`: each text that matches contains one that this server's policy bans", failure);
  CHECK_THROWS_WITH_AS(answer_to(banning({"it is"}, {.what = guide_source::kind::regex, .text = "[^\\s\\S]"})),
                       "`guide`: the guide allows no text at all", failure);
  const guide_source choice{.what = guide_source::kind::choice, .choices = {"hello", "ho", "no", "it is"}};
  CHECK(ends_well("no", choice));
  CHECK(ends_well("ho", choice));
  CHECK_FALSE(begins("he", choice));
  CHECK_FALSE(begins("it", choice));
  CHECK_THROWS_AS(answer_to(banning({"e"}, {.what = guide_source::kind::choice, .choices = {"he", "she"}})), failure);
}

TEST_CASE("special tokens between the parts of a banned text hide nothing") {
  answer_state state(answer_to(banning({"noble friends"})));
  REQUIRE(say(state, "noble"));
  REQUIRE(state.advance(begin_of_text)); // it is not shown
  CHECK_FALSE(say(state, " friends"));
  answer_state special(answer_to(banning({std::string(golden_tokens()->token(begin_of_text))})));
  CHECK_FALSE(special.advance(begin_of_text));
}

TEST_CASE("overlapping texts, the same one twice, and texts within texts are found") {
  answer_state state(answer_to(banning({"abcd", "bc", "bc", "cdef"})));
  CHECK_FALSE(say(state, "abc"));
  answer_state other(answer_to(banning({"aab", "ab1"})));
  REQUIRE(say(other, "aa"));
  CHECK_FALSE(say(other, "b"));
  CHECK(say(other, "ac"));
}

TEST_CASE("a list of banned texts is bounded") {
  CHECK_THROWS_AS(answer_to(banning({""})), failure);
  CHECK_THROWS_AS(answer_to(banning({std::string(banned_texts::most_bytes + 1, 'x')})), failure);
  CHECK_THROWS_AS(answer_to(banning(std::vector<std::string>(banned_texts::most_texts + 1, "x"))), failure);
}

TEST_CASE("guides with other marks or other banned texts are others") {
  guide_cache cache(golden_tokens(), {end_of_text});
  const guide_source free{.what = guide_source::kind::anything};
  const auto first = cache.get(free, false);
  CHECK(cache.get(free, false) == first);
  CHECK(cache.get(thinking(true), false) != first);
  CHECK(cache.get(thinking(true), false) != cache.get(thinking(false), false));
  CHECK(cache.get(banning({"a"}), false) != first);
  CHECK(cache.get(banning({"a"}), false) != cache.get(banning({"b"}), false));
  CHECK(cache.get(banning({"a"}), false) == cache.get(banning({"a"}), false));
  guide_cache endless(golden_tokens(), {}); // an answer that nothing guides need not end
  CHECK(endless.get(free, false));
}
