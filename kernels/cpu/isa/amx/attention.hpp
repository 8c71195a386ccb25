// The two matrix products of attention over one partition with AMX tiles of bf16, for 16 or 32 queries at a time.
// Queries and weights are rounded to bf16; int8 and fp8 codes become bf16 exactly. The order of summation does not depend on
// the number of queries, so decode and prefill give the same bits. Only for the target unit with AMX.
//
// Tile registers: 0 to 3 sums, 4 and 5 queries or weights, 5 to 7 K or V.
#pragma once

#include "kernels/cpu/isa/attention_products.hpp"
#include "kernels/cpu/isa/native/tile_instructions.hpp"

namespace troupe::kernels {
namespace {

/// Writes 16 words of bf16 pairs: the codes at `even` and `odd`.
template <class Cells>
inline void widen_pairs(std::uint32_t* to, const std::int8_t* even, const std::int8_t* odd) {
  const auto low = _mm512_srli_epi32(_mm512_castps_si512(Cells::column(even).v), 16);
  _mm512_store_si512(to, _mm512_or_si512(low, _mm512_castps_si512(Cells::column(odd).v)));
}

/// `Cells` are bf16, or codes of 8 bits with scales.
template <class Cells>
class tile_products {
public:
  static constexpr int most_queries = 32;
  static constexpr bool scaled = Cells::scaled;

  tile_products(const attention_op& op, const attention_tile& tile, tile_scratch& scratch)
    : dim_(op.cache.head_dim), steps_((dim_ + 31) / 32), scratch_(scratch) {
    const vec scale = broadcast(query_scale(op));
    for (int i = 0; i < tile.count; ++i)
      for (int d = 0; d < steps_ * 32; d += lanes)
        put_bf16(reinterpret_cast<std::uint16_t*>(scratch.q[i]) + d,
                 (d < dim_ ? load_some(tile.queries[i].q + d, dim_ - d) : zero()) * scale);
    if constexpr (scaled)
      for (auto& block : wide_)
        std::memset(block + dim_ / 2 * 16, 0, (steps_ * 16 - dim_ / 2) * 64);
  }

  void score(const partition_blocks& blocks, query_span of, int first, int last) const {
    of_ = of;
    configure(16, 64);
    int block = first;
    if (of.count > 16) {
      for (; block + 2 <= last; block += 2)
        score_32_by_2(blocks, block);
      for (; block < last; ++block)
        score_32_by_1(blocks, block);
    } else {
      for (; block + 4 <= last; block += 4)
        score_16_by_4(blocks, block);
      for (; block < last; ++block)
        score_16_by_1(blocks, block);
    }
  }

  /// Overwrites scores with weights, which take half their room.
  void put_weights(float* p, int token, vec weights) const {
    put_bf16(reinterpret_cast<std::uint16_t*>(p) + token, weights);
  }

  /// Like vector_products::weigh, but all values are read: tiles are loaded with a fixed stride. Returns 0.
  std::size_t weigh(const partition_blocks& blocks, query_span of, int first, int last, bool more, float* o,
                    std::size_t stride) const {
    of_ = of;
    more_ = more;
    configure(8, 32);
    const auto o_bytes = static_cast<long>(stride * sizeof(float));
    int d = 0;
    if (of.count > 16) {
      for (; d + 16 < dim_; d += 32)
        weigh_32_by_2(blocks, first, last, o + d, o_bytes, d);
      for (; d < dim_; d += 16)
        weigh_32_by_1(blocks, first, last, o + d, o_bytes, d);
    } else {
      for (; d + 48 < dim_; d += 64)
        weigh_16_by_4(blocks, first, last, o + d, o_bytes, d);
      for (; d < dim_; d += 16)
        weigh_16_by_1(blocks, first, last, o + d, o_bytes, d);
    }
    tile_release();
    return 0;
  }

private:
  static constexpr long query_bytes = query_stride * sizeof(float), row_bytes = row_stride * sizeof(float);

  /// `inner`: rows of K or V, bf16 pairs. `bytes`: of a row of queries or weights.
  void configure(int inner, int bytes) const {
    const int low = at_most(of_.count, 16);
    const int high = of_.count > 16 ? of_.count - 16 : low;
    tile_configuration tiles;
    tiles.set(0, low, 64);
    tiles.set(1, low, 64);
    tiles.set(2, high, 64);
    tiles.set(3, high, 64);
    tiles.set(4, low, bytes);
    if (of_.count > 16)
      tiles.set(5, high, bytes);
    else
      tiles.set(5, inner, 64);
    tiles.set(6, inner, 64);
    tiles.set(7, inner, 64);
    tile_configure(tiles);
  }

  const char* queries(int query, int step) const {
    return reinterpret_cast<const char*>(scratch_.q[of_.first + query]) + step * 64;
  }
  const char* weights(int query, int block) const {
    return reinterpret_cast<const char*>(scratch_.p[of_.first + query]) + block * 32;
  }

  /// K of a block, [steps][16 rows][16 tokens][2 dimensions], with finite values beyond the last dimension. Codes are
  /// widened to buffer i.
  const char* keys(const partition_blocks& blocks, int block, int i) const {
    if constexpr (scaled) {
      blocks.after_keys(block).fetch();
      blocks.load_scales(scratch_, block);
      const auto* codes = reinterpret_cast<const std::int8_t*>(blocks.keys(block));
      auto* to = wide_[i];
      for (int row = 0; row < dim_ / 2; ++row)
        widen_pairs<Cells>(to + row * 16, codes + row * 32, codes + row * 32 + 16);
      return reinterpret_cast<const char*>(to);
    } else {
      return blocks.keys(block);
    }
  }

  struct value_tiles {
    const char* data;
    long stride, next; // bytes between rows and between tiles
  };

  /// V of a block from dimension `d` on, `tiles` times 16 dimensions: [8 pairs of tokens][16 dimensions][2 tokens].
  value_tiles values(const partition_blocks& blocks, int block, int d, int tiles) const {
    if constexpr (scaled) {
      const auto* codes = reinterpret_cast<const std::int8_t*>(blocks.values(block)) + d;
      auto* to = wide_[block % 2];
      for (int tile = 0; tile < tiles; ++tile)
        for (int row = 0; row < 8; ++row) {
          const auto* even = codes + 2 * row * dim_ + tile * 16;
          widen_pairs<Cells>(to + (tile * 8 + row) * 16, even, even + dim_);
        }
      return {reinterpret_cast<const char*>(to), 64, 512};
    } else {
      return {blocks.values(block) + d * 4, dim_ * 4, 64};
    }
  }

  void score_16_by_4(const partition_blocks& blocks, int block) const {
    const char* k[4];
    stretch next[4];
    for (int i = 0; i < 4; ++i) {
      k[i] = keys(blocks, block + i, i);
      if constexpr (!scaled)
        next[i] = blocks.after_keys(block + i);
    }
    tile_zero<0>();
    tile_zero<1>();
    tile_zero<2>();
    tile_zero<3>();
    for (int step = 0; step < steps_; ++step) {
      tile_load<4>(queries(0, step), query_bytes);
      tile_load<5>(k[0] + step * 1024, 64);
      next[0].fetch(step, steps_);
      tile_dot_bf16<0, 4, 5>();
      tile_load<6>(k[1] + step * 1024, 64);
      next[1].fetch(step, steps_);
      tile_dot_bf16<1, 4, 6>();
      tile_load<7>(k[2] + step * 1024, 64);
      next[2].fetch(step, steps_);
      tile_dot_bf16<2, 4, 7>();
      tile_load<5>(k[3] + step * 1024, 64);
      next[3].fetch(step, steps_);
      tile_dot_bf16<3, 4, 5>();
    }
    float* p = scratch_.p[of_.first] + block * 16;
    tile_store<0>(p, row_bytes);
    tile_store<1>(p + 16, row_bytes);
    tile_store<2>(p + 32, row_bytes);
    tile_store<3>(p + 48, row_bytes);
  }

  void score_16_by_1(const partition_blocks& blocks, int block) const {
    const char* k = keys(blocks, block, 0);
    if constexpr (!scaled)
      blocks.after_keys(block).fetch();
    tile_zero<0>();
    for (int step = 0; step < steps_; ++step) {
      tile_load<4>(queries(0, step), query_bytes);
      tile_load<6>(k + step * 1024, 64);
      tile_dot_bf16<0, 4, 6>();
    }
    tile_store<0>(scratch_.p[of_.first] + block * 16, row_bytes);
  }

  void score_32_by_2(const partition_blocks& blocks, int block) const {
    const char* const k[2] = {keys(blocks, block, 0), keys(blocks, block + 1, 1)};
    if constexpr (!scaled) {
      blocks.after_keys(block).fetch();
      blocks.after_keys(block + 1).fetch();
    }
    tile_zero<0>();
    tile_zero<1>();
    tile_zero<2>();
    tile_zero<3>();
    for (int step = 0; step < steps_; ++step) {
      tile_load<4>(queries(0, step), query_bytes);
      tile_load<6>(k[0] + step * 1024, 64);
      tile_dot_bf16<0, 4, 6>();
      tile_load<7>(k[1] + step * 1024, 64);
      tile_dot_bf16<1, 4, 7>();
      tile_load<5>(queries(16, step), query_bytes);
      tile_dot_bf16<2, 5, 6>();
      tile_dot_bf16<3, 5, 7>();
    }
    float* p = scratch_.p[of_.first] + block * 16;
    float* other = scratch_.p[of_.first + 16] + block * 16;
    tile_store<0>(p, row_bytes);
    tile_store<1>(p + 16, row_bytes);
    tile_store<2>(other, row_bytes);
    tile_store<3>(other + 16, row_bytes);
  }

  void score_32_by_1(const partition_blocks& blocks, int block) const {
    const char* k = keys(blocks, block, 0);
    if constexpr (!scaled)
      blocks.after_keys(block).fetch();
    tile_zero<0>();
    tile_zero<2>();
    for (int step = 0; step < steps_; ++step) {
      tile_load<6>(k + step * 1024, 64);
      tile_load<4>(queries(0, step), query_bytes);
      tile_dot_bf16<0, 4, 6>();
      tile_load<5>(queries(16, step), query_bytes);
      tile_dot_bf16<2, 5, 6>();
    }
    tile_store<0>(scratch_.p[of_.first] + block * 16, row_bytes);
    tile_store<2>(scratch_.p[of_.first + 16] + block * 16, row_bytes);
  }

  void weigh_16_by_4(const partition_blocks& blocks, int first, int last, float* o, long o_bytes, int d) const {
    begin<0>(o, o_bytes);
    begin<1>(o + 16, o_bytes);
    begin<2>(o + 32, o_bytes);
    begin<3>(o + 48, o_bytes);
    for (int block = first; block < last; ++block) {
      const auto v = values(blocks, block, d, 4);
      const auto next = d == 0 ? blocks.after_values(block) : stretch{};
      tile_load<4>(weights(0, block), row_bytes);
      tile_load<5>(v.data, v.stride);
      next.fetch(0, 4);
      tile_dot_bf16<0, 4, 5>();
      tile_load<6>(v.data + v.next, v.stride);
      next.fetch(1, 4);
      tile_dot_bf16<1, 4, 6>();
      tile_load<7>(v.data + 2 * v.next, v.stride);
      next.fetch(2, 4);
      tile_dot_bf16<2, 4, 7>();
      tile_load<5>(v.data + 3 * v.next, v.stride);
      next.fetch(3, 4);
      tile_dot_bf16<3, 4, 5>();
    }
    tile_store<0>(o, o_bytes);
    tile_store<1>(o + 16, o_bytes);
    tile_store<2>(o + 32, o_bytes);
    tile_store<3>(o + 48, o_bytes);
  }

  void weigh_16_by_1(const partition_blocks& blocks, int first, int last, float* o, long o_bytes, int d) const {
    begin<0>(o, o_bytes);
    for (int block = first; block < last; ++block) {
      if (d == 0)
        blocks.after_values(block).fetch();
      const auto v = values(blocks, block, d, 1);
      tile_load<4>(weights(0, block), row_bytes);
      tile_load<6>(v.data, v.stride);
      tile_dot_bf16<0, 4, 6>();
    }
    tile_store<0>(o, o_bytes);
  }

  void weigh_32_by_2(const partition_blocks& blocks, int first, int last, float* o, long o_bytes, int d) const {
    char* other = reinterpret_cast<char*>(o) + 16 * o_bytes;
    begin<0>(o, o_bytes);
    begin<1>(o + 16, o_bytes);
    begin<2>(other, o_bytes);
    begin<3>(other + 64, o_bytes);
    for (int block = first; block < last; ++block) {
      if (d == 0)
        blocks.after_values(block).fetch();
      const auto v = values(blocks, block, d, 2);
      tile_load<4>(weights(0, block), row_bytes);
      tile_load<6>(v.data, v.stride);
      tile_dot_bf16<0, 4, 6>();
      tile_load<7>(v.data + v.next, v.stride);
      tile_dot_bf16<1, 4, 7>();
      tile_load<5>(weights(16, block), row_bytes);
      tile_dot_bf16<2, 5, 6>();
      tile_dot_bf16<3, 5, 7>();
    }
    tile_store<0>(o, o_bytes);
    tile_store<1>(o + 16, o_bytes);
    tile_store<2>(other, o_bytes);
    tile_store<3>(other + 64, o_bytes);
  }

  void weigh_32_by_1(const partition_blocks& blocks, int first, int last, float* o, long o_bytes, int d) const {
    begin<0>(o, o_bytes);
    begin<2>(reinterpret_cast<char*>(o) + 16 * o_bytes, o_bytes);
    for (int block = first; block < last; ++block) {
      if (d == 0)
        blocks.after_values(block).fetch();
      const auto v = values(blocks, block, d, 1);
      tile_load<6>(v.data, v.stride);
      tile_load<4>(weights(0, block), row_bytes);
      tile_dot_bf16<0, 4, 6>();
      tile_load<5>(weights(16, block), row_bytes);
      tile_dot_bf16<2, 5, 6>();
    }
    tile_store<0>(o, o_bytes);
    tile_store<2>(reinterpret_cast<char*>(o) + 16 * o_bytes, o_bytes);
  }

  /// Sums that begin at 0, or go on.
  template <int T>
  void begin(const void* o, long o_bytes) const {
    if (more_)
      tile_load<T>(o, o_bytes);
    else
      tile_zero<T>();
  }

  int dim_, steps_; // of 32 dimensions
  mutable query_span of_ = {0, 0};
  mutable bool more_ = false;
  tile_scratch& scratch_;
  alignas(64) mutable std::uint32_t wide_[scaled ? 4 : 1][scaled ? (max_head_dim / 2) * 16 : 1];
};

} // namespace
} // namespace troupe::kernels
