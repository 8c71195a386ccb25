// Contrastive decoding. A second model (the amateur) computes the rows of some sequences right after the first (the
// expert), from the same plans. The amateur's KV cache has as many blocks, under the same numbers, so block tables,
// copies, prefixes, preemption and wrong guesses work for both. Only contrasted sequences have K and V there, so the
// others must not share a prefix with them (technique_use::salt). For devices whose logits are in host memory; made and used by
// one thread.
#pragma once

#include "runtime/execution/step_runner.hpp"

#include <memory>
#include <span>
#include <vector>

namespace troupe {

class contrasting_runner final : public step_runner {
public:
  /// `vocab`: of the amateur. Both have as many blocks. In an image the amateur's part follows the expert's.
  contrasting_runner(std::unique_ptr<step_runner> expert, std::unique_ptr<step_runner> amateur, int vocab);

  void receive(const step_tokens& tokens) override;

  /// The expert's output, with the amateur's rows for the samples of contrasted sequences. In a pipeline it stands in
  /// the last stage, and the amateur reads the tokens that the first one passed on.
  step_output run(const step_plan& plan, const stage_rows* before = nullptr) override;

  void move(std::span<const block_move> moves) override;
  std::size_t block_bytes() const override { return expert_->block_bytes() + amateur_->block_bytes(); }

  double device_ms() override { return expert_->device_ms(); }

private:
  std::unique_ptr<step_runner> expert_, amateur_;
  token_id vocab_;
};

/// What the amateur computes of a plan: the rows of contrasted sequences, and logits where they sample. `of[i]`: the
/// place in plan.logit_rows of the i-th of these logits. `tokens`: of the plan's rows, perhaps with placeholders. Those
/// from `vocab` on, which no contrast chooses, are wrong guesses, and any other stands in for them.
step_plan amateurs_plan(const step_plan& plan, std::span<const token_id> tokens, token_id vocab,
                        std::vector<std::int32_t>& of);

} // namespace troupe
