// Attention by plain f32 arithmetic, for head_dims and types without a tensor-core kernel.
#include "kernels/cuda/device/attention/score_shape.hpp"
#include "kernels/cuda/device/elements.hpp"
#include "kernels/cuda/device/launch.hpp"

namespace troupe::kernels::cuda {

namespace {

/// Where the tokens of a partition are.
struct token_places {
  const std::int32_t* table;
  const std::int32_t* chosen; // or null

  TROUPE_DEVICE token_places(const attention_params& p, const attention_work& work, std::int32_t row, int kv_head)
    : table(p.tables + work.table), chosen(p.chosen) {
    if (chosen == nullptr)
      return;
    table = p.tables + p.places[row].first_block;
    chosen += (std::size_t(row) * p.choices + (p.choices > 1 ? kv_head : 0)) * p.most +
      std::size_t(work.partition) * partition_tokens;
  }

  TROUPE_DEVICE int at(int t) const { return chosen != nullptr ? chosen[t] : t; }
  TROUPE_DEVICE std::int32_t block(int t) const { return table[at(t) / block_tokens]; }
  TROUPE_DEVICE int token(int t) const { return at(t) % block_tokens; }
};

/// A block processes the queries of a tile one after another.
struct plain_attention_kernel {
  static constexpr const char* name = "plain attention";
  static constexpr unsigned threads = 128;
  attention_params p;
  const attention_work* works;

  TROUPE_DEVICE void operator()() const {
    const attention_work work = works[simt::block_x()];
    const int kv_head = static_cast<int>(simt::block_y()), group = p.heads / p.cache.kv_heads;
    for (int i = work.packed; i < work.packed + work.count; ++i)
      attend(work, p.list[work.first + i / group], kv_head, kv_head * group + i % group);
  }

  TROUPE_DEVICE void attend(const attention_work& work, std::int32_t index, int kv_head, int head) const {
    const attention_row row = p.rows[index];
    const int start = work.partition * partition_tokens, dim = p.cache.head_dim;
    const int from = at_least(row.first - start, 0), to = at_most(row.end - start, partition_tokens);
    if (from >= to)
      return;
    auto* scratch = reinterpret_cast<float*>(simt::shared());
    float* weights = scratch + threads / warp_lanes;
    float* q = weights + partition_tokens;
    const int thread = static_cast<int>(simt::thread());
    for (int d = thread; d < dim; d += threads)
      q[d] = p.q[index * p.q_stride + std::size_t(head) * dim + d] * p.scale;
    simt::sync_block();

    const token_places places(p, work, index, kv_head);
    const bool shaped = is_shaped(p);
    const float slope = slope_of(p, head);
    float highest = -simt::infinity();
    for (int t = from + thread; t < to; t += threads) {
      const int token = places.token(t);
      const auto block = p.cache.head(places.block(t), kv_head);
      const std::size_t key = block.key(token, 0);
      float score = 0;
      for (int d = 0; d < dim; ++d)
        score = simt::fused(q[d], load_cell(block.data, p.cache.type, key + d), score);
      if (is_scaled(p.cache.type))
        score *= block.scales()[token];
      if (shaped)
        score = shaped_score(p, score, slope, start + t - row.position);
      weights[t] = score;
      highest = simt::larger(highest, score);
    }
    highest = simt::block_max(highest, scratch);
    float sum = 0;
    for (int t = from + thread; t < to; t += threads) {
      const float weight = simt::exp2(weights[t] - highest);
      sum += weight;
      weights[t] = weight;
      if (is_scaled(p.cache.type)) // V's scale is applied to the weight
        weights[t] *= p.cache.head(places.block(t), kv_head).scales()[block_tokens + places.token(t)];
    }
    sum = simt::block_sum(sum, scratch);

    const std::size_t slot = row.slot + work.partition - row.first_partition;
    float* state = p.states + (slot * p.heads + head) * state_floats(dim);
    for (int d = thread; d < dim; d += threads) {
      float o = 0;
      for (int t = from; t < to; ++t) {
        const auto block = p.cache.head(places.block(t), kv_head);
        o = simt::fused(weights[t], load_cell(block.data, p.cache.type, block.value(places.token(t), d)), o);
      }
      state[d] = o;
    }
    if (thread == 0) {
      state[dim] = highest;
      state[dim + 1] = sum;
    }
    simt::sync_block();
  }
};

} // namespace

void attend_plainly(const stream& on, const attention_params& params, const attention_work* works, std::size_t count) {
  const std::size_t floats = plain_attention_kernel::threads / warp_lanes + partition_tokens +
    static_cast<std::size_t>(params.cache.head_dim);
  launch(on, {static_cast<unsigned>(count), static_cast<unsigned>(params.cache.kv_heads)}, floats * sizeof(float),
         plain_attention_kernel{params, works});
}

} // namespace troupe::kernels::cuda
