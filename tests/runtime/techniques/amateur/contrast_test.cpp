// Contrasts of two rows by hand, and how the sampler of a sequence chooses from them.
#include "runtime/sampling/sampler.hpp"
#include "runtime/support/error.hpp"
#include "runtime/techniques/amateur/technique.hpp"
#include "runtime/techniques/beams/technique.hpp"
#include "runtime/techniques/guidance/technique.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <vector>

using namespace troupe;

namespace {

constexpr auto never = -std::numeric_limits<float>::infinity();
constexpr auto no_number = std::numeric_limits<float>::quiet_NaN();

using logit_row = std::vector<float>;

logit_row contrasted(const logit_row& expert, const logit_row& amateur, float alpha, float beta,
                     logit_row scores = {}) {
  if (scores.empty())
    scores = expert;
  contrasted_by({.beta = beta, .alpha = alpha})->contrast(expert, amateur, scores);
  return scores;
}

sampling_params greedy_contrast(float alpha, float beta) {
  sampling_params p;
  p.temperature = 0;
  p.techniques.set(contrasted_by({.beta = beta, .alpha = alpha}));
  return p;
}

/// The first token after a prompt, where 3 is EOS.
sampled_token chosen_by_contrast(sampling_params params, const logit_row& expert, const logit_row& amateur,
                                 const logit_row& allowed = {}) {
  const std::vector<token_id> prompt{1};
  sequence_sampler s(std::make_shared<const sampling_params>(std::move(params)), {3}, prompt, {}, 0);
  sampling_scratch scratch;
  const std::vector<std::span<const float>> others(amateur.empty() ? 0 : 1, amateur);
  const auto guess = s.guess(allowed.empty() ? expert : allowed, 0, scratch, others);
  const auto token = s.sample(expert, allowed.empty() ? expert : allowed, scratch, others);
  CHECK(token.id == guess);
  return token;
}

std::string refusal_of_contrast(const sampling_params& p) {
  try {
    p.validate(100);
  } catch (const failure& f) {
    return f.what();
  }
  return {};
}

} // namespace

TEST_CASE("contrasted scores by hand: among the plausible, the expert's less the amateur's") {
  const auto found = contrasted({4, 3, 2, never}, {1, -1, -9, 0}, 0.3f, 0.5f); // log(0.3) = -1.2
  CHECK(found[0] == doctest::Approx(1.5 * 4 - 0.5 * 1));
  CHECK(found[1] == doctest::Approx(1.5 * 3 + 0.5 * 1));
  CHECK(found[2] == never);
  CHECK(found[3] == never);
  CHECK(contrasted({4, 3}, {1, -1}, 1, 2) == logit_row{10, never}); // alpha 1: the likeliest alone
  CHECK(contrasted({4, 3}, {1, -1}, 0, 1) == logit_row{7, 7});      // alpha 0: all
  CHECK(contrasted({4, 3}, {1, never}, 0, 1) == logit_row{7, 3});
  CHECK(contrasted({4, no_number}, {1, 1}, 0, 1) == logit_row{7, never});
}

TEST_CASE("tokens that the amateur lacks are not chosen, and further ones of its own change nothing") {
  CHECK(contrasted({1, 2, 9}, {0, 0}, 0.1f, 1) == logit_row{2, 4, never});
  CHECK(contrasted({1, 2}, {0, 0, 50}, 0.1f, 1) == logit_row{2, 4});
}

TEST_CASE("edits count once, and what they forbid makes nothing else implausible") {
  CHECK(contrasted({4, 3, 0}, {1, -1, 0}, 0.1f, 2, {4, 5, 0})[1] == 5 + 2 * 4);
  CHECK(contrasted({9, 3, 2}, {0, 1, 0}, 0.3f, 1, {never, 3, 2}) == logit_row{never, 5, 4});
}

TEST_CASE("a sequence's token is chosen by the contrast, with the model's own log-probability") {
  const logit_row expert{2, 1.9f, 0, -5}, amateur{3, 0, 0, 0};
  CHECK(chosen_by_contrast(greedy_contrast(0.1f, 0), expert, {}).id == 0);
  auto params = greedy_contrast(0.1f, 1);
  params.logprobs = 1;
  const auto token = chosen_by_contrast(params, expert, amateur);
  CHECK(token.id == 1);
  const double total = std::exp(2) + std::exp(1.9) + 1 + std::exp(-5);
  CHECK(token.logprob == doctest::Approx(1.9 - std::log(total)));
  CHECK(token.top.front().id == 0);
  CHECK(chosen_by_contrast(greedy_contrast(1, 1), expert, amateur).id == 0); // nothing else is plausible
}

TEST_CASE("an end that is not allowed yet, a guide's mask and banned tokens leave others to be chosen") {
  const logit_row expert{1, 0.5f, 0, 20}, amateur{1, 0, 0, 0};
  auto longer = greedy_contrast(0.5f, 1);
  CHECK(chosen_by_contrast(longer, expert, amateur).finish == sampled_token::finish::eos);
  longer.min_tokens = 2;
  CHECK(chosen_by_contrast(longer, expert, {1.2f, 0, 0, 0}).id == 1); // 1 - 0.2 against 0.5 + 0.5
  CHECK(chosen_by_contrast(greedy_contrast(0.5f, 1), expert, amateur, {never, never, 0, never}).id == 2);
  auto banned = greedy_contrast(0.5f, 1);
  banned.logit_bias = {{3, -100.f}};
  CHECK(chosen_by_contrast(banned, expert, amateur).id != 3);
}

TEST_CASE("draws follow the distribution of the contrasted scores") {
  auto params = greedy_contrast(0, 1);
  params.temperature = 1;
  const logit_row expert{0, 0, 0, never}, amateur{0, 1, 0, 0};
  int second = 0;
  constexpr int draws = 4000;
  for (int i = 0; i < draws; ++i) {
    params.seed = static_cast<std::uint64_t>(i);
    second += chosen_by_contrast(params, expert, amateur).id == 1;
  }
  const double p = std::exp(-1) / (2 + std::exp(-1));
  CHECK(std::abs(second - draws * p) < 5 * std::sqrt(draws * p * (1 - p)));
}

TEST_CASE("contrasts beside beams or guidance, or an alpha without a beta, are refused by name") {
  CHECK(refusal_of_contrast(greedy_contrast(0.1f, 0.5f)).empty());
  CHECK(refusal_of_contrast(greedy_contrast(0.5f, 0)) ==
        "`contrastive_beta` must be above 0 with `contrastive_alpha`, not 0.");
  CHECK(refusal_of_contrast(greedy_contrast(1.5f, 1)) == "`contrastive_alpha` must be between 0 and 1, not 1.5.");
  CHECK(refusal_of_contrast(greedy_contrast(0.5f, -1)) == "`contrastive_beta` must be between 0 and 100, not -1.");
  CHECK(
    refusal_of_contrast(greedy_contrast(0.5f, no_number)).starts_with("`contrastive_beta` must be between 0 and 100"));
  auto p = greedy_contrast(0.1f, 0.5f);
  p.techniques.set(guided_by(2));
  CHECK(refusal_of_contrast(p) == "`contrastive_beta` must be 0 with `guidance_scale`, not 0.5.");
  p = greedy_contrast(0.1f, 0.5f);
  p.techniques.set(troupe::beams({.width = 2}));
  CHECK(refusal_of_contrast(p) ==
        "`contrastive_beta` must be 0 with beams, which are chosen by the model's own probabilities, not 0.5.");
}
