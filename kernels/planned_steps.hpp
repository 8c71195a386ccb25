// The largest steps that a backend will be given, described before any memory is allocated: a plan of device memory
// counts the scratch of their ops (backend::scratch_bytes).
#pragma once

#include "kernels/ops.hpp"

#include <vector>

namespace troupe::kernels {

/// Matrices packed as one, without their data, and the largest number of rows multiplied with them at once.
struct planned_matrix {
  std::vector<stored_matrix> stacked;
  quantization how = quantization::none;
  bool gated = false; // gate and up
  std::size_t rows = 0;
  std::size_t chosen = 0; // of an expert: how many of them a row has in a grouped product; else 0
  bool activated = false; // the first of an MLP without a gate
};

/// The largest steps that a backend will be given.
struct planned_steps {
  dtype compute = dtype::f32;
  std::vector<planned_matrix> matrices; // every kind; identical ones may be listed once
  std::size_t rows = 0;
  std::size_t logit_rows = 0; // rows with logits
  std::size_t sequences = 0;
  std::size_t context = 0; // tokens of the longest
  bool recurrent = false;  // whether sequences have states
  int heads = 0;
  kv_shape cache;           // the number of blocks is ignored
  std::size_t choices = 0;  // that a row makes among positions at a time (sparse_attention.hpp); 0: it sees all
  std::vector<int> windows; // of each way in which layers attend: what they see, and how they share K and V
};

} // namespace troupe::kernels
