#include "runtime/engine/transcript.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

using namespace troupe;

namespace {

auto words() {
  static const auto t = tokenizer::load(test_data() + "/golden/llama-gqa");
  return t;
}

sampled_token token(token_id id, enum sampled_token::finish finish = sampled_token::finish::none) {
  sampled_token t;
  t.id = id;
  t.finish = finish;
  return t;
}

/// Pushes the tokens of a text, the last with `finish`; returns the events.
std::vector<token_event> stream(const std::string& text, generation what,
                                enum sampled_token::finish finish = sampled_token::finish::length) {
  transcript t(2, words(), what);
  std::vector<token_event> events;
  auto ids = words()->encode(text, false);
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (auto e = t.push(token(ids[i], i + 1 == ids.size() ? finish : sampled_token::finish::none)))
      events.push_back(*e);
  return events;
}

std::string text_of(const std::vector<token_event>& events) {
  std::string all;
  for (auto& e : events)
    all += e.text;
  return all;
}

} // namespace

TEST_CASE("a transcript's events carry its whole text and all ids, and the last one the reason") {
  const std::string text = "To be, or not to be: \xf0\x9f\xa6\x8a that is the question.";
  auto events = stream(text, {});
  CHECK(text_of(events) == text);
  std::vector<token_id> ids;
  for (auto& e : events) {
    CHECK(e.index == 2);
    CHECK(e.position == ids.size());
    ids.insert(ids.end(), e.token_ids.begin(), e.token_ids.end());
    CHECK(e.finish.has_value() == (&e == &events.back()));
  }
  CHECK(ids == words()->encode(text, false));
  CHECK(events.back().finish == finish_reason::length);
  CHECK(events.size() < ids.size()); // the fox arrives whole
}

TEST_CASE("text ends before a stop string, wherever tokens divide it, and later tokens are ignored") {
  generation what;
  what.sampling.stop = {"not to"};
  auto events = stream("To be, or not to be", what);
  CHECK(text_of(events) == "To be, or ");
  CHECK(events.back().finish == finish_reason::stop);
  CHECK(events.back().stop == "not to");
}

TEST_CASE("text held back for a stop string is emitted when the sequence ends otherwise") {
  generation what;
  what.sampling.stop = {"question!"};
  auto events = stream("that is the quest", what);
  CHECK(text_of(events) == "that is the quest");
  CHECK(events.back().finish == finish_reason::length);
}

TEST_CASE("the token that ends a sequence has an id but no text") {
  transcript t(0, words(), {});
  t.push(token(words()->encode("a", false)[0]));
  auto last = t.push(token(4, sampled_token::finish::eos));
  REQUIRE(last.has_value());
  CHECK(last->token_ids == std::vector<token_id>{4});
  CHECK(last->text.empty());
  CHECK(last->finish == finish_reason::stop);
  CHECK(t.summary().tokens == 2);
  CHECK_FALSE(t.push(token(5)).has_value());
}

TEST_CASE("without a tokenizer every token is an event without text") {
  transcript t(0, nullptr, {});
  CHECK(t.push(token(5))->token_ids == std::vector<token_id>{5});
  CHECK(t.cut(finish_reason::cancelled).finish == finish_reason::cancelled);
}

TEST_CASE("a transcript keeps the sampler's state, with which another worker group resumes it") {
  transcript t(0, nullptr, {});
  CHECK(t.mirostat_mu() == 0);
  sampled_token one = token(5);
  one.mirostat_mu = 7.5f;
  t.push(one);
  one.mirostat_mu = 6.25f;
  t.push(one);
  CHECK(t.mirostat_mu() == 6.25f);
}
