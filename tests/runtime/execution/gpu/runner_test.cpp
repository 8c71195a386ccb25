// Runner, sampler and recorded steps without the engine, driven with plans as an executor receives them: a step is
// queued while the tokens of the one before are still unknown. Runs on the emulated GPU and, in
// troupe_cuda_decoder_tests, on a real one; what they should give comes from a CPU.
#include "runtime/engine/loading/loader.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/execution/gpu/gpu_device.hpp"
#include "tests/runtime/execution/sampling_starts.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdlib>
#include <numeric>
#include <semaphore>

using namespace troupe;

namespace {

constexpr int driven_sequences = 3, driven_steps = 9, blocks_each = 8;
constexpr std::int32_t copied_to = 30, swapped_to = 31; // blocks that no sequence has at first

engine_options driven_options(const std::string& device, bool graphs) {
  const char* data = std::getenv("TROUPE_TEST_DATA");
  engine_options o;
  o.model = (data ? std::string(data) : test_data()) + "/golden/llama-gqa";
  o.open_gpu = open_gpu;
  o.compute.device = device;
  o.compute.dtype = "f32";
  o.compute.deterministic = true;
  o.compute.graphs = graphs;
  o.compute.threads = 1;
  o.kv_cache_bytes = 4 << 20;
  o.max_context = 256;
  o.max_sequences = 8;
  return o;
}

/// A different way to sample for each sequence.
sampling_params driven_params(int sequence) {
  sampling_params p;
  p.temperature = sequence == 1 ? 0.8f : 0;
  p.top_p = sequence == 1 ? 0.9f : 1;
  p.repetition_penalty = sequence == 2 ? 1.3f : 1;
  p.seed = 11;
  p.max_tokens = 2 * driven_steps;
  p.ignore_eos = true;
  p.logprobs = 2;
  return p;
}

std::vector<token_id> driven_prompt(int sequence) {
  std::vector<token_id> prompt(static_cast<std::size_t>(5 + 14 * sequence));
  for (std::size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = static_cast<token_id>((7 + 31 * sequence + 37 * static_cast<int>(i)) % 500 + 5);
  return prompt;
}

/// The tokens of all sequences, in the order of steps.
class driven_plans {
public:
  explicit driven_plans(const engine_options& options)
    : model_(replica_of(load_model(options, {}))), swaps_(model_.plan.last().capabilities().own_memory) {
    REQUIRE(model_.plan.blocks > swapped_to);
    auto spec = model_.runner();
    spec.host_blocks = swaps_ ? 4 : 0;
    runner_ = model_.plan.last().make_runner(spec);
    sampler_ = model_.plan.last().make_sampler(model_.sampler(), [this] { reported_.release(); });
    for (int s = 0; s < driven_sequences; ++s) {
      lengths_.push_back(static_cast<int>(driven_prompt(s).size()));
      tables_.emplace_back(blocks_each);
      std::iota(tables_.back().begin(), tables_.back().end(), s * blocks_each);
    }
  }

  std::vector<sampled_token> run() {
    for (std::uint64_t step = 1; step <= driven_steps; ++step) {
      const auto plan = std::make_shared<const step_plan>(plan_of(step));
      const auto logits = runner_->run(*plan);
      const auto tokens = sampler_->sample(plan, logits);
      runner_->receive(tokens);
      if (tokens.sampled)
        keep(*tokens.sampled, step);
      else if (step > 1)
        collect(step - 1);
    }
    if (swaps_)
      collect(driven_steps);
    return std::move(sampled_);
  }

private:
  step_plan plan_of(std::uint64_t step) {
    step_plan plan;
    plan.step = step;
    plan.after_tokens_of = step - 1;
    if (step == 5) {
      plan.moves.push_back({block_move::kind::copy, tables_[0][0], copied_to});
      tables_[0][0] = copied_to;
    }
    if (step == 7) {
      const std::int32_t from = tables_[1][0], slot = 2;
      if (swaps_)
        plan.moves = {{block_move::kind::swap_out, from, slot}, {block_move::kind::swap_in, slot, swapped_to}};
      else
        plan.moves.push_back({block_move::kind::copy, from, swapped_to});
      tables_[1][0] = swapped_to;
    }
    for (std::int32_t s = 0; s < driven_sequences; ++s) {
      auto& length = lengths_[static_cast<std::size_t>(s)];
      const auto tokens = step == 1 ? driven_prompt(s) : std::vector<token_id>{placeholder(s)};
      const auto rows = static_cast<std::int32_t>(tokens.size());
      plan.sequences.push_back({static_cast<std::int32_t>(plan.tokens.size()), rows, step == 1 ? 0 : length++,
                                static_cast<std::int32_t>(plan.block_tables.size())});
      plan.tokens.insert(plan.tokens.end(), tokens.begin(), tokens.end());
      const auto& table = tables_[static_cast<std::size_t>(s)];
      plan.block_tables.insert(plan.block_tables.end(), table.begin(), table.end());
      plan.logit_rows.push_back(static_cast<std::int32_t>(plan.tokens.size()) - 1);
      sample_demand demand{{static_cast<std::uint64_t>(s + 1), 0}, s, s, nullptr};
      if (step == 1)
        demand.start = testing::start_with(driven_params(s), tokens);
      plan.samples.push_back(std::move(demand));
    }
    return plan;
  }

  void collect(std::uint64_t step) {
    REQUIRE(reported_.try_acquire_for(std::chrono::minutes(1)));
    keep(sampler_->collect(), step);
  }

  void keep(const step_result& result, std::uint64_t step) {
    CHECK(result.step == step);
    REQUIRE(result.failed.empty());
    REQUIRE(result.sampled.size() == driven_sequences);
    for (const auto& one : result.sampled)
      sampled_.push_back(one.token);
  }

  model_replica model_;
  bool swaps_;
  std::counting_semaphore<> reported_{0};
  std::unique_ptr<step_runner> runner_;
  std::unique_ptr<step_sampler> sampler_;
  std::vector<int> lengths_;
  std::vector<std::vector<std::int32_t>> tables_;
  std::vector<sampled_token> sampled_;
};

} // namespace

TEST_SUITE_BEGIN("cuda");

TEST_CASE("CUDA: runner and sampler give a CPU's tokens while blocks are copied and swapped, recorded or not") {
  const auto want = driven_plans(driven_options("cpu", true)).run();
  const auto recorded = driven_plans(driven_options("cuda:0", true)).run();
  const auto launched = driven_plans(driven_options("cuda:0", false)).run();
  REQUIRE(want.size() == driven_sequences * driven_steps);
  REQUIRE(recorded.size() == want.size());
  REQUIRE(launched.size() == want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    CHECK(recorded[i].id == want[i].id);
    CHECK(std::abs(recorded[i].logprob - want[i].logprob) < 1e-3);
    REQUIRE(recorded[i].top.size() == 2);
    // A recording changes nothing.
    CHECK(recorded[i].id == launched[i].id);
    CHECK(recorded[i].logprob == launched[i].logprob);
    CHECK(recorded[i].top[1].logprob == launched[i].top[1].logprob);
  }
}

TEST_SUITE_END();
