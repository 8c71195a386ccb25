// Sequences that follow guides: masks, forced tokens, guesses, groups, and masks that are late.
#include "runtime/execution/cpu/cpu_step_sampler.hpp"
#include "runtime/techniques/beams/technique.hpp"
#include "runtime/techniques/guides/guide_cache.hpp"
#include "runtime/tokenizer/tokenizer.hpp"
#include "tests/runtime/execution/sampling_starts.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <random>
#include <thread>

using namespace troupe;

namespace {

constexpr token_id last_token = 1; // EOS
constexpr std::size_t words_in_vocabulary = 768;

std::shared_ptr<const tokenizer> test_words() {
  static const auto made = tokenizer::load(golden("llama-gqa"));
  return made;
}

std::shared_ptr<const guides::answer_guide> pattern_guide(const std::string& regex) {
  static guides::guide_cache cache(test_words(), {last_token});
  return cache.get({.what = guides::guide_source::kind::regex, .text = regex}, false);
}

std::shared_ptr<const sampling_start> guided_start(const std::string& regex, const sampling_params& params,
                                                   std::vector<token_id> emitted = {}) {
  auto asked = std::make_shared<request>();
  asked->prompt = {5, 6};
  asked->sampling = params;
  asked->follows = pattern_guide(regex);
  return std::make_shared<const sampling_start>(sampling_start{std::move(asked), std::move(emitted)});
}

step_plan guided_plan(std::shared_ptr<const sampling_start> start, const std::vector<token_id>& guesses = {}) {
  static std::uint64_t step = 1000;
  step_plan plan;
  plan.step = ++step;
  plan.tokens = {5};
  plan.tokens.insert(plan.tokens.end(), guesses.begin(), guesses.end());
  for (std::int32_t row = 0; row < static_cast<std::int32_t>(plan.tokens.size()); ++row)
    plan.logit_rows.push_back(row);
  sample_demand demand{{1, 0}, 0, 0, std::move(start), static_cast<std::int32_t>(guesses.size())};
  demand.constrained = true;
  plan.samples.push_back(demand);
  return plan;
}

std::vector<float> random_logits(std::size_t rows, unsigned seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(rows * words_in_vocabulary);
  for (auto& x : logits)
    x = normal(rng);
  return logits;
}

std::string text_of(const std::vector<token_id>& ids) { return test_words()->decode(ids, false); }

/// Runs one sequence to its end; `position` decides the logits.
std::vector<token_id> run_alone(const std::string& regex, const sampling_params& params, unsigned seed,
                                std::size_t restart_at = 1000) {
  cpu_step_sampler sampler({last_token});
  auto start = guided_start(regex, params);
  std::vector<token_id> ids;
  for (;;) {
    if (ids.size() >= restart_at)
      start = guided_start(regex, params, ids), restart_at = 1000;
    const auto result = sampler.sample(guided_plan(std::exchange(start, nullptr)),
                                       random_logits(1, seed + static_cast<unsigned>(ids.size())));
    REQUIRE(result.failed.empty());
    REQUIRE_FALSE(result.sampled.empty());
    for (const auto& s : result.sampled)
      ids.push_back(s.token.id);
    CHECK_FALSE(result.sampled.back().more);
    if (result.sampled.back().token.finish != sampled_token::finish::none)
      return ids;
  }
}

} // namespace

TEST_CASE("a guided sequence follows its guide to an end, whatever the logits say") {
  for (unsigned seed = 0; seed < 8; ++seed) {
    sampling_params params{.temperature = seed % 2 ? 1.f : 0.f, .seed = seed, .max_tokens = 100};
    params.ignore_eos = seed % 3 == 0; // a guide decides
    auto ids = run_alone("The (citizens|noble friends) are [0-9]{2,4} of your heart!", params, seed);
    REQUIRE(ids.back() == last_token);
    ids.pop_back();
    const auto text = text_of(ids);
    CAPTURE(text);
    CHECK(text.starts_with("The "));
    CHECK(text.ends_with(" of your heart!"));
    CHECK(run_alone("The (citizens|noble friends) are [0-9]{2,4} of your heart!", params, seed, 3).size() ==
          ids.size() + 1);
  }
}

TEST_CASE("forced tokens are appended at once, unless their log-probabilities are wanted; the answer is the same") {
  const std::string regex = "[0-9] noble citizens are your friends[.!]";
  sampling_params params{.temperature = 0, .max_tokens = 100};
  const auto ids = run_alone(regex, params, 3);
  params.logprobs = 0;
  CHECK(run_alone(regex, params, 3).size() == ids.size());
  cpu_step_sampler sampler({last_token});
  params.logprobs = -1;
  sampler.sample(guided_plan(guided_start(regex, params)), random_logits(1, 3));
  const auto jump = sampler.sample(guided_plan(nullptr), random_logits(1, 4));
  CHECK(jump.sampled.size() > 3);
  for (std::size_t i = 0; i < jump.sampled.size(); ++i)
    CHECK(jump.sampled[i].more == (i + 1 < jump.sampled.size()));
}

TEST_CASE("a limit of tokens and min_tokens hold; where only an end may follow, it follows, even if EOS is ignored") {
  CHECK(run_alone("a{50}", {.temperature = 0, .max_tokens = 3}, 1).size() == 3);
  sampling_params patient{.temperature = 0, .max_tokens = 30};
  patient.min_tokens = 20;
  const auto filled = run_alone("[a-z ]*", patient, 1);
  CHECK(filled.size() >= 20);
  CHECK(run_alone("[0-9]", patient, 1).size() == 2); // a digit and the end
  patient.ignore_eos = true;
  CHECK(run_alone("[0-9]", patient, 1).size() == 2);
}

TEST_CASE("guesses are judged under the masks of their rows") {
  const std::string regex = "[0-9]{8}";
  const sampling_params params{.temperature = 0, .max_tokens = 20};
  for (std::size_t right = 0; right <= 3; ++right) {
    CAPTURE(right);
    const auto logits = random_logits(4, 77);
    const auto row = [&](std::size_t i) {
      return std::vector<float>(logits.begin() + static_cast<std::ptrdiff_t>(i * words_in_vocabulary),
                                logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * words_in_vocabulary));
    };
    cpu_step_sampler slow({last_token}), fast({last_token});
    std::vector<token_id> expected;
    for (std::size_t i = 0; i < 4; ++i)
      expected.push_back(
        slow.sample(guided_plan(i == 0 ? guided_start(regex, params) : nullptr), row(i)).sampled[0].token.id);
    std::vector<token_id> guesses(expected.begin(), expected.begin() + 3);
    if (right < 3)
      guesses[right] = 300; // a word
    const auto result = fast.sample(guided_plan(guided_start(regex, params), guesses), logits);
    REQUIRE(result.failed.empty());
    REQUIRE(result.sampled.size() == right + 1);
    for (std::size_t i = 0; i <= right; ++i)
      CHECK(result.sampled[i].token.id == expected[i]);
    REQUIRE(result.judged.size() == 1);
    CHECK(result.judged[0].accepted == static_cast<std::int32_t>(right));
    CHECK(result.judged[0].choices.size() == 4);
    // It goes on as if there had been no guesses.
    const auto after = random_logits(1, 5);
    const auto next = fast.sample(guided_plan(nullptr), after).sampled[0].token.id;
    CHECK(text_of({next}).find_first_not_of("0123456789") == std::string::npos);
  }
}

TEST_CASE("guesses that branch are judged under the masks of their own lines") {
  const std::string regex = "[0-9]{8}";
  const sampling_params params{.temperature = 0, .max_tokens = 20};
  const auto logits = random_logits(6, 78);
  const auto row = [&](std::size_t i) {
    return std::vector<float>(logits.begin() + static_cast<std::ptrdiff_t>(i * words_in_vocabulary),
                              logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * words_in_vocabulary));
  };
  cpu_step_sampler slow({last_token}), fast({last_token});
  std::vector<token_id> expected;
  for (const std::size_t of_line : {0, 3, 4, 5})
    expected.push_back(slow.sample(guided_plan(expected.empty() ? guided_start(regex, params) : nullptr), row(of_line))
                         .sampled[0]
                         .token.id);
  auto plan = guided_plan(guided_start(regex, params), {300, 301, expected[0], expected[1], expected[2]});
  plan.samples[0].parents = std::make_shared<const std::vector<std::int32_t>>(std::vector{-1, 0, -1, 2, 3});
  const auto result = fast.sample(plan, logits);
  REQUIRE(result.failed.empty());
  REQUIRE(result.sampled.size() == 4);
  for (std::size_t i = 0; i < 4; ++i)
    CHECK(result.sampled[i].token.id == expected[i]);
  REQUIRE(result.judged.size() == 1);
  CHECK(result.judged[0].accepted == 3);
  CHECK(result.judged[0].last == 5);
  CHECK(result.judged[0].choices.size() == 6);
  const auto after = random_logits(1, 5);
  CHECK(fast.sample(guided_plan(nullptr), after).sampled[0].token.id ==
        slow.sample(guided_plan(nullptr), after).sampled[0].token.id);
}

TEST_CASE("a mask that is late keeps nobody waiting, and changes no token") {
  const sampling_params params{.temperature = 0, .max_tokens = 10};
  auto logits = random_logits(1, 9);
  logits[last_token] = -50;
  const auto run = [&](cpu_step_sampler& sampler, const std::function<void()>& wait) {
    auto start = guided_start("[0-9]{3}", params);
    std::vector<token_id> ids;
    int deferred = 0;
    while (ids.empty() || ids.back() != last_token) {
      auto plan = guided_plan(start);
      plan.samples.push_back(
        {{2, 0}, 1, 0, start ? testing::start_with(start->asked->sampling, start->asked->prompt) : nullptr});
      start = nullptr;
      auto result = sampler.sample(plan, logits); // does not wait for masks
      CHECK(std::ranges::count(result.sampled, sequence_id{2, 0}, &sequence_sample::sequence) == 1);
      deferred += !result.deferred.empty();
      while (!result.deferred.empty()) {
        wait();
        const auto late = sampler.collect_late();
        if (!late.sampled.empty())
          result = late;
      }
      REQUIRE(result.failed.empty());
      for (const auto& s : result.sampled)
        if (s.sequence == sequence_id{1, 0})
          ids.push_back(s.token.id);
    }
    return std::pair(ids, deferred);
  };
  std::atomic<int> told = 0;
  cpu_step_sampler threaded({last_token}, {1, [&] { ++told; }}), plain({last_token});
  const auto [ids, deferred] = run(threaded, [&] {
    while (told == 0)
      std::this_thread::yield();
    --told;
  });
  CHECK(deferred > 0);
  CHECK(run(plain, [] { FAIL("nothing is late"); }).first == ids);
}

TEST_CASE("who samples can ask which masks are lacking, and then nothing is deferred") {
  std::atomic<int> told = 0;
  cpu_step_sampler sampler({last_token}, {1, [&] { ++told; }});
  auto logits = random_logits(3, 9);
  auto plan = guided_plan(guided_start("[0-9]{3}", {.temperature = 0, .max_tokens = 10}), {'1', '2'});
  sampling_params both{.max_tokens = 12, .n = 2};
  both.techniques.set(troupe::beams({.width = 2}));
  plan.groups.push_back({9, {0}, guided_start("(The|Noble) citizens", both)});
  for (int known = 0; sampler.lacks_masks(plan); known = told)
    while (told == known)
      std::this_thread::yield();
  const auto result = sampler.sample(plan, logits);
  CHECK(result.failed.empty());
  CHECK(result.deferred.empty());
  CHECK(result.sampled.size() >= 1);
  CHECK(result.groups.size() == 1);
}

TEST_CASE("beams follow a guide, each its own way") {
  cpu_step_sampler sampler({last_token});
  sampling_params params{.max_tokens = 12};
  params.n = 3;
  params.techniques.set(troupe::beams({.width = 3}));
  params.temperature = 0;
  auto start = guided_start("(The|Noble|my) (citizens|heart)", params);
  std::size_t width = 1;
  for (unsigned step = 0; step < 20 && width > 0; ++step) {
    step_plan plan;
    plan.step = 5000 + step;
    group_demand demand{9, {}, std::exchange(start, nullptr)};
    for (std::size_t i = 0; i < width; ++i) {
      plan.tokens.push_back(5);
      plan.logit_rows.push_back(static_cast<std::int32_t>(i));
      demand.logit_rows.push_back(static_cast<std::int32_t>(i));
    }
    plan.groups.push_back(demand);
    const auto result = sampler.sample(plan, random_logits(width, step));
    REQUIRE(result.failed.empty());
    REQUIRE(result.groups.size() == 1);
    width = result.groups[0].children.size();
    if (width > 0)
      continue;
    REQUIRE(result.hypotheses.size() == 1);
    CHECK(result.hypotheses[0].second.size() == 3);
    for (const auto& h : result.hypotheses[0].second) {
      std::vector<token_id> ids;
      for (const auto& t : h.tokens)
        ids.push_back(t.id);
      REQUIRE(ids.back() == last_token);
      ids.pop_back();
      const auto text = text_of(ids);
      CAPTURE(text);
      CHECK((text.starts_with("The ") || text.starts_with("Noble ") || text.starts_with("my ")));
      CHECK((text.ends_with("citizens") || text.ends_with("heart")));
    }
  }
  CHECK(width == 0);
}

TEST_CASE("guided sequences that are divided over threads get the tokens that they get one after another") {
  const std::string patterns[] = {"[0-9]{8} citizens", "(noble|good) friends, [a-z]{4}!", "[^x]{3,9}"};
  cpu_step_sampler alone({last_token}), divided({last_token}, {}, {.threads = 3, .from = 1000});
  constexpr std::int32_t sequences = 12;
  std::size_t tokens = 0;
  for (int step = 0; step < 8; ++step) {
    step_plan plan;
    plan.step = static_cast<std::uint64_t>(step) + 1;
    for (std::int32_t i = 0; i < sequences; ++i) {
      plan.tokens.push_back(5);
      plan.logit_rows.push_back(i);
      sample_demand demand{{std::uint64_t(i) + 1, 0}, i, i, nullptr};
      demand.constrained = i % 4 != 3; // the others have no guide
      const sampling_params params{
        .temperature = i % 3 ? 1.f : 0.f, .top_p = 0.9f, .seed = std::uint64_t(i), .max_tokens = 20, .logprobs = i % 2};
      auto start = guided_start(patterns[i % 3], params);
      if (!demand.constrained)
        start = testing::start_with(params, start->asked->prompt);
      demand.start = step == 0 ? start : nullptr;
      plan.samples.push_back(demand);
    }
    auto logits = random_logits(sequences, static_cast<unsigned>(step));
    if (step == 2) // of a guided one
      std::fill_n(logits.begin() + 5 * static_cast<std::ptrdiff_t>(words_in_vocabulary), words_in_vocabulary, NAN);
    for (auto* sampler : {&alone, &divided})
      sampler->prepare(plan);
    std::this_thread::sleep_for(std::chrono::milliseconds(2)); // most masks are made by then: those are drawn ahead
    const auto both = [&](cpu_step_sampler& sampler) {
      step_output output{std::shared_ptr<const float>(std::shared_ptr<void>(), logits.data()), words_in_vocabulary,
                         nullptr, 10'000};
      return sampler.sample(std::make_shared<const step_plan>(plan), output).sampled; // waits for all masks
    };
    const auto want = both(alone), got = both(divided);
    REQUIRE(want->deferred.empty());
    REQUIRE(got->sampled.size() == want->sampled.size());
    REQUIRE(got->failed.size() == want->failed.size());
    CHECK(got->failed.size() == (step == 2 ? 1 : 0));
    tokens += got->sampled.size();
    for (std::size_t i = 0; i < got->sampled.size(); ++i) {
      CHECK(got->sampled[i].sequence == want->sampled[i].sequence);
      CHECK(got->sampled[i].token.id == want->sampled[i].token.id);
      CHECK(got->sampled[i].token.logprob == want->sampled[i].token.logprob);
      CHECK(got->sampled[i].token.finish == want->sampled[i].token.finish);
      CHECK(got->sampled[i].more == want->sampled[i].more);
    }
  }
  CHECK(tokens > 60);
}
