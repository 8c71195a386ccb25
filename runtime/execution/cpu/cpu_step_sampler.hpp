// Draws the tokens of a step on the host: the sampling state of every running sequence, rebuilt from its transcript
// whenever the plan brings one. Owned by the sampler actor; single-threaded.
#pragma once

#include "runtime/execution/step_runner.hpp"
#include "runtime/sampling/sampler.hpp"

#include <map>
#include <vector>

namespace troupe {

class cpu_step_sampler final : public step_sampler {
public:
  explicit cpu_step_sampler(std::vector<token_id> eos_ids) : eos_ids_(std::move(eos_ids)) {}

  /// The result is there at once, and nothing to collect.
  step_tokens sample(const std::shared_ptr<const step_plan>& plan, const step_output& logits) override;
  step_result collect() override;
  void check() const override {}

  /// `logits`: f32 [plan.logit_rows.size(), vocab]. A sequence that has ended, here or by the plan, is forgotten; samples
  /// that were planned before that became known yield nothing.
  step_result sample(const step_plan& plan, std::span<const float> logits);

private:
  std::vector<token_id> eos_ids_;
  std::map<sequence_id, sequence_sampler> sequences_;
  sampling_scratch scratch_;
};

} // namespace troupe
