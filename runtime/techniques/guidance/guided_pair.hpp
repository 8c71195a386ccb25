// Classifier-free guidance. A request's sequence and its twin, which has the negative prompt, are judged together.
// Their scores are combined, the next token is chosen from them as for any sequence, and both go on with it.
#pragma once

#include "runtime/sampling/group_strategy.hpp"

#include <memory>
#include <span>
#include <vector>

namespace troupe {

class guided_pair final : public group_strategy {
public:
  /// The transcript that it starts with is that of the request's sequence. Log-probabilities are those of its own rows.
  guided_pair(float scale, group_start start);

  /// Rows of the sequence and of its twin; a constraint's mask is read from the first row of `allowed`.
  std::vector<group_child> judge(rows logits, rows allowed, sampling_scratch& scratch) override;
  using group_strategy::judge;

  std::vector<hypothesis> results() const override { return {}; }
  const sampled_token* told() const override { return &last_; }

private:
  float scale_;
  sequence_sampler sampler_;
  sampled_token last_;
  std::vector<float> scores_; // [vocab]
};

/// Classifier-free guidance (Sanchez et al. 2023), as transformers' UnbatchedClassifierFreeGuidanceLogitsProcessor has
/// it: log-softmax of both rows, then scale * (prompted - unprompted) + unprompted. All rows [vocab]; `scores` may be
/// one of the others. A token that is minus infinity in `prompted` stays so; one that is in `unprompted` alone keeps
/// its log-probability of `prompted`.
void guidance_scores(std::span<const float> prompted, std::span<const float> unprompted, float scale,
                     std::span<float> scores);

} // namespace troupe
