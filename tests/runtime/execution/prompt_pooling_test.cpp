#include "runtime/execution/prompt_pooling.hpp"

#include <doctest/doctest.h>

#include <random>

using namespace troupe;

namespace {

/// The embedding of `states`, [tokens, width], which come in chunks of the given sizes.
std::vector<float> pooled_in_chunks(const std::vector<float>& states, std::size_t width,
                                    const std::vector<int>& chunks) {
  prompt_pooling pools;
  std::size_t done = 0;
  std::vector<float> result;
  for (const auto chunk : chunks) {
    const auto rows = static_cast<std::size_t>(chunk);
    step_plan plan;
    for (std::int32_t i = 0; i < chunk; ++i)
      plan.hidden_rows.push_back(i);
    const bool last = (done + rows) * width == states.size();
    plan.embeds.push_back({7, static_cast<std::int32_t>(done), 0, chunk, pooling::mean, last});
    step_result step;
    pools.add(plan, std::span(states).subspan(done * width, rows * width), step);
    done += rows;
    REQUIRE(step.embeddings.size() == (last ? 1u : 0u));
    CHECK(pools.size() == (last ? 0u : 1u));
    if (last)
      result = step.embeddings[0].values;
  }
  return result;
}

} // namespace

TEST_CASE("the mean of hidden states has the same bits however they are cut into steps") {
  constexpr std::size_t width = 33, tokens = 100;
  std::mt19937 rng(1);
  std::normal_distribution<float> normal(0, 100);
  std::vector<float> states(width * tokens);
  for (auto& v : states)
    v = normal(rng);
  const auto whole = pooled_in_chunks(states, width, {100});
  REQUIRE(whole.size() == width);
  for (const auto& chunks : std::vector<std::vector<int>>{{1, 99}, {50, 50}, {7, 16, 16, 61}, std::vector<int>(100, 1)})
    CHECK(pooled_in_chunks(states, width, chunks) == whole);
  double first = 0;
  for (std::size_t t = 0; t < tokens; ++t)
    first += static_cast<double>(states[t * width]);
  CHECK(whole[0] == doctest::Approx(first / tokens));
}

TEST_CASE("a single state is the embedding as it is, and rows of several prompts are kept apart") {
  prompt_pooling pools;
  step_plan plan;
  plan.hidden_rows = {3, 5, 6};
  plan.embeds = {{1, 9, 0, 1, pooling::last, true}, {2, 0, 1, 2, pooling::mean, true}};
  step_result result;
  pools.add(plan, std::vector<float>{1, 2, 10, 20, 30, 40}, result);
  REQUIRE(result.embeddings.size() == 2);
  CHECK(result.embeddings[0].request == 1);
  CHECK(result.embeddings[0].values == std::vector<float>{1, 2});
  CHECK(result.embeddings[1].request == 2);
  CHECK(result.embeddings[1].values == std::vector<float>{20, 30});
}

TEST_CASE("the sums of a request that ends are forgotten") {
  prompt_pooling pools;
  step_plan plan;
  plan.hidden_rows = {0};
  plan.embeds = {{1, 0, 0, 1, pooling::mean, false}};
  step_result result;
  pools.add(plan, std::vector<float>{1}, result);
  CHECK(result.embeddings.empty());
  CHECK(pools.size() == 1);
  pools.forget({1, 0});
  CHECK(pools.size() == 0);
}
