#include "kernels/cuda/indexer_layers.hpp"

#include "kernels/cuda/device/attention/choice.hpp"
#include "kernels/cuda/expect.hpp"

#include <algorithm>

namespace troupe::kernels::cuda {

void indexer_layers::choose(position_choice& to, const tensor& queries, const tensor& weights, int heads,
                            const device_kv_cache& cache, int layer, const batch& rows, int rate) {
  const auto count = static_cast<std::size_t>(heads);
  const bool weighed = to.blocks.size == 0;
  choice_params p;
  p.keys = cache.layer(layer);
  expect(queries.type == dtype::f32 && queries.cols == count * static_cast<std::size_t>(p.keys.head_dim) &&
           p.keys.kv_heads == 1 && (!weighed || (weights.type == dtype::f32 && weights.cols == count)),
         "choose_positions: queries and weights must be f32, of heads that share one key");
  expect(rate > 0 && (to.groups.size == 1 || (weighed && rate == 1 && (to.most + 1) % to.groups.size == 0)),
         "choose_positions: whole groups, and all positions behind the last whole one");
  expect(weighed || (to.most % to.blocks.size == 0 && to.blocks.last > 0 && to.heads == heads),
         "choose_positions: whole blocks, the last of which is chosen, for each head");
  step_.enter(on_, rows);
  int longest = 0;
  for (const auto& s : rows.sequences)
    longest = std::max(longest, s.first_position + s.rows);
  // As much as for the largest step, for which the caller has made room.
  if (const auto bytes = to.positions.capacity() * sizeof(std::int32_t); to.device_bytes < bytes) {
    to.on_device = allocate(bytes);
    to.device_bytes = bytes;
  }
  if (longest / rate <= to.most)
    return;
  p.queries = static_cast<const float*>(queries.data);
  p.queries_stride = queries.stride;
  p.weights = weighed ? static_cast<const float*>(weights.data) : nullptr;
  p.weights_stride = weights.stride;
  p.places = step_.places();
  p.tables = step_.tables();
  p.chosen = static_cast<std::int32_t*>(to.on_device.get());
  p.heads = heads;
  p.groups = to.groups;
  p.rate = rate;
  p.width = static_cast<std::size_t>(ceil_div(longest / (rate * to.groups.size), partition_tokens) * partition_tokens);
  p.most = to.most;
  p.block = std::max(1, to.blocks.size);
  p.last = weighed ? 0 : to.blocks.last;
  const auto bytes = static_cast<std::size_t>(p.choices()) * p.width * sizeof(float); // of a row
  const auto at_once = std::clamp<std::size_t>(memory_ / bytes, 1, step_.rows());
  p.scores = scores_.reserve<float>(at_once * bytes);
  for (std::size_t first = 0; first < step_.rows(); first += at_once) {
    const auto some = std::min(at_once, step_.rows() - first);
    score_positions(on_, p, first, some);
    choose_best(on_, p, first, some);
  }
}

} // namespace troupe::kernels::cuda
