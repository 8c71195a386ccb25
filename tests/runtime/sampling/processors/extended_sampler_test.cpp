#include "runtime/sampling/processors/extended_sampler.hpp"
#include "runtime/techniques/beams/technique.hpp"

#include "runtime/sampling/logits_processors.hpp"
#include "runtime/sampling/processors/filters.hpp"
#include "runtime/sampling/sampler.hpp"
#include "runtime/support/error.hpp"
#include "tests/runtime/sampling/processors/processors_reference.hpp"
#include "tests/runtime/sampling/processors/random_samplers.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace troupe;

namespace {

constexpr int extended_vocab = 60;

std::vector<float> row_of_extended(std::mt19937& random) {
  std::normal_distribution<float> normal(0, 2);
  std::vector<float> logits(extended_vocab);
  for (auto& x : logits)
    x = normal(random);
  return logits;
}

sequence_sampler extended_of(const sampling_params& p, const std::vector<token_id>& prompt,
                             std::span<const token_id> emitted = {}, float mu = 0) {
  return {std::make_shared<const sampling_params>(p), {1}, prompt, emitted, 2, mu};
}

sampling_params random_extended(std::mt19937& random) {
  sampling_params p;
  p.temperature = random() % 5 ? 0.9f : 1.f;
  p.seed = random();
  p.max_tokens = 1000;
  if (random() % 2)
    p.top_p = 0.9f;
  if (random() % 3 == 0)
    p.top_k = 20;
  if (random() % 3 == 0)
    p.min_p = 0.02f;
  if (random() % 3 == 0)
    p.frequency_penalty = 0.4f;
  testing::add_random_samplers(p, extended_vocab, random);
  return p;
}

/// One step of the chain, as its own function computes it.
void take_step(sampler_step step, const sampling_params& p, candidates& tokens, std::uint64_t xtc_bits) {
  using enum sampler_step;
  if (step == temperature && p.dynatemp_range > 0)
    apply_dynamic_temperature(tokens, p.temperature, p.dynatemp_range, p.dynatemp_exponent);
  else if (step == temperature)
    tokens.reshape([&](float x) { return x * (1 / p.temperature); });
  else if (step == smoothing)
    smooth(tokens, p.smoothing_factor, p.smoothing_curve);
  else if (step == top_n_sigma)
    keep_top_n_sigma(tokens, p.top_n_sigma);
  else if (step == top_k)
    keep_top_k(tokens, p.top_k);
  else if (step == top_p)
    keep_top_p(tokens, p.top_p);
  else if (step == min_p)
    keep_min_p(tokens, p.min_p);
  else if (step == typical_p)
    keep_typical(tokens, p.typical_p);
  else if (step == epsilon_cutoff)
    keep_epsilon(tokens, p.epsilon_cutoff);
  else if (step == eta_cutoff)
    keep_eta(tokens, p.eta_cutoff);
  else if (step == top_a)
    keep_top_a(tokens, p.top_a);
  else
    exclude_top_choices(tokens, p.xtc_threshold, p.xtc_probability, xtc_bits);
}

} // namespace

TEST_CASE("steps run in the order that the request wants, and those that it leaves out do not") {
  std::mt19937 random(4);
  sampling_scratch scratch;
  for (int round = 0; round < 600; ++round) {
    CAPTURE(round);
    auto p = random_extended(random);
    p.mirostat = 0;
    p.techniques = {};
    p.frequency_penalty = p.dry_multiplier = 0;
    p.repetition_penalty = 1;
    p.no_repeat_ngram_size = p.repetition_penalty_range = 0;
    p.sequence_biases = {};
    const auto logits = row_of_extended(random);
    const std::vector<token_id> prompt(random() % 9, 3);
    candidates tokens;
    auto allowed = logits;
    for (token_id id = 0; id < extended_vocab; ++id)
      if (!p.allowed_token_ids.empty() && !p.allowed_token_ids.contains(id))
        allowed[static_cast<std::size_t>(id)] = reference::no_logit;
    tokens.reset(allowed);
    for (const auto step : p.samplers.steps())
      take_step(step, p, tokens, random_bits(p.seed, prompt.size(), 2, 1));
    const auto wanted = tokens.sample(random_bits(p.seed, prompt.size(), 2));
    CHECK(extended_of(p, prompt).sample(logits, scratch).id == wanted);
  }
}

TEST_CASE("the default order named is the default, token for token") {
  std::mt19937 random(8);
  sampling_scratch scratch;
  for (int round = 0; round < 200; ++round) {
    sampling_params plain{.temperature = 0.8f, .top_k = 30, .top_p = 0.8f, .min_p = 0.03f, .seed = random()};
    auto extended = plain;
    extended.typical_p = 0.9999999f; // keeps nearly all, and takes the other way through the sampler
    extended.dry_range = 5;
    const auto logits = row_of_extended(random);
    auto edited = extended;
    edited.typical_p = 1;
    edited.allowed_token_ids = token_set({}, "allowed_token_ids", 1);
    edited.no_repeat_ngram_size = 200; // never reached
    REQUIRE(edited.extended());
    CHECK(extended_of(edited, {1, 2}).sample(logits, scratch).id ==
          extended_of(plain, {1, 2}).sample(logits, scratch).id);
  }
}

TEST_CASE("with any samplers, a sequence rebuilt from its transcript goes on with the same tokens") {
  std::mt19937 random(6);
  sampling_scratch scratch;
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    const auto p = random_extended(random);
    std::vector<token_id> prompt(random() % 12);
    for (auto& id : prompt)
      id = static_cast<token_id>(random() % extended_vocab);
    std::vector<std::vector<float>> rows;
    std::vector<token_id> ids;
    std::vector<float> mus;
    auto whole = extended_of(p, prompt);
    try {
      for (int i = 0; i < 25; ++i) {
        rows.push_back(row_of_extended(random));
        const auto token = whole.sample(rows.back(), scratch);
        ids.push_back(token.id);
        mus.push_back(token.mirostat_mu);
      }
    } catch (const failure&) { // every token may be forbidden; then the rebuilt one fails as well
    }
    for (std::size_t cut = 0; cut < ids.size(); cut += 4) {
      auto rebuilt = extended_of(p, prompt, std::span(ids).first(cut), cut > 0 ? mus[cut - 1] : 0);
      for (std::size_t i = cut; i < ids.size(); ++i) {
        CHECK(rebuilt.guess(rows[i], 0, scratch) == ids[i]);
        REQUIRE(rebuilt.sample(rows[i], scratch).id == ids[i]);
      }
      if (ids.size() < rows.size())
        CHECK_THROWS_AS(rebuilt.sample(rows.back(), scratch), failure);
    }
  }
}

TEST_CASE("greedy sequences obey edits and no filter") {
  sampling_scratch scratch;
  sampling_params p{.temperature = 0, .xtc_probability = 1, .xtc_threshold = 0.1f, .no_repeat_ngram_size = 2};
  auto sampler = extended_of(p, {3, 5, 3});
  CHECK(sampler.sample(std::vector<float>{0, 0, 0, 0, 4, 9, 0}, scratch).id == 4);
  CHECK(sampler.sample(std::vector<float>{0, 0, 0, 0, 4, 9, 0}, scratch).id == 5);
}

TEST_CASE("contradictions of samplers are refused by name") {
  const auto blamed = [](auto change) {
    sampling_params p;
    change(p);
    try {
      p.validate(100);
    } catch (const failure& f) {
      return f.what_failed().param;
    }
    return std::string();
  };
  CHECK(blamed([](auto& p) { p.mirostat = 2; }) == "");
  CHECK(blamed([](auto& p) { p.mirostat = 1; }) == "mirostat");
  CHECK(blamed([](auto& p) { p.sequence_biases = sequence_bias_list({{{1, 100}, 1.f}}); }) == "bad_words");
  CHECK(blamed([](auto& p) { p.allowed_token_ids = token_set({100}, "allowed_token_ids", 1); }) == "allowed_token_ids");
  const auto gumbel = [](sampling_params& p) {
    watermarks::options mark;
    mark.what = watermarks::kind::gumbel;
    p.techniques.set(watermarks::marked_by(std::make_shared<watermarks::options>(mark)));
  };
  CHECK(blamed(gumbel) == "");
  CHECK(blamed([&](auto& p) { gumbel(p), p.temperature = 0; }) == "temperature");
  CHECK(blamed([&](auto& p) { gumbel(p), p.mirostat = 2; }) == "mirostat");
  // None of them with beams.
  std::mt19937 random(1);
  for (int round = 0; round < 50; ++round) {
    sampling_params p;
    testing::add_random_samplers(p, 10, random);
    p.repetition_penalty = 1;
    const auto found = blamed([&](auto& q) { q = p, q.techniques.set(troupe::beams({.width = 2})); });
    CHECK((found != "") == p.extended());
  }
}
