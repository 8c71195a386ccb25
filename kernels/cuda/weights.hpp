// Weight matrices in device memory: floats row by row, quantised weights in the order in which the lanes of a warp read
// them. Planned here, filled on the host at load by weight_packing.hpp; immutable afterwards, read by the kernels of
// device/linear.
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/formats/weight_kind.hpp"
#include "kernels/ops.hpp"

#include <memory>
#include <span>
#include <vector>

namespace troupe::kernels::cuda {

enum class scale_layout : std::uint8_t {
  none,
  per_output,         // f32
  per_group,          // f16
  with_minima,        // f16 scale and f16 minimum per group
  factors_and_minima, // f16 factors of an output; a scale and a minimum per group, 0 to 127
  factors_and_halves, // f16 factor of an output; two i8 scales per group
};

/// The facts of a kind of packed weights (kernels/formats/weight_kind.hpp) that kernels, packing and memory plans read.
struct packed_layout {
  const char* name = "not packed on GPUs";
  std::size_t element_bytes = 0; // of plain rows; 0: codes in groups
  int code_bits = 0;
  scale_layout scales = scale_layout::none;
  int zero = 0; // of codes of less than 8 bits; 8-bit ones are signed
};

/// Codes of 5 and 6 bits that half a word holds whole.
constexpr int whole_codes(int bits) { return 16 / bits; }

/// f32 and f16 occur only with activations in f32.
constexpr packed_layout layout_of(weight_kind kind) {
  switch (kind) {
    case weight_kind::f32: return {"f32", 4, 32, scale_layout::none};
    case weight_kind::f16: return {"f16", 2, 16, scale_layout::none};
    case weight_kind::bf16: return {"bf16", 2, 16, scale_layout::none};
    case weight_kind::fp8: return {"fp8", 1, 8, scale_layout::per_output};
    case weight_kind::q8: return {"int8", 0, 8, scale_layout::per_group};
    case weight_kind::q5: return {"q5_0", 0, 5, scale_layout::per_group, 16};
    case weight_kind::q5_min: return {"q5_1", 0, 5, scale_layout::with_minima};
    case weight_kind::q4: return {"q4_0", 0, 4, scale_layout::per_group, 8};
    case weight_kind::q4_min: return {"int4", 0, 4, scale_layout::with_minima};
    case weight_kind::q4_k: return {"q4_k", 0, 4, scale_layout::factors_and_minima};
    case weight_kind::q5_k: return {"q5_k", 0, 5, scale_layout::factors_and_minima};
    case weight_kind::q6_k: return {"q6_k", 0, 6, scale_layout::factors_and_halves, 32};
    case weight_kind::iq4_k: return {"iq4_xs", 0, 8, scale_layout::factors_and_halves};
    case weight_kind::bf16_pairs:
    case weight_kind::bf16_halves:
    case weight_kind::fp8_pairs:
    case weight_kind::q3_k:
    case weight_kind::q2_k:
    case weight_kind::iq4:
    case weight_kind::mx4:
    case weight_kind::q1:
    case weight_kind::tq2:
    case weight_kind::nv4:
    case weight_kind::iq1:
    case weight_kind::iq2_xxs:
    case weight_kind::iq2_xs:
    case weight_kind::iq2_s:
    case weight_kind::iq3_xxs:
    case weight_kind::iq3_s: break;
  }
  return {};
}

/// Position of input k in a row of fp8: of every four inputs the second and third are exchanged
/// (device/code_pairs.hpp).
constexpr std::size_t fp8_place(std::size_t k) { return (k & ~std::size_t(3)) | (k & 1) << 1 | (k >> 1 & 1); }

inline constexpr int tile_outputs = 16, chunk_inputs = 128, chunk_groups = 4;

/// Bytes of the codes, and of the scales, of a tile's 16 outputs over a chunk of a grouped kind.
constexpr std::size_t chunk_code_bytes(weight_kind kind) {
  return static_cast<std::size_t>(tile_outputs * chunk_inputs * layout_of(kind).code_bits / 8);
}
constexpr std::size_t chunk_scale_bytes(weight_kind kind) {
  switch (layout_of(kind).scales) {
    case scale_layout::per_group: return tile_outputs * chunk_groups * 2;
    case scale_layout::with_minima: return tile_outputs * chunk_groups * 4;
    case scale_layout::factors_and_minima:
    case scale_layout::factors_and_halves: return tile_outputs * (4 + 2 * chunk_groups);
    case scale_layout::none:
    case scale_layout::per_output: break;
  }
  return 0;
}

/// A range of a matrix's outputs of one kind, in tiles of 16 rows. A gated tile has 8 rows of gate, then the same 8 of
/// up.
///
/// Floats: [tiles * 16][stride], padded with zeros. fp8: the same with rows of whole chunks, inputs at fp8_place, and
/// scales [tiles * 16] in f32. Groups, per tile and chunk of 128 inputs: codes, 16 bytes per lane, and scales. Lane 4g
/// + t has outputs g and g + 8; of a group's 32 inputs it has 4t to 4t + 3 and 16 + 4t to 16 + 4t + 3, for the two
/// steps of the tensor cores.
///   8-bit codes, signed: words [row half][pair of groups][lane][group][step], inputs 0, 2, 1, 3 from the lowest byte.
///   Others are in pairs of inputs, four for each group, one input in either half of a word.
///   4-bit codes: words [row half][lane][group], pair j in nibbles j and j + 4.
/// 6-bit codes: a lane has words [row half][pair of groups][3] for each 8 pairs: the first six by twos from bits 0 and
///   6; bits 12 to 15 hold four lower bits of the last two pairs, those of the third word the upper two of both.
///   5-bit codes: a lane has words [row half][5] for 16 pairs: 15 by threes from bits 0, 5 and 10; bit 15 of word i is
///   bit i of the last.
///   A lane's words of 5 and 6 bits are stored four at a time, [4 words][lane], then the two that are left.
/// Scales per group: [16 rows][4 groups] f16; with minima [16][4][scale, minimum] f16. With factors: words [16] of the
///   two f16 factors, the minima's negated; words [16][2], of the groups' scales and their negated minima, or of scales
///   alone.
struct weight_part {
  weight_kind kind = weight_kind::f32;
  std::size_t first = 0; // output of the matrix
  std::size_t outputs = 0;
  std::size_t stored = 0; // matrices stacked in it
  std::size_t inputs = 0;
  std::size_t tiles = 0;
  std::size_t stride = 0; // floats and fp8: elements of a row
  bool gated = false;
  buffer codes; // or floats
  buffer scales;

  std::size_t chunks() const { return (inputs + chunk_inputs - 1) / chunk_inputs; }

  /// `count` tiles from `first_tile` on, in the same memory.
  weight_part slice(std::size_t first_tile, std::size_t count) const;
};

/// Bytes of a part's codes (or floats) and of its scales.
std::size_t code_bytes(const weight_part& part);
std::size_t scale_bytes(const weight_part& part);

class device_matrix : public matrix {
public:
  dtype compute = dtype::f32;
  bool gated = false;
  std::vector<weight_part> parts; // one if gated
};

/// An embedding table: floats as stored, or table_groups (device/rows.hpp).
class device_table : public matrix {
public:
  dtype type = dtype::f32;
  bool grouped = false;
  std::size_t row_bytes = 0;
  buffer data;
};

/// The parts of a packed matrix, without memory. See backend::pack. With activations in f32, quantised weights become
/// f32. Throws std::invalid_argument if the matrices do not fit together.
std::unique_ptr<device_matrix> plan_weights(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                            bool gated);

/// A table without memory.
std::unique_ptr<device_table> plan_table(const stored_matrix& table);

} // namespace troupe::kernels::cuda
