#include "kernels/cuda/rope.hpp"

#include "kernels/cuda/launch.hpp"

namespace troupe::kernels::cuda {

namespace {

/// A warp for each head of a row.
struct rope_kernel {
  static constexpr const char* name = "rope_write_kv";
  static constexpr unsigned threads = 128;
  static constexpr int warps = threads / warp_lanes;
  rope_params p;

  TROUPE_DEVICE void operator()() const {
    const std::size_t row = simt::block_x();
    const int head = static_cast<int>(simt::block_y()) * warps + static_cast<int>(simt::warp());
    if (head >= p.heads + 2 * p.cache.kv_heads)
      return;
    const row_place place = p.places[row];
    float* x = p.qkv + row * p.stride + std::size_t(head) * p.cache.head_dim;
    const std::int32_t block = p.tables[place.first_block + place.position / block_tokens];
    const int token = place.position % block_tokens;
    if (head < p.heads)
      rotate(x, p.q_norm, place.position, [&](int d, float v) { x[d] = v; });
    else if (head < p.heads + p.cache.kv_heads)
      rotate(x, p.k_norm, place.position, [&](int d, float v) {
        store_float(p.cache.data, p.cache_type, p.cache.key(block, head - p.heads, token, d), v);
      });
    else
      for (int d = static_cast<int>(simt::lane()); d < p.cache.head_dim; d += warp_lanes)
        store_float(p.cache.data, p.cache_type,
                    p.cache.value(block, head - p.heads - p.cache.kv_heads, token, d), x[d]);
  }

  template <class Store>
  TROUPE_DEVICE void rotate(const float* x, const float* norm, int position, const Store& store) const {
    const int dim = p.cache.head_dim, half = dim / 2;
    float scale = 1;
    if (norm != nullptr) {
      float squares = 0;
      for (int d = static_cast<int>(simt::lane()); d < dim; d += warp_lanes)
        squares += x[d] * x[d];
      scale = simt::inverse_sqrt(simt::warp_sum(squares) / static_cast<float>(dim) + p.eps);
    }
    const float* rope = p.rope + static_cast<std::size_t>(position) * dim;
    for (int i = static_cast<int>(simt::lane()); i < half; i += warp_lanes) {
      const float a = norm != nullptr ? x[i] * scale * norm[i] : x[i];
      const float b = norm != nullptr ? x[half + i] * scale * norm[half + i] : x[half + i];
      store(i, a * rope[i] - b * rope[half + i]);
      store(half + i, b * rope[i] + a * rope[half + i]);
    }
  }
};

} // namespace

void rope_write_kv(const stream& on, const rope_params& params) {
  const int heads = params.heads + 2 * params.cache.kv_heads;
  const auto blocks = static_cast<unsigned>(ceil_div(heads, rope_kernel::warps));
  launch(on, {static_cast<unsigned>(params.rows), blocks}, 0, rope_kernel{params});
}

} // namespace troupe::kernels::cuda
