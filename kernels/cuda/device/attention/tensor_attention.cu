// Chooses the instantiation for a cache's type.
#include "kernels/cuda/device/attention/tensor_attention.hpp"

namespace troupe::kernels::cuda {

namespace {

/// Calls f with the cells of a type; not at all for f32.
template <class F>
void with_cells(kv_type type, const F& f) {
  switch (type) {
    case kv_type::bf16: return f(bf16_cells());
    case kv_type::int8: return f(int8_cells());
    case kv_type::fp8: return f(fp8_cells());
    case kv_type::f32: break;
  }
}

} // namespace

bool has_tensor_attention(kv_type type, int head_dim, bool distances) {
  return type != kv_type::f32 && with_dim(head_dim, [](auto) {}) && (!distances || has_distances(head_dim));
}

void attend(const stream& on, const attention_params& params, const attention_work* works, std::size_t count,
            int tile) {
  with_cells(params.cache.type,
             [&](auto cells) { attend_split<decltype(cells)>(on, params, works, count, tile, false); });
}

void attend_common(const stream& on, const attention_params& params, const attention_work* works, std::size_t count) {
  with_cells(params.cache.type,
             [&](auto cells) { attend_split<decltype(cells)>(on, params, works, count, large_tile, true); });
}

void attend_flash(const stream& on, const attention_params& params, const attention_work* works, std::size_t count) {
  with_cells(params.cache.type, [&](auto cells) { attend_flash_cells<decltype(cells)>(on, params, works, count); });
}

} // namespace troupe::kernels::cuda
