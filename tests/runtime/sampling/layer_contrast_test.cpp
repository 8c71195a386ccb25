// Contrasts with inner layers against PyTorch (make_contrasts.py), and how the sampler of a sequence chooses from them.
#include "runtime/sampling/row_contrast.hpp"
#include "runtime/sampling/sampler.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/techniques/dola/technique.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace troupe;

namespace {

constexpr auto never_seen = -std::numeric_limits<float>::infinity();

std::vector<float> layer_row_of(json::value list) {
  std::vector<float> values;
  for (auto v : json::array(list))
    values.push_back(v.is_null() ? never_seen : static_cast<float>(double(v)));
  return values;
}

/// The definition, in doubles.
double divergence_by_definition(const std::vector<float>& a, const std::vector<float>& b) {
  const auto log_softmax = [](const std::vector<float>& row) {
    const double most = *std::ranges::max_element(row);
    double total = 0;
    for (const double x : row)
      total += std::exp(x - most);
    std::vector<double> logs;
    for (const double x : row)
      logs.push_back(x - most - std::log(total));
    return logs;
  };
  const auto p = log_softmax(a), q = log_softmax(b);
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double m = (std::exp(p[i]) + std::exp(q[i])) / 2;
    if (m > 0)
      sum += m * (2 * std::log(m) - p[i] - q[i]);
  }
  return sum / 2;
}

double distance_of_layers(const std::vector<float>& a, const std::vector<float>& b) {
  return layer_divergence(normalised_row(a), normalised_row(b));
}

} // namespace

TEST_CASE("divergences of layers, and the scores that the farthest gives, are PyTorch's") {
  const auto document = json::document::load(test_data() + "/contrasts.json");
  int rows = 0;
  for (auto one : json::array(document.root()["layer_rows"])) {
    const auto final = layer_row_of(one["final"]);
    const auto expected = layer_row_of(one["divergences"]);
    std::vector<double> found;
    std::vector<std::vector<float>> inner;
    for (auto row : json::array(one["inner"])) {
      inner.push_back(layer_row_of(row));
      found.push_back(distance_of_layers(final, inner.back()));
      CHECK(found.back() == doctest::Approx(expected.at(inner.size() - 1)).epsilon(1e-5));
    }
    const auto index = static_cast<std::size_t>(std::int64_t(one["index"]));
    CHECK(std::ranges::max_element(found) - found.begin() == static_cast<std::ptrdiff_t>(index));
    auto scores = final;
    contrast_with_layer(inner[index], scores);
    const auto wanted = layer_row_of(one["scores"]);
    const auto best = std::ranges::max_element(wanted) - wanted.begin();
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      REQUIRE(std::isfinite(scores[i]) == std::isfinite(wanted[i]));
      if (std::isfinite(wanted[i])) // they differ by a constant of the row
        CHECK(scores[i] - scores[static_cast<std::size_t>(best)] ==
              doctest::Approx(wanted[i] - wanted[static_cast<std::size_t>(best)]).epsilon(1e-4));
    }
    ++rows;
  }
  CHECK(rows == 4);
}

TEST_CASE("divergences of any rows are near their definition, 0 of the same row, and large ones do not overflow") {
  std::mt19937 rng(3);
  for (const std::size_t vocab : {1, 7, 8, 130, 1001})
    for (const float spread : {0.01f, 1.f, 20.f, 300.f}) {
      CAPTURE(vocab);
      CAPTURE(spread);
      std::normal_distribution<float> normal(0, spread);
      std::vector<float> a(vocab), b(vocab);
      std::ranges::generate(a, [&] { return normal(rng); });
      std::ranges::generate(b, [&] { return normal(rng) + 50; });
      const auto expected = divergence_by_definition(a, b);
      CHECK(std::abs(distance_of_layers(a, b) - expected) < 1e-6 + 1e-5 * expected);
      CHECK(std::abs(distance_of_layers(a, a)) < 1e-6);
    }
  const double large = distance_of_layers({3e38f, 0, 1}, {0, 3e38f, 1});
  CHECK((large > 1e38 && std::isfinite(large)));
  CHECK_FALSE(std::isfinite(distance_of_layers({never_seen, never_seen}, {0, 1})));
  CHECK_FALSE(std::isfinite(distance_of_layers({0, 1}, {std::numeric_limits<float>::quiet_NaN(), 1})));
}

TEST_CASE("scores among the plausible are less what the layer says; what is not finite is not chosen") {
  const auto contrasted = [](std::vector<float> scores, const std::vector<float>& inner) {
    contrast_with_layer(inner, scores);
    return scores;
  };
  CHECK(contrasted({4, 3, 1, never_seen}, {1, -1, -9, 0}) ==
        std::vector<float>{3, 4, never_seen, never_seen}); // log(0.1) = -2.3
  CHECK(contrasted({4, 3, 2}, {never_seen, -1, std::numeric_limits<float>::infinity()}) ==
        std::vector<float>{never_seen, 4, never_seen});
}

TEST_CASE("a sequence's token is chosen by the contrast with a layer, after its edits, with its own log-probability") {
  auto params = std::make_shared<sampling_params>();
  params->temperature = 0;
  params->logprobs = 1;
  params->techniques.set(contrasted_with(dola_layers("low")));
  const std::vector<float> final{2, 1.9f, 0, -5}, inner{3, 0, -9, 0};
  const auto chosen = [&](const std::vector<float>& allowed, bool contrasted = true) {
    const std::vector<token_id> prompt{1};
    sequence_sampler s(std::make_shared<const sampling_params>(*params), {3}, prompt, {}, 0);
    sampling_scratch scratch;
    const std::vector<std::span<const float>> others(contrasted ? 1 : 0, inner);
    return s.sample(final, allowed, scratch, others);
  };
  CHECK(chosen(final, false).id == 0);
  params->logit_bias = {{2, -1.f}}; // implausible by the edited scores
  const auto token = chosen(final);
  CHECK(token.id == 1);
  CHECK(token.logprob == doctest::Approx(1.9 - std::log(std::exp(2) + std::exp(1.9) + 1 + std::exp(-5))));
  CHECK(token.top.front().id == 0);
  params->logit_bias = {};
  CHECK(chosen(final).id == 2);
  CHECK(chosen({never_seen, never_seen, never_seen, -5}).id == 3); // a guide's mask leaves it alone
}
