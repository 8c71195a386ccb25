// Products with weights of which 2 of every 4 inputs are stored (target.hpp has the layout). The places of an output's
// two weights select two of the row's four activations, in registers. The sum takes them in the order of the product
// with all four, and so has the bits of the product with the zeros. Only for the target units.
#pragma once

#include "kernels/cpu/isa/int_simd.hpp"
#include "kernels/cpu/isa/linear_store.hpp"
#include "kernels/cpu/isa/tile.hpp"

namespace troupe::kernels {
namespace {

#if defined(__AVX512F__)

/// Sixteen numbers among the four at `x`, by bits 0 and 1 of the places.
inline vec chosen(vec x, ivec places) { return {_mm512_permutevar_ps(x.v, places.v)}; }
inline vec four_of(const std::uint32_t* x) {
  return {_mm512_castsi512_ps(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x))))};
}
template <int Bits>
inline ivec shifted(ivec places) {
  return {_mm512_srli_epi32(places.v, Bits)};
}

#elif defined(__AVX2__)

inline vec chosen(vec x, ivec places) {
  return {_mm256_permutevar_ps(x.a, places.a), _mm256_permutevar_ps(x.b, places.b)};
}
inline vec four_of(const std::uint32_t* x) {
  const auto four = _mm256_castsi256_ps(
    _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(x))));
  return {four, four};
}
template <int Bits>
inline ivec shifted(ivec places) {
  return {_mm256_srli_epi32(places.a, Bits), _mm256_srli_epi32(places.b, Bits)};
}

#elif defined(TROUPE_SVE)

inline vec chosen(const vec& x, const ivec& places) {
  return each(
    [&](int i) { return svtbl_f32(x.q[i], svand_n_u32_x(all_words(), svreinterpret_u32_u8(places.q[i]), 3)); });
}
inline vec four_of(const std::uint32_t* x) {
  float four[4];
  std::memcpy(four, x, sizeof four);
  return each([&](int) { return svld1rq_f32(all_words(), four); });
}
template <int Bits>
inline ivec shifted(const ivec& places) {
  return each_int(
    [&](int i) { return svreinterpret_u8_u32(svlsr_n_u32_x(all_words(), svreinterpret_u32_u8(places.q[i]), Bits)); });
}

#elif defined(TROUPE_NEON)

inline vec chosen(const vec& x, const ivec& places) {
  const auto table = vreinterpretq_u8_f32(x.q[0]);
  return each([&](int i) {
    const auto word = vandq_u32(vreinterpretq_u32_u8(places.q[i]), vdupq_n_u32(3));
    const auto bytes = vaddq_u32(vmulq_n_u32(word, 0x04040404u), vdupq_n_u32(0x03020100u));
    return vreinterpretq_f32_u8(vqtbl1q_u8(table, vreinterpretq_u8_u32(bytes)));
  });
}
inline vec four_of(const std::uint32_t* x) {
  const auto four = vreinterpretq_f32_u32(vld1q_u32(x));
  return {{four, four, four, four}};
}
template <int Bits>
inline ivec shifted(const ivec& places) {
  return each_int([&](int i) { return vreinterpretq_u8_u32(vshrq_n_u32(vreinterpretq_u32_u8(places.q[i]), Bits)); });
}

#else

inline vec chosen(const vec& x, const ivec& places) {
  alignas(64) float from[lanes], to[lanes];
  store(from, x);
  for (int i = 0; i < lanes; ++i)
    to[i] = from[places.q[i / 4][i % 4] & 3];
  return load(to);
}
inline vec four_of(const std::uint32_t* x) {
  alignas(64) float four[lanes] = {};
  std::memcpy(four, x, 4 * sizeof(float));
  return load(four);
}
template <int Bits>
inline ivec shifted(const ivec& places) {
  return each_int([&](int i) { return places.q[i] >> Bits; });
}

#endif

/// Weights of the type of `Operand`, multiplied in f32.
template <class Operand>
struct pruned_floats {
  using element = typename Operand::element;
  static constexpr std::size_t words = 4; // of activations, of four inputs
  static constexpr std::size_t four_bytes = 2 * panel_outputs * sizeof(element);
  struct weights {
    vec first, second;
  };
  static weights load(const unsigned char* four, std::size_t column) {
    const auto* from = reinterpret_cast<const element*>(four) + column;
    return {Operand::column(from), Operand::column(from + panel_outputs)};
  }
  static vec activations(const std::uint32_t* x) { return four_of(x); }
  static vec accumulate(vec sum, vec x, ivec places, const weights& w) {
    sum = fma(chosen(x, places), w.first, sum);
    return fma(chosen(x, shifted<2>(places)), w.second, sum);
  }
};

#if defined(__AVX512BF16__)

/// Pairs of bf16, which VDPBF16PS multiplies. The activations of four inputs are a table of all their pairs.
struct pruned_pairs {
  static constexpr std::size_t words = 2;
  static constexpr std::size_t four_bytes = panel_outputs * sizeof(std::uint32_t);
  using weights = __m512i;
  static weights load(const unsigned char* four, std::size_t column) {
    return _mm512_loadu_si512(four + column * sizeof(std::uint32_t));
  }
  static __m512i activations(const std::uint32_t* x) {
    alignas(64) static constexpr std::uint16_t pairs[32] = {0, 0, 1, 0, 2, 0, 3, 0, 0, 1, 1, 1, 2, 1, 3, 1,
                                                            0, 2, 1, 2, 2, 2, 3, 2, 0, 3, 1, 3, 2, 3, 3, 3};
    long long four;
    std::memcpy(&four, x, sizeof four);
    return _mm512_permutexvar_epi16(_mm512_load_si512(pairs), _mm512_set1_epi64(four));
  }
  static vec accumulate(vec sum, __m512i x, ivec places, __m512i w) {
    return pair_operand::accumulate(sum, _mm512_permutexvar_epi32(places.v, x), w);
  }
};

#endif

/// Prefetch distance, in bytes.
inline constexpr std::size_t pruned_fetch_distance = 8192;

/// R rows times V vectors of a panel from `column` on, over `fours` times four inputs: c[r * c_stride + v * 16 + lane].
/// `rows` are activation_stride words apart. `fetch`: prefetch further weights meanwhile.
template <class Weights, int R, int V>
inline void accumulate_fours(float* c, std::size_t c_stride, bool fresh, const std::uint32_t* rows,
                             const unsigned char* strip, std::size_t fours, std::size_t column, bool fetch) {
  vec sums[R][V];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      sums[r][v] = fresh ? zero() : load(c + r * c_stride + v * lanes);
  for (std::size_t done = 0; done < fours; done += strip_fours) {
    ivec places[V];
    for (int v = 0; v < V; ++v)
      places[v] = load_ints(strip + (column + v * lanes) * sizeof(std::uint32_t));
    if (fetch)
      for (std::size_t i = column * 4; i < (column + V * lanes) * 4; i += 64)
        __builtin_prefetch(strip + pruned_fetch_distance + i);
    const unsigned char* four = strip + strip_place_bytes;
    const std::size_t end = fours - done < strip_fours ? fours : done + strip_fours;
    for (std::size_t k = done; k < end; ++k, four += Weights::four_bytes) {
      typename Weights::weights w[V];
      for (int v = 0; v < V; ++v)
        w[v] = Weights::load(four, column + v * lanes);
      if (fetch && column == 0)
        for (std::size_t i = 0; i < Weights::four_bytes; i += 64)
          __builtin_prefetch(four + pruned_fetch_distance + i);
      for (int r = 0; r < R; ++r) {
        const auto x = Weights::activations(rows + r * activation_stride + k * Weights::words);
        for (int v = 0; v < V; ++v)
          sums[r][v] = Weights::accumulate(sums[r][v], x, places[v], w[v]);
      }
      for (int v = 0; v < V; ++v)
        places[v] = shifted<4>(places[v]);
    }
    strip += strip_place_bytes + strip_fours * Weights::four_bytes;
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v)
      store(c + r * c_stride + v * lanes, sums[r][v]);
}

/// Blocks of K outside, row tiles inside, as for weights that have all inputs.
template <class Weights>
void accumulate_pruned(const linear_op& op, const linear_task& task, float* scratch) {
  constexpr std::size_t strip_bytes = strip_place_bytes + strip_fours * Weights::four_bytes;
  constexpr std::size_t strip_words = strip_fours * Weights::words;
  static_assert(k_block % strip_words == 0);
  const std::size_t panel_bytes = (op.words + strip_words - 1) / strip_words * strip_bytes;
  const auto* weights = static_cast<const unsigned char*>(op.weights) + task.first_panel * panel_bytes;
  const std::size_t first_row = first_row_of(op, task.first_tile);
  const std::size_t c_stride = task.panels * panel_outputs;
  for (std::size_t k = 0; k < op.words; k += k_block) {
    const std::size_t fours = (op.words - k < k_block ? op.words - k : k_block) / Weights::words;
    const auto* activations = op.activations + k / k_block * op.activation_block;
    for (std::size_t tile = task.first_tile; tile < task.first_tile + task.tiles; ++tile) {
      const std::size_t row = first_row_of(op, tile);
      with_rows(static_cast<int>(first_row_of(op, tile + 1) - row), [&]<int R>() {
        constexpr int V = tile_vectors(R);
        for (std::size_t panel = 0; panel < task.panels; ++panel)
          for (std::size_t column = 0; column < panel_outputs; column += V * lanes)
            accumulate_fours<Weights, R, V>(scratch + (row - first_row) * c_stride + panel * panel_outputs + column,
                                            c_stride, k == 0, activations + row * activation_stride,
                                            weights + panel * panel_bytes + k / strip_words * strip_bytes, fours,
                                            column, tile == task.first_tile);
      });
    }
  }
}

void linear_pruned(const linear_op& op, const linear_task& task, float* scratch) {
  switch (op.kind) {
    case weight_kind::f32: accumulate_pruned<pruned_floats<f32_operand>>(op, task, scratch); break;
    case weight_kind::f16: accumulate_pruned<pruned_floats<f16_operand>>(op, task, scratch); break;
    case weight_kind::bf16: accumulate_pruned<pruned_floats<bf16_operand>>(op, task, scratch); break;
#if defined(__AVX512BF16__)
    case weight_kind::bf16_pairs: accumulate_pruned<pruned_pairs>(op, task, scratch); break;
#endif
    default: return; // never packed
  }
  store_linear(op, task, scratch);
}

} // namespace
} // namespace troupe::kernels
