// What a backend whose memory is its own takes of it beside what it is told to allocate, asked before anything is
// allocated: a plan that leaves it out fills the memory, and the first large step fails. Found by dynamic_cast on a
// backend; one that is none takes tables as they are stored, and nothing in passing.
#pragma once

#include "kernels/ops.hpp"

#include <vector>

namespace troupe::kernels {

/// Matrices that are packed as one, without their data, and the most rows that are multiplied with them at once.
struct planned_matrix {
  std::vector<stored_matrix> stacked;
  quantization how = quantization::none;
  bool gated = false; // gate and up
  std::size_t rows = 0;
};

/// The largest steps that a backend will be given.
struct planned_steps {
  dtype compute = dtype::f32;
  std::vector<planned_matrix> matrices; // all kinds there are; those alike may be named once
  std::size_t rows = 0;
  std::size_t logit_rows = 0; // of these
  std::size_t sequences = 0;  // whose rows they are
  std::size_t context = 0;    // tokens of the longest
  int heads = 0;
  kv_shape cache;           // blocks do not matter
  std::vector<int> windows; // of attention, each once
};

class planned_memory {
public:
  virtual ~planned_memory() = default;

  /// Bytes of device memory that `load_table` takes; the data may be null.
  virtual std::size_t table_bytes(const stored_matrix& table) const = 0;

  /// Bytes that the ops of such steps take in passing, at most, and keep.
  virtual std::size_t scratch_bytes(const planned_steps& steps) const = 0;
};

} // namespace troupe::kernels
