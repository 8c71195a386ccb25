#include "kernels/cuda/device/rope.hpp"

#include "kernels/cuda/device/elements.hpp"
#include "kernels/cuda/device/launch.hpp"

namespace troupe::kernels::cuda {

namespace {

/// A warp per head of a row.
struct rope_kernel {
  static constexpr const char* name = "rope_write_kv";
  static constexpr unsigned threads = 128;
  static constexpr int warps = threads / warp_lanes;
  rope_params p;

  static constexpr int most_pairs = 256 / 2 / warp_lanes; // per lane, of elements i and head_dim / 2 + i

  TROUPE_DEVICE void operator()() const {
    const std::size_t row = simt::block_x();
    const int head = static_cast<int>(simt::block_y()) * warps + static_cast<int>(simt::warp());
    if (head >= p.heads + 2 * p.cache.kv_heads)
      return;
    const row_place place = p.places[row];
    const int half = p.cache.head_dim / 2;
    float* x = p.qkv + row * p.stride + std::size_t(head) * p.cache.head_dim;
    float a[most_pairs], b[most_pairs];
#pragma unroll
    for (int c = 0; c < most_pairs; ++c) {
      const int i = element(c);
      a[c] = i < half ? x[i] : 0;
      b[c] = i < half ? x[half + i] : 0;
    }
    const bool is_q = head < p.heads, is_v = head >= p.heads + p.cache.kv_heads;
    if (!is_v)
      rotate(a, b, is_q ? p.q_norm : p.k_norm, place.position);
    if (!is_q)
      return keep(a, b, place, head - p.heads - (is_v ? p.cache.kv_heads : 0), is_v);
#pragma unroll
    for (int c = 0; c < most_pairs; ++c)
      if (const int i = element(c); i < half) {
        x[i] = a[c];
        x[half + i] = b[c];
      }
  }

  TROUPE_DEVICE static int element(int c) { return c * static_cast<int>(warp_lanes) + static_cast<int>(simt::lane()); }

  TROUPE_DEVICE void rotate(float (&a)[most_pairs], float (&b)[most_pairs], const float* norm, int position) const {
    const int dim = p.cache.head_dim, half = dim / 2;
    const float* rope = p.rope + static_cast<std::size_t>(position) * dim;
    float scale = 1;
    if (norm != nullptr) {
      float squares = 0;
#pragma unroll
      for (int c = 0; c < most_pairs; ++c)
        squares = simt::fused(b[c], b[c], simt::fused(a[c], a[c], squares));
      scale = simt::inverse_sqrt(simt::warp_sum(squares) / static_cast<float>(dim) + p.eps);
    }
#pragma unroll
    for (int c = 0; c < most_pairs; ++c)
      if (const int i = element(c); i < half) {
        const float x = norm != nullptr ? a[c] * scale * norm[i] : a[c];
        const float y = norm != nullptr ? b[c] * scale * norm[half + i] : b[c];
        a[c] = simt::fused(x, rope[i], -simt::mul(y, rope[half + i]));
        b[c] = simt::fused(y, rope[i], simt::mul(x, rope[half + i]));
      }
  }

  /// Writes to the cache. Values are clamped to the finite range of bf16 and NaN becomes its lowest, so that the cache
  /// never holds a value that is not finite. Codes are those of the CPU (cpu/isa/row_kernels.hpp).
  TROUPE_DEVICE void keep(float (&a)[most_pairs], float (&b)[most_pairs], const row_place& place, int head,
                          bool is_v) const {
    const auto to = p.cache.head(p.tables[place.first_block + place.position / block_tokens], head);
    const int token = place.position % block_tokens, half = p.cache.head_dim / 2;
    float largest = 0;
#pragma unroll
    for (int c = 0; c < most_pairs; ++c) {
      a[c] = finite(a[c]);
      b[c] = finite(b[c]);
      largest = simt::larger(largest, simt::larger(simt::larger(a[c], -a[c]), simt::larger(b[c], -b[c])));
    }
    float inverse = 0;
    if (is_scaled(p.cache.type)) {
      largest = simt::warp_max(largest);
      const float most = largest_code(p.cache.type);
      const bool nothing = largest < 0x1p-100f; // the inverse would overflow
      inverse = nothing ? 0 : simt::divide(most, largest);
      if (simt::lane() == 0)
        to.scales()[(is_v ? block_tokens : 0) + token] = nothing ? 0 : simt::divide(largest, most);
    }
#pragma unroll
    for (int c = 0; c < most_pairs; ++c)
      if (const int i = element(c); i < half) {
        store_cell(to.data, p.cache.type, is_v ? to.value(token, i) : to.key(token, i), a[c], inverse);
        store_cell(to.data, p.cache.type, is_v ? to.value(token, half + i) : to.key(token, half + i), b[c], inverse);
      }
  }

  TROUPE_DEVICE static float finite(float x) {
    constexpr float most = 0x1.fep127f;
    const float least = simt::larger(x, -most);
    return least < most ? least : most;
  }
};

} // namespace

void rope_write_kv(const stream& on, const rope_params& params) {
  const int heads = params.heads + 2 * params.cache.kv_heads;
  const auto blocks = static_cast<unsigned>(ceil_div(heads, rope_kernel::warps));
  launch(on, {static_cast<unsigned>(params.rows), blocks}, 0, rope_kernel{params});
}

} // namespace troupe::kernels::cuda
