// Attention by plain arithmetic, and the merge of partitions' states.
#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/launch.hpp"

namespace troupe::kernels::cuda {

namespace {

TROUPE_DEVICE int at_least(int x, int least) { return x < least ? least : x; }
TROUPE_DEVICE int at_most(int x, int most) { return x > most ? most : x; }

/// A block takes the queries of a tile in turn.
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
    const int from = p.window > 0 ? at_least(row.position + 1 - p.window - start, 0) : 0;
    const int to = at_most(row.position + 1 - start, partition_tokens);
    if (from >= to)
      return;
    auto* scratch = reinterpret_cast<float*>(simt::shared());
    float* weights = scratch + threads / warp_lanes;
    float* q = weights + partition_tokens;
    const int thread = static_cast<int>(simt::thread());
    for (int d = thread; d < dim; d += threads)
      q[d] = p.q[index * p.q_stride + std::size_t(head) * dim + d] * p.scale;
    simt::sync_block();

    float highest = -simt::infinity();
    for (int t = from + thread; t < to; t += threads) {
      const std::size_t key = p.cache.key(p.tables[work.table + t / block_tokens], kv_head, t % block_tokens, 0);
      float score = 0;
      for (int d = 0; d < dim; ++d)
        score += q[d] * load_float(p.cache.data, p.cache_type, key + d);
      weights[t] = score;
      highest = simt::larger(highest, score);
    }
    highest = simt::block_max(highest, scratch);
    float sum = 0;
    for (int t = from + thread; t < to; t += threads)
      sum += weights[t] = simt::exp(weights[t] - highest);
    sum = simt::block_sum(sum, scratch);

    const std::size_t slot = row.slot + work.partition - row.first_partition;
    float* state = p.states + (slot * p.heads + head) * state_floats(dim);
    for (int d = thread; d < dim; d += threads) {
      float o = 0;
      for (int t = from; t < to; ++t)
        o += weights[t] * load_float(p.cache.data, p.cache_type,
                                     p.cache.value(p.tables[work.table + t / block_tokens], kv_head,
                                                   t % block_tokens, d));
      state[d] = o;
    }
    if (thread == 0) {
      state[dim] = highest;
      state[dim + 1] = sum;
    }
    simt::sync_block();
  }
};

/// A block per row, a warp per head.
struct merge_kernel {
  static constexpr const char* name = "merge of attention";
  static constexpr unsigned threads = 128;
  static constexpr unsigned warps = threads / warp_lanes;
  static constexpr int most_columns = 256 / warp_lanes; // of a lane
  attention_params p;
  std::int32_t first;

  TROUPE_DEVICE void operator()() const {
    const int head = static_cast<int>(simt::block_y() * warps + simt::warp()), dim = p.cache.head_dim;
    if (head >= p.heads)
      return;
    const std::int32_t index = p.list[first + static_cast<std::int32_t>(simt::block_x())];
    const attention_row row = p.rows[index];
    const int partitions = row.position / partition_tokens - row.first_partition + 1;
    const std::size_t stride = std::size_t(p.heads) * state_floats(dim);
    const float* state = p.states + std::size_t(row.slot) * stride + std::size_t(head) * state_floats(dim);
    float o[most_columns], m = state[dim], l = state[dim + 1];
    for (int c = 0; c < most_columns; ++c)
      o[c] = column(c) < dim ? state[column(c)] : 0;
    for (int i = 1; i < partitions; ++i) {
      state += stride;
      const float part = state[dim], highest = simt::larger(m, part);
      const float keep = simt::exp(m - highest), add = simt::exp(part - highest);
      m = highest;
      l = l * keep + state[dim + 1] * add;
      for (int c = 0; c < most_columns; ++c)
        if (column(c) < dim)
          o[c] = o[c] * keep + state[column(c)] * add;
    }
    for (int c = 0; c < most_columns; ++c)
      if (column(c) < dim)
        store_float(p.out, p.out_type, index * p.out_stride + std::size_t(head) * dim + column(c), o[c] / l);
  }

  TROUPE_DEVICE static int column(int c) { return c * static_cast<int>(warp_lanes) + static_cast<int>(simt::lane()); }
};

} // namespace

void attend_plainly(const stream& on, const attention_params& params, const attention_work* works, std::size_t count) {
  const std::size_t floats =
    plain_attention_kernel::threads / warp_lanes + partition_tokens + static_cast<std::size_t>(params.cache.head_dim);
  launch(on, {static_cast<unsigned>(count), static_cast<unsigned>(params.cache.kv_heads)}, floats * sizeof(float),
         plain_attention_kernel{params, works});
}

void merge_states(const stream& on, const attention_params& params, std::int32_t first, std::size_t count) {
  const auto blocks = ceil_div(static_cast<unsigned>(params.heads), merge_kernel::warps);
  launch(on, {static_cast<unsigned>(count), blocks}, 0, merge_kernel{params, first});
}

} // namespace troupe::kernels::cuda
