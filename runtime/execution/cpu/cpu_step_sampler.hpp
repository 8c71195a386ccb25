// Samples the tokens of a step on the host. Holds the sampling state of every running sequence, which it rebuilds
// whenever a plan brings the sequence's transcript. Owned by the sampler actor; single-threaded.
#pragma once

#include "runtime/execution/guided_sampler.hpp"
#include "runtime/execution/host_judge.hpp"
#include "runtime/execution/prompt_pooling.hpp"
#include "runtime/execution/step_runner.hpp"
#include "runtime/sampling/sampler.hpp"

#include <map>
#include <vector>

namespace troupe {

class cpu_step_sampler final : public step_sampler {
public:
  explicit cpu_step_sampler(std::vector<token_id> eos_ids, guided_settings settings = {})
    : how_(std::make_shared<guiding>(std::move(eos_ids), std::move(settings))), guided_(how_), judge_(how_) {}

  void prepare(const step_plan& plan) override;
  step_result collect_late() override;

  /// Returns the result at once, so there is never anything to collect.
  step_tokens sample(const std::shared_ptr<const step_plan>& plan, const step_output& logits) override;
  step_result collect() override;
  void check() const override {}

  /// `logits`: f32 [plan.logit_rows.size(), vocab]; `hidden`: f32 [plan.hidden_rows.size(), hidden]. A sequence is
  /// forgotten when it ends, here or by the plan; samples planned before its end was known yield nothing.
  step_result sample(const step_plan& plan, std::span<const float> logits, std::span<const float> hidden = {},
                     const contrast_rows* contrast = nullptr);

private:
  std::shared_ptr<guiding> how_;
  std::map<sequence_id, sequence_sampler> sequences_; // those without guides
  guided_sampler guided_;
  host_judge judge_;
  prompt_pooling pooling_;
  sampling_scratch scratch_;
};

} // namespace troupe
