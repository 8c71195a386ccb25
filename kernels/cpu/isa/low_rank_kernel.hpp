// Products with low-rank pairs. Only for the target units.
#pragma once

#include "kernels/cpu/isa/simd.hpp"
#include "kernels/cpu/target.hpp"

namespace troupe::kernels {
namespace {

// Operands: 16 words of a row or of weights, and the sum of their products in each lane.

struct f32_lines {
  using words = vec;
  static words load_words(const void* p) { return load(static_cast<const float*>(p)); }
  static words word(const std::uint32_t* p) {
    float x;
    std::memcpy(&x, p, sizeof x);
    return broadcast(x);
  }
  static vec add(vec to, words a, words b) { return fma(a, b, to); }
};

#if defined(TROUPE_PAIRS)

struct bf16_lines {
  using words = pairs16;
  static words load_words(const void* p) { return load_pairs(p); }
  static words word(const std::uint32_t* p) { return broadcast_pair(p); }
  static vec add(vec to, words a, words b) { return add_pairs_of(to, a, b); }
};

#else

struct bf16_lines {
  struct words {
    vec even, odd;
  };
  static words load_words(const void* p) {
    alignas(64) std::uint32_t all[low_rank_line]; // rows of bf16 need not be aligned to words
    std::memcpy(all, p, sizeof all);
    return {even_bf16(all), odd_bf16(all)};
  }
  static words word(const std::uint32_t* p) {
    const std::uint32_t even = *p << 16, odd = *p & 0xffff0000;
    float x, y;
    std::memcpy(&x, &even, sizeof x);
    std::memcpy(&y, &odd, sizeof y);
    return {broadcast(x), broadcast(y)};
  }
  static vec add(vec to, const words& a, const words& b) { return fma(a.even, b.even, fma(a.odd, b.odd, to)); }
};

#endif

/// One tile of ranks for `Rows` rows. Each sum is its own, so its bits depend neither on Rows nor on the tile.
template <class Operand, int Rows>
void low_rank_product(const low_rank_op& op, std::size_t tile, std::size_t first_row) {
  constexpr std::size_t line_bytes = low_rank_line * sizeof(std::uint32_t);
  const std::size_t row_bytes = op.cols * (op.bf16 ? 2 : 4), whole = row_bytes / line_bytes;
  const std::size_t lines = (row_bytes + line_bytes - 1) / line_bytes;
  const auto* a = static_cast<const char*>(op.a) + tile * lines * low_rank_tile * line_bytes;
  const char* rows[Rows];
  vec sums[Rows][low_rank_tile];
  for (int r = 0; r < Rows; ++r) {
    rows[r] = static_cast<const char*>(op.in) + static_cast<std::size_t>(op.rows[first_row + r]) * op.in_stride;
    for (auto& sum : sums[r])
      sum = zero();
  }
  const auto add_line = [&](const auto& line_of) {
    typename Operand::words weights[low_rank_tile];
    for (std::size_t i = 0; i < low_rank_tile; ++i)
      weights[i] = Operand::load_words(a + i * line_bytes);
    for (int r = 0; r < Rows; ++r) {
      const auto x = line_of(r);
      for (std::size_t i = 0; i < low_rank_tile; ++i)
        sums[r][i] = Operand::add(sums[r][i], x, weights[i]);
    }
    a += low_rank_tile * line_bytes;
  };
  for (std::size_t line = 0; line < whole; ++line)
    add_line([&](int r) { return Operand::load_words(rows[r] + line * line_bytes); });
  if (whole < lines)
    add_line([&](int r) {
      alignas(64) char rest[line_bytes] = {};
      std::memcpy(rest, rows[r] + whole * line_bytes, row_bytes - whole * line_bytes);
      return Operand::load_words(rest);
    });
  for (int r = 0; r < Rows; ++r)
    for (std::size_t i = 0; i < low_rank_tile; ++i) {
      auto* low = op.low + (first_row + r) * op.low_words;
      const float value = sum(sums[r][i]);
      if (op.bf16) {
        const std::uint16_t rounded = to_bf16(value);
        std::memcpy(reinterpret_cast<char*>(low) + (tile * low_rank_tile + i) * sizeof rounded, &rounded,
                    sizeof rounded);
      } else {
        std::memcpy(low + tile * low_rank_tile + i, &value, sizeof value);
      }
    }
}

template <class Operand>
void low_rank_rows(const low_rank_op& op, std::size_t first_tile, std::size_t tiles) {
  for (std::size_t row = 0; row < op.count; row += 4)
    for (std::size_t tile = first_tile; tile < first_tile + tiles; ++tile)
      switch (op.count - row) {
        case 1: low_rank_product<Operand, 1>(op, tile, row); break;
        case 2: low_rank_product<Operand, 2>(op, tile, row); break;
        case 3: low_rank_product<Operand, 3>(op, tile, row); break;
        default: low_rank_product<Operand, 4>(op, tile, row); break;
      }
}

void low_rank(const low_rank_op& op, std::size_t first_tile, std::size_t tiles) {
  if (op.bf16)
    low_rank_rows<bf16_lines>(op, first_tile, tiles);
  else
    low_rank_rows<f32_lines>(op, first_tile, tiles);
}

template <class Operand>
inline vec low_rank_sums(const row_addend& addend, std::size_t block) {
  const auto& b = addend.blocks[block];
  const auto* weights = addend.b + b.offset * low_rank_outputs;
  const auto* low = addend.low + b.first;
  const auto add = [&](vec to, std::size_t k) {
    return Operand::add(to, Operand::word(low + k), Operand::load_words(weights + k * low_rank_outputs));
  };
  vec even = zero(), odd = zero(); // two sums hide latency better
  std::size_t k = 0;
  for (; k + 1 < b.words; k += 2) {
    even = add(even, k);
    odd = add(odd, k + 1);
  }
  if (k < b.words)
    even = add(even, k);
  return even + odd;
}

/// What is added to 16 outputs from `output` on. The blocks are those of the whole product, of which these may straddle
/// two, where a part of it begins elsewhere.
inline vec low_rank_addend(bool bf16, const row_addend& addend, std::size_t output) {
  const auto block = [&](std::size_t i) {
    return bf16 ? low_rank_sums<bf16_lines>(addend, i) : low_rank_sums<f32_lines>(addend, i);
  };
  const std::size_t first = output / low_rank_outputs, shift = output % low_rank_outputs;
  if (shift == 0)
    return block(first);
  alignas(64) float both[2 * low_rank_outputs];
  store(both, block(first));
  store(both + low_rank_outputs, block(first + 1));
  return load(both + shift);
}

} // namespace
} // namespace troupe::kernels
