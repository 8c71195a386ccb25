#include "runtime/execution/cpu/cpu_step_sampler.hpp"
#include "runtime/techniques/tree_search/technique.hpp"
#include "tests/runtime/execution/sampling_starts.hpp"
#include "tests/runtime/sampling/processors/random_samplers.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <random>

using namespace troupe;

namespace {

constexpr sequence_id first{7, 0}, second{7, 1};

std::shared_ptr<const sampling_start> start_of(const sampling_params& params, std::vector<token_id> emitted = {}) {
  return testing::start_with(params, {1, 2}, std::move(emitted));
}

/// A step of `rows` rows of logits, all of them wanted, in which `samples` are sampled.
step_plan plan_of(std::vector<sample_demand> samples, std::int32_t rows = 1) {
  static std::uint64_t step = 0;
  step_plan plan;
  plan.step = ++step;
  for (std::int32_t row = 0; row < rows; ++row)
    plan.logit_rows.push_back(row);
  plan.samples = std::move(samples);
  return plan;
}

constexpr token_id eos = 3;

} // namespace

TEST_CASE("each sample reads its own row of logits, and several may share one") {
  cpu_step_sampler sampler({eos});
  const auto greedy = start_of({.temperature = 0});
  const auto plan = plan_of({{first, 4, 1, greedy}, {second, 5, 0, greedy}, {{8, 0}, 6, 1, greedy}}, 2);
  const auto result = sampler.sample(plan, std::vector<float>{0, 9, 0, 0, /* row 1 */ 0, 0, 9, 0});
  CHECK(result.step == plan.step);
  REQUIRE(result.sampled.size() == 3);
  CHECK(result.sampled[0].sequence == first);
  CHECK(result.sampled[0].slot == 4);
  CHECK(result.sampled[0].token.id == 2);
  CHECK(result.sampled[1].token.id == 1);
  CHECK(result.sampled[2].token.id == 2);
}

TEST_CASE("a result says how long its step took, sampling included, if the forward pass was timed") {
  cpu_step_sampler sampler({eos});
  const auto plan = std::make_shared<const step_plan>(plan_of({{first, 0, 0, start_of({.temperature = 0})}}));
  const std::vector<float> logits{0, 9, 0, 0};
  step_output output{std::shared_ptr<const float>(std::shared_ptr<void>(), logits.data()), logits.size(), nullptr, 50};
  CHECK(sampler.sample(plan, output).sampled->ms > 50);
  CHECK(sampler.sample(plan, output).sampled->ms < 10050);
  output.ms = 0;
  CHECK(sampler.sample(plan, output).sampled->ms == 0);
}

TEST_CASE("a rebuilt sampling state samples like the one that it replaces") {
  const sampling_params params{.temperature = 1.5f, .presence_penalty = 1, .seed = 5, .max_tokens = 40};
  const std::vector<float> logits{1, 2, 3, -INFINITY, 2.5f, 1.5f, 0.5f, 2.2f};
  cpu_step_sampler whole({eos}), again({eos});
  std::vector<token_id> emitted;
  for (int i = 0; i < 20; ++i) {
    const auto kept = whole.sample(plan_of({{first, 0, 0, i == 0 ? start_of(params) : nullptr}}), logits);
    const auto rebuilt = again.sample(plan_of({{first, 0, 0, start_of(params, emitted)}}), logits);
    REQUIRE(kept.sampled.size() == 1);
    REQUIRE(rebuilt.sampled.size() == 1);
    CHECK(kept.sampled[0].token.id == rebuilt.sampled[0].token.id);
    emitted.push_back(kept.sampled[0].token.id);
  }
}

TEST_CASE("a sequence that has ended, here or by the plan, yields nothing more") {
  cpu_step_sampler sampler({eos});
  const auto greedy = start_of({.temperature = 0});
  const std::vector<float> ends{0, 0, 0, 9};
  const auto result = sampler.sample(plan_of({{first, 0, 0, greedy}}), ends);
  REQUIRE(result.sampled.size() == 1);
  CHECK(result.sampled[0].token.finish == sampled_token::finish::eos);
  CHECK(sampler.sample(plan_of({{first, 0, 0, nullptr}}), ends).sampled.empty()); // planned before that was known

  auto last = plan_of({{second, 0, 0, greedy}});
  last.ended = {second};
  CHECK(sampler.sample(last, std::vector<float>{9, 0, 0, 0}).sampled.size() == 1);
  CHECK(sampler.sample(plan_of({{second, 0, 0, nullptr}}), std::vector<float>{9, 0, 0, 0}).sampled.empty());
}

TEST_CASE("a sequence with NaN logits fails alone") {
  cpu_step_sampler sampler({eos});
  const auto greedy = start_of({.temperature = 0});
  const auto plan = plan_of({{first, 0, 0, greedy}, {second, 1, 1, greedy}}, 2);
  const auto result = sampler.sample(plan, std::vector<float>{NAN, NAN, NAN, NAN, /* row 1 */ 0, 9, 0, 0});
  REQUIRE(result.failed.size() == 1);
  CHECK(result.failed[0].sequence == first);
  REQUIRE(result.sampled.size() == 1);
  CHECK(result.sampled[0].sequence == second);
  CHECK(sampler.sample(plan_of({{first, 0, 0, nullptr}}), std::vector<float>{0, 9, 0, 0}).sampled.empty());
}

TEST_CASE("sequences that are divided over threads get the tokens that they get one after another, in the same order") {
  constexpr int vocab = 4000, sequences = 12, steps = 6;
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 2);
  std::vector<std::shared_ptr<const sampling_start>> starts;
  for (int i = 0; i < sequences; ++i) {
    sampling_params params{
      .temperature = i % 4 == 0 ? 0 : 0.8f, .seed = random(), .max_tokens = 3 + i, .logprobs = i % 3};
    if (i % 2 == 0)
      params.top_p = 0.9f;
    if (i % 3 == 0 && params.temperature > 0)
      testing::add_random_samplers(params, vocab, random);
    starts.push_back(start_of(params));
  }
  cpu_step_sampler alone({eos}), divided({eos}, {}, {.threads = 3, .from = 1000});
  std::vector<float> logits(std::size_t(vocab) * sequences);
  for (int step = 0; step < steps; ++step) {
    std::vector<sample_demand> demands;
    for (std::int32_t i = 0; i < sequences; ++i)
      demands.push_back({{std::uint64_t(i), 0}, i, i, step == 0 ? starts[std::size_t(i)] : nullptr});
    for (float& x : logits)
      x = normal(random);
    if (step == 2)
      std::fill_n(logits.begin() + 5 * vocab, vocab, NAN);
    const auto plan = plan_of(std::move(demands), sequences);
    const auto want = alone.sample(plan, logits), got = divided.sample(plan, logits);
    REQUIRE(got.sampled.size() == want.sampled.size());
    CHECK(got.sampled.size() <= std::size_t(step < 2 ? sequences : sequences - 1));
    for (std::size_t i = 0; i < got.sampled.size(); ++i) {
      CHECK(got.sampled[i].sequence == want.sampled[i].sequence);
      CHECK(got.sampled[i].token.id == want.sampled[i].token.id);
      CHECK(got.sampled[i].token.logprob == want.sampled[i].token.logprob);
      CHECK(got.sampled[i].token.finish == want.sampled[i].token.finish);
    }
    REQUIRE(got.failed.size() == want.failed.size());
    CHECK(got.failed.size() == (step == 2 ? 1 : 0));
  }
}

TEST_CASE("a tree of guesses is walked by the tokens that are chosen, with the penalties of the line that is walked") {
  cpu_step_sampler sampler({eos});
  auto plan = plan_of({{first, 4, 0, start_of({.temperature = 0, .presence_penalty = 2, .max_tokens = 40}), 5}}, 6);
  plan.tokens = {1, /* guesses */ 1, 2, 4, 5, 4};
  plan.samples[0].parents = std::make_shared<const std::vector<std::int32_t>>(std::vector{-1, 0, -1, 2, 3});
  std::vector<float> logits(6 * 8);
  const auto set = [&](std::size_t row, std::size_t token, float logit) { logits[row * 8 + token] = logit; };
  set(0, 4, 9);
  set(1, 6, 9);
  set(2, 7, 9);
  set(3, 4, 9); // chosen before
  set(3, 5, 8);
  set(4, 6, 9);
  set(5, 7, 9);
  const auto result = sampler.sample(plan, logits);
  REQUIRE(result.sampled.size() == 3);
  CHECK(result.sampled[0].token.id == 4);
  CHECK(result.sampled[1].token.id == 5);
  CHECK(result.sampled[2].token.id == 6);
  CHECK(result.sampled[1].more);
  CHECK_FALSE(result.sampled[2].more);
  REQUIRE(result.judged.size() == 1);
  CHECK(result.judged[0].guesses == 5);
  CHECK(result.judged[0].accepted == 2);
  CHECK(result.judged[0].last == 4); // the row of the 5
  CHECK(result.judged[0].choices == std::vector<token_id>{4, 6, 7, 5, 6, 7});
}

TEST_CASE("a search whose answers are judged elsewhere is deferred, and goes on once their values are known") {
  sampling_params p{.temperature = 0, .max_tokens = 3};
  p.techniques.set(searched_by({.simulations = 3, .branching = 2, .parallel = 1, .value = search_value::model}));
  p.stop = stop_strings({"c"});
  const auto away = answer_judge{.flag = "flag", .name = "expert"}.away();
  std::vector<judge_order_ptr> asked, withdrawn;
  cpu_step_sampler sampler({eos},
                           {.judge = {.ask = [&](const judge_order_ptr& order) { asked.push_back(order); },
                                      .withdraw = [&](const judge_order_ptr& o) { withdrawn.push_back(o); }}});
  auto searched = std::make_shared<request>(*start_of(p)->asked);
  searched->text = std::make_shared<const token_text>(
    [](token_id id) { return std::string(1, static_cast<char>('a' + id)); });
  const auto start = std::make_shared<const sampling_start>(sampling_start{searched, {}});
  const auto search_of = [&](std::shared_ptr<const sampling_start> of) {
    step_plan plan;
    plan.logit_rows = {0};
    plan.groups = {{7, {0}, std::move(of)}};
    return plan;
  };
  CHECK(sampler.sample(search_of(start), std::vector<float>{3, 2, 1, 0}).groups.size() == 1);
  const auto deferred = sampler.sample(search_of(nullptr), std::vector<float>{0, 3, 4, -9}); // "c" ends it
  CHECK(deferred.groups.empty());
  CHECK(deferred.deferred == std::vector{first});
  CHECK(deferred.at_judge == std::vector{first});
  REQUIRE(asked.size() == 1);
  CHECK(asked.front()->answers == std::vector<std::string>{"a"}); // as the client would see it
  CHECK(asked.front()->prompt->text == "bc");
  CHECK(sampler.collect_late().groups.empty());
  const auto booked = sampler.settle({.order = asked.front(), .values = {0.5}});
  CHECK(sampler.settle({.order = asked.front(), .why = away}).failed.empty()); // comes too late
  REQUIRE(booked.groups.size() == 1);
  CHECK(booked.groups.front().children.size() == 1);
  CHECK(booked.failed.empty());

  SUBCASE("nobody wants the values of a search that has ended") {
    sampler.sample(search_of(nullptr), std::vector<float>{0, 0, 4, 3});
    REQUIRE(asked.size() == 2);
    CHECK(withdrawn.empty());
    step_plan last;
    last.ended = {first};
    sampler.sample(last, std::vector<float>());
    CHECK(withdrawn == std::vector{asked.back()});
    CHECK(sampler.settle({.order = asked.back(), .values = {0.5}}).groups.empty());
  }
  SUBCASE("a search whose judge is lost fails") {
    sampler.sample(search_of(nullptr), std::vector<float>{0, 0, 4, 3});
    REQUIRE(asked.size() == 2);
    const auto failed = sampler.settle({.why = away});
    REQUIRE(failed.failed.size() == 1);
    CHECK(failed.failed.front().sequence == first);
    CHECK(failed.failed.front().why.message == "the expert is being loaded again after a failure");
    CHECK(sampler.settle({.why = away}).failed.empty());
    CHECK(withdrawn.empty());
  }
}
