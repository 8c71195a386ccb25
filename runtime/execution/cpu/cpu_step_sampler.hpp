// Samples the tokens of a step on the host. Holds the sampling state of every running sequence, which it rebuilds
// whenever a plan brings the sequence's transcript. Owned by the sampler actor, one thread at a time; many sequences
// are divided over a pool of its own, which works while the compute threads wait for the tokens.
#pragma once

#include "runtime/execution/host_judge.hpp"
#include "runtime/execution/prompt_pooling.hpp"
#include "runtime/execution/step_runner.hpp"
#include "runtime/sampling/sampler.hpp"

#include <map>
#include <memory>
#include <optional>
#include <vector>

namespace troupe {

namespace kernels {
class thread_pool;
}

class cpu_step_sampler final : public step_sampler {
public:
  /// How steps are divided. `from`: the work of a step's draws, in logits of greedy ones, from which on that is worth
  /// waking threads, which then stay awake for a while beside those that compute. About 0.2 ms.
  struct division {
    int threads = 1;             // that sample at a time
    std::vector<int> cores = {}; // that those of the pool stay on; empty: any
    std::size_t from = std::size_t(1) << 22;
  };

  explicit cpu_step_sampler(std::vector<token_id> eos_ids, host_settings settings = {})
    : cpu_step_sampler(std::move(eos_ids), std::move(settings), division()) {}
  cpu_step_sampler(std::vector<token_id> eos_ids, host_settings settings, division divided);
  ~cpu_step_sampler() override;

  void prepare(const step_plan& plan) override { judge_.prepare(plan); }
  bool lacks_masks(const step_plan& plan) override { return prepare(plan), judge_.lacks_masks(plan); }
  step_result collect_late() override { return judge_.collect_late(scratch_.front()); }
  step_result settle(const verdict& its) override { return judge_.settle(its); }

  /// Returns the result at once, so there is never anything to collect.
  step_tokens sample(const std::shared_ptr<const step_plan>& plan, const step_output& logits) override;
  step_result collect() override;
  void check() const override {}

  /// `logits`: f32 [plan.logit_rows.size(), vocab]; `hidden`: f32 [plan.hidden_rows.size(), hidden]. A sequence is
  /// forgotten when it ends, here or by the plan; samples planned before its end was known yield nothing.
  step_result sample(const step_plan& plan, std::span<const float> logits, std::span<const float> hidden = {},
                     const contrast_rows* contrast = nullptr);

private:
  /// A demand, and what it yields if it is not constrained.
  struct draw {
    const sample_demand* demand;
    sequence_sampler* sequence = nullptr; // null: it is constrained
    bool goes_on = false;
    step_result result = {};
  };
  using rows_fn = constrained_sampler::rows_fn;

  std::vector<draw> draws_of(const step_plan& plan);
  void sample(const step_plan& plan, std::vector<draw>& draws, std::size_t vocab, const rows_fn& judged);

  std::map<sequence_id, sequence_sampler> sequences_; // those that are free
  host_judge judge_;
  prompt_pooling pooling_;
  division divided_;
  std::unique_ptr<kernels::thread_pool> pool_; // made with the first step that is worth it
  std::vector<sampling_scratch> scratch_;      // [threads]
  std::vector<std::vector<float>> masked_;     // [threads][vocab], of constrained ones
};

} // namespace troupe
