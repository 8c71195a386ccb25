// Contrasts the logits that a token is chosen by with those of a model that knows less. Pure; any thread.
#pragma once

#include <span>

namespace troupe {

/// Contrastive decoding (Li et al. 2022) in the form of O'Brien & Lewis 2023: (1 + beta) * expert - beta * amateur where
/// the expert's logit is at least log(alpha) + the largest, else minus infinity. `scores` [vocab] come as the expert's
/// logits after a request's edits, which count once, and by which a token is plausible: what a request forbids makes
/// nothing else implausible. `expert` [vocab] are its logits without them. Tokens that the amateur lacks get minus
/// infinity, those whose amateur's logit is not finite their own score. Alpha in [0, 1]; 0: all tokens are plausible.
void contrast_scores(std::span<const float> expert, std::span<const float> amateur, float alpha, float beta,
                     std::span<float> scores);

} // namespace troupe
