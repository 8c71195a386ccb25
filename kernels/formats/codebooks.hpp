// Blocks whose weights are entries of codebooks: GGUF's types from iq1_s to iq3_s. An entry has four or eight levels,
// and a weight is the value of its level, with a sign. Plain functions; any thread.
//
// Blocks of 256 weights; a scale s stands for 2 * s + 1, d is f16, `places` are those of entries in the codebook:
//   iq3_xxs  98 bytes: d; 64 of places; 8 u32: four signs of 7 bits, a scale of 4.        values 4 to 62, unit 1/4
//   iq3_s   110: d; 64 of places; 8 of their ninth bits; 32 of signs; 4 of nibbles: scales.  1 to 15
//   iq2_xxs  66: d; 8 times 4 of places, u32 as above.                                       8, 25, 43, unit 1/8
//   iq2_xs   74: d; 32 u16: a place of 9 bits, signs of 7; 8 of nibbles: scales of halves.   8, 25, 43, unit 1/8
//   iq2_s    82: d; 32 of places; 32 of signs; 8 of their upper bit pairs; 8 as above.       8, 25, 43, unit 1/8
//   iq1_s    50: d; 32 of places; 8 u16: four times their upper 3 bits, a scale of 3, whether 1/8 is subtracted
//                from the weights, or added.                                                 -1, 0, 1
//   iq1_m    56: 32 of places; 16 of nibbles: their upper 3 bits, and whether 1/8 is subtracted; 4 u16: four scales of
//                halves, of 3 bits; the upper 4 bits are d.                                  -1, 0, 1
// Signs of 7 bits are those of the first seven weights; the eighth is such that an even number are negative.
#pragma once

#include "kernels/formats/weight_groups.hpp"

#include <cstdint>

namespace troupe::kernels {

/// The two bytes of a block at p, the lower one first.
inline std::uint16_t load_u16(const std::uint8_t* p) { return static_cast<std::uint16_t>(p[0] | p[1] << 8); }

/// 32 inputs as a block with a codebook stores them.
struct coded_group {
  std::uint16_t places[8] = {}; // of entries; the first four if these have eight weights
  std::uint32_t signs = 0;      // bit i: input i is negative
  std::uint16_t d = 0;          // f16
  std::uint8_t scales = 0;      // of the halves, 4 bits each; 2 * s + 1
};

/// Group `part` of a block.
coded_group stored_codes(weight_format f, const std::uint8_t* block, int part);

/// The entries of the codebook of a kind; null if it has none. Level i of an entry of four is in byte i, of an entry of
/// eight in the lower half of byte i or the upper half of byte i - 4. The second half of iq1's are the same, plus 4, for
/// weights from which 1/8 is subtracted.
const std::uint32_t* codebook_of(weight_kind kind);

/// The weights of a group.
weight_group decoded(weight_kind kind, const coded_group& group);

} // namespace troupe::kernels
