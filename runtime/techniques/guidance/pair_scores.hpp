// Scores of a token from the rows of two prompts. Pure; any thread.
#pragma once

#include <span>

namespace troupe {

/// Classifier-free guidance (Sanchez et al. 2023), as transformers' UnbatchedClassifierFreeGuidanceLogitsProcessor has
/// it: log-softmax of both rows, then scale * (prompted - unprompted) + unprompted. All rows [vocab]; `scores` may be
/// one of the others. A token that is minus infinity in `prompted` stays so; one that is in `unprompted` alone keeps
/// its log-probability of `prompted`.
void guidance_scores(std::span<const float> prompted, std::span<const float> unprompted, float scale,
                     std::span<float> scores);

} // namespace troupe
