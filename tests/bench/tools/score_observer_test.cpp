// Scores of attention on a text, and how small its weights are.
#include "tests/bench/tools/score_observer.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/precision.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <numeric>

using namespace troupe;
using namespace troupe::test;

namespace {

std::vector<layer_scores> scores_of(const std::string& model, std::size_t tokens, int rows, int queries) {
  const auto source = open_model(golden(model));
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  const auto weights = load_weights(*source.tensors, source.config, *backend, kernels::dtype::f32);
  std::vector<token_id> text(tokens);
  for (std::size_t i = 0; i < tokens; ++i)
    text[i] = static_cast<token_id>((7 * i * i + 3 * i + 5) % 90);
  return observe_scores(weights, *backend, text, rows, queries);
}

} // namespace

TEST_CASE("All scores of a text are counted, whatever the steps are") {
  for (const std::string model : {"llama-gqa", "mistral-swa", "qwen3"}) {
    CAPTURE(model);
    const std::size_t tokens = 120;
    const auto source = open_model(golden(model));
    const auto whole = scores_of(model, tokens, 120, 120), parts = scores_of(model, tokens, 33, 120);
    REQUIRE(whole.size() == static_cast<std::size_t>(source.config.layers));
    for (std::size_t i = 0; i < whole.size(); ++i) {
      std::uint64_t seen = 0, rows = 0;
      const auto window = static_cast<std::size_t>(source.config.windows[i]);
      for (std::size_t position = 0; position < tokens; ++position)
        rows += window > 0 ? std::min(window, position + 1) : position + 1;
      CHECK(whole[i].scores == rows * static_cast<std::size_t>(source.config.heads));
      CHECK(whole[i].rows == rows * static_cast<std::size_t>(source.config.kv_heads));
      for (const auto& bin : whole[i].histogram)
        seen += bin.second;
      CHECK(seen == whole[i].scores);
      CHECK(whole[i].least <= whole[i].sum / double(seen));
      CHECK(whole[i].most >= whole[i].sum / double(seen));
      for (std::size_t k = 0; k < small_weights.size(); ++k) {
        CHECK(whole[i].below[k] < whole[i].scores);
        CHECK(whole[i].unneeded[k] <= whole[i].rows);
        if (k > 0) {
          CHECK(whole[i].below[k] <= whole[i].below[k - 1]);
          CHECK(whole[i].unneeded[k] <= whole[i].unneeded[k - 1]);
        }
      }
      CHECK(parts[i].histogram == whole[i].histogram);
      CHECK(parts[i].below == whole[i].below);
    }
  }
}

TEST_CASE("Fewer queries are spaced evenly; a text of one token, and attention that is not causal, are refused") {
  const auto some = scores_of("llama-gqa", 96, 40, 8);
  for (const auto& layer : some)
    CHECK(layer.scores % (12 + 24 + 36 + 48 + 60 + 72 + 84 + 96) == 0);
  CHECK(failure_of([] { scores_of("llama-gqa", 1, 1, 1); }) == "a text of 1 tokens has no scores to look at");
}

TEST_CASE("The unified maximum is in the middle of the range that holds the most scores") {
  std::vector<layer_scores> layers(2);
  layers[0].histogram = {{-100, 5}, {-3, 50}, {0, 40}, {6, 30}};
  layers[1].histogram = {{10, 20}, {90, 15}};
  const auto center = center_of(layers, 8);
  CHECK(center.at == 4); // from -3 to 11
  CHECK(center.outside == doctest::Approx(20.0 / 160));
  CHECK(center_of({}, 8).outside == 1);
}

TEST_CASE("Sums are made again that lie beyond e^40 of the unified maximum") {
  std::vector<layer_scores> layers(2);
  layers[0].sums = {{-42, 1}, {-37, 20}, {43, 5}};
  layers[1].sums = {{42, 70}, {44, 4}};
  CHECK(recomputed_share(layers, 3) == doctest::Approx(10.0 / 100)); // from -37 to 43, whole bins
  CHECK(recomputed_share({}, 3) == 0);
  std::uint64_t sums = 0;
  for (const auto& layer : scores_of("llama-gqa", 96, 40, 96))
    for (const auto& [bin, n] : layer.sums)
      sums += n;
  CHECK(sums % 95 == 0); // every row but the first, of each head and layer
  CHECK(sums > 0);
}
