// Attention on tensor cores: the operations of a warp on 16 or 32 packed queries and some blocks of tokens. These are
// scores, their softmax, and the weighted sum of V. K and V are loaded from global or shared memory directly as
// operands (kv_layout.hpp), codes are converted to bf16 in registers; q is in shared memory. The tokens of a block of
// 16 are numbered so that the scores a lane receives are its operand of the second product: column n of tile j (0 or 1)
// of 8 columns is token 4 * (n / 2) + 2 * j + n % 2. Only for kernels.
#pragma once

#include "kernels/cuda/device/attention/score_shape.hpp"
#include "kernels/cuda/device/code_pairs.hpp"
#include "kernels/cuda/device/launch.hpp"

#include <type_traits>

namespace troupe::kernels::cuda {

// Cells: how the cache stores elements. `eight` and `four` load that many as bf16 pairs for the tensor cores; `pairs`
// are four elements of q in the order of K's pairs.

struct bf16_cells {
  static constexpr int bytes = 2;
  static constexpr bool scaled = false;
  TROUPE_DEVICE static words2 pairs(const float (&x)[4]) {
    return {simt::float_to_bf16_pair(x[0], x[1]), simt::float_to_bf16_pair(x[2], x[3])};
  }
  TROUPE_DEVICE static words4 eight(const unsigned char* from) { return *reinterpret_cast<const words4*>(from); }
  TROUPE_DEVICE static words2 four(const unsigned char* from) { return *reinterpret_cast<const words2*>(from); }
};

template <std::uint32_t (*pair)(std::uint32_t, int)>
struct code_cells {
  static constexpr int bytes = 1;
  static constexpr bool scaled = true;
  TROUPE_DEVICE static words2 pairs(const float (&x)[4]) {
    return {simt::float_to_bf16_pair(x[0], x[2]), simt::float_to_bf16_pair(x[1], x[3])};
  }
  TROUPE_DEVICE static words4 eight(const unsigned char* from) {
    const words2 codes = *reinterpret_cast<const words2*>(from);
    return {pair(codes.x, 0), pair(codes.x, 1), pair(codes.y, 0), pair(codes.y, 1)};
  }
  TROUPE_DEVICE static words2 four(const unsigned char* from) {
    const std::uint32_t codes = *reinterpret_cast<const std::uint32_t*>(from);
    return {pair(codes, 0), pair(codes, 1)};
  }
};
using int8_cells = code_cells<int8_pair>;
using fp8_cells = code_cells<fp8_pair>;

/// Shared by both kernels: a warp's `Tiles` tiles of 16 queries over `Blocks` blocks of tokens. The parameter `heads`
/// of functions returns the head_block of block i.
template <class Cells, int Dim, int Tiles, int Blocks>
struct tensor_attention {
  static_assert(Dim % 16 == 0);
  static constexpr int steps = Dim / 16;
  /// q in shared memory is in the order of the first operand, 16 bytes of each lane per tile and step: rows g and g + 8
  /// of the tile, so that it is loaded in one instruction, without bank conflicts, into the registers that it needs.
  static constexpr std::size_t query_bytes = std::size_t(16) * Dim * 2; // of a tile
  static constexpr int dims = Dim / 8;
  static constexpr int columns = 2 * Blocks; // tiles of 8 tokens
  static constexpr int tokens = Blocks * block_tokens;
  static constexpr int key_bytes = block_tokens * Dim * Cells::bytes; // K of a block; V as many
  static constexpr int head_bytes = 2 * key_bytes + (Cells::scaled ? 2 * block_tokens * int(sizeof(float)) : 0);

  const attention_params& p;
  const attention_work& work;
  int kv_head;

  TROUPE_DEVICE static unsigned group_lane() { return simt::lane() / 4; }
  TROUPE_DEVICE static unsigned thread_lane() { return simt::lane() % 4; }

  /// The row of a packed query; beyond the tile's last query that of the last.
  TROUPE_DEVICE std::int32_t row_of(int query) const {
    return p.list[work.first + (work.packed + at_most(query, work.count - 1)) / group()];
  }
  TROUPE_DEVICE int group() const { return p.heads / p.cache.kv_heads; }
  TROUPE_DEVICE int head_of(int query) const { return kv_head * group() + (work.packed + query) % group(); }

  TROUPE_DEVICE static head_block head(const layer_cache& cache, std::int32_t block, int kv_head) {
    return {cache.data + (std::size_t(block) * cache.kv_heads + kv_head) * head_bytes, Dim};
  }

  /// q of a packed query.
  TROUPE_DEVICE const float* query_at(int query) const {
    const int last = at_most(query, work.count - 1);
    return p.q + row_of(last) * p.q_stride + std::size_t(head_of(last)) * Dim;
  }

  /// Four elements as bf16.
  TROUPE_DEVICE words2 four_of(const float* q) const {
    if (!p.aligned)
      return Cells::pairs({q[0], q[1], q[2], q[3]});
    const words4 x = *reinterpret_cast<const words4*>(q);
    return Cells::pairs(
      {simt::bits_to_float(x.x), simt::bits_to_float(x.y), simt::bits_to_float(x.z), simt::bits_to_float(x.w)});
  }

  /// The warp copies q of the 16 packed queries from `first` on to `to`, the shared memory of a tile: every `every`-th
  /// pair of steps from pair `begin` on. Lanes write what they alone read.
  TROUPE_DEVICE void stage_queries(unsigned char* to, int first, int begin, int every) const {
    const float* upper = query_at(first + static_cast<int>(group_lane()));
    const float* lower = query_at(first + 8 + static_cast<int>(group_lane()));
    auto* operands = reinterpret_cast<words4*>(to) + simt::lane();
#pragma unroll
    for (int pair = begin; 2 * pair < steps; pair += every) {
      const int left = 2 * pair + 1 < steps ? 8 : 4; // dimensions of the lane
      const int d = 32 * pair + left * static_cast<int>(thread_lane());
      const words2 a = four_of(upper + d), b = four_of(lower + d);
      operands[2 * pair * warp_lanes] = {a.x, b.x, a.y, b.y};
      if (left == 8) {
        const words2 c = four_of(upper + d + 4), e = four_of(lower + d + 4);
        operands[(2 * pair + 1) * warp_lanes] = {c.x, e.x, c.y, e.y};
      }
    }
  }

  /// Computes scores[tile][column][4]. `q`: the tiles' shared memory. `swizzle`: 64 if odd rows of K start with their
  /// second 64 bytes, else 0.
  template <class Heads>
  TROUPE_DEVICE void score(const unsigned char* q, const Heads& heads, unsigned swizzle,
                           float (&scores)[Tiles][columns][4]) const {
    const unsigned g = group_lane(), t = thread_lane();
    // The lane's rows of K are all odd or all even. Chunks of 64 bytes at even places lie `flip` later, at odd places
    // `flip` earlier.
    const int flip = static_cast<int>(g % 2 * swizzle);
    const unsigned char* keys[Blocks];
    words4 scales[Blocks]; // of the lane's four tokens
#pragma unroll
    for (int b = 0; b < Blocks; ++b) {
      const head_block from = heads(b);
      keys[b] = from.data + (4 * (g / 2) + g % 2) * Dim * Cells::bytes;
      if constexpr (Cells::scaled)
        scales[b] = *reinterpret_cast<const words4*>(from.scales() + 4 * t);
    }
    const auto* operands = reinterpret_cast<const words4*>(q) + simt::lane();
    // The first step needs no zeros to add to.
    const auto add = [&](int step, float(&to)[4], const words4& a, std::uint32_t low, std::uint32_t high) {
      if (step == 0)
        simt::product(to, {a.x, a.y, a.z, a.w}, {low, high});
      else
        simt::mma(to, {a.x, a.y, a.z, a.w}, {low, high});
    };
#pragma unroll
    for (int step = 0; step + 2 <= steps; step += 2) {
      words4 first[Tiles], second[Tiles];
#pragma unroll
      for (int i = 0; i < Tiles; ++i) {
        first[i] = operands[(i * steps + step) * warp_lanes];
        second[i] = operands[(i * steps + step + 1) * warp_lanes];
      }
      const int at = 16 * step * Cells::bytes, place = at / 64 % 2 == 0 ? at + flip : at - flip;
#pragma unroll
      for (int c = 0; c < columns; ++c) {
        const words4 k = Cells::eight(keys[c / 2] + 8 * t * Cells::bytes + place + c % 2 * 2 * Dim * Cells::bytes);
#pragma unroll
        for (int i = 0; i < Tiles; ++i) {
          add(step, scores[i][c], first[i], k.x, k.y);
          add(step + 1, scores[i][c], second[i], k.z, k.w);
        }
      }
    }
    if constexpr (steps % 2 != 0) { // the last 16 dimensions; no row has as many and is swizzled
      constexpr int step = steps - 1;
      words4 last[Tiles];
#pragma unroll
      for (int i = 0; i < Tiles; ++i)
        last[i] = operands[(i * steps + step) * warp_lanes];
#pragma unroll
      for (int c = 0; c < columns; ++c) {
        const words2 k = Cells::four(keys[c / 2] + (16 * step + 4 * t + c % 2 * 2 * Dim) * Cells::bytes);
#pragma unroll
        for (int i = 0; i < Tiles; ++i)
          add(step, scores[i][c], last[i], k.x, k.y);
      }
    }
    if constexpr (Cells::scaled)
#pragma unroll
      for (int i = 0; i < Tiles; ++i)
#pragma unroll
        for (int c = 0; c < columns; ++c)
#pragma unroll
          for (int j = 0; j < 4; ++j)
            scores[i][c][j] *= simt::bits_to_float(word_of(scales[c / 2], c % 2 * 2 + j % 2));
  }

  /// Caps the scores of a query and adds ALiBi's slope, if asked. `start`: position of the first token.
  TROUPE_DEVICE void shape(float (&scores)[columns][4], int query, int half, int start) const {
    if (!is_shaped(p))
      return;
    const int last = at_most(query, work.count - 1), position = p.rows[row_of(last)].position;
    const float slope = slope_of(p, head_of(last)), inverse = 1 / p.scale;
#pragma unroll
    for (int c = 0; c < columns; ++c)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& s = scores[c][2 * half + i];
        s = shaped_score(p, s * p.scale, slope, start + token_of(c, i) - position) * inverse;
      }
  }

  /// Adds what the numbers of distances give to the scores of a query. `start`: position of the first token.
  TROUPE_DEVICE void add_distances(float (&scores)[columns][4], int query, int half, int start) const {
    const auto& from = p.distances;
    const int last = at_most(query, work.count - 1), row = row_of(last), first = p.rows[row].position - start;
    if (first - (tokens - 1) >= from.extent)
      return; // all tokens are too far behind
    const float* mix = from.mixes + row * from.mix_stride + std::size_t(head_of(last)) * from.width;
    const float* numbers = from.table;
    for (int i = 0; i < from.width; ++i, numbers += from.stride) {
      const float weight = mix[i] * (exponent(1) / p.scale);
#pragma unroll
      for (int c = 0; c < columns; ++c)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          if (const int distance = first - token_of(c, j); distance >= 0 && distance < from.extent) {
            float& s = scores[c][2 * half + j];
            s = simt::fused(weight, numbers[-distance], s);
          }
    }
  }

  /// The token of a lane's element i of column c.
  TROUPE_DEVICE static int token_of(int c, int i) {
    return c / 2 * block_tokens + 4 * static_cast<int>(thread_lane()) + c % 2 * 2 + i;
  }

  /// Replaces the scores of tokens outside [from, to), relative to the first token, by minus infinity.
  TROUPE_DEVICE static void mask(float (&scores)[columns][4], int half, int from, int to) {
#pragma unroll
    for (int c = 0; c < columns; ++c)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int token = token_of(c, i);
        float& s = scores[c][2 * half + i];
        s = token >= from && token < to ? s : -simt::infinity();
      }
  }

  /// The largest score of a row.
  TROUPE_DEVICE static float row_max(const float (&scores)[columns][4], int half) {
    float highest = scores[0][2 * half];
#pragma unroll
    for (int c = 0; c < columns; ++c)
#pragma unroll
      for (int i = 0; i < 2; ++i)
        highest = simt::larger(highest, scores[c][2 * half + i]);
    highest = simt::larger(highest, simt::shuffle_xor(highest, 1));
    return simt::larger(highest, simt::shuffle_xor(highest, 2));
  }

  /// What exponents are relative to: m, or 0 if all scores so far are minus infinity.
  TROUPE_DEVICE static float base(float m) { return m == -simt::infinity() ? 0 : m; }

  /// Turns a row's scores into exponentials relative to `base`; returns the lane's share of their sum.
  TROUPE_DEVICE float exponentiate(float (&scores)[columns][4], int half, float base) const {
    float sum = 0;
#pragma unroll
    for (int c = 0; c < columns; ++c)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& s = scores[c][2 * half + i];
        s = simt::exp2(simt::fused(s, p.scale, -base));
        sum += s;
      }
    return sum;
  }

  /// The sum over the lanes of a row.
  TROUPE_DEVICE static float row_sum(float sum) {
    sum += simt::shuffle_xor(sum, 1);
    return sum + simt::shuffle_xor(sum, 2);
  }

  /// o += scores * V for 8 * Eights dimensions from `first_dim` on. Tokens from `last` on were never written for this
  /// sequence, so V may be NaN there and is replaced by zero. Codes are always finite, so their scales are replaced
  /// instead. `Whole`: there are no such tokens.
  template <bool Whole, class Heads, int Eights>
  TROUPE_DEVICE void add_values(const Heads& heads, int first_dim, int last, const float (&scores)[Tiles][columns][4],
                                float (&o)[Tiles][Eights][4]) const {
    const unsigned g = group_lane(), t = thread_lane();
#pragma unroll
    for (int b = 0; b < Blocks; ++b) {
      if (!Whole && b * block_tokens >= last)
        return;
      const head_block from = heads(b);
      const int left = last - b * block_tokens - 4 * static_cast<int>(t); // of the lane's four tokens
      const std::uint32_t low = left >= 2 ? 0xffffffffu : left == 1 ? 0xffffu : 0;
      const std::uint32_t high = left >= 4 ? 0xffffffffu : left == 3 ? 0xffffu : 0;
      float scale[4] = {1, 1, 1, 1};
      if constexpr (Cells::scaled) {
        const words4 stored = *reinterpret_cast<const words4*>(from.scales() + block_tokens + 4 * t);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          scale[i] = Whole || i < left ? simt::bits_to_float(word_of(stored, i)) : 0;
      }
      std::uint32_t weights[Tiles][4];
#pragma unroll
      for (int i = 0; i < Tiles; ++i)
#pragma unroll
        for (int row = 0; row < 2; ++row) {
          const float *first = &scores[i][2 * b][2 * row], *second = &scores[i][2 * b + 1][2 * row];
          if constexpr (Cells::scaled) { // in the order of code_pairs.hpp
            weights[i][row] = simt::float_to_bf16_pair(first[0] * scale[0], second[0] * scale[2]);
            weights[i][2 + row] = simt::float_to_bf16_pair(first[1] * scale[1], second[1] * scale[3]);
          } else {
            weights[i][row] = simt::float_to_bf16_pair(first[0], first[1]);
            weights[i][2 + row] = simt::float_to_bf16_pair(second[0], second[1]);
          }
        }
      const unsigned char* values = from.data +
        (block_tokens * (Dim + first_dim) + g * block_tokens + 4 * t) * Cells::bytes;
#pragma unroll
      for (int d = 0; d < Eights; ++d) {
        const words2 v = Cells::four(values + 8 * d * block_tokens * Cells::bytes);
#pragma unroll
        for (int i = 0; i < Tiles; ++i)
          if constexpr (Cells::scaled || Whole)
            simt::mma(o[i][d], weights[i], {v.x, v.y});
          else
            simt::mma(o[i][d], weights[i], {v.x & low, v.y & high});
      }
    }
  }
};

/// Whether there is a kernel for numbers of distances, too: for Inkling's heads.
constexpr bool has_distances(int head_dim) { return head_dim == 128; }

/// Calls f with head_dim as a type; false if there is no kernel for it. A multiple of 16 up to 256 needs a line here.
template <class F>
bool with_dim(int head_dim, const F& f) {
  switch (head_dim) {
    case 32: f(std::integral_constant<int, 32>()); return true;
    case 64: f(std::integral_constant<int, 64>()); return true;
    case 80: f(std::integral_constant<int, 80>()); return true;
    case 96: f(std::integral_constant<int, 96>()); return true;
    case 128: f(std::integral_constant<int, 128>()); return true;
    case 256: f(std::integral_constant<int, 256>()); return true;
    default: return false;
  }
}

/// `attend` and `attend_flash` for one type of cells. Each type is instantiated in a unit of its own, because together
/// they take nvcc minutes.
template <class Cells>
void attend_split(const stream& on, const attention_params& params, const attention_work* works, std::size_t count,
                  int tile, bool apart);
template <class Cells>
void attend_flash_cells(const stream& on, const attention_params& params, const attention_work* works,
                        std::size_t count);

/// Largest dynamic shared memory of a block on every architecture that is built for. 8.6 and 8.9 have the least.
inline constexpr std::size_t most_shared_bytes = 99 << 10;

template <class Kernel>
void launch_works(const stream& on, const Kernel& kernel, std::size_t blocks) {
  static_assert(Kernel::shared_bytes <= most_shared_bytes);
  launch(on, {static_cast<unsigned>(blocks), static_cast<unsigned>(kernel.p.cache.kv_heads)}, Kernel::shared_bytes,
         kernel);
}

} // namespace troupe::kernels::cuda
