// Contrastive decoding as a technique: requests are led away from what a weaker model would say, the amateur, which runs
// beside the engine's, the expert (contrasting_runner.hpp).
#pragma once

#include "runtime/techniques/technique.hpp"

namespace troupe {

extern const technique amateur_technique;

struct contrast_options {
  float beta = 0;     // how far away from the amateur; 0: off
  float alpha = 0.1f; // only among tokens this fraction as likely as the likeliest
};

/// A request's use of such a contrast; null: the options say nothing. It makes (1 + beta) * expert - beta * amateur of
/// scores (Li et al. 2022, in the form of O'Brien & Lewis 2023) where the expert's is at least log(alpha) + the largest,
/// else minus infinity. A request's edits count once, and by them a token is plausible: what a request forbids makes
/// nothing else implausible. Tokens that the amateur lacks get minus infinity, those whose amateur's logit is not finite
/// their own score. Alpha in [0, 1]; 0: all tokens are plausible.
technique_use_ptr contrasted_by(const contrast_options& how);

/// The options of a use of this technique. Null: it is null.
const contrast_options* contrast_of(const technique_use* use);

} // namespace troupe
