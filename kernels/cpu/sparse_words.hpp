// Finds zeros among activations, by words of K. A word is the unit of a packed matrix that a product can skip: one
// input, or a pair of bf16. Lists the words that some row needs, and turns the smallest activations into zeros. Used by
// the backend's thread.
#pragma once

#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/packed_matrix.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/ops.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::kernels {

/// The words of K that are not zero in all rows, and the rows' activations there.
struct kept_words {
  const std::uint32_t* places = nullptr;      // [count], ascending; null: all words, none are worth skipping
  const std::uint32_t* activations = nullptr; // [rows][count], as linear_op's
  std::size_t count = 0;                      // with padding
  std::size_t needed = 0;                     // without
};

class sparse_words {
public:
  explicit sparse_words(thread_pool& pool) : pool_(pool) {}

  /// The words that a product of a few rows with float weights needs. Nothing unless so few are left that skipping the
  /// others gains something. Words are added `group` at a time, counted from the first: a group with fewer words left
  /// repeats its last one, with zeros as activations. Valid until the next call.
  kept_words find(const tensor& in, const packed_matrix& weights, std::size_t group);

  /// See activation_sparsity::drop_smallest.
  void drop_smallest(const tensor& x, float share, const packed_matrix& weights);

private:
  thread_pool& pool_;
  scratch<std::uint32_t> places_, activations_;
  std::vector<scratch<std::uint16_t>> magnitudes_; // one per thread
};

} // namespace troupe::kernels
