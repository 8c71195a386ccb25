// Scores of a token from two models' rows, or from two prompts' rows of one model. Pure; any thread.
#pragma once

#include <span>

namespace troupe {

/// Classifier-free guidance (Sanchez et al. 2023), as transformers' UnbatchedClassifierFreeGuidanceLogitsProcessor has
/// it: log-softmax of both rows, then scale * (prompted - unprompted) + unprompted. All rows [vocab]; `scores` may be
/// one of the others. A token that is minus infinity in `prompted` stays so; one that is in `unprompted` alone keeps
/// its log-probability of `prompted`.
void guidance_scores(std::span<const float> prompted, std::span<const float> unprompted, float scale,
                     std::span<float> scores);

/// Contrastive decoding (Li et al. 2022) in the form of O'Brien & Lewis 2023: tokens whose expert logit is at least
/// log(alpha) + the largest get (1 + beta) * expert - beta * amateur, others minus infinity. All rows [vocab]; alpha in
/// [0, 1], 0: all tokens. `scores` may be one of the others.
void contrast_scores(std::span<const float> expert, std::span<const float> amateur, float alpha, float beta,
                     std::span<float> scores);

} // namespace troupe
