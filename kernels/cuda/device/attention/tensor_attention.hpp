// Attention on tensor cores: the operations of a warp on 16 or 32 packed queries and some blocks of tokens. These are
// scores, their softmax, and the weighted sum of V. K and V are loaded from global or shared memory directly as
// operands (kv_layout.hpp), codes are converted to bf16 in registers; q is in shared memory. The tokens of a block of
// 16 are numbered so that the scores a lane receives are its operand of the second product: column n of tile j (0 or 1)
// of 8 columns is token 4 * (n / 2) + 2 * j + n % 2. Only for kernels.
#pragma once

#include "kernels/cuda/device/attention/attention.hpp"
#include "kernels/cuda/device/code_pairs.hpp"
#include "kernels/cuda/device/launch.hpp"

#include <type_traits>

namespace troupe::kernels::cuda {

// Cells: how the cache stores elements. `eight` and `four` load that many as bf16 pairs for the tensor cores; `place`
// is the position of dimension d of q that matches the order of K's pairs.

struct bf16_cells {
  static constexpr int bytes = 2;
  static constexpr bool scaled = false;
  TROUPE_DEVICE static int place(int d) { return d; }
  TROUPE_DEVICE static words4 eight(const unsigned char* from) { return *reinterpret_cast<const words4*>(from); }
  TROUPE_DEVICE static words2 four(const unsigned char* from) { return *reinterpret_cast<const words2*>(from); }
};

template <std::uint32_t (*pair)(std::uint32_t, int)>
struct code_cells {
  static constexpr int bytes = 1;
  static constexpr bool scaled = true;
  TROUPE_DEVICE static int place(int d) { return (d & ~3) | (d & 1) << 1 | (d >> 1 & 1); }
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

/// Shared by both kernels: `Tiles` tiles of 16 queries over `Blocks` blocks of tokens. The parameter `heads` of
/// functions returns the head_block of block i.
template <class Cells, int Dim, int Tiles, int Blocks>
struct tensor_attention {
  static_assert(Dim % 16 == 0);
  /// Stride of q in shared memory, in elements. Eight lanes read 64 bytes of two adjacent rows at a time. To avoid bank
  /// conflicts, odd rows start half of the banks away, or have their halves of 128 bytes exchanged (offsets xor
  /// q_swizzle).
  static constexpr int q_stride = (Dim + 31) / 32 * 32;
  static constexpr int q_swizzle = q_stride % 64 == 0 ? 32 : 0;
  static constexpr int dims = Dim / 8;
  static constexpr int columns = 2 * Blocks; // tiles of 8 tokens
  static constexpr int tokens = Blocks * block_tokens;

  const attention_params& p;
  const attention_work& work;
  int kv_head;

  TROUPE_DEVICE static unsigned group_lane() { return simt::lane() / 4; }
  TROUPE_DEVICE static unsigned thread_lane() { return simt::lane() % 4; }

  /// The row of a packed query; -1 beyond the tile's last query.
  TROUPE_DEVICE std::int32_t row_of(int query) const {
    return query < work.count ? p.list[work.first + (work.packed + query) / group()] : -1;
  }
  TROUPE_DEVICE int group() const { return p.heads / p.cache.kv_heads; }
  TROUPE_DEVICE int head_of(int query) const { return kv_head * group() + (work.packed + query) % group(); }

  /// All threads copy q of `queries` packed queries to shared memory as bf16.
  TROUPE_DEVICE void stage_queries(std::uint16_t* q, int queries) const {
    for (int i = static_cast<int>(simt::thread()); i < queries * Dim; i += static_cast<int>(simt::threads())) {
      const int query = i / Dim, d = i % Dim;
      const std::int32_t row = row_of(query);
      const float x = row < 0 ? 0 : p.q[row * p.q_stride + std::size_t(head_of(query)) * Dim + d];
      q[query * q_stride + (Cells::place(d) ^ query % 2 * q_swizzle)] = simt::float_to_bf16(x);
    }
  }

  /// Computes scores[tile][column][4]. `swizzle`: offsets within odd rows of K are xor-ed with it, in bytes.
  template <class Heads>
  TROUPE_DEVICE void score(const std::uint16_t* q, const Heads& heads, unsigned swizzle,
                           float (&scores)[Tiles][columns][4]) const {
    const unsigned g = group_lane(), t = thread_lane();
    const unsigned flip = g % 2 * swizzle, q_flip = g % 2 * q_swizzle; // the lane's rows are all odd or all even
    const unsigned char* keys[Blocks];
    words4 scales[Blocks]; // of the lane's four tokens
#pragma unroll
    for (int b = 0; b < Blocks; ++b) {
      const head_block from = heads(b);
      keys[b] = from.data + (4 * (g / 2) + g % 2) * Dim * Cells::bytes;
      if constexpr (Cells::scaled)
        scales[b] = *reinterpret_cast<const words4*>(from.scales() + 4 * t);
    }
#pragma unroll
    for (int i = 0; i < Tiles; ++i)
#pragma unroll
      for (int c = 0; c < columns; ++c)
        scores[i][c][0] = scores[i][c][1] = scores[i][c][2] = scores[i][c][3] = 0;
#pragma unroll
    for (int d = 0; d + 32 <= Dim; d += 32) {
      words4 upper[Tiles], lower[Tiles];
#pragma unroll
      for (int i = 0; i < Tiles; ++i) {
        const std::uint16_t* from = q + (16 * i + g) * q_stride + ((d + 8 * t) ^ q_flip);
        upper[i] = *reinterpret_cast<const words4*>(from);
        lower[i] = *reinterpret_cast<const words4*>(from + 8 * q_stride);
      }
#pragma unroll
      for (int c = 0; c < columns; ++c) {
        const words4 k = Cells::eight(keys[c / 2] + c % 2 * 2 * Dim * Cells::bytes +
                                      ((d + 8 * t) * Cells::bytes ^ flip));
#pragma unroll
        for (int i = 0; i < Tiles; ++i) {
          simt::mma(scores[i][c], {upper[i].x, lower[i].x, upper[i].y, lower[i].y}, {k.x, k.y});
          simt::mma(scores[i][c], {upper[i].z, lower[i].z, upper[i].w, lower[i].w}, {k.z, k.w});
        }
      }
    }
    if constexpr (Dim % 32 != 0) { // the last 16
      constexpr int d = Dim - 16;
      words2 upper[Tiles], lower[Tiles];
#pragma unroll
      for (int i = 0; i < Tiles; ++i) {
        const std::uint16_t* from = q + (16 * i + g) * q_stride + ((d + 4 * t) ^ q_flip);
        upper[i] = *reinterpret_cast<const words2*>(from);
        lower[i] = *reinterpret_cast<const words2*>(from + 8 * q_stride);
      }
#pragma unroll
      for (int c = 0; c < columns; ++c) {
        const words2 k = Cells::four(keys[c / 2] + c % 2 * 2 * Dim * Cells::bytes +
                                     ((d + 4 * t) * Cells::bytes ^ flip));
#pragma unroll
        for (int i = 0; i < Tiles; ++i)
          simt::mma(scores[i][c], {upper[i].x, lower[i].x, upper[i].y, lower[i].y}, {k.x, k.y});
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

  /// Scales the scores of query row `half` and masks tokens outside [from, to), relative to the first token. Returns
  /// the lane's largest score.
  TROUPE_DEVICE float limit(float (&scores)[columns][4], int half, int from, int to) const {
    float highest = -simt::infinity();
#pragma unroll
    for (int c = 0; c < columns; ++c)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int token = c / 2 * block_tokens + 4 * static_cast<int>(thread_lane()) + c % 2 * 2 + i;
        float& s = scores[c][2 * half + i];
        s = token >= from && token < to ? s * p.scale : -simt::infinity();
        highest = simt::larger(highest, s);
      }
    return highest;
  }

  /// The maximum over the lanes of a row.
  TROUPE_DEVICE static float row_max(float highest) {
    highest = simt::larger(highest, simt::shuffle_xor(highest, 1));
    return simt::larger(highest, simt::shuffle_xor(highest, 2));
  }

  /// Turns a row's scores into exponentials, relative to `m`; returns their sum over the row.
  TROUPE_DEVICE float exponentiate(float (&scores)[columns][4], int half, float m) const {
    float sum = 0;
#pragma unroll
    for (int c = 0; c < columns; ++c)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& s = scores[c][2 * half + i];
        s = s == -simt::infinity() ? 0 : simt::exp(s - m);
        sum += s;
      }
    sum += simt::shuffle_xor(sum, 1);
    return sum + simt::shuffle_xor(sum, 2);
  }

  /// o += scores * V for 8 * Eights dimensions from `first_dim` on. Tokens from `last` on were never written for this
  /// sequence, so V may be NaN there and is replaced by zero. Codes are always finite, so their scales are replaced
  /// instead.
  template <class Heads, int Eights>
  TROUPE_DEVICE void add_values(const Heads& heads, int first_dim, int last, const float (&scores)[Tiles][columns][4],
                                float (&o)[Tiles][Eights][4]) const {
    const unsigned g = group_lane(), t = thread_lane();
#pragma unroll
    for (int b = 0; b < Blocks; ++b) {
      if (b * block_tokens >= last)
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
          scale[i] = i < left ? simt::bits_to_float(word_of(stored, i)) : 0;
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
          if constexpr (Cells::scaled)
            simt::mma(o[i][d], weights[i], {v.x, v.y});
          else
            simt::mma(o[i][d], weights[i], {v.x & low, v.y & high});
      }
    }
  }
};

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
                  int tile);
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
