// Weight matrices in device memory: floats row by row, quantised weights in the order in which a warp's lanes want
// them. Packed on the host at load; immutable, read by linear.hpp's kernels.
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/uploader.hpp"
#include "kernels/ops.hpp"

#include <span>
#include <vector>

namespace troupe::kernels::cuda {

constexpr int code_bits(weight_kind k) {
  return k == weight_kind::q4 || k == weight_kind::q4_min || k == weight_kind::q4_k ? 4 : 8;
}

/// Where input k of a row of fp8 lies.
constexpr std::size_t fp8_place(std::size_t k) { return (k & ~std::size_t(3)) | (k & 1) << 1 | (k >> 1 & 1); }

inline constexpr int tile_outputs = 16, chunk_inputs = 128, chunk_groups = 4;

/// Bytes of scales of 16 outputs over a chunk.
constexpr std::size_t scale_bytes(weight_kind k) {
  const bool plain = k == weight_kind::q8 || k == weight_kind::q4;
  const bool pairs = k == weight_kind::q8_min || k == weight_kind::q4_min;
  return tile_outputs * (plain ? 8 : pairs ? 16 : 12);
}

/// A stretch of a matrix's outputs in one kind, in tiles of 16 rows; a gated tile has 8 rows of gate, then the same 8
/// of up.
///
/// Floats: [tiles * 16][stride], padded with zeros. fp8 likewise, with rows of whole chunks, of every four inputs the
/// second and third exchanged (code_pairs.hpp), and scales [tiles * 16] in f32. Groups, per tile and chunk of 128 inputs: codes, as 16 bytes
/// per lane, then scales. Lane 4g + t has outputs g and g + 8; of a group's 32 inputs 4t to 4t+3 and 16 + 4t to 16 +
/// 4t + 3 (the two steps of the tensor cores).
///   8-bit codes, signed: [row half][pair of groups][lane][group][step] words, inputs 0, 2, 1, 3 from the lowest
///   byte. 4-bit codes:         [row half][lane][group] words, a pair of inputs in nibbles j and j + 4. scales: [16
///   rows][4 groups] f16; with minima [16][4][scale, minimum] f16; `_k`: words [factors f16][4 bytes][4 bytes] x [16
///   rows], the bytes being the groups' scales, then their minima (q6_k: two scales for each group).
struct weight_part {
  weight_kind kind = weight_kind::f32;
  std::size_t first = 0; // output of the matrix
  std::size_t outputs = 0;
  std::size_t stored = 0; // matrices that it is made of
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

class device_matrix : public matrix {
public:
  dtype compute = dtype::f32;
  bool gated = false;
  std::vector<weight_part> parts; // one where gated
};

/// An embedding table: floats as stored, or table_groups (rows.hpp).
class device_table : public matrix {
public:
  dtype type = dtype::f32;
  bool grouped = false;
  std::size_t row_bytes = 0;
  buffer data;
};

/// What a matrix will consist of: its parts without their memory. See backend::pack. With f32 activations, quantised
/// weights become f32.
std::unique_ptr<device_matrix> plan_weights(std::span<const stored_matrix> stacked, dtype compute, quantization how,
                                            bool gated);
std::unique_ptr<device_matrix> pack_weights(uploader& to_device, std::span<const stored_matrix> stacked, dtype compute,
                                            quantization how, bool gated);

/// A table without its memory.
std::unique_ptr<device_table> plan_table(const stored_matrix& table);

std::unique_ptr<device_table> pack_table(uploader& to_device, const stored_matrix& table);

} // namespace troupe::kernels::cuda
