// Attention by plain f32 arithmetic, for head_dims and types without a tensor-core kernel.
#include "kernels/cuda/device/attention/score_shape.hpp"
#include "kernels/cuda/device/elements.hpp"
#include "kernels/cuda/device/launch.hpp"

namespace troupe::kernels::cuda {

namespace {

/// Where the tokens of a partition are, and entries behind them.
struct token_places {
  const attention_params& p;
  int kv_head;
  const std::int32_t* table;
  const std::int32_t* chosen; // or null
  int first = 0;              // position of the partition's first token, where there may be entries
  int tokens = 0;             // from there on; what is behind them are entries

  TROUPE_DEVICE token_places(const attention_params& p, const attention_work& work, std::int32_t row, int kv_head)
    : p(p), kv_head(kv_head), table(p.tables + work.table), chosen(p.chosen) {
    const int start = work.partition * partition_tokens;
    if (p.seen.window > 0) {
      const int position = p.places[row].position;
      table = p.tables + p.places[row].first_block;
      tokens = p.seen.tokens(position) - start;
      first = position + 1 - tokens;
      chosen = p.seen.chooses(position) ? chosen + std::size_t(row) * p.most : nullptr;
    } else if (chosen != nullptr) {
      table = p.tables + p.places[row].first_block;
      chosen += (std::size_t(row) * p.choices + (p.choices > 1 ? kv_head : 0)) * p.most + start;
    }
  }

  TROUPE_DEVICE bool is_entry(int t) const { return p.seen.window > 0 && t >= tokens; }
  TROUPE_DEVICE int at(int t) const {
    if (p.seen.window == 0)
      return chosen != nullptr ? chosen[t] : t;
    if (!is_entry(t))
      return first + t;
    return chosen != nullptr ? chosen[t - tokens] : (t - tokens + 1) * p.seen.rate - 1;
  }
  TROUPE_DEVICE head_block block(int t) const {
    return (is_entry(t) ? p.entries : p.cache).head(table[at(t) / block_tokens], kv_head);
  }
  TROUPE_DEVICE int token(int t) const { return at(t) % block_tokens; }
  TROUPE_DEVICE float key_scale(int t) const { return p.cache.scales(block(t))[token(t)]; }
  TROUPE_DEVICE float value_scale(int t) const {
    return p.cache.values ? p.cache.scales(block(t))[block_tokens + token(t)] : key_scale(t);
  }
  TROUPE_DEVICE float value(int t, int d) const {
    const auto in = block(t);
    return load_cell(in.data, p.cache.type, p.cache.values ? in.value(token(t), d) : in.key(token(t), d));
  }
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
      const auto block = places.block(t);
      const std::size_t key = block.key(places.token(t), 0);
      float score = 0;
      for (int d = 0; d < dim; ++d)
        score = simt::fused(q[d], load_cell(block.data, p.cache.type, key + d), score);
      if (is_scaled(p.cache.type))
        score *= places.key_scale(t);
      if (shaped)
        score = shaped_score(p, score, slope, start + t - row.position);
      if (p.distances.table != nullptr)
        score += distance_score(p.distances, index, head, row.position - start - t);
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
        weights[t] *= places.value_scale(t);
    }
    sum = simt::block_sum(sum, scratch);

    const std::size_t slot = row.slot + work.partition - row.first_partition;
    float* state = p.states + (slot * p.heads + head) * state_floats(dim);
    for (int d = thread; d < dim; d += threads) {
      float o = 0;
      for (int t = from; t < to; ++t)
        o = simt::fused(weights[t], places.value(t, d), o);
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
