// Quantisation with error feedback (GPTQ): the inputs of a matrix are quantised one after another, and the error of
// each is made up for by those that are left, as the Hessian of the layer's squared error says. It is the inputs'
// second moments on a calibration text. Deterministic; works on a pool's threads.
// Method: Frantar et al., https://arxiv.org/abs/2210.17323.
#pragma once

#include "kernels/cpu/thread_pool.hpp"
#include "kernels/formats/weight_format.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

/// What the Hessian of a matrix's inputs says. The same for all its rows.
struct error_feedback {
  std::size_t inputs = 0;
  std::vector<std::uint32_t> order; // in which inputs are quantised
  std::vector<float> factor;     // [inputs, inputs], upper: U with Uᵀ U = the inverse of the Hessian, in that order
  std::vector<float> importance; // [inputs]: the Hessian's diagonal
};

/// `hessian` [inputs, inputs], symmetric: sums of products of inputs; an input that was always 0 is allowed.
/// `by_importance` (GPTQ's `desc_act`): the inputs with the largest second moments come first. Throws
/// failure(bad_request) if it has values that are not finite.
error_feedback make_error_feedback(std::vector<double> hessian, std::size_t inputs, bool by_importance,
                                   kernels::thread_pool& pool);

/// Rows that are worth quantising in one call: they share what is read of the factor.
inline constexpr std::size_t feedback_rows = 16;

/// Writes up to feedback_rows `rows` [count, inputs] as blocks of `format`, row_bytes each; inputs are in their own
/// order. `rows` is used up.
void quantise_with_feedback(kernels::weight_format format, std::span<float> rows, const error_feedback& feedback,
                            void* to);

/// Leaves 2 of every 4 inputs of `rows` [count, inputs], those whose loss costs most, rounded to what `stored` (a float
/// format) holds, and makes up for the others in the inputs that follow: SparseGPT (Frantar and Alistarh,
/// https://arxiv.org/abs/2301.00774). The feedback's order must be that of the inputs, a multiple of 4.
void prune_with_feedback(kernels::weight_format stored, std::span<float> rows, const error_feedback& feedback);

/// Codes as GPTQ's checkpoints have them: weight = scale * (code - zero), with a scale and a zero for each `group`
/// inputs of the order.
struct gptq_format {
  int bits = 4;          // 2, 3, 4 or 8
  std::size_t group = 0; // divides the inputs, or 0: all
  bool symmetric = true; // zeros are 2^(bits - 1), else 1 to 2^bits - 1
};

/// One row of the same: codes [inputs] by their own places, scales (f16) and zeros [inputs / group].
struct gptq_row {
  std::uint8_t* codes = nullptr;
  std::uint16_t* scales = nullptr;
  std::uint8_t* zeros = nullptr;
};
void quantise_with_feedback(const gptq_format& format, std::span<float> rows, const error_feedback& feedback,
                            std::span<const gptq_row> to);

} // namespace troupe
