#include "runtime/sampling/processors/repetition.hpp"

#include "runtime/support/error.hpp"
#include "tests/runtime/sampling/processors/processors_reference.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <ctime>
#include <limits>
#include <random>

using namespace troupe;

namespace {

std::vector<token_id> random_transcript(std::mt19937& random, std::size_t most, int kinds) {
  std::vector<token_id> ids(random() % (most + 1));
  for (auto& id : ids)
    id = static_cast<token_id>(random() % static_cast<unsigned>(kinds));
  return ids;
}

std::string field_blamed(auto make) {
  try {
    make();
  } catch (const failure& f) {
    return f.what_failed().param;
  }
  return {};
}

} // namespace

TEST_CASE("DRY costs what continuing the longest repetition costs") {
  std::mt19937 random(2);
  for (int round = 0; round < 1000; ++round) {
    CAPTURE(round);
    const auto transcript = random_transcript(random, 40, 2 + static_cast<int>(random() % 4));
    const token_set breakers(random() % 2 ? std::vector<token_id>{static_cast<token_id>(random() % 5)}
                                          : std::vector<token_id>{},
                             "dry_sequence_breakers", 9);
    const dry_options options{0.8f, 1.75f, static_cast<int>(random() % 4)};
    std::vector<float> logits(7, 10.f);
    penalise_repeats(logits, transcript, breakers, options);
    for (token_id id = 0; id < 7; ++id) {
      CAPTURE(id);
      const auto length = reference::longest_repeat(transcript, id, breakers);
      const auto loss = length >= std::max(options.allowed_length, 1)
        ? 0.8 * std::pow(1.75, length - options.allowed_length)
        : 0;
      CHECK(logits[static_cast<std::size_t>(id)] == doctest::Approx(10 - loss));
    }
  }
}

TEST_CASE("DRY takes linear time however a text repeats itself, and its cost stays finite") {
  std::vector<float> logits;
  const auto clocks = [&](std::size_t length) { // of the processor, the least of three times
    const std::vector<token_id> same(length, 3);
    std::clock_t least = std::numeric_limits<std::clock_t>::max();
    for (int i = 0; i < 3; ++i) {
      logits.assign(5, 1.f);
      const auto before = std::clock();
      penalise_repeats(logits, same, {}, {100, 10, 0});
      least = std::min(least, std::clock() - before);
    }
    return least;
  };
  const auto in_short = clocks(16'384);
  CHECK(clocks(131'072) < 24 * in_short + CLOCKS_PER_SEC / 1000); // quadratic: 64 times as long
  CHECK(std::isfinite(logits[3]));
  CHECK(logits[3] < -1e20f);
  CHECK(logits[2] == 1);
}

TEST_CASE("an index of n-grams masks just what would repeat one") {
  std::mt19937 random(3);
  for (int round = 0; round < 400; ++round) {
    CAPTURE(round);
    const auto transcript = random_transcript(random, 60, 4);
    const auto n = 1 + random() % 5;
    ngram_index index(n);
    for (std::size_t i = 1; i <= transcript.size(); ++i)
      index.append(std::span(transcript).first(i));
    std::vector<float> logits(5, 0.f);
    index.mask(logits, transcript);
    for (token_id id = 0; id < 5; ++id)
      CHECK((logits[static_cast<std::size_t>(id)] == 0) == !reference::completes_ngram(transcript, id, n));
  }
}

TEST_CASE("the penalty over a range leaves older tokens alone") {
  std::vector<float> logits{2, -2, 4, 6};
  penalise_recent(logits, std::vector<token_id>{1, 2, 2, 9}, 2);
  CHECK(logits == std::vector<float>{2, -4, 2, 6});
}

TEST_CASE("words are forbidden behind a space and without one") {
  // A tokenizer with a token 1000 + c for a space and the letter c, else one token per character.
  const encode_text encode = [](std::string_view text) {
    std::vector<token_id> ids;
    for (std::size_t i = 0; i < text.size(); ++i)
      if (text[i] == ' ' && i + 1 < text.size())
        ids.push_back(1000 + text[++i]);
      else
        ids.push_back(text[i]);
    return ids;
  };
  const std::vector<std::string> words{" ab", "c"};
  const auto found = forbid_words(words, encode);
  std::vector<std::vector<token_id>> sequences;
  for (const auto& one : found) {
    CHECK(one.bias == -INFINITY);
    sequences.push_back(one.tokens);
  }
  CHECK(sequences == std::vector<std::vector<token_id>>{{'a', 'b'}, {1000 + 'a', 'b'}, {'c'}, {1000 + 'c'}});
  CHECK(breaker_tokens(std::vector<std::string>{"\n", "xy"}, encode) == std::vector<token_id>{'\n', '\n', 'y', 'y'});
  CHECK(usual_breakers(encode).contains('*'));

  std::vector<float> logits(128, 0.f);
  add_sequence_biases(logits, found, std::vector<token_id>{'x', 'a'});
  CHECK(logits['b'] == -INFINITY);
  CHECK(logits['a'] == 0);
  CHECK(logits['c'] == -INFINITY);
}

TEST_CASE("lists of sequences and ids are checked, and blame their field") {
  const auto listed = [](std::vector<sequence_bias> entries) {
    return field_blamed([&] { sequence_bias_list(std::move(entries), "bad_words"); });
  };
  CHECK(listed({{{1, 2}, -100.f}, {{3}, -INFINITY}}) == "");
  CHECK(listed({{{}, 1.f}}) == "bad_words");
  CHECK(listed({{{-1}, 1.f}}) == "bad_words");
  CHECK(listed({{{1}, NAN}}) == "bad_words");
  CHECK(listed({{{1}, INFINITY}}) == "bad_words");
  CHECK(listed({{{1}, 101.f}}) == "bad_words");
  CHECK(listed({{std::vector<token_id>(65, 1), 1.f}}) == "bad_words");
  CHECK(listed(std::vector<sequence_bias>(1025, {{1}, 1.f})) == "bad_words");
  CHECK(field_blamed([] { token_set({1, -1}, "allowed_token_ids", 9); }) == "allowed_token_ids");
  CHECK(field_blamed([] { token_set({1, 2, 3}, "allowed_token_ids", 2); }) == "allowed_token_ids");
  CHECK(field_blamed([] { token_set({2, 2, 1}, "allowed_token_ids", 2); }) == "");
}

TEST_CASE("an order of samplers is read by name") {
  const auto order = [](std::vector<std::string> names) { return sampler_order(names); };
  const auto refused = [&](std::vector<std::string> names) {
    return field_blamed([&] { order(names); }) == "samplers";
  };
  CHECK(sampler_order().steps().size() == sampler_steps);
  CHECK(order({sampler_names.begin(), sampler_names.end()}).is_default());
  const auto some = order({"penalties", "dry", "top_k", "typ_p", "temperature"});
  CHECK(std::vector(some.steps().begin(), some.steps().end()) ==
        std::vector{sampler_step::top_k, sampler_step::typical_p, sampler_step::temperature});
  CHECK(order({}).steps().empty());
  CHECK(refused({"top_q"}));
  CHECK(refused({"top_k", "top_k"}));
  CHECK(refused({"top_k", "penalties"}));
}
