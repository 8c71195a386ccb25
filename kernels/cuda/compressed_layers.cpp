#include "kernels/cuda/compressed_layers.hpp"

#include "kernels/cuda/device/attention/entries.hpp"
#include "kernels/cuda/expect.hpp"

namespace troupe::kernels::cuda {

void compressed_layers::make_entries(const entry_making& how, const device_kv_cache& cache, int from, int to,
                                     const batch& rows) {
  step_.enter(on_, rows);
  entries_params p;
  p.how = how;
  p.from = cache.layer(from);
  rope_params keep;
  keep.cache = cache.layer(to);
  expect(how.rate > 0 && p.from.kv_heads == (how.overlaps ? 2 : 1) && p.from.values && keep.cache.kv_heads == 1 &&
           !keep.cache.values && p.from.head_dim == keep.cache.head_dim,
         "make_entries: layers of other shapes");
  const auto dim = static_cast<std::size_t>(p.from.head_dim);
  p.places = keep.places = step_.places();
  p.tables = keep.tables = step_.tables();
  p.rows = keep.rows = step_.rows();
  p.means = keep.qkv = means_.reserve<float>(p.rows * dim * sizeof(float));
  average_groups(on_, p);
  keep.stride = dim;
  keep.k_norm = how.norm;
  keep.eps = how.eps;
  keep.rope = how.angles;
  keep.rate = how.rate;
  rope_write_kv(on_, keep);
}

void compressed_layers::undo_rotation(const tensor& out, const tensor& x, int heads, int pairs, const float* angles,
                                      const batch& rows) {
  const auto dim = x.cols / static_cast<std::size_t>(heads);
  expect(x.type == dtype::f32 && out.cols == x.cols && dim * static_cast<std::size_t>(heads) == x.cols &&
           static_cast<std::size_t>(pairs) <= dim / 2 && out.type != dtype::f16,
         "undo_rotation: heads of f32 rows into f32 or bf16");
  step_.enter(on_, rows);
  cuda::undo_rotation(on_, out, x, heads, pairs, angles, step_.places());
}

} // namespace troupe::kernels::cuda
