#include "kernels/cuda/device/rope.hpp"

#include "kernels/cuda/device/elements.hpp"
#include "kernels/cuda/device/launch.hpp"

namespace troupe::kernels::cuda {

namespace {

// How the cache stores elements. `inverse`: of the token's scale.

struct float_cell {
  using stored = std::uint32_t;
  static constexpr float largest = 0; // code; none
  TROUPE_DEVICE static stored code(float x, float) { return simt::float_to_bits(x); }
};

struct bf16_cell {
  using stored = std::uint16_t;
  static constexpr float largest = 0;
  TROUPE_DEVICE static stored code(float x, float) { return simt::float_to_bf16(x); }
};

struct int8_cell {
  using stored = std::uint8_t;
  static constexpr float largest = 127;
  TROUPE_DEVICE static stored code(float x, float inverse) { // the last byte of the sum is the nearest integer
    return static_cast<stored>(simt::float_to_bits(simt::fused(x, inverse, 0x1.8p23f)));
  }
};

struct fp8_cell {
  using stored = std::uint8_t;
  static constexpr float largest = largest_e4m3;
  TROUPE_DEVICE static stored code(float x, float inverse) { return to_e4m3(simt::mul(x, inverse)); }
};

/// A warp per head of a row. A lane has the neighbours i and i + 1, and those half a head later. `Paired`: neighbours
/// may be loaded and stored at once. `Pairs`, even: of elements i and head_dim / 2 + i, per lane.
template <class Cell, bool Paired, int Pairs>
struct rope_kernel {
  static constexpr const char* name = "rope_write_kv";
  static constexpr unsigned threads = 128;
  static constexpr int warps = threads / warp_lanes;
  using stored = typename Cell::stored;
  rope_params p;

  static constexpr int most_pairs = Pairs;

  TROUPE_DEVICE void operator()() const {
    const std::size_t row = simt::block_x();
    const int head = static_cast<int>(simt::block_y()) * warps + static_cast<int>(simt::warp());
    if (head >= p.heads + (p.queries_only ? 0 : p.cache.kept_heads()))
      return;
    const row_place place = p.places[row];
    if (p.rate > 1 && (place.position + 1) % p.rate != 0)
      return;
    const int half = p.cache.head_dim / 2;
    float* x = p.qkv + row * p.stride + std::size_t(head) * p.cache.head_dim;
    float a[most_pairs], b[most_pairs];
    load(x, half, a);
    load(x + half, half, b);
    const bool is_q = head < p.heads, is_v = head >= p.heads + p.cache.kv_heads;
    if (!is_v)
      rotate(a, b, is_q ? p.q_norm : p.k_norm, place);
    if (!is_q)
      return keep(a, b, place, head - p.heads - (is_v ? p.cache.kv_heads : 0), is_v);
#pragma unroll
    for (int c = 0; c < most_pairs; c += 2)
      if (const int i = element(c); i < half) {
        store(x, i, half, {a[c], a[c + 1]});
        store(x + half, i, half, {b[c], b[c + 1]});
      }
  }

  TROUPE_DEVICE static int element(int c) {
    return c / 2 * 2 * static_cast<int>(warp_lanes) + 2 * static_cast<int>(simt::lane()) + c % 2;
  }

  /// The lane's elements of half a head; zeros beyond it.
  TROUPE_DEVICE static void load(const float* from, int half, float (&to)[most_pairs]) {
#pragma unroll
    for (int c = 0; c < most_pairs; c += 2) {
      const int i = element(c);
      if constexpr (Paired) {
        const words2 both = i < half ? *reinterpret_cast<const words2*>(from + i) : words2{};
        to[c] = simt::bits_to_float(both.x);
        to[c + 1] = simt::bits_to_float(both.y);
      } else {
        to[c] = i < half ? from[i] : 0;
        to[c + 1] = i + 1 < half ? from[i + 1] : 0;
      }
    }
  }

  /// Stores elements i and i + 1 of half a head.
  template <class T>
  TROUPE_DEVICE static void store(T* to, int i, int half, const T (&x)[2]) {
    struct alignas(2 * sizeof(T)) both {
      T first, second;
    };
    if constexpr (Paired) {
      *reinterpret_cast<both*>(to + i) = {x[0], x[1]};
    } else {
      to[i] = x[0];
      if (i + 1 < half)
        to[i + 1] = x[1];
    }
  }

  TROUPE_DEVICE void rotate(float (&a)[most_pairs], float (&b)[most_pairs], const float* norm,
                            const row_place& place) const {
    const int dim = p.cache.head_dim, half = dim / 2;
    const bool longer = p.rope.longer != nullptr && place.length > p.rope.border;
    const float* table = longer ? p.rope.longer : p.rope.angles;
    if (norm != nullptr && !p.norm_behind)
      normalise(a, b, norm);
    if (table != nullptr) {
      const float* rope = table + static_cast<std::size_t>(place.position + 1 - p.rate) * dim;
#pragma unroll
      for (int c = 0; c < most_pairs; ++c)
        if (const int i = element(c); i < half) {
          const float x = a[c], y = b[c];
          a[c] = simt::fused(x, rope[i], -simt::mul(y, rope[half + i]));
          b[c] = simt::fused(y, rope[i], simt::mul(x, rope[half + i]));
        }
    }
    if (norm != nullptr && p.norm_behind)
      normalise(a, b, norm);
  }

  TROUPE_DEVICE void normalise(float (&a)[most_pairs], float (&b)[most_pairs], const float* norm) const {
    const int dim = p.cache.head_dim, half = dim / 2;
    float squares = 0;
#pragma unroll
    for (int c = 0; c < most_pairs; ++c)
      squares = simt::fused(b[c], b[c], simt::fused(a[c], a[c], squares));
    const float scale = simt::inverse_sqrt(simt::warp_sum(squares) / static_cast<float>(dim) + p.eps);
#pragma unroll
    for (int c = 0; c < most_pairs; ++c)
      if (const int i = element(c); i < half) {
        a[c] = a[c] * scale * norm[i];
        b[c] = b[c] * scale * norm[half + i];
      }
  }

  /// Writes to the cache. Values are clamped to the finite range of bf16 and NaN becomes its lowest, so that the cache
  /// never holds a value that is not finite. Codes are those of the CPU (cpu/isa/row_kernels.hpp).
  TROUPE_DEVICE void keep(float (&a)[most_pairs], float (&b)[most_pairs], const row_place& place, int head,
                          bool is_v) const {
    const auto to = p.cache.head(p.tables[place.first_block + place.position / block_tokens], head);
    const int token = place.position % block_tokens, half = p.cache.head_dim / 2;
#pragma unroll
    for (int c = 0; c < most_pairs; ++c) {
      a[c] = finite(a[c]);
      b[c] = finite(b[c]);
    }
    float inverse = 0;
    if constexpr (Cell::largest > 0) {
      float largest = 0;
#pragma unroll
      for (int c = 0; c < most_pairs; ++c)
        largest = simt::larger(largest, simt::larger(simt::larger(a[c], -a[c]), simt::larger(b[c], -b[c])));
      largest = simt::warp_max(largest);
      const bool nothing = largest < 0x1p-100f; // the inverse would overflow
      inverse = nothing ? 0 : simt::divide(Cell::largest, largest);
      if (simt::lane() == 0)
        p.cache.scales(to)[(is_v ? block_tokens : 0) + token] = nothing ? 0 : simt::divide(largest, Cell::largest);
    }
    auto* data = reinterpret_cast<stored*>(to.data);
#pragma unroll
    for (int c = 0; c < most_pairs; c += 2)
      if (const int i = element(c); i < half) {
        const stored first[2] = {Cell::code(a[c], inverse), Cell::code(a[c + 1], inverse)};
        const stored second[2] = {Cell::code(b[c], inverse), Cell::code(b[c + 1], inverse)};
        if (!is_v) {
          store(data + to.key(token, 0), i, half, first);
          store(data + to.key(token, half), i, half, second);
        } else { // transposed: neighbours lie 16 tokens apart
#pragma unroll
          for (int n = 0; n < 2; ++n)
            if (i + n < half) {
              data[to.value(token, i + n)] = first[n];
              data[to.value(token, half + i + n)] = second[n];
            }
        }
      }
  }

  TROUPE_DEVICE static float finite(float x) {
    constexpr float most = 0x1.fep127f;
    const float least = simt::larger(x, -most);
    return least < most ? least : most;
  }
};

template <class Cell, bool Paired, int Pairs>
void start(const stream& on, const rope_params& params) {
  using kernel = rope_kernel<Cell, Paired, Pairs>;
  const int heads = params.heads + (params.queries_only ? 0 : params.cache.kept_heads());
  const auto blocks = static_cast<unsigned>(ceil_div(heads, kernel::warps));
  launch(on, {static_cast<unsigned>(params.rows), blocks}, 0, kernel{params});
}

template <class Cell>
void start(const stream& on, const rope_params& params) {
  const bool paired = params.cache.head_dim % 4 == 0 && params.stride % 2 == 0 &&
    reinterpret_cast<std::uintptr_t>(params.qkv) % 8 == 0;
  constexpr int usual = 256 / 2 / warp_lanes, most = most_head_dim / 2 / warp_lanes;
  if (params.cache.head_dim > 256)
    paired ? start<Cell, true, most>(on, params) : start<Cell, false, most>(on, params);
  else
    paired ? start<Cell, true, usual>(on, params) : start<Cell, false, usual>(on, params);
}

/// A block per token and head. Bytes, as this happens for few tokens.
struct copy_tokens_kernel {
  static constexpr const char* name = "copy_tokens";
  static constexpr unsigned threads = 128;
  layer_cache cache;
  const token_copy* copies;

  TROUPE_DEVICE void operator()() const {
    const token_copy copy = copies[simt::block_x()];
    const int head = static_cast<int>(simt::block_y()), place = copy.place;
    const auto from = cache.head(copy.from, head), to = cache.head(copy.to, head);
    const int bytes = cache.type == kv_type::f32 ? 4 : cache.type == kv_type::bf16 ? 2 : 1;
    for (int i = static_cast<int>(simt::thread()); i < cache.head_dim * bytes; i += static_cast<int>(threads)) {
      const std::size_t key = from.key(place, i / bytes) * bytes + i % bytes;
      const std::size_t value = from.value(place, i / bytes) * bytes + i % bytes;
      to.data[key] = from.data[key];
      if (cache.values)
        to.data[value] = from.data[value];
    }
    const bool scaled = cache.type == kv_type::int8 || cache.type == kv_type::fp8;
    if (const int i = static_cast<int>(simt::thread()); scaled && i < 2)
      cache.scales(to)[i * block_tokens + place] = cache.scales(from)[i * block_tokens + place];
  }
};

} // namespace

void copy_tokens(const stream& on, const layer_cache& cache, const token_copy* copies, std::size_t count) {
  launch(on, {static_cast<unsigned>(count), static_cast<unsigned>(cache.kv_heads)}, 0,
         copy_tokens_kernel{cache, copies});
}

void rope_write_kv(const stream& on, const rope_params& params) {
  switch (params.cache.type) {
    case kv_type::f32: return start<float_cell>(on, params);
    case kv_type::bf16: return start<bf16_cell>(on, params);
    case kv_type::int8: return start<int8_cell>(on, params);
    case kv_type::fp8: return start<fp8_cell>(on, params);
  }
}

} // namespace troupe::kernels::cuda
