#include "runtime/sampling/philox.hpp"
#include "runtime/sampling/sampler.hpp"
#include "runtime/support/error.hpp"
#include "tests/rounds.hpp"
#include "tests/runtime/sampling/sampling_reference.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

using namespace troupe;

namespace {

sequence_sampler make_sampler(sampling_params params, std::vector<token_id> prompt = {},
                              std::vector<token_id> emitted = {}, std::uint32_t index = 0,
                              std::vector<token_id> eos = {}) {
  return {std::make_shared<const sampling_params>(std::move(params)), std::move(eos), prompt, emitted, index};
}

token_id sample_once(const sampling_params& params, const std::vector<float>& logits, std::size_t position,
                     std::uint32_t index = 0) {
  sampling_scratch scratch;
  return make_sampler(params, std::vector<token_id>(position, 0), {}, index).sample(logits, scratch).id;
}

std::vector<float> random_logits(std::size_t n, float spread, std::mt19937& random) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(n);
  for (auto& x : logits)
    x = normal(random);
  return logits;
}

} // namespace

TEST_CASE("Philox gives the known answers of Random123") {
  CHECK(philox4x32_10({0, 0, 0, 0}, {0, 0}) == philox_counter{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
  constexpr std::uint32_t f = 0xffffffff;
  CHECK(philox4x32_10({f, f, f, f}, {f, f}) == philox_counter{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
  CHECK(philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}) ==
        philox_counter{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
  CHECK(random_bits(0, 0, 0) == 0x6627e8d5e169c58d);
}

TEST_CASE("the sampler's exp is within 2 ulp, exact at 0 and never grows downwards by more than that") {
  CHECK(sampling::exp_nonpositive(0) == 1);
  CHECK(sampling::weight(3, 3) == sampling::weight_one);
  CHECK(sampling::weight(-INFINITY, 3) == 0);
  CHECK(sampling::weight(NAN, 3) == 0);
  double worst = 0;
  for (float d = 0; d > -39; d -= 0.000173f) {
    const double exact = std::exp(static_cast<double>(d));
    worst = std::max(worst, std::abs(sampling::exp_nonpositive(d) - exact) / exact);
  }
  CHECK(worst <= 2 * 0x1p-23);
}

TEST_CASE("greedy chooses the lowest id among equals, anywhere in the row") {
  for (const std::size_t first : {0, 1, 127, 128, 500, 998}) {
    std::vector<float> logits(1000, -0.5f);
    logits[first] = logits[999] = 2;
    CHECK(sample_once({.temperature = 0}, logits, 0) == static_cast<token_id>(first));
  }
  std::vector<float> zeros(300, -1.f);
  zeros[200] = -0.f;
  zeros[250] = 0.f;
  CHECK(sample_once({.temperature = 0}, zeros, 0) == 200);
}

TEST_CASE("the sampler agrees with the sorting reference under random parameters") {
  std::mt19937 random(1);
  const auto maybe = [&](auto on, auto off) { return random() % 2 ? on : off; };
  const auto uniform = [&](float low, float high) { return std::uniform_real_distribution<float>(low, high)(random); };
  sampling_scratch scratch;
  for (int round = 0; round < rounds(3000); ++round) {
    const std::size_t vocab = random() % 5 == 0 ? 1 + random() % 20 : 1 + random() % 3000;
    const auto any_id = [&] { return static_cast<token_id>(random() % vocab); };
    const auto ids = [&](std::size_t n) {
      std::vector<token_id> result(n);
      for (auto& id : result)
        id = any_id();
      return result;
    };
    sampling_params p;
    p.temperature = maybe(uniform(0.05f, 2), maybe(1.f, 0.f));
    p.top_k = maybe(static_cast<int>(random() % (vocab + 10)), 0);
    p.top_p = maybe(maybe(uniform(0, 1), 0.95f), 1.f);
    p.min_p = maybe(uniform(0, 0.3f), 0.f);
    p.repetition_penalty = maybe(uniform(0.7f, 1.5f), 1.f);
    p.presence_penalty = maybe(uniform(-2, 2), 0.f);
    p.frequency_penalty = maybe(uniform(-2, 2), 0.f);
    std::map<token_id, float> biases;
    for (auto n = maybe(random() % 5, 0ul); n > 0; --n)
      biases[any_id()] = uniform(-5, 5);
    p.logit_bias = std::vector<logit_bias_map::entry>(biases.begin(), biases.end());
    p.seed = random();
    p.min_tokens = maybe(static_cast<int>(random() % 10), 0);
    p.max_tokens = 1000;
    p.stop_token_ids = ids(vocab > 4 ? random() % 3 : 0);
    const auto eos = ids(vocab > 4 ? 1 : 0);
    auto logits = random_logits(vocab, uniform(0, 5), random);
    if (random() % 2) // many equal logits
      for (auto& x : logits)
        x = std::round(x * 2) / 2;
    if (random() % 10 == 0)
      logits[any_id()] = NAN;
    if (random() % 10 == 0)
      logits[any_id()] = INFINITY;
    const auto prompt = ids(random() % 30), emitted = ids(random() % 20);
    const auto index = static_cast<std::uint32_t>(random() % 3);
    const auto edited = reference::edited(p, eos, logits, prompt, emitted);
    if (*std::max_element(edited.begin(), edited.end()) == -reference::infinity)
      continue;
    CAPTURE(round);
    auto sampler = make_sampler(p, prompt, emitted, index, eos);
    REQUIRE(sampler.sample(logits, scratch).id == reference::choose(p, eos, logits, prompt, emitted, index));
  }
}

TEST_CASE("samples follow the distribution") {
  // Chi-square over 40,000 samples at different positions; the 0.999 quantile for 19 degrees of freedom is 43.8.
  constexpr int kinds = 20, samples = 40000;
  std::vector<float> logits(kinds);
  double total = 0;
  for (int i = 0; i < kinds; ++i)
    total += std::exp(static_cast<double>(logits[i] = std::sin(static_cast<float>(i)) / 0.7f));
  sampling_scratch scratch;
  for (const std::uint64_t seed : {0ul, 1ul, 0xdeadbeefcafeul}) {
    std::vector<int> count(kinds);
    auto sampler = make_sampler({.seed = seed, .max_tokens = samples + 1});
    for (int i = 0; i < samples; ++i)
      ++count[sampler.sample(logits, scratch).id];
    double chi_square = 0;
    for (int i = 0; i < kinds; ++i) {
      const double expected = samples * std::exp(static_cast<double>(logits[i])) / total;
      chi_square += (count[i] - expected) * (count[i] - expected) / expected;
    }
    CAPTURE(seed);
    CHECK(chi_square < 43.8);
    CHECK(chi_square > 4.9); // the 0.001 quantile: too even is not random either
  }
}

TEST_CASE("a nucleus is sampled from in proportion to its own probabilities") {
  const std::vector<float> logits{std::log(.5f), std::log(.3f), std::log(.15f), std::log(.05f)};
  std::vector<int> count(4);
  for (std::size_t position = 0; position < 4000; ++position)
    ++count[sample_once({.top_p = 0.75f, .seed = 5}, logits, position)];
  CHECK(count[2] + count[3] == 0);
  CHECK(std::abs(count[0] - 2500) < 4 * 31); // 4 standard deviations
}

TEST_CASE("a sample depends on seed, position and index alone") {
  std::mt19937 random(3);
  const auto logits = random_logits(5000, 1, random);
  const sampling_params params{.seed = 42, .max_tokens = 1000};
  std::vector<token_id> transcript{1, 2, 3};
  sampling_scratch scratch;
  auto sampler = make_sampler(params, transcript);
  std::vector<token_id> ids;
  for (int i = 0; i < 50; ++i)
    ids.push_back(sampler.sample(logits, scratch).id);

  SUBCASE("a sampler rebuilt from any point of the transcript continues with the same tokens") {
    for (std::size_t cut = 0; cut < ids.size(); cut += 7) {
      sampling_scratch fresh;
      auto rebuilt = make_sampler(params, transcript, {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(cut)});
      for (std::size_t i = cut; i < ids.size(); ++i)
        REQUIRE(rebuilt.sample(logits, fresh).id == ids[i]);
    }
  }
  SUBCASE("other seeds and other sequences of the request sample differently") {
    auto other_seed = make_sampler({.seed = 43, .max_tokens = 1000}, transcript);
    auto other_index = make_sampler(params, transcript, {}, 1);
    int same = 0;
    for (const auto id : ids)
      same += (other_seed.sample(logits, scratch).id == id) + (other_index.sample(logits, scratch).id == id);
    CHECK(same < 5);
  }
}

TEST_CASE("log-probabilities are those of the raw logits, likeliest first, ties by lower id") {
  std::mt19937 random(4);
  auto logits = random_logits(2000, 3, random);
  const auto best = *std::max_element(logits.begin(), logits.end());
  logits[1500] = logits[20] = best + 1;
  double total = 0;
  for (const auto x : logits)
    total += std::exp(static_cast<double>(x));
  sampling_scratch scratch;
  const sampling_params params{.temperature = 0.5f, .top_k = 3, .repetition_penalty = 1.5f, .seed = 1, .logprobs = 5};
  auto sampler = make_sampler(params, {20});
  const auto token = sampler.sample(logits, scratch);
  CHECK(token.logprob == doctest::Approx(logits[token.id] - std::log(total)).epsilon(1e-6));
  REQUIRE(token.top.size() == 5);
  CHECK(token.top[0].id == 20);
  CHECK(token.top[1].id == 1500);
  for (std::size_t i = 0; i < 5; ++i)
    CHECK(token.top[i].logprob == doctest::Approx(logits[token.top[i].id] - std::log(total)).epsilon(1e-6));
  for (std::size_t i = 1; i < 5; ++i)
    CHECK(token.top[i].logprob <= token.top[i - 1].logprob);

  auto few = make_sampler({.logprobs = 20});
  CHECK(few.sample(std::vector<float>{1, 2, 3}, scratch).top.size() == 3);
  auto none = make_sampler({.logprobs = 0});
  const auto alone = none.sample(std::vector<float>{1, 1}, scratch);
  CHECK(alone.top.empty());
  CHECK(alone.logprob == doctest::Approx(std::log(0.5)));
  const auto certain = make_sampler({.logprobs = 2}).sample(std::vector<float>{0, INFINITY, -INFINITY}, scratch);
  CHECK(certain.id == 1);
  CHECK(certain.logprob == 0);
  CHECK(certain.top[0].logprob == 0);
}

TEST_CASE("a sequence ends at an EOS id, a stop id or its length, not before min_tokens") {
  using finish = enum sampled_token::finish;
  sampling_scratch scratch;
  const std::vector<float> eos_first{0, 5, 4, 3}; // 1 is EOS, 2 a stop id
  sampling_params params{.temperature = 0, .max_tokens = 3, .stop_token_ids = {2}};
  CHECK(make_sampler(params, {}, {}, 0, {1}).sample(eos_first, scratch).finish == finish::eos);

  params.ignore_eos = true;
  auto ignoring = make_sampler(params, {}, {}, 0, {1});
  CHECK(ignoring.sample(eos_first, scratch).finish == finish::none);
  CHECK(ignoring.sample(std::vector<float>{0, 0, 1, 0}, scratch).finish == finish::stop_token);
  CHECK(ignoring.sample(eos_first, scratch).finish == finish::length);

  params.ignore_eos = false;
  params.min_tokens = 2;
  auto patient = make_sampler(params, {}, {}, 0, {1});
  CHECK(patient.sample(eos_first, scratch).id == 3);
  CHECK(patient.sample(eos_first, scratch).id == 3);
  const auto last = patient.sample(eos_first, scratch);
  CHECK(last.id == 1);
  CHECK(last.finish == finish::eos);
}

TEST_CASE("a row without candidates fails and leaves the transcript unchanged") {
  sampling_scratch scratch;
  const std::vector<float> good{0, 1, 2}, bad(3, NAN);
  auto sampler = make_sampler({.seed = 9}), other = make_sampler({.seed = 9});
  CHECK_THROWS_WITH_AS(sampler.sample(bad, scratch), "No token can be chosen: every logit is NaN or minus infinity.",
                       failure);
  for (int i = 0; i < 10; ++i)
    CHECK(sampler.sample(good, scratch).id == other.sample(good, scratch).id);
}

TEST_CASE("a request that excludes every token is at fault itself, by the field that it names") {
  sampling_scratch scratch;
  sampling_params params{.max_tokens = 9};
  params.allowed_token_ids = token_set({1}, "allowed_token_ids", 10);
  params.no_repeat_ngram_size = 1;
  for (const bool greedy : {false, true}) {
    params.temperature = greedy ? 0 : 1;
    auto sampler = make_sampler(params);
    CHECK(sampler.sample(std::vector<float>{0, 1, 2}, scratch).id == 1);
    error why;
    try {
      sampler.sample(std::vector<float>{0, 1, 2}, scratch);
    } catch (const failure& f) {
      why = f.what_failed();
    }
    CHECK(why.code == errc::bad_request);
    CHECK(why.param == "allowed_token_ids");
    try { // while a model that says nothing is not the request's fault
      sampler.sample(std::vector<float>(3, NAN), scratch);
    } catch (const failure& f) {
      why = f.what_failed();
    }
    CHECK(why.code == errc::internal);
  }
}

TEST_CASE("parameters out of range are refused by the field's name") {
  const auto field_of = [](auto make) {
    try {
      make().validate(100);
    } catch (const failure& f) {
      CHECK(f.what_failed().code == errc::bad_request);
      CHECK(f.what_failed().message.find(f.what_failed().param) != std::string::npos);
      return f.what_failed().param;
    }
    return std::string();
  };
  const auto field = [&](const sampling_params& p) { return field_of([&] { return p; }); };
  CHECK(field({}) == "");
  CHECK(field({.temperature = 2, .top_k = -1, .top_p = 0, .min_p = 1, .logit_bias = {{99, -100.f}}}) == "");
  CHECK(field({.temperature = -0.1f}) == "temperature");
  CHECK(field({.temperature = 2.1f}) == "temperature");
  CHECK(field({.temperature = NAN}) == "temperature");
  CHECK(field({.top_k = -2}) == "top_k");
  CHECK(field({.top_p = 1.1f}) == "top_p");
  CHECK(field({.min_p = -0.1f}) == "min_p");
  CHECK(field({.repetition_penalty = 0}) == "repetition_penalty");
  CHECK(field({.presence_penalty = 2.5f}) == "presence_penalty");
  CHECK(field({.frequency_penalty = -2.5f}) == "frequency_penalty");
  CHECK(field({.logit_bias = {{100, 1.f}}}) == "logit_bias");
  CHECK(field({.max_tokens = 0}) == "max_tokens");
  CHECK(field({.min_tokens = -1}) == "min_tokens");
  CHECK(field({.max_tokens = 5, .min_tokens = 6}) == "min_tokens");
  CHECK(field({.stop_token_ids = {100}}) == "stop_token_ids");
  CHECK(field({.n = 0}) == "n");
  CHECK(field({.logprobs = 21}) == "logprobs");
  // Lists are checked on construction.
  const auto biased = [&](std::vector<std::pair<token_id, float>> entries) {
    return field_of([&] { return sampling_params{.logit_bias = entries}; });
  };
  const auto stopping_at = [&](std::vector<token_id> ids) {
    return field_of([&] { return sampling_params{.stop_token_ids = ids}; });
  };
  const auto stopping = [&](std::vector<std::string> texts) {
    return field_of([&] { return sampling_params{.stop = texts}; });
  };
  CHECK(biased({{1, 101.f}}) == "logit_bias");
  CHECK(biased({{1, NAN}}) == "logit_bias");
  CHECK(biased({{-1, 1.f}}) == "logit_bias");
  CHECK(biased({{7, 1.f}, {3, 1.f}, {7, 2.f}}) == "logit_bias");
  CHECK(biased(std::vector<std::pair<token_id, float>>(1025)) == "logit_bias");
  CHECK(stopping_at({-1}) == "stop_token_ids");
  CHECK(stopping_at(std::vector<token_id>(1024, 5)) == "");
  CHECK(stopping_at(std::vector<token_id>(1025, 5)) == "stop_token_ids");
  CHECK(stopping({"a", ""}) == "stop");
  CHECK(stopping({std::string(4096, 'a')}) == "");
  CHECK(stopping({std::string(4096, 'a'), "b"}) == "stop");
  CHECK(stopping(std::vector<std::string>(64, "a")) == "");
  CHECK(stopping(std::vector<std::string>(65, "a")) == "stop");
}

TEST_CASE("copies of parameters share their lists") {
  const sampling_params one{.logit_bias = {{1, 1.f}}, .stop_token_ids = {5, 3, 5}, .stop = {"a", "b"}};
  const auto other = one;
  CHECK(other.logit_bias.begin() == one.logit_bias.begin());
  CHECK(other.stop_token_ids.begin() == one.stop_token_ids.begin());
  CHECK(&other.stop[0] == &one.stop[0]);
  CHECK(std::vector(one.stop_token_ids.begin(), one.stop_token_ids.end()) == std::vector<token_id>{3, 5});
  CHECK(one.stop_token_ids.contains(5));
  CHECK_FALSE(one.stop_token_ids.contains(4));
}
