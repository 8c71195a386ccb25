// Bytes that the attention of a prompt loads from memory and stores there, and its operations: in three passes, and by tiles, as
// the plans of a CPU (cpu/prompt_pieces.hpp) and of a GPU (cuda/prompt_tiles.hpp) cut it. For tests that keep the ratio, and
// the table of the FlashAttention paper (troupe_kernel_bench).
#pragma once

namespace troupe::kernels::testing {

/// Of multi-head attention over the whole prompt, with a causal mask where it is by tiles.
struct prompt_shape {
  int tokens = 1024, dim = 64;
  double heads = 16 * 64; // of all sequences
};

struct attention_traffic {
  double bytes = 0;      // loaded and stored
  double operations = 0; // multiplications and additions
};

/// Queries and results.
inline double end_bytes(const prompt_shape& s, double element) { return 2.0 * s.tokens * s.dim * element; }

/// K and V are read; scores are written, read, written as weights and read.
inline attention_traffic three_passes(const prompt_shape& s, double element) {
  const double pairs = double(s.tokens) * s.tokens;
  return {s.heads * (end_bytes(s, element) + (2.0 * s.tokens * s.dim + 4 * pairs) * element),
          s.heads * 4 * s.dim * pairs};
}

/// By a plan of `kv` tokens read by all tiles of a head, `scores` products of a query and K, and sums that are scaled down
/// after every `stage` tokens, at most.
inline attention_traffic by_tiles(const prompt_shape& s, double element, double kv, double scores, double stage) {
  return {s.heads * (end_bytes(s, element) + 2 * kv * s.dim * element),
          s.heads * scores * (4 * s.dim + (s.dim + 1) / stage)};
}

struct tile_counts {
  double rows = 0, kv = 0, scores = 0; // of a head
};

} // namespace troupe::kernels::testing
