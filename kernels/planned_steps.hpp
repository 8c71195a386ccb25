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

/// How rows choose what they attend to (sparse_attention), and what entries are made of (compressed_attention).
struct planned_choice {
  std::size_t seen = 0;     // positions and entries that a row attends to, at most; 0: layers are not of this kind
  std::size_t sharing = 1;  // heads of queries that share one of K and V, at most
  std::size_t choosers = 1; // heads of a row that choose for themselves
  std::size_t dim = 0;      // of the keys that are scored; 0: nothing is chosen
  std::size_t group = 1;    // positions that share a key, which is made of theirs
  std::size_t each = 1;     // positions of what is chosen: those of a group or block, or for which there is an entry
  std::size_t entry_tokens = 0; // that an entry is made of; 0: there are no entries
};

/// The largest steps that a backend will be given.
struct planned_steps {
  dtype compute = dtype::f32;
  std::vector<planned_matrix> matrices; // every kind; identical ones may be listed once
  std::size_t rows = 0;
  std::size_t logit_rows = 0; // rows with logits
  std::size_t sequences = 0;
  std::size_t context = 0;       // tokens of the longest
  bool recurrent = false;        // whether sequences have states
  std::size_t recalled = 0;      // tokens before a row of which the host is told (gram_ops)
  std::size_t looked_up = 0;     // rows of a table that are embedded and gathered for a row; 0: those of tokens alone
  std::size_t added_ranks = 0;   // of pairs of low rank that are added to a product (low_rank_products)
  std::size_t added_outputs = 0; // of activated products to which some are added
  int heads = 0;
  kv_shape cache;           // the number of blocks is ignored
  std::vector<int> windows; // of each way in which layers attend: what they see, and how they share K and V
  planned_choice choice = {};
};

} // namespace troupe::kernels
