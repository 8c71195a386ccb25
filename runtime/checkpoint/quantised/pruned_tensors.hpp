// Matrices of which 2 of every 4 weights are stored, as compressed-tensors' `sparse-24-bitmask` has them: the values
// `X.compressed`, a bit for each weight `X.bitmask`, and `X.shape`. Read and written. Files are untrusted.
// Format: `sparse_24_bitmask.py` of compressed-tensors 0.12 (https://github.com/vllm-project/compressed-tensors), which
// later versions call legacy and no longer write.
#pragma once

#include "runtime/checkpoint/checkpoint.hpp"

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

inline constexpr std::string_view pruned_mask_suffix = ".bitmask";

/// A tensor of two I64, as a vector or a column.
std::vector<std::size_t> stored_shape(const checkpoint& stored, const std::string& anchor, const std::string& name);

/// What `X.bitmask` belongs to.
struct pruned_tensor {
  std::string name; // "X.weight"
  tensor_info info; // pruned rows of floats; or with the zeros: I8, F8_E4M3, and floats whose rows are no multiple of 8
  std::vector<std::string> parts;
  std::function<tensor_data()> make; // refers to the checkpoint
};

/// Throws failure(bad_file | unsupported) that names the file and the tensor; `make` does so for bits that do not say
/// two of every four.
pruned_tensor read_pruned(const checkpoint& stored, const std::string& mask);

/// Which of four weights stay: the two of the largest scores, the first of equal ones. As bits.
unsigned kept_of_four(std::span<const float> scores);

} // namespace troupe
