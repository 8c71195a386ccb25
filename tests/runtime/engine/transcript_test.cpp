#include "runtime/engine/transcript.hpp"
#include "runtime/techniques/guides/technique.hpp"
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

/// As Llama 2, Mistral and Phi 3 have them: decoding drops a space at the start of a text.
auto stripping_words() {
  static const auto t = tokenizer::load(test_data() + "/golden/mistral-swa");
  return t;
}

/// The text of an answer of these tokens, and the pieces that it came in.
std::string answer(const std::shared_ptr<const tokenizer>& words, const generation& what,
                   const std::vector<token_id>& ids, std::optional<std::string>* stop = nullptr) {
  transcript t(0, words, what);
  std::string text;
  const auto take = [&](const token_event& e) {
    text += e.text;
    if (stop && !e.stop.empty())
      *stop = e.stop;
  };
  for (const auto id : ids)
    if (const auto e = t.push(token(id)))
      take(*e);
  if (!t.finished())
    take(t.cut(finish_reason::length));
  return text;
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

TEST_CASE("prompt and answer together are the text of all ids, wherever they are divided") {
  std::string long_text = "Good morrow";
  for (int i = 0; i < 60; ++i)
    long_text += " my lord, and you";
  for (const auto& words : {words(), stripping_words()})
    for (const std::string& text :
         {std::string("Good my lord, I am here."), std::string("two  spaces   and\n\nlines \n end "), long_text,
          std::string(" \u00e9\u00e8 \xf0\x9f\xa6\x8a\xf0\x9f\xa6\x8a"), std::string(200, '\n') + "x"}) {
      CAPTURE(text);
      const auto ids = words->encode(text, true);
      const auto whole = words->decode(ids, true);
      const auto step = ids.size() > 100 ? 37u : 1u;
      for (std::size_t n = 1; n <= ids.size(); n += step) {
        CAPTURE(n);
        generation what;
        what.prompt.assign(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
        const auto prompt = words->decode(what.prompt, true);
        const auto said = answer(words, what, {ids.begin() + static_cast<std::ptrdiff_t>(n), ids.end()});
        if (prompt.ends_with("\xef\xbf\xbd")) // within a character: the answer has all of it
          CHECK(whole.ends_with(said));
        else
          CHECK(prompt + said == whole);
      }
    }
}

TEST_CASE("an answer that is a text of its own begins without the space that decoding drops") {
  const auto words = stripping_words();
  generation what;
  what.prompt = words->encode("My", true);
  const auto ids = words->encode("lord", false);
  REQUIRE(words->token(ids.front()).starts_with("\u2581"));
  CHECK(answer(words, what, ids) == " lord");
  what.begins_text = true;
  CHECK(answer(words, what, ids) == "lord");
  guides::guide_source guide; // which has said the space
  guide.what = guides::guide_source::kind::choice;
  guide.choices = {" lord"};
  what.sampling.techniques.set(guides::following(guide));
  CHECK(answer(words, what, ids) == " lord");
  guide.after = "</think>";
  what.sampling.techniques.set(guides::following(guide));
  CHECK(answer(words, what, ids) == "lord");
}

TEST_CASE("a stop string may begin with the space between prompt and answer") {
  const auto words = stripping_words();
  generation what;
  what.prompt = words->encode("My", true);
  what.sampling.stop = {" lord"};
  std::optional<std::string> stop;
  CHECK(answer(words, what, words->encode("lord", false), &stop) == "");
  CHECK(stop == " lord");
}

TEST_CASE("the prompt's special tokens are skipped in the text as those of the answer are") {
  const auto words = stripping_words();
  const auto eos = words->eos();
  REQUIRE(eos);
  for (const bool skip : {false, true}) {
    generation what;
    what.skip_special_tokens = skip;
    what.prompt = words->encode("My", true);
    what.prompt.push_back(*eos);
    auto ids = words->encode("lord", false), all = what.prompt;
    all.insert(all.end(), ids.begin(), ids.end());
    CHECK(words->decode(what.prompt, skip) + answer(words, what, ids) == words->decode(all, skip));
  }
}
