#include "runtime/model/expert_router.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace troupe;

namespace {

expert_config four_experts(router_scores scores) {
  expert_config config;
  config.count = 4;
  config.chosen = 2;
  config.scores = scores;
  return config;
}

} // namespace

TEST_CASE("The highest logits are chosen, best first, and weighted by the softmax over all experts") {
  const std::vector<float> logits{1, 3, -2, 2};
  const auto choice = choose_experts(four_experts(router_scores::softmax), logits);
  CHECK(choice.experts == std::vector<int>{1, 3});
  double sum = 0;
  for (const float l : logits)
    sum += std::exp(l);
  CHECK(choice.weights[0] == doctest::Approx(std::exp(3) / sum));
  CHECK(choice.weights[1] == doctest::Approx(std::exp(2) / sum));
}

TEST_CASE("Experts that every row has come last, are never chosen, and are weighed with the chosen ones") {
  auto config = four_experts(router_scores::sigmoid);
  config.renormalise = true;
  config.always = 1;
  config.scale = 3;
  const std::vector<float> logits{1, -1, 0.5f, 4}, correction{0, 5, 0};
  const auto choice = choose_experts(config, logits, correction);
  CHECK(choice.experts == std::vector<int>{1, 3});
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const double sum = sigmoid(-1) + sigmoid(4);
  CHECK(choice.weights[0] == doctest::Approx(3 * sigmoid(-1) / sum));
  CHECK(choice.weights[1] == doctest::Approx(3 * sigmoid(4) / sum));
  const auto rows = group_by_expert(config, std::vector<float>{1, -1, 0.5f, 4, 0, 0, 9, -8});
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].expert == 0);
  CHECK(rows[1].expert == 2);
  CHECK(rows[2].rows == std::vector<std::int32_t>{0, 1});
}

TEST_CASE("Renormalised weights and a softmax over the chosen experts are the same, and sum to 1") {
  const std::vector<float> logits{0.3f, -1, 2.5f, 1};
  auto config = four_experts(router_scores::softmax);
  config.renormalise = true;
  const auto renormalised = choose_experts(config, logits);
  const auto chosen = choose_experts(four_experts(router_scores::chosen), logits);
  CHECK(renormalised.experts == chosen.experts);
  for (std::size_t i = 0; i < 2; ++i)
    CHECK(renormalised.weights[i] == doctest::Approx(chosen.weights[i]));
  CHECK(chosen.weights[0] + chosen.weights[1] == doctest::Approx(1));
}

TEST_CASE("SparseMixer weighs each choice among the experts that are nearly as good and not yet chosen") {
  auto config = four_experts(router_scores::mixed);
  config.margin = 0.1f;
  // 4 and 3.8 are nearly as good as 4, and 3.8 and 3.5 as 3.8.
  const auto close = choose_experts(config, std::vector<float>{3.8f, 1, 4, 3.5f});
  CHECK(close.experts == std::vector<int>{2, 0});
  CHECK(close.weights[0] == doctest::Approx(1 / (1 + std::exp(-0.2))));
  CHECK(close.weights[1] == doctest::Approx(1 / (1 + std::exp(-0.3))));
  const auto apart = choose_experts(config, std::vector<float>{-1, -2, 2, -1.05f});
  CHECK(apart.experts == std::vector<int>{2, 0});
  CHECK(apart.weights[0] == 1);
  CHECK(apart.weights[1] == doctest::Approx(1 / (1 + std::exp(-0.05))));
}

TEST_CASE("A correction changes the choice, not the weights; the scale multiplies them") {
  auto config = four_experts(router_scores::sigmoid);
  config.scale = 2.5f;
  const std::vector<float> logits{0, 1, 2, 3}, correction{9, 0, 0, 0};
  const auto choice = choose_experts(config, logits, correction);
  CHECK(choice.experts == std::vector<int>{0, 3});
  CHECK(choice.weights[0] == doctest::Approx(2.5 * 0.5));
  CHECK(choice.weights[1] == doctest::Approx(2.5 / (1 + std::exp(-3))));
}

TEST_CASE("Experts may be given for each token; then their scores only weigh them") {
  auto config = four_experts(router_scores::root_softplus);
  config.renormalise = true;
  const std::vector<float> logits{0, 1, 2, 30};
  const std::vector<int> given{2, 0};
  const auto score = [](double x) { return std::sqrt(std::log1p(std::exp(x))); };
  const auto choice = choose_experts(config, logits, {}, given);
  CHECK(choice.experts == given);
  CHECK(choice.weights[0] == doctest::Approx(score(2) / (score(2) + score(0))));
  CHECK(choose_experts(config, logits).experts == std::vector<int>{3, 2});
  CHECK(choose_experts(config, logits).weights[0] == doctest::Approx(score(30) / (score(30) + score(2))));
  const std::vector<float> rows{0, 1, 2, 3, /**/ 9, 8, 0, 0};
  const std::vector<int> of_rows{1, 3, /**/ 3, 2};
  const auto used = group_by_expert(config, rows, {}, of_rows);
  REQUIRE(used.size() == 3);
  CHECK(used[0].expert == 1);
  CHECK(used[1].rows == std::vector<std::int32_t>{1});
  CHECK(used[2].rows == std::vector<std::int32_t>{0, 1});
}

TEST_CASE("Experts are chosen within the best groups, judged by their best expert or their best two") {
  auto config = four_experts(router_scores::sigmoid);
  config.groups = 2;
  const std::vector<float> logits{3, -9, 2, 2};
  CHECK(choose_experts(config, logits).experts == std::vector<int>{0, 1});
  config.group_by_two = true;
  CHECK(choose_experts(config, logits).experts == std::vector<int>{2, 3});
}

TEST_CASE("Of equal scores the lower expert wins, and NaN never does") {
  const auto config = four_experts(router_scores::chosen);
  CHECK(choose_experts(config, std::vector<float>{1, 2, 2, 2}).experts == std::vector<int>{1, 2});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  CHECK(choose_experts(config, std::vector<float>{nan, 0, nan, -1}).experts == std::vector<int>{1, 3});
}

TEST_CASE("Rows are listed for each expert that some row chose, in order") {
  const std::vector<float> logits{9, 8, 0, 0, /**/ 0, 9, 8, 0, /**/ 9, 8, 0, 0};
  const auto used = group_by_expert(four_experts(router_scores::chosen), logits);
  REQUIRE(used.size() == 3);
  CHECK(used[0].expert == 0);
  CHECK(used[0].rows == std::vector<std::int32_t>{0, 2});
  CHECK(used[1].expert == 1);
  CHECK(used[1].rows == std::vector<std::int32_t>{0, 1, 2});
  CHECK(used[2].expert == 2);
  CHECK(used[2].rows == std::vector<std::int32_t>{1});
  CHECK(used[1].weights[0] == used[1].weights[2]);
  CHECK(used[1].weights[0] != used[1].weights[1]);
}
