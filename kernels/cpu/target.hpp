// The interface between the CPU backend, which plans work and is compiled for any machine, and the kernels of a
// dispatch target, one translation unit compiled for its instruction set. Plain structs, and functions on one tile of
// work that are called on any thread of the pool. Target units include only this, simd.hpp and their kernels: the
// linker might keep their copy of a standard header's inline function for the whole program.
#pragma once

#include "kernels/formats/activation.hpp"
#include "kernels/formats/kv_type.hpp"
#include "kernels/formats/weight_kind.hpp"

#include <cstddef>
#include <cstdint>

namespace troupe::kernels {

// -- linear -----------------------------------------------------------------------------------------------------------

/// Packed weights are panels of this many outputs, [words of K][panel_outputs], zero-padded.
inline constexpr std::size_t panel_outputs = 64;

/// Words of K that a tile accumulates before it goes to the next rows: a row block of activations then stays in L1.
inline constexpr std::size_t k_block = 256;

/// Distance of the rows of a block of packed activations, in words; not a power of two, which would alias in L1.
inline constexpr std::size_t activation_stride = k_block + 16;

// bf16_halves: 32-bit words of two of 32 outputs, the first 16 in the low halves.

/// The place of an output in a word of bf16_halves.
constexpr std::size_t place_of_half(std::size_t output) { return output / 32 * 32 + output % 16 * 2 + output / 16 % 2; }

// fp8 weights are panels of 64 outputs, too: their scales, f32, then the words of K that share them, and so on. A word
// has a code of E4M3 for each output; of fp8_pairs, two lines of two codes for each of 32 outputs, in an order in which
// bytes of bf16 that are interleaved by halves of 128 bits become pairs.

inline constexpr std::size_t fp8_scale_bytes = panel_outputs * sizeof(float);

/// Where word `word` of a panel is, in bytes, if `scale_words` words share scales.
constexpr std::size_t fp8_word_offset(std::size_t scale_words, std::size_t word_bytes, std::size_t word) {
  return (word / scale_words + 1) * fp8_scale_bytes + word * word_bytes;
}

/// Where the scales of block `block` of `scale_words` words are.
constexpr std::size_t fp8_scales_offset(std::size_t scale_words, std::size_t word_bytes, std::size_t block) {
  return block * (fp8_scale_bytes + scale_words * word_bytes);
}

/// Bytes of a panel of `words` words.
constexpr std::size_t fp8_panel_bytes(std::size_t scale_words, std::size_t word_bytes, std::size_t words) {
  return (words + scale_words - 1) / scale_words * fp8_scale_bytes + words * word_bytes;
}

/// The place of an output's pair of codes in a word.
constexpr std::size_t place_of_pair(std::size_t output) {
  return output / 32 * 32 + output % 16 / 4 * 8 + output / 16 % 2 * 4 + output % 4;
}

/// Numbers of E4M3 are multiplied in units of 2^-8, in which load_e4m3 gives them.
inline constexpr float fp8_unit = 256;

// Quantised weights are panels of 32 outputs, two vectors of 16. For each group of 32 inputs a panel has 64-byte lines
// of codes, then scales: [8 or 4 lines][2 vectors][16 outputs][4 inputs]. A line has 4 consecutive inputs of 16
// outputs, the operand of integer dot instructions. Narrower codes have their lower 4 bits there, with the inputs 16
// further on in the upper halves of the bytes. The fifth or fifth and sixth bits follow in lines of the same shape: a
// byte holds those of 8 or 4 codes from inputs 4 apart, lowest bits first. Codes of 2 or 3 bits have two lines of bit
// pairs, 4 codes in a byte, and one of third bits, 8 in a byte, in the same way, codes of 1 bit one line.
//
// Kinds with codebooks have, for each group, [32 outputs] bytes of scales, those of the first half in the lower 4 bits;
// [entries][32] lower bytes of places; [32] bytes of the bits above them, for as many entries as fill a byte; and a line
// of signs like that of third bits.

inline constexpr std::size_t quantised_panel_outputs = 32;

// Pruned weights, of which 2 of every 4 inputs are stored, are strips of 32 inputs of a panel of 64 outputs: a line of
// 16 outputs has a word each, whose half byte g says where the weights of four g are (bits 0 and 1: the first, bits 2
// and 3: the second); then the fours' weights, [8 fours][2][64 outputs]. For bf16_pairs they are [8 fours][64
// outputs][2], and the second is the one that is added first: VDPBF16PS adds the upper half of a word before the lower
// one, and the sum has the order of the product with all inputs.

inline constexpr std::size_t strip_fours = 8;
inline constexpr std::size_t strip_place_bytes = panel_outputs * 4;

/// Groups that share a header in super-blocks.
inline constexpr std::size_t super_groups = 8;

/// The layout of a group in a panel, in bytes. Scales, then minima if the kind has them, are f16 [32]. Super-blocks
/// have them in a header before 8 groups, and each group has int8 factors: [parts][32], then [parts][32] for the
/// minima.
struct quantised_layout {
  int code_bits = 8;
  int zero = 0;  // the code of weight 0, before the minimum is added
  int parts = 1; // scales per group: 1, or one for each half
  bool minimum = false;
  bool super = false;
  bool bf16_scales = false; // not f16
  bool e4m3_scales = false; // [parts][32]
  float unit = 1;           // of scales
  bool has_table = false;   // and not `table != nullptr`, which is no constant to GCC 12 with -fsanitize=undefined
  const std::uint8_t* table = nullptr; // codes are places in it: 16 weights plus 128
  std::size_t code_bytes = 0;
  std::size_t group_bytes = 0;
  std::size_t header_bytes = 0;

  /// Bytes of the first `groups` groups, which are whole super-blocks.
  constexpr std::size_t bytes(std::size_t groups) const {
    return groups * group_bytes + groups / super_groups * header_bytes;
  }
};

constexpr quantised_layout layout_of(weight_kind kind) {
  quantised_layout to;
  switch (kind) {
    case weight_kind::q8: to.zero = 128; break;
    case weight_kind::q5: to.code_bits = 5, to.zero = 16; break;
    case weight_kind::q5_min: to.code_bits = 5, to.minimum = true; break;
    case weight_kind::q4: to.code_bits = 4, to.zero = 8; break;
    case weight_kind::q4_min: to.code_bits = 4, to.minimum = true; break;
    case weight_kind::q4_k: to.code_bits = 4, to.minimum = to.super = true; break;
    case weight_kind::q5_k: to.code_bits = 5, to.minimum = to.super = true; break;
    case weight_kind::q6_k: to.code_bits = 6, to.zero = 32, to.parts = 2, to.super = true; break;
    case weight_kind::q3_k: to.code_bits = 3, to.zero = 4, to.parts = 2, to.super = true; break;
    case weight_kind::q2_k: to.code_bits = 2, to.parts = 2, to.minimum = to.super = true; break;
    case weight_kind::iq4: to.code_bits = 4, to.zero = 128, to.has_table = true, to.table = iq4_table; break;
    case weight_kind::iq4_k:
      to.code_bits = 4, to.zero = 128, to.has_table = true, to.table = iq4_table, to.super = true;
      break;
    case weight_kind::mx4:
      to.code_bits = 4, to.zero = 128, to.has_table = true, to.table = mx4_table, to.bf16_scales = true;
      break;
    case weight_kind::q1: to.code_bits = 1, to.zero = 16, to.has_table = true, to.table = q1_table; break;
    case weight_kind::tq2:
      to.code_bits = 2, to.zero = 16, to.has_table = true, to.table = tq2_table, to.super = true;
      break;
    case weight_kind::nv4:
      to.code_bits = 4, to.zero = 16, to.has_table = true, to.table = nv4_table, to.parts = 2, to.e4m3_scales = true;
      to.unit = 0.5f;
      break;
    case weight_kind::iq1:
    case weight_kind::iq2_xxs:
    case weight_kind::iq2_xs:
    case weight_kind::iq2_s:
    case weight_kind::iq3_xxs:
    case weight_kind::iq3_s:
      to.zero = shape_of(kind).zero, to.code_bits = to.zero == 16 ? 5 : 7, to.super = true; // of the bytes
      to.parts = shape_of(kind).parts, to.unit = shape_of(kind).unit;
      break;
    default: break;
  }
  const std::size_t scales = quantised_panel_outputs * (to.e4m3_scales ? to.parts : to.minimum ? 4 : 2);
  std::size_t factors = quantised_panel_outputs * (to.parts * (to.minimum ? 2 : 1));
  to.code_bytes = 32 * quantised_panel_outputs * to.code_bits / 8;
  if (has_codebook(kind)) {
    const auto shape = shape_of(kind);
    to.code_bytes = quantised_panel_outputs * (shape.entries() + shape.high_bytes() + (shape.signs ? 4 : 0));
    factors = quantised_panel_outputs;
  }
  if (kind == weight_kind::tq2) // all of a super-block have the scale in its header
    factors = 0;
  to.group_bytes = to.code_bytes + (to.super ? factors : scales);
  to.header_bytes = to.super ? scales : 0;
  return to;
}

/// Activations for quantised weights: a group of 32 inputs is a record of this many words: 8 of int8 inputs, the scale
/// (f32), the start values of the integer sums of its parts (int32 [2]), the sum of the inputs times the scale (f32).
/// Inputs have a scale for each half, where weights have: the last word is that of the second half. With minima, the
/// sums of the halves times their scales (f32 [2]) replace the start values.
inline constexpr std::size_t activation_record = 12;

/// Groups that a tile accumulates before it goes to the next rows: a panel's weights then stay in L1.
inline constexpr std::size_t group_block = 16;

struct row_addend;

/// A linear op. Activations are words: an f32, or two consecutive bf16 inputs. `activations` is
/// [blocks of K][rows][activation_stride], or one row in place (then `activation_block` = k_block). Quantised:
/// [blocks of K][row tiles][group_block][tile_rows][activation_record]. With `kept`, which float weights may have:
/// [rows][kept_words], the words of K that are not zero in all rows; there is one row tile. For pairs they come in
/// whole groups (target::pair_group), each of words that an instruction would add together, too, if none were left out;
/// padding repeats a group's last word, with activations of zero.
struct linear_op {
  const void* weights = nullptr;
  weight_kind kind = weight_kind::f32;
  bool pruned = false;                     // float weights of which 2 of 4 are stored
  bool gated = false;                      // half of a panel are gate outputs, the other half the matching up outputs
  bool add = false;                        // out += instead of out =
  activation act;                          // of the sums; if gated, of gate
  bool out_bf16 = false;                   // else f32
  std::size_t words = 0;                   // of K; groups if quantised
  std::size_t scale_words = 0;             // of fp8: that share scales; a divisor of k_block, or `words`
  const std::uint32_t* codebook = nullptr; // of kinds that have one
  const std::uint32_t* activations = nullptr;
  std::size_t activation_block = 0;    // words from one block of K to the next
  const std::uint32_t* kept = nullptr; // [kept_words], ascending words of K; null: all
  std::size_t kept_words = 0;
  std::size_t cached = 0; // words of activations that stay in L2; for quantised weights
  std::size_t rows = 0;
  std::size_t row_tiles = 0; // tile t has the rows from t * tile_rows; the last may have fewer
  std::size_t tile_rows = 0;
  std::size_t outputs = 0;
  const float* bias = nullptr;            // [outputs], gated: [2 * outputs]; or null
  void* out = nullptr;                    // [rows, outputs]
  std::size_t out_stride = 0;             // elements
  const std::int32_t* out_rows = nullptr; // [rows], where the rows go in `out`; or null: in order
  const float* factors = nullptr;         // [rows], of what is added; or null: 1
  const row_addend* addends = nullptr;    // [rows], added to the sums beside the bias; or null: none
  bool bf16_addends = false;              // their words are pairs of bf16, else f32
  std::size_t first_addend = 0;           // the place of output 0 in the addends
};

/// Panels and row tiles that one task computes.
struct linear_task {
  std::size_t first_panel = 0, panels = 0;
  std::size_t first_tile = 0, tiles = 0;
};

// -- low-rank pairs ---------------------------------------------------------------------------------------------------

// Layouts. A pair's first matrix has tiles of 4 ranks: [tile][lines of K][4 ranks][16 words]. A word is an f32 or two
// bf16, as in linear_op. Its products with a row are words, too. The second matrices of all pairs have blocks of 16
// outputs, each with the words of the ranks that it needs: [block][words][16 outputs].

inline constexpr std::size_t low_rank_line = 16;
inline constexpr std::size_t low_rank_tile = 4;
inline constexpr std::size_t low_rank_outputs = 16;

struct low_rank_block {
  std::uint32_t offset = 0; // words of 16 outputs before its own
  std::uint16_t first = 0;  // of a row's words
  std::uint16_t words = 0;  // 0: nothing is added
};

/// What is added to a row of a product. No blocks: nothing.
struct row_addend {
  const std::uint32_t* low = nullptr;
  const low_rank_block* blocks = nullptr; // of all outputs, and an empty one
  const std::uint32_t* b = nullptr;
};

/// The products of some rows with the first matrices.
struct low_rank_op {
  const void* a = nullptr;
  bool bf16 = false; // else f32
  std::size_t cols = 0;
  const void* in = nullptr;
  std::size_t in_stride = 0; // bytes
  const std::int32_t* rows = nullptr;
  std::size_t count = 0;        // of rows
  std::uint32_t* low = nullptr; // [count, low_words]
  std::size_t low_words = 0;
};

// -- rows -------------------------------------------------------------------------------------------------------------

struct norm_op {
  const float* weight = nullptr;
  const float* bias = nullptr; // layer norm; or null
  float eps = 0;
  std::size_t cols = 0;
  bool out_bf16 = false;
};

/// The cache of one layer: [kv_heads][K of all blocks, V of all blocks], so that consecutive blocks are read as two
/// streams. Scores have a token per lane, outputs a dimension:
///   f32   K [head_dim][16 tokens], V [16 tokens][head_dim]
///   bf16  K [head_dim / 2][16 tokens][2 dimensions], V [8 pairs of tokens][head_dim][2 tokens]
///   int8, fp8  as f32, but before K are the scales: of K [16 tokens], of V [16 tokens], f32
/// A layer may have K alone; value_bytes are 0 then.
/// Stored numbers are always finite, so that tokens which a query does not see can be multiplied by 0.
struct layer_cache {
  char* data = nullptr;
  std::size_t head_bytes = 0;   // K and V of a head, all blocks
  std::size_t key_bytes = 0;    // K of a block and head, with scales
  std::size_t value_bytes = 0;  // V of a block and head
  std::size_t value_offset = 0; // from a head's K to its V
  int kv_heads = 0;
  int head_dim = 0;
  kv_type type = kv_type::f32;
};

/// Kernels load whole vectors and tiles, so they may read this many bytes beyond the last V.
inline constexpr std::size_t cache_slack = 1024;

struct rope_op {
  layer_cache cache;
  int heads = 0;
  const float* rope = nullptr; // [positions][cosines, sines of head_dim / 2], or null: nothing is rotated
  const float* q_norm = nullptr;
  const float* k_norm = nullptr;
  float eps = 0;
  bool norm_behind = false;
  bool queries_only = false;
};

// -- attention --------------------------------------------------------------------------------------------------------

inline constexpr int max_head_dim = 640; // latent attention: one wide head
inline constexpr int max_queries = 32;   // per tile, on any target

struct attention_op {
  layer_cache cache;
  float scale = 1;
  float soft_cap = 0;            // 0: none
  const float* slopes = nullptr; // [heads], of ALiBi; or null
  const float* sinks = nullptr;  // [heads]; or null
  // Of distances (distance_attention.hpp), rows `distance_stride` apart, without the zeros before the first; or null.
  const float* distances = nullptr;
  int distance_width = 0, distance_extent = 0;
  std::size_t distance_stride = 0;
  float least = -__builtin_inff(); // log2 of the share of the largest weight below which weights are 0, see `highest`
  bool out_bf16 = false;
};

/// A row's query for one head. It sees the positions [first, end).
struct attention_query {
  const float* q = nullptr; // [head_dim]
  void* out = nullptr;      // [head_dim]
  int position = 0;
  int head = 0;
  int first = 0, end = 0;
  float highest = -__builtin_inff(); // a score, in units of ln 2, from which `least` counts where it is the larger one
  const float* mix = nullptr;        // [distance_width], with `distances`
};

/// Blocks [first, last) of a partition, which some neighbouring queries of a tile read from one table.
struct attention_stretch {
  const std::int32_t* blocks = nullptr; // from the partition's start
  int first_query = 0, queries = 0;
  int first = 0, last = 0;
  bool end = false; // its queries see no further blocks of the partition
};

/// Queries that read the same blocks of one KV head, of one sequence or of several that share those blocks.
struct attention_tile {
  attention_query queries[max_queries];
  int count = 0;
  int kv_head = 0;
  const std::int32_t* blocks = nullptr; // block table from position 0
  int end_block = 0;                    // end of the table, which limits prefetching
  /// The stretches of a partition of which they do not share all blocks: a tree in preorder, so that each query has its
  /// stretches in ascending order, and is in one with `end`. None: they share all.
  const attention_stretch* stretches = nullptr;
  int stretch_count = 0;
};

/// The softmax state of a tile's queries: running maximum m, sum l of exp(score - m), and output o, weighted by the
/// same exponentials. l = 0 is the empty state. Query i has m at data[i * stride], l at [1], o at [16], with stride =
/// state_stride(head_dim).
struct attention_state {
  float* data = nullptr; // aligned to 64 bytes
  std::size_t stride = 0;
};

/// Floats in the state of one query.
constexpr std::size_t state_stride(int head_dim) { return 16 + (static_cast<std::size_t>(head_dim) + 15) / 16 * 16; }

// -- the table of a target --------------------------------------------------------------------------------------------

struct target {
  int linear_rows;    // most rows of a tile
  int pair_rows;      // most rows of a tile with weights in pairs
  int task_rows;      // most rows of a task: their activations, sums and a block of weights fit an L2 of 1 MiB
  bool pairs;         // bf16 weights for bf16 activations are packed in pairs; else activations become f32
  int wide_queries;   // most queries of a tile, <= max_queries, for K and V in f32
  int narrow_queries; // most queries of a tile for K and V in bf16, int8 or fp8

  /// `scratch`: f32 for all rows of the task's tiles and all columns of its panels.
  void (*linear)(const linear_op&, const linear_task&, float* scratch);

  /// Most rows of a tile with weights of the quantised `kind`.
  int (*quantised_rows)(weight_kind kind);

  /// Writes `groups` groups of 32 activations of one row as records for the quantised `kind`, `stride` words apart.
  void (*quantise)(weight_kind kind, std::uint32_t* to, std::size_t stride, const float* from, std::size_t groups);

  /// Widens n numbers of kind f32, f16 or bf16 to f32.
  void (*widen)(weight_kind, float* to, const void* from, std::size_t n);

  void (*rms_norm)(const norm_op&, void* out, const float* x);

  /// Rotates one row of q, k and v, and writes k and v to the position's place in `block`.
  void (*rope_write_kv)(const rope_op&, float* row, int position, int block);

  /// Attends to one partition of the context and stores the result in `state`. Returns the bytes of V that were not
  /// read because all queries' weights were 0.
  std::size_t (*attend_partition)(const attention_op&, const attention_tile&, int partition, attention_state state);

  /// Scores each position of a partition that query 0 of the tile sees: the sum of the queries' scores that are above 0
  /// times their weights, in order; `first`: else what `sums` has is the sum so far. Positions behind them in the same
  /// block get any number. `sums` [partition_tokens], aligned to 64 bytes.
  void (*score_positions)(const attention_op&, const attention_tile&, int partition, const float* weights, bool first,
                          float* sums);

  /// Merges the later `part` into `state`, for `queries` queries.
  void (*merge)(const attention_op&, int queries, attention_state state, attention_state part);

  /// Writes o / l to the queries' `out`.
  void (*finish)(const attention_op&, const attention_tile&, attention_state state);

  void (*layer_norm)(const norm_op&, void* out, const float* x);

  /// x[i] *= factor, then, if `soft_cap` is not 0, soft_cap * tanh(x[i] / soft_cap).
  void (*scale)(float* x, std::size_t n, float factor, float soft_cap);

  /// to[i] += factor * x[i].
  void (*add_scaled)(float* to, const float* x, std::size_t n, float factor);

  /// Rounds to bf16.
  void (*narrow)(std::uint16_t* to, const float* from, std::size_t n);

  void (*low_rank)(const low_rank_op&, std::size_t first_tile, std::size_t tiles);

  std::size_t pair_group = 1; // words of K that one instruction adds with weights in pairs
  bool code_pairs = false;    // fp8 weights for bf16 activations are packed in pairs
  bool halves = false;        // bf16 weights that are not in pairs are packed in halves
};

const target& portable_target();
const target& neon_target();
const target& neon_dotprod_target();
const target& neon_i8mm_target();
const target& sve_128_target();
const target& sve_256_target();
const target& sve_512_target();
const target& avx2_target();
const target& avx_vnni_target();
const target& avx512_target();
const target& avx512_vnni_target();
const target& avx512_bf16_target();
const target& avx512_amx_target();

} // namespace troupe::kernels
