// Looks at the scores of attention while a model reads a text: their histogram by layer, and how small the weights are
// that softmax makes of them. Used on the backend's thread. Only for CPUs, which leave rotated queries and keys in
// memory.
#pragma once

#include "runtime/model/decoder/decoder.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <vector>

namespace troupe {

/// Weights below 2^-n count as small, for these n.
inline constexpr std::array<int, 3> small_weights{8, 16, 24};

/// The scores of one layer. They are as softmax gets them: scaled, capped and shifted, in nats.
struct layer_scores {
  std::map<int, std::uint64_t> histogram; // by whole numbers, rounded down
  std::uint64_t scores = 0;
  float least = std::numeric_limits<float>::infinity(), most = -std::numeric_limits<float>::infinity();
  double sum = 0, squares = 0;
  std::map<int, std::uint64_t> sums; // logarithms of a query's sums of exponentials, behind position 0, rounded down
  std::array<std::uint64_t, small_weights.size()> below{}; // weights of a query's softmax
  std::array<std::uint64_t, small_weights.size()>
    unneeded{};           // rows of V of a KV head for which those of all its queries,
                          // relative to the largest of their partition and of the first one, are below
  std::uint64_t rows = 0; // of V
};

/// Reads `tokens` as one text, up to the context of the decoder, in steps of `rows`, and looks at `queries` rows of
/// each layer, spaced evenly, with all of their heads. Throws failure(bad_request) for a text of fewer than 2 tokens,
/// failure(unsupported) for models whose attention is latent or reads what follows.
std::vector<layer_scores> observe_scores(const std::shared_ptr<const model_weights>& weights, kernels::backend& backend,
                                         std::span<const token_id> tokens, int rows, int queries,
                                         const progress_fn& progress = {});

/// A number near which most scores are, for softmax relative to it (FlashDecoding++'s unified maximum): the middle of
/// the range of 2 `reach` nats that holds the most scores of all layers. `outside`: the share of the others.
struct score_center {
  float at = 0;
  double outside = 0;
};
score_center center_of(std::span<const layer_scores> layers, float reach);

/// The share of sums that a GPU would make again with this unified maximum: those not within e^-40 to e^40 of it.
double recomputed_share(std::span<const layer_scores> layers, float unified_maximum);

} // namespace troupe
