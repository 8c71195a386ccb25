#include "kernels/cuda/attention_layers.hpp"

#include "kernels/cuda/device/attention/attention.hpp"
#include "kernels/cuda/expect.hpp"
#include "kernels/cuda/scratch_plan.hpp"

#include <algorithm>

namespace troupe::kernels::cuda {

namespace {

distance_numbers numbers_of(const distance_scores& from, std::size_t rows, int heads, const attention_scores& scores) {
  expect(scores.soft_cap == 0 && scores.slopes == nullptr && scores.ahead == 0,
         "attention: scores by distance have no caps and slopes, and see no later tokens");
  expect(from.mixes.type == dtype::f32 && from.mixes.rows == rows &&
           from.mixes.cols == static_cast<std::size_t>(heads * from.width),
         "attention: distances must have f32 mixes of all heads");
  return {from.table + distance_padding + from.extent - 1,
          from.stride(),
          static_cast<const float*>(from.mixes.data),
          from.mixes.stride,
          from.width,
          from.extent};
}

} // namespace

attention_layers::attention_layers(const stream& on, step_memory& step, const cuda_options& options,
                                   const device_info& device)
  : on_(on), step_(step), options_(options), device_(device) {
  if (options.unified_maximum)
    counts_ = allocate(sizeof(softmax_counts));
}

attention_params attention_layers::params_of(const tensor& out, const tensor& q, int heads,
                                             const attention_scores& scores, const device_kv_cache& cache,
                                             int layer) const {
  expect(heads % cache.shape.layer(layer).heads == 0, "attention: heads must be a multiple of the KV heads");
  expect(out.type != dtype::f16, "attention: out must be f32 or bf16");
  expect(scores.scale > 0, "attention: the scale of scores must be positive");
  attention_params p;
  p.q = static_cast<const float*>(q.data);
  p.q_stride = q.stride;
  p.out = out.data;
  p.out_type = out.type;
  p.out_stride = out.stride;
  p.heads = heads;
  p.scale = exponent(scores.scale);
  p.cap = exponent(scores.soft_cap);
  p.slopes = scores.slopes;
  p.sinks = scores.sinks;
  p.cache = cache.layer(layer);
  p.tables = step_.tables();
  p.places = step_.places();
  p.aligned = reinterpret_cast<std::uintptr_t>(p.q) % 16 == 0 && p.q_stride % 4 == 0 &&
    reinterpret_cast<std::uintptr_t>(p.out) % (2 * size_of(p.out_type)) == 0 && p.out_stride % 2 == 0;
  return p;
}

void attention_layers::attend(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                              const device_kv_cache& cache, int layer, const batch& rows, const position_choice* chosen,
                              const distance_scores* distances) {
  step_.enter(on_, rows);
  auto p = params_of(out, qkv, heads, scores, cache, layer);
  const auto shape = cache.shape.layer(layer);
  if (distances != nullptr)
    p.distances = numbers_of(*distances, qkv.rows, heads, scores);
  const bool tensor_cores = has_tensor_attention(cache.shape.type, shape.dim, distances != nullptr);
  attention_options options;
  options.group = heads / shape.heads;
  options.window = scores.window;
  options.chunk = scores.chunk;
  options.ahead = scores.ahead;
  options.flash = tensor_cores && !options_.deterministic && distances == nullptr;
  options.kv_heads = shape.heads;
  options.multiprocessors = device_.multiprocessors;
  options.least_common = tensor_cores ? least_common_quarters : 0;
  options.most = chosen != nullptr ? chosen->most : 0;
  p.unified = tensor_cores && options_.unified_maximum.has_value() && distances == nullptr;
  p.maximum = exponent(options_.unified_maximum.value_or(0));
  p.counts = static_cast<softmax_counts*>(counts_.get());
  run(p, options, tensor_cores);
  if (chosen == nullptr)
    return;
  expect(options.window == 0 && options.chunk == 0 && options.ahead == 0 && p.slopes == nullptr && chosen->on_device,
         "attention over chosen positions: those that this backend chose, without windows, chunks and slopes");
  options.choosing = true;
  options.grouped = chosen->groups.size > 1;
  options.unit = std::max({1, chosen->blocks.size, chosen->groups.size});
  options.flash = options.share = false; // each row has its own positions
  options.least_common = 0;
  p.unified = false;
  p.chosen = static_cast<const std::int32_t*>(chosen->on_device.get());
  p.most = chosen->most;
  p.choices = chosen->heads;
  run(p, options, false);
}

void attention_layers::attend_entries(const tensor& out, const tensor& q, int heads, const attention_scores& scores,
                                      const entry_view& seen, const device_kv_cache& cache, const batch& rows) {
  step_.enter(on_, rows);
  auto p = params_of(out, q, heads, scores, cache, seen.tokens);
  const bool entries = seen.entries >= 0;
  if (entries)
    p.entries = cache.layer(seen.entries);
  if (entries && seen.chosen != nullptr) {
    p.chosen = static_cast<const std::int32_t*>(seen.chosen->on_device.get());
    p.most = seen.chosen->most;
  }
  expect(scores.window == 0 && scores.chunk == 0 && scores.ahead == 0 && p.slopes == nullptr && seen.window > 0 &&
           p.cache.kv_heads == 1 && !p.cache.values &&
           (!entries || (p.entries.head_dim == p.cache.head_dim && p.entries.kv_heads == 1 && !p.entries.values)),
         "attend_entries: layers of K alone, of one head, and scores without windows, chunks and slopes");
  p.seen = {seen.window, entries ? seen.rate : 0, p.most};
  attention_options options;
  options.group = heads;
  options.share = false; // each row has its own list
  options.seen = p.seen;
  run(p, options, false);
}

void attention_layers::run(attention_params& p, const attention_options& wanted, bool tensor_cores) {
  const std::size_t state_bytes = static_cast<std::size_t>(p.heads * state_floats(p.cache.head_dim)) * sizeof(float);
  auto options = wanted;
  options.most_slots = std::max<std::size_t>(1, state_memory / state_bytes);
  const auto& planned = step_.attention(on_, options);
  p.rows = planned.rows;
  p.list = planned.list;
  p.states = states_.reserve<float>(planned.plan.slots * state_bytes);
  attend_flash(on_, p, planned.flash, planned.plan.flash.size());
  for (const auto& slab : planned.plan.slabs) {
    const auto *small = planned.small + slab.small_first, *large = planned.large + slab.large_first;
    if (tensor_cores) {
      attend_common(on_, p, planned.common + slab.common_first, slab.common);
      cuda::attend(on_, p, small, slab.small, small_tile);
      cuda::attend(on_, p, large, slab.large, large_tile);
    } else {
      attend_plainly(on_, p, small, slab.small);
      attend_plainly(on_, p, large, slab.large);
    }
    merge_states(on_, p, slab.merge_first, slab.merge);
  }
}

} // namespace troupe::kernels::cuda
