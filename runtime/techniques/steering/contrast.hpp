// Makes steering vectors from two lists of prompts: the directions in which the hidden states of one list differ from
// those of the other. Pure; one thread.
#pragma once

#include "runtime/techniques/steering/steering.hpp"

#include <span>
#include <string_view>
#include <vector>

namespace troupe {

enum class contrast_method : std::uint8_t {
  mean, // of the one list less that of the other, as long as it is
  pca,  // first principal component of the differences of pairs, about zero, of length 1 (as llama.cpp's)
};

/// States of one layer: [prompts][hidden].
using layer_states = std::vector<std::vector<float>>;

/// Throws failure(bad_request) for lists that a method cannot compare: empty ones; for pca, lists of different lengths.
void check_contrast(contrast_method method, std::size_t positive, std::size_t negative);

/// Points from the negative states to the positive ones: the mean projection of the pairs' differences is not negative.
/// Empty if there is no difference at all.
std::vector<float> contrast(contrast_method method, const layer_states& positive, const layer_states& negative);

} // namespace troupe
