// Chooses between two implementations of a product: own kernel or library (which needs quantised weights expanded). Few
// rows go to the own kernel, many to the library; in between both are measured once per shape on this GPU (the
// heuristic data flow of FlashDecoding++; Hong et al. 2024). Plain logic: linear_layers does the measuring.
#pragma once

#include "kernels/cuda/weights.hpp"

#include <compare>
#include <functional>
#include <map>

namespace troupe::kernels::cuda {

enum class linear_method : std::uint8_t { flat, library };

struct linear_shape {
  weight_kind kind = weight_kind::bf16;
  bool gated = false;
  std::size_t outputs = 0;
  std::size_t inputs = 0;
  auto operator<=>(const linear_shape&) const = default;
};

class linear_chooser {
public:
  static constexpr std::size_t always_flat = 8;      // at most so many rows
  static constexpr std::size_t always_library = 512; // at least so many rows

  /// Numbers of rows in between share a choice with the next power of two.
  static std::size_t bucket(std::size_t rows);

  /// `measure` returns the milliseconds of a method. Called at most once per method, shape and bucket.
  linear_method choose(const linear_shape& shape, std::size_t rows, const std::function<float(linear_method)>& measure);

private:
  std::map<std::pair<linear_shape, std::size_t>, linear_method> chosen_;
};

} // namespace troupe::kernels::cuda
