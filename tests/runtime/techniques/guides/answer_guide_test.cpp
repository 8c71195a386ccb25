// Guides as answers follow them: behind the text at which they begin, with forced tokens, from a bounded cache.
#include "runtime/techniques/guides/guide_cache.hpp"
#include "tests/runtime/techniques/guides/golden_answers.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace troupe;
using namespace troupe::guides;

namespace {

guide_source regex_behind(std::string pattern, std::string after) {
  return {.what = guide_source::kind::regex, .text = std::move(pattern), .after = std::move(after)};
}

std::vector<std::uint64_t> mask_of(answer_state state) {
  std::vector<std::uint64_t> mask(golden_vocabulary()->words());
  state.mask(mask);
  return mask;
}

bool has_bit(const std::vector<std::uint64_t>& mask, token_id id) {
  return (mask[static_cast<std::size_t>(id) / 64] >> (id % 64) & 1) != 0;
}

/// The mask against its definition.
void check_answer_mask(const answer_state& state) {
  const auto mask = mask_of(state);
  for (token_id id = 0; id < static_cast<token_id>(golden_vocabulary()->size()); ++id) {
    CAPTURE(id);
    CHECK(has_bit(mask, id) == answer_state(state).advance(id));
  }
}

std::string pieces_of(std::span<const token_id> ids) {
  std::string text;
  for (const auto id : ids)
    text += golden_tokens()->token_bytes(id) + '|';
  return text;
}

bool advance_by(answer_state& state, const std::string& text) {
  for (const auto id : golden_tokens()->encode(text, false))
    if (!state.advance(id))
      return false;
  return true;
}

error refusal_of(guide_cache& cache, const guide_source& source, bool stops = false) {
  try {
    cache.get(source, stops);
  } catch (const failure& f) {
    return f.what_failed();
  }
  return {};
}

} // namespace

TEST_CASE("until the text at which a guide begins, all but an end is allowed; behind it the guide decides") {
  const auto guide = answer_to(regex_behind("[0-9]{2}", "so:"));
  answer_state state(guide);
  const auto free = mask_of(state);
  CHECK(has_bit(free, begin_of_text)); // a special token
  CHECK_FALSE(has_bit(free, end_of_text));
  CHECK_FALSE(has_bit(free, end_of_turn));
  check_answer_mask(state);
  REQUIRE(advance_by(state, "The so so"));
  CHECK_FALSE(state.can_end());
  check_answer_mask(state);
  REQUIRE(advance_by(state, ":"));
  check_answer_mask(state);
  CHECK_FALSE(answer_state(state).advance(begin_of_text));
  REQUIRE(advance_by(state, "42"));
  CHECK(state.can_end());
  CHECK(mask_of(state) == std::vector<std::uint64_t>(golden_vocabulary()->words()));
  CHECK_FALSE(state.advance(end_of_text)); // ends are the caller's
}

TEST_CASE("a token with the end of that text and more follows the guide with the rest") {
  // " so", "The" and ",\n" are tokens.
  const auto comma = answer_to(regex_behind("\\n?x", ","));
  const auto ids = golden_tokens()->encode(",\n", false);
  REQUIRE(ids.size() == 1);
  answer_state state(comma);
  REQUIRE(state.advance(ids.front()));
  CHECK_FALSE(answer_state(state).advance(ids.front()));
  REQUIRE(advance_by(state, "x"));
  CHECK(state.can_end());
  answer_state other(answer_to(regex_behind("x", ",")));
  check_answer_mask(other);
  CHECK_FALSE(other.advance(ids.front()));
  CHECK(advance_by(other, ",x"));
  CHECK(other.can_end());
}

TEST_CASE("that text is found although its beginning was in vain, and in special tokens") {
  answer_state state(answer_to(regex_behind("x", "aab")));
  REQUIRE(advance_by(state, "aaaab"));
  CHECK_FALSE(advance_by(state, "y"));
  CHECK(advance_by(state, "x"));
  answer_state special(answer_to(regex_behind("x", "<|eot_id|>!")));
  CHECK_FALSE(special.advance(end_of_turn)); // it ends the answer
  answer_state header(answer_to(regex_behind("x", "<|end_header_id|>")));
  REQUIRE(header.advance(3));
  CHECK_FALSE(answer_state(header).advance(3));
  CHECK(advance_by(header, "x"));
}

TEST_CASE("forced text comes in its natural tokens, but for the last, which may be longer") {
  answer_state state(
    answer_to({.what = guide_source::kind::regex, .text = "The [0-9]{3} citizens are your noble friends\\."}));
  std::vector<token_id> forced;
  while (const auto token = state.forced()) {
    forced.push_back(*token);
    REQUIRE(state.advance(*token));
  }
  const auto natural = golden_tokens()->encode("The ", false);
  REQUIRE(natural.size() == 2);
  CHECK(pieces_of(forced) == pieces_of(std::span(natural).first(natural.size() - 1)));
  REQUIRE(advance_by(state, " 123"));
  forced.clear();
  while (const auto token = state.forced()) {
    forced.push_back(*token);
    REQUIRE(state.advance(*token));
  }
  const auto rest = golden_tokens()->encode(" citizens are your noble friends.", false);
  CHECK(pieces_of(forced) == pieces_of(std::span(rest).first(rest.size() - 1)));
  CHECK_FALSE(state.can_end());
}

TEST_CASE("a cache compiles a guide once, keeps few, and says which field is at fault") {
  guide_cache cache(golden_tokens(), {end_of_text}, {.kept = 2});
  const guide_source digits{.what = guide_source::kind::regex, .text = "[0-9]+", .field = "structured_outputs.regex"};
  const auto first = cache.get(digits, false);
  CHECK(cache.get(digits, false) == first);
  auto other = digits;
  other.after = "</think>";
  CHECK(cache.get(other, false) != first);
  for (int i = 1; i < 10; ++i) // `first` is in use, and stays
    cache.get({.what = guide_source::kind::regex, .text = "a{" + std::to_string(i) + "}"}, false);
  CHECK(cache.get(digits, false) == first);

  auto bad = digits;
  bad.text = "(";
  auto why = refusal_of(cache, bad);
  CHECK(why.code == errc::bad_request);
  CHECK(why.param == "structured_outputs.regex");
  CHECK(why.message.starts_with("`structured_outputs.regex`: "));
  bad.text = std::string(2 << 20, 'a');
  CHECK(refusal_of(cache, bad).code == errc::bad_request);
  bad.text = "a";
  bad.after = std::string(2000, 'x');
  CHECK(refusal_of(cache, bad).message.find("1024") != std::string::npos);

  guide_cache endless(golden_tokens(), {});
  CHECK(refusal_of(endless, digits).message.find("stop_token_ids") != std::string::npos);
  CHECK(refusal_of(endless, digits, true).message.empty());
  guide_cache mute(nullptr, {end_of_text});
  CHECK(refusal_of(mute, digits).message.find("tokenizer") != std::string::npos);
  guide_cache few(golden_tokens(), {end_of_text}, {.kept_bytes = 1 << 20}); // of guides and of their sources
  const auto described = [&](char c) {
    return few.get({.what = guide_source::kind::json_schema,
                    .text = R"({"type":"null","description":")" + std::string(600'000, c) + "\"}"},
                   false);
  };
  const std::weak_ptr<const answer_guide> oldest = described('a');
  CHECK_FALSE(oldest.expired());
  described('b');
  described('c');
  CHECK(oldest.expired());
  CHECK(few.memory() < 1 << 20);

  guide_cache small(golden_tokens(), {end_of_text}, {.all_bytes = 0});
  const auto held = small.get(digits, false);
  other.text = "b";
  CHECK(refusal_of(small, other).code == errc::overloaded);
}

TEST_CASE("who has no time gets what compiles quickly, and nothing where it takes long") {
  guide_cache cache(golden_tokens(), {end_of_text});
  std::string patterns;
  for (int i = 1; i < 10; ++i)
    patterns += std::string(i > 1 ? "," : "") + R"({"type":"string","pattern":"a.{)" + std::to_string(i) + R"(}b"})";
  const guide_source hard{.what = guide_source::kind::json_schema, .text = R"({"allOf":[)" + patterns + "]}"};
  CHECK(cache.get(hard, false, {}, true) == nullptr);
  guide_source digits{.what = guide_source::kind::regex, .text = "[0-9]+", .field = "structured_outputs.regex"};
  const auto soon = cache.get(digits, false, {}, true);
  REQUIRE(soon);
  CHECK(cache.get(digits, false) == soon);
  const auto patient = cache.get(hard, false);
  REQUIRE(patient);
  CHECK(cache.get(hard, false, {}, true) == patient); // no longer takes long
  digits.text = "(";
  CHECK_THROWS_WITH(cache.get(digits, false, {}, true), doctest::Contains("`structured_outputs.regex`: "));
}

TEST_CASE("An answer may end ahead of the text at which its guide begins, if the guide asks for nothing") {
  answer_state wanted(answer_to(regex_behind("[0-9]+", "</think>")));
  CHECK_FALSE(wanted.can_end());
  answer_state free(answer_to(regex_behind("([0-9]+)?", "</think>")));
  CHECK(free.can_end());
  for (const auto id : golden_tokens()->encode("Hm", false))
    CHECK(free.advance(id));
  CHECK(free.can_end());
}
