// Scores of pairs, by hand and transformers', and what a guided pair chooses.
#include "runtime/support/error.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/techniques/beams/technique.hpp"
#include "runtime/techniques/guidance/guided_pair.hpp"
#include "runtime/techniques/guidance/technique.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

using namespace troupe;

namespace {

constexpr auto minus_infinity = -std::numeric_limits<float>::infinity();
constexpr auto not_a_number = std::numeric_limits<float>::quiet_NaN();

std::vector<float> floats_of(json::value list) {
  std::vector<float> result;
  for (auto v : json::array(list))
    result.push_back(static_cast<float>(double(v)));
  return result;
}

std::vector<float> guided_scores(const std::vector<float>& prompted, const std::vector<float>& unprompted,
                                 float scale) {
  std::vector<float> scores(prompted.size());
  guidance_scores(prompted, unprompted, scale, scores);
  return scores;
}

guided_pair pair_of(sampling_params params) {
  const std::vector<token_id> prompt{1, 2};
  const auto scale = guidance_scale_of(params.techniques.find(guidance_technique));
  return guided_pair(scale, {std::make_shared<const sampling_params>(std::move(params)), {3}, prompt});
}

sampling_params guided_greedily(float scale) {
  sampling_params p;
  p.temperature = 0;
  p.techniques.set(guided_by(scale));
  return p;
}

std::string complaint_about(const sampling_params& p) {
  try {
    p.validate(100);
  } catch (const failure& f) {
    return f.what();
  }
  return {};
}

} // namespace

TEST_CASE("guided scores are those of transformers' processor") {
  const auto document = json::document::load(test_data() + "/pairs.json");
  int rows = 0;
  for (auto one : json::array(json::value(document.root())["scores"])) {
    const auto expected = floats_of(one["scores"]);
    const auto found = guided_scores(floats_of(one["prompted"]), floats_of(one["unprompted"]),
                                     static_cast<float>(double(one["scale"])));
    for (std::size_t i = 0; i < expected.size(); ++i)
      CHECK(found[i] == doctest::Approx(expected[i]).epsilon(1e-5));
    ++rows;
  }
  CHECK(rows == 4);
}

TEST_CASE("guided scores by hand: scale times the difference of the log-probabilities, plus the unprompted one") {
  const auto ln = [](double p) { return static_cast<float>(std::log(p)); };
  // Probabilities 1/2 1/4 1/4 with the prompt, 1/4 1/4 1/2 without; the rows are shifted, which changes nothing.
  const auto found = guided_scores({ln(.5) + 3, ln(.25) + 3, ln(.25) + 3}, {ln(.25) - 1, ln(.25) - 1, ln(.5) - 1}, 2);
  CHECK(found[0] == doctest::Approx(ln(1)));
  CHECK(found[1] == doctest::Approx(ln(.25)));
  CHECK(found[2] == doctest::Approx(ln(.125)));
}

TEST_CASE("what cannot follow the prompt cannot follow with guidance; what cannot follow the other is left as it is") {
  const auto found = guided_scores({0, minus_infinity, 0, not_a_number}, {0, 0, minus_infinity, 0}, 3);
  CHECK(found[1] == minus_infinity);
  CHECK(found[2] == doctest::Approx(std::log(0.5)));
  CHECK(found[3] == minus_infinity);
  const auto none = guided_scores({minus_infinity, minus_infinity}, {0, 0}, 3);
  CHECK(none == std::vector{minus_infinity, minus_infinity});
}

TEST_CASE("a guided pair takes the token of the combined scores for both, tells it, and ends as a sequence does") {
  auto params = guided_greedily(3);
  params.max_tokens = 3;
  params.logprobs = 1;
  auto pair = pair_of(params);
  sampling_scratch scratch;
  const std::vector<float> prompted{2, 1.5f, 0, 0}, unprompted{2, 0, 0, 0};
  const std::vector<std::span<const float>> rows{prompted, unprompted};
  const auto next = pair.judge(rows, scratch);
  REQUIRE(next.size() == 2);
  CHECK(next[0].parent == 0);
  CHECK(next[1].parent == 1);
  CHECK(next[0].token == 1); // alone it would be 0
  CHECK(next[1].token == 1);
  REQUIRE(pair.told());
  CHECK(pair.told()->id == 1);
  const double total = std::exp(2) + std::exp(1.5) + 2;
  CHECK(pair.told()->logprob == doctest::Approx(1.5 - std::log(total))); // the model's own
  CHECK(pair.told()->top.front().id == 0);
  const std::vector<float> masked{2, minus_infinity, 0, 0};
  const std::vector<std::span<const float>> allowed{masked, unprompted};
  CHECK(pair.judge(rows, allowed, scratch).front().token != 1);
  CHECK(pair.judge(rows, scratch).empty()); // max_tokens
  CHECK(pair.told()->finish == sampled_token::finish::length);
  auto ends = pair_of(guided_greedily(2));
  const std::vector<float> last{0, 0, 0, 5}, flat{0, 0, 0, 0};
  CHECK(ends.judge(std::vector<std::span<const float>>{last, flat}, scratch).empty());
  CHECK(ends.told()->finish == sampled_token::finish::eos);
}

TEST_CASE("a guided pair is one sequence twice: n, best_of and beams are refused by name") {
  CHECK(complaint_about(guided_greedily(1.5)) == "");
  auto p = guided_greedily(1.5);
  CHECK(p.width() == 2);
  p.n = 2;
  CHECK(complaint_about(p) == "`n` must be 1 with `guidance_scale`, not 2");
  p.n = 1, p.best_of = 3;
  CHECK(complaint_about(p) == "`best_of` must be 1 with `guidance_scale`, not 3");
  p.best_of = 0, p.techniques.set(troupe::beams({.width = 2}));
  CHECK(complaint_about(p) ==
        "`guidance_scale` must be 1 with beams, which are chosen by the model's own probabilities");
  CHECK(complaint_about(guided_greedily(101)) == "`guidance_scale` must be between 0 and 100, not 101.");
  CHECK(complaint_about(guided_greedily(not_a_number)).starts_with("`guidance_scale` must be between 0 and 100, not"));
}
