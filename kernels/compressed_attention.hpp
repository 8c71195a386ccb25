// Attention over compressed keys (DeepSeek V4): entries that are made of groups of tokens stand for these, and a row sees
// the last tokens and entries behind them. An optional interface of backends, beside `backend`. Keys are values, too.
//
// An entry is kept where the last token of its group is: in its block of the cache, at its place, in a layer of K alone.
// What it is made of is kept for every token. So entries depend on tokens alone, wherever steps divide a group, and blocks
// are copied, shared and moved as those of other models.
#pragma once

#include "kernels/ops.hpp"
#include "kernels/sparse_attention.hpp"

namespace troupe::kernels {

/// How a group of `rate` tokens becomes an entry: element by element the mean of what each token gives, weighed by a
/// softmax of gates; then a norm, and the rotation of the group's first position. Vectors are in device memory.
struct entry_making {
  int rate = 0;
  bool overlaps = false; // tokens give two heads: the first for the entry of the next group, the other for their own
  const float* bias = nullptr; // [rate, heads * dim], added to the gates
  const float* norm = nullptr; // [dim]
  float eps = 0;
  const float* angles = nullptr; // see rope_rows
};

/// What rows see.
struct entry_view {
  int tokens = 0;                          // the layer of the cache with the tokens' keys, of K alone, with one head
  int window = 0;                          // of them, the row's own included
  int entries = -1;                        // the layer with entries; or none
  int rate = 0;                            // of the entries: those of groups that have ended are seen,
  const position_choice* chosen = nullptr; // or, where they are more than its `most`, the chosen ones
};

class compressed_attention {
public:
  virtual ~compressed_attention() = default;

  /// Makes the entries of the groups that end within the step. In the cache's layer `from` are K, what tokens give, and V,
  /// their gates, also of the step's rows; entries become keys of layer `to`.
  virtual void make_entries(const entry_making& how, kv_cache& cache, int from, int to, const batch& step) = 0;

  /// sparse_attention::choose_positions among entries, for each row that sees more than `to.most` of them. Positions are
  /// those of the entries' last tokens.
  virtual void choose_entries(position_choice& to, const tensor& queries, const tensor& weights, int heads, int rate,
                              const kv_cache& cache, int layer, const batch& step) = 0;

  /// backend::shaped_attention over what each row sees, tokens before entries, in partitions of 256 of them. `q` f32
  /// [rows, heads * dim], rotated; out f32. Scores have no window, chunk, slopes or threshold.
  virtual void attend_entries(const tensor& out, const tensor& q, int heads, const attention_scores& scores,
                              const entry_view& seen, const kv_cache& cache, const batch& step) = 0;

  /// out = the heads of x, f32, rotated backwards. Of a head of x, element i was rotated with i + dim / 2, for i below
  /// `pairs`; of a head of out, f32 or bf16, these are neighbours, behind the elements that do not rotate: the first of
  /// which are those before dim / 2 of x.
  virtual void undo_rotation(const tensor& out, const tensor& x, int heads, int pairs, const float* angles,
                             const batch& step) = 0;
};

} // namespace troupe::kernels
