#include "runtime/techniques/stochastic_beams/stochastic_beam_search.hpp"
#include "runtime/techniques/stochastic_beams/technique.hpp"

#include "tests/runtime/sampling/groups/groups_test_data.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <set>

using namespace troupe;
using namespace troupe::test;

namespace {

using sequence = std::vector<token_id>;

const sequence start{2, 1};

/// Three tokens, of which 0 is EOS: 15 sequences of up to 3 tokens. The logits depend on the last token.
std::vector<float> next_logits(std::span<const token_id> so_far) {
  static const std::vector<std::vector<float>> rows{{0.f, 0.f, 0.f}, {-0.5f, 1.f, 0.2f}, {0.4f, -0.3f, 0.9f}};
  return rows[static_cast<std::size_t>(so_far.back())];
}

sampling_params stochastic(int beams, std::uint64_t seed) {
  sampling_params p;
  p.n = beams;
  p.techniques.set(stochastic_beams(beams));
  p.seed = seed;
  p.max_tokens = 3;
  return p;
}

std::vector<hypothesis> sample(const sampling_params& params) {
  params.validate(3);
  stochastic_beam_search strategy(params.width(), std::make_shared<const sampling_params>(params), {0}, start);
  return drive(strategy, next_logits, params, start);
}

/// The probability of every sequence, by enumeration.
std::map<sequence, double> enumerate(const sampling_params& params) {
  std::map<sequence, double> ended;
  std::map<sequence, double> running{{{}, 1}};
  for (int position = 0; position < params.max_tokens; ++position) {
    std::map<sequence, double> next;
    for (const auto& [tokens, probability] : running) {
      auto whole = start;
      whole.insert(whole.end(), tokens.begin(), tokens.end());
      auto weights = std::vector<double>();
      double total = 0;
      for (const float logit : next_logits(whole)) {
        const bool forbidden = weights.empty() && position < params.min_tokens;
        weights.push_back(forbidden ? 0 : std::exp(static_cast<double>(logit) / params.temperature));
        total += weights.back();
      }
      for (token_id id = 0; id < 3; ++id) {
        auto longer = tokens;
        longer.push_back(id);
        const auto p = probability * weights[static_cast<std::size_t>(id)] / total;
        (id == 0 || position + 1 == params.max_tokens ? ended : next)[longer] += p;
      }
    }
    running = std::move(next);
  }
  std::erase_if(ended, [](const auto& one) { return one.second == 0; });
  return ended;
}

/// Whether counts agree with probabilities: the chi-square statistic is less than 4 deviations above its mean. Cells
/// of few expected counts are one cell together.
template <class Cell>
void check_distribution(const std::map<Cell, double>& probabilities, const std::map<Cell, int>& counts, int draws) {
  double statistic = 0, rest_expected = 0;
  int cells = 0, rest_seen = 0, seen_in_all = 0;
  const auto add = [&](double expected, int seen) {
    statistic += (seen - expected) * (seen - expected) / expected;
    ++cells;
  };
  for (const auto& [cell, probability] : probabilities) {
    const auto found = counts.find(cell);
    const int seen = found == counts.end() ? 0 : found->second;
    seen_in_all += seen;
    if (probability * draws >= 10) {
      add(probability * draws, seen);
    } else {
      rest_expected += probability * draws;
      rest_seen += seen;
    }
  }
  if (rest_expected > 0)
    add(rest_expected, rest_seen);
  CHECK(seen_in_all == draws); // nothing impossible was drawn
  const double freedom = cells - 1;
  CAPTURE(freedom);
  CHECK(statistic < freedom + 4 * std::sqrt(2 * freedom));
}

} // namespace

TEST_CASE("Pairs of stochastic beams are distributed as draws without replacement") {
  constexpr int draws = 30'000;
  for (const float temperature : {1.f, 0.6f}) {
    CAPTURE(temperature);
    auto params = stochastic(2, 0);
    params.temperature = temperature;
    const auto all = enumerate(params);
    REQUIRE(all.size() == 15);
    std::map<std::pair<sequence, sequence>, double> probabilities;
    for (const auto& [first, p] : all)
      for (const auto& [second, q] : all)
        if (first != second)
          probabilities[{first, second}] = p * q / (1 - p);
    std::map<std::pair<sequence, sequence>, int> counts;
    for (int seed = 0; seed < draws; ++seed) {
      params.seed = static_cast<std::uint64_t>(seed) << 20;
      const auto got = sample(params);
      REQUIRE(got.size() == 2);
      ++counts[{ids_of(got[0]), ids_of(got[1])}];
    }
    check_distribution(probabilities, counts, draws);
  }
}

TEST_CASE("The first of several stochastic beams is distributed as a sample is") {
  constexpr int draws = 20'000;
  auto params = stochastic(4, 0);
  params.min_tokens = 2;
  const auto probabilities = enumerate(params);
  REQUIRE(probabilities.size() == 12);
  std::map<sequence, int> counts;
  for (int seed = 0; seed < draws; ++seed) {
    params.seed = static_cast<std::uint64_t>(seed);
    ++counts[ids_of(sample(params).front())];
  }
  check_distribution(probabilities, counts, draws);
}

TEST_CASE("Stochastic beams come with their exact log-probability, each once, by falling score") {
  for (const float temperature : {1.f, 1.7f, 0.3f}) {
    auto params = stochastic(6, 5);
    params.temperature = temperature;
    const auto all = enumerate(params);
    const auto got = sample(params);
    REQUIRE(got.size() == 6);
    std::set<sequence> different;
    for (std::size_t i = 0; i < got.size(); ++i) {
      different.insert(ids_of(got[i]));
      CHECK(got[i].cumulative_logprob == doctest::Approx(std::log(all.at(ids_of(got[i])))).epsilon(1e-6));
      CHECK((i == 0 || got[i].score < got[i - 1].score));
    }
    CHECK(different.size() == 6);
  }
}

TEST_CASE("More stochastic beams than there are sequences find all of them") {
  const auto got = sample(stochastic(32, 9));
  CHECK(got.size() == 15);
  double total = 0;
  for (const auto& one : got)
    total += std::exp(one.cumulative_logprob);
  CHECK(total == doctest::Approx(1).epsilon(1e-6));
}

TEST_CASE("Scores of stochastic beams are perturbed log-probabilities: estimates weighted by them have no bias") {
  // Kool et al. 2019, section 4.2: E[sum over the first k - 1 of f(y) p(y) / P(its Gumbel variable > the k-th)] = E f.
  constexpr int draws = 20'000, beams = 4;
  auto params = stochastic(beams, 0);
  double expected = 0;
  for (const auto& [tokens, probability] : enumerate(params))
    expected += probability * static_cast<double>(tokens.size());
  double mass = 0, length = 0, mass_squared = 0, length_squared = 0, gumbel = 0;
  for (int seed = 0; seed < draws; ++seed) {
    params.seed = 1'000'000 + static_cast<std::uint64_t>(seed);
    const auto got = sample(params);
    const auto threshold = got.back().score;
    double weights = 0, lengths = 0;
    for (std::size_t i = 0; i + 1 < got.size(); ++i) {
      const auto p = got[i].cumulative_logprob;
      const auto weight = std::exp(p) / -std::expm1(-std::exp(p - threshold));
      weights += weight;
      lengths += weight * static_cast<double>(got[i].tokens.size());
    }
    mass += weights;
    mass_squared += weights * weights;
    length += lengths;
    length_squared += lengths * lengths;
    gumbel += got.front().score;
  }
  const auto check_mean = [](double sum, double squares, double mean) {
    const auto found = sum / draws, deviation = std::sqrt((squares / draws - found * found) / draws);
    CAPTURE(found);
    CAPTURE(deviation);
    CHECK(std::abs(found - mean) < 4 * deviation);
  };
  check_mean(mass, mass_squared, 1);
  check_mean(length, length_squared, expected);
  // The largest variable is a standard Gumbel's: its mean is Euler's constant, its deviation pi / sqrt(6).
  CHECK(std::abs(gumbel / draws - 0.5772) < 4 * 1.2825 / std::sqrt(draws));
}

TEST_CASE("Stochastic beams report log-probabilities of the model's own distribution") {
  auto params = stochastic(2, 3);
  params.temperature = 0.5f;
  params.logprobs = 2;
  for (const auto& one : sample(params)) {
    auto so_far = start;
    for (const auto& token : one.tokens) {
      const auto logits = next_logits(so_far);
      double total = 0;
      for (const float logit : logits)
        total += std::exp(logit);
      CHECK(token.logprob == doctest::Approx(logits[static_cast<std::size_t>(token.id)] - std::log(total)));
      REQUIRE(token.top.size() == 2);
      CHECK(token.top[0].logprob >= token.top[1].logprob);
      so_far.push_back(token.id);
    }
    CHECK(one.tokens.back().finish != sampled_token::finish::none);
  }
}

TEST_CASE("Stochastic beams without anything to choose fail with a reason") {
  auto params = stochastic(2, 0);
  stochastic_beam_search strategy(params.width(), std::make_shared<const sampling_params>(params), {0},
                                  std::vector<token_id>{1});
  const std::vector<float> row(3, -INFINITY);
  const std::vector<std::span<const float>> logits{row};
  sampling_scratch scratch;
  CHECK(failure_of([&] { strategy.judge(logits, scratch); }) == nothing_to_choose);
}
