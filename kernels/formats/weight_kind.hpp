// How packed weights are stored. Plain, so that the units of every device's kernels can include it.
#pragma once

#include <cstdint>

namespace troupe::kernels {

/// Float kinds hold weights as they are; `bf16_pairs` has two consecutive inputs in a word, for instructions that
/// multiply and add pairs, and `bf16_halves` two outputs, which mask and shift take apart. fp8 is E4M3 with an f32 scale per output; `fp8_pairs` has two codes in a word, which become
/// such pairs. The grouped kinds have scales for every 32 inputs:
/// q8, q5 and q4 have codes of as many bits and one f16 scale, `_min` a minimum beside it, and the `_k` kinds
/// super-blocks of 8 groups with f16 factors over 8-bit scales and minima (q6_k and q3_k: two scales per group; q2_k:
/// two scales and two minima). The codes of iq4, iq4_k and mx4 are places in tables of 16 weights; the scale of an mx4
/// group is a bf16. The codes of the kinds from q1 on become bytes before they are multiplied: q1, tq2 and nv4 have 1, 2
/// and 4 bits, and tables, too; the halves of an nv4 group have scales in E4M3; the others name entries of codebooks.
/// Each backend lays them out its own way; CUDA has no pairs, halves, q3_k, q2_k, tables (its iq4_k has 8-bit codes) and
/// codebooks.
enum class weight_kind : std::uint8_t {
  f32,
  f16,
  bf16,
  bf16_pairs,
  bf16_halves,
  fp8,
  fp8_pairs,
  q8,
  q5,
  q5_min,
  q4,
  q4_min,
  q4_k,
  q5_k,
  q6_k,
  q3_k,
  q2_k,
  iq4,
  iq4_k,
  mx4,
  q1,
  tq2,
  nv4,
  iq1,
  iq2_xxs,
  iq2_xs,
  iq2_s,
  iq3_xxs,
  iq3_s
};

/// The weights of iq4 and iq4_k, and twice those of mx4 (E2M1), by code, plus 128.
inline constexpr std::uint8_t iq4_table[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
inline constexpr std::uint8_t mx4_table[16] = {128, 129, 130, 131, 132, 134, 136, 140,
                                               128, 127, 126, 125, 124, 122, 120, 116};

/// The weights of the kinds that become bytes, plus 64, or 16 where they are at most 15. iq1 to iq3_s: of an entry's
/// level, or of 8 plus the level if the weight is negative; of iq1, half the levels are moved up by an eighth of the
/// scale, the others down.
inline constexpr std::uint8_t q1_table[16] = {15, 17};
inline constexpr std::uint8_t tq2_table[16] = {15, 16, 17, 18};
inline constexpr std::uint8_t nv4_table[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};
inline constexpr std::uint8_t iq1_table[16] = {9, 17, 25, 16, 7, 15, 23, 16};
inline constexpr std::uint8_t iq2_table[16] = {72, 89, 107, 64, 64, 64, 64, 64, 56, 39, 21, 64, 64, 64, 64, 64};
inline constexpr std::uint8_t iq3_xxs_table[16] = {68, 76, 84, 92, 100, 108, 116, 126, 60, 52, 44, 36, 28, 20, 12, 2};
inline constexpr std::uint8_t iq3_s_table[16] = {17, 19, 21, 23, 25, 27, 29, 31, 15, 13, 11, 9, 7, 5, 3, 1};

/// Whether codes become bytes before they are multiplied.
constexpr bool is_expanded(weight_kind kind) { return kind >= weight_kind::q1; }

/// Whether codes name entries of a codebook.
constexpr bool has_codebook(weight_kind kind) { return kind >= weight_kind::iq1; }

/// A codebook and the codes that name its entries.
struct codebook_shape {
  int weights = 8; // of an entry, which a place of 8 bits and `high_bits` names
  int high_bits = 0;
  bool signs = true; // weights have a bit for their sign
  int parts = 1;     // scales per group
  float unit = 1;    // of the scales
  int zero = 64;     // of the values
  const std::uint8_t* values = nullptr;

  /// In a group.
  constexpr int entries() const { return 32 / weights; }
  /// That hold the high bits of a group.
  constexpr int high_bytes() const { return entries() * high_bits / 8; }
};

constexpr codebook_shape shape_of(weight_kind kind) {
  switch (kind) {
    case weight_kind::iq1: return {8, 4, false, 2, 0.125f, 16, iq1_table};
    case weight_kind::iq2_xxs: return {8, 0, true, 1, 0.125f, 64, iq2_table};
    case weight_kind::iq2_xs:
    case weight_kind::iq2_s: return {8, 2, true, 2, 0.125f, 64, iq2_table};
    case weight_kind::iq3_xxs: return {4, 0, true, 1, 0.25f, 64, iq3_xxs_table};
    case weight_kind::iq3_s: return {4, 1, true, 1, 1.0f, 16, iq3_s_table};
    default: return {};
  }
}

/// Whether a word has two inputs.
constexpr bool in_pairs(weight_kind kind) { return kind == weight_kind::bf16_pairs || kind == weight_kind::fp8_pairs; }

/// Whether weights are codes of E4M3.
constexpr bool is_fp8(weight_kind kind) { return kind == weight_kind::fp8 || kind == weight_kind::fp8_pairs; }

/// Whether groups of inputs have scales.
constexpr bool is_grouped(weight_kind kind) { return kind >= weight_kind::q8; }

} // namespace troupe::kernels
