// What a draft model must do on every device.
#pragma once

#include "runtime/engine/loading/loader.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/techniques/speculation/draft_model.hpp"
#include "tests/runtime/execution/sampling_starts.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <semaphore>
#include <vector>

namespace troupe::draft_cases {

using ids = std::vector<token_id>;

inline engine_options on_cpu() {
  engine_options o;
  o.model = golden("llama-gqa");
  o.compute.device = "cpu";
  o.compute.threads = 1;
  o.kv_cache_bytes = 4 << 20;
  o.max_context = 256;
  o.max_sequences = 8;
  o.step_tokens = 256; // lone_target computes prompts at once
  return o;
}

inline draft_spec spec_of(const model_replica& of, int rows, int blocks, int context = 256) {
  draft_spec spec{.runner = of.runner(), .sampler = of.sampler(), .target_vocab = of.model->info.vocab_size};
  spec.runner.sizes = {rows, 8, context};
  spec.runner.blocks = blocks;
  return spec;
}

inline sampling_params greedy() { return {.temperature = 0, .max_tokens = 200, .ignore_eos = true}; }

inline sampling_params sampled() {
  sampling_params p = greedy();
  p.temperature = 0.9f;
  p.top_p = 0.95f;
  p.repetition_penalty = 1.1f;
  p.logit_bias = {{11, 1.f}};
  p.seed = 5;
  p.logprobs = 2;
  return p;
}

/// A model that generates one sequence at a time, a row a step.
class lone_target {
public:
  explicit lone_target(const model_replica& of)
    : runner_(of.plan.last().make_runner(of.runner())),
      sampler_(of.plan.last().make_sampler(of.sampler(), [this] { reported_.release(); })) {}

  ids continuation(const ids& prompt, const ids& emitted, const sampling_params& params, std::size_t tokens,
                   std::uint32_t index = 0) {
    ids text = prompt;
    text.insert(text.end(), emitted.begin(), emitted.end());
    ids out;
    std::size_t computed = 0;
    while (out.size() < tokens) {
      step_plan plan;
      plan.step = ++step_;
      plan.tokens.assign(text.begin() + static_cast<std::ptrdiff_t>(computed), text.end());
      plan.sequences.push_back(
        {0, static_cast<std::int32_t>(plan.tokens.size()), static_cast<std::int32_t>(computed), 0});
      for (std::size_t b = 0; b * kernels::block_tokens < text.size(); ++b)
        plan.block_tables.push_back(static_cast<std::int32_t>(b));
      plan.logit_rows.push_back(static_cast<std::int32_t>(plan.tokens.size()) - 1);
      sample_demand d{{1, index}, 0, 0, nullptr};
      if (computed == 0)
        d.start = testing::start_with(params, prompt, emitted);
      plan.samples.push_back(std::move(d));
      computed = text.size();
      const auto shared = std::make_shared<const step_plan>(std::move(plan));
      const auto tokens_of_step = sampler_->sample(shared, runner_->run(*shared));
      if (!tokens_of_step.sampled)
        reported_.acquire();
      const auto result = tokens_of_step.sampled ? *tokens_of_step.sampled : sampler_->collect();
      REQUIRE(result.sampled.size() == 1);
      text.push_back(result.sampled[0].token.id);
      out.push_back(text.back());
    }
    return out;
  }

private:
  std::counting_semaphore<> reported_{0};
  std::unique_ptr<step_runner> runner_;
  std::unique_ptr<step_sampler> sampler_;
  std::uint64_t step_ = 0;
};

inline ids some_prompt(const model_replica& of, int tokens, int from) {
  ids p;
  for (int i = 0; i < tokens; ++i)
    p.push_back(static_cast<token_id>((from + i * 37) % of.model->info.vocab_size));
  return p;
}

/// A sequence of the target, and what the draft model has been told of it.
struct drafted_sequence {
  sequence_id id;
  ids prompt, emitted;
  std::shared_ptr<const sampling_params> params;
  std::size_t told = 0;

  guess_demand demand(int guesses) {
    ids text = prompt;
    text.insert(text.end(), emitted.begin(), emitted.end());
    guess_demand d{
      id, params, prompt.size(), told, ids(text.begin() + static_cast<std::ptrdiff_t>(told), text.end()), guesses};
    told = text.size();
    return d;
  }
};

inline drafted_sequence drafted(std::uint64_t number, ids prompt, const sampling_params& params) {
  return {{number, 0}, std::move(prompt), {}, std::make_shared<const sampling_params>(params)};
}

inline void guesses_of_an_equal_model(const engine_options& options, int rounds = 6) {
  const auto target_model = replica_of(load_model(options, {}));
  lone_target target(target_model);
  draft_model draft(target_model.plan.last(), spec_of(target_model, 128, 64));
  CHECK(draft.free_blocks() == 64); // warming up has left nothing
  std::vector<drafted_sequence> sequences;
  sequences.push_back(drafted(1, some_prompt(target_model, 9, 3), greedy()));
  sequences.push_back(drafted(2, some_prompt(target_model, 30, 5), sampled()));
  sequences.push_back(drafted(3, some_prompt(target_model, 17, 8), sampled()));
  sequences[2].id.index = 2;
  for (int round = 0; round < rounds; ++round) {
    guess_request request{.number = static_cast<std::uint64_t>(round + 1)};
    for (auto& s : sequences)
      request.demands.push_back(s.demand(4));
    const auto reply = draft.serve(request);
    CHECK(reply.number == request.number);
    CHECK(reply.catch_up_rows == (round == 0 ? 9 + 30 + 17 : 0)); // the first guess comes with the prompt
    CHECK(reply.passes == (round == 0 ? 3 : 4));
    REQUIRE(reply.answers.size() == 3);
    for (std::size_t i = 0; i < 3; ++i) {
      CAPTURE(round);
      CAPTURE(i);
      auto& s = sequences[i];
      const auto next = target.continuation(s.prompt, s.emitted, *s.params, 5, s.id.index);
      CHECK(reply.answers[i].sequence == s.id);
      CHECK_FALSE(reply.answers[i].behind);
      CHECK(reply.answers[i].guesses == ids(next.begin(), next.begin() + 4));
      // All right, or wrong from the second on; then the text goes on otherwise.
      const auto right = (round + static_cast<int>(i)) % 2 == 0 ? 5 : 1;
      s.emitted.insert(s.emitted.end(), next.begin(), next.begin() + right);
      if (right == 1)
        s.emitted.push_back((next[1] + 1) % target_model.model->info.vocab_size);
    }
  }
  draft.serve({.number = 9, .ended = {{1, 0}, {2, 0}, {3, 2}}});
  CHECK(draft.free_blocks() == 64);
}

inline void chunks(const engine_options& options) {
  const auto target_model = replica_of(load_model(options, {}));
  lone_target target(target_model);
  draft_model draft(target_model.plan.last(), spec_of(target_model, 32, 64));
  auto long_one = drafted(1, some_prompt(target_model, 150, 3), greedy());
  auto short_one = drafted(2, some_prompt(target_model, 10, 3), greedy());
  int requests = 0;
  for (bool behind = true; behind;) {
    const auto reply = draft.serve({.number = 1, .demands = {long_one.demand(3), short_one.demand(2)}});
    REQUIRE(++requests < 20);
    behind = reply.answers[0].behind;
    CHECK(reply.answers[0].guesses.size() == (behind ? 0 : 3));
    CHECK(reply.answers[1].guesses == target.continuation(short_one.prompt, short_one.emitted, greedy(), 2));
    // The target does not wait.
    for (auto* s : {&long_one, &short_one}) {
      const auto next = target.continuation(s->prompt, s->emitted, greedy(), 3);
      if (s == &long_one && !behind)
        CHECK(reply.answers[0].guesses == next);
      s->emitted.push_back(next[0]);
    }
  }
  CHECK(requests >= 5);
}

inline void few_blocks(const engine_options& options) {
  const auto target_model = replica_of(load_model(options, {}));
  lone_target target(target_model);
  draft_model draft(target_model.plan.last(), spec_of(target_model, 128, 6)); // two sequences of 40 tokens
  std::vector<drafted_sequence> sequences;
  for (std::uint64_t i = 0; i < 3; ++i)
    sequences.push_back(drafted(i, some_prompt(target_model, 36, static_cast<int>(i)), sampled()));
  std::uint64_t number = 0;
  for (const std::size_t i : {0, 1, 2, 0, 0, 2, 1, 0}) {
    auto& s = sequences[i];
    const auto reply = draft.serve({.number = ++number, .demands = {s.demand(2)}});
    const auto next = target.continuation(s.prompt, s.emitted, *s.params, 2);
    CHECK(reply.answers[0].guesses == next);
    s.emitted.insert(s.emitted.end(), next.begin(), next.end() - 1);
  }
  // All at once: for one there is no room, and it says so.
  const auto reply = draft.serve(
    {.number = ++number, .demands = {sequences[0].demand(2), sequences[1].demand(2), sequences[2].demand(2)}});
  int served = 0;
  for (const auto& answer : reply.answers) {
    served += !answer.guesses.empty();
    CHECK(answer.behind == answer.guesses.empty());
  }
  CHECK(served == 2);
  draft.serve({.number = ++number, .ended = {{0, 0}, {1, 0}, {2, 0}, {7, 7}}});
  CHECK(draft.free_blocks() == 6);
}

inline void limits(const engine_options& options) {
  const auto target_model = replica_of(load_model(options, {}));
  lone_target target(target_model);
  auto spec = spec_of(target_model, 64, 64, 40);
  spec.target_vocab = 1 << 20;
  draft_model draft(target_model.plan.last(), spec);
  auto s = drafted(1, some_prompt(target_model, 38, 3), greedy());
  auto reply = draft.serve({.number = 1, .demands = {s.demand(8)}});
  CHECK(reply.answers[0].guesses == target.continuation(s.prompt, {}, greedy(), 3)); // of tokens 38, 39 and 40
  for (int i = 0; i < 3; ++i)
    s.emitted.push_back(7);
  reply = draft.serve({.number = 2, .demands = {s.demand(8)}});
  CHECK(reply.answers[0].guesses.empty());
  CHECK_FALSE(reply.answers[0].behind);

  // A token of the target that the draft does not know; a demand that does not continue what it knows.
  auto foreign = drafted(2, {1, 2, 1 << 19}, greedy());
  reply = draft.serve({.number = 3, .demands = {foreign.demand(8)}});
  CHECK(reply.answers[0].guesses.empty());
  auto gap = drafted(3, {1, 2, 3}, greedy());
  gap.told = 2;
  reply = draft.serve({.number = 4, .demands = {gap.demand(8)}});
  CHECK(reply.answers[0].guesses.empty());
  reply = draft.serve({.number = 5});
  CHECK(reply.answers.empty());

  // A sequence that begins again under its id, as after a preemption.
  auto again = drafted(3, {1, 2, 3}, greedy());
  reply = draft.serve({.number = 6, .demands = {again.demand(3)}, .ended = {{3, 0}}});
  CHECK(reply.answers[0].guesses == target.continuation(again.prompt, {}, greedy(), 3));

  // The last token that the answer may have ends the guesses.
  auto last = greedy();
  last.max_tokens = 2;
  auto ending = drafted(4, {1, 2, 3}, last);
  reply = draft.serve({.number = 7, .demands = {ending.demand(8)}});
  CHECK(reply.answers[0].guesses.size() == 2);

  // A target of a smaller vocabulary never gets a guess outside it.
  spec.target_vocab = 1;
  draft_model wide(target_model.plan.last(), spec);
  auto narrow = drafted(5, {1, 2, 3}, greedy());
  reply = wide.serve({.number = 1, .demands = {narrow.demand(8)}});
  for (const auto guess : reply.answers[0].guesses)
    CHECK(guess == 0);
}

} // namespace troupe::draft_cases
