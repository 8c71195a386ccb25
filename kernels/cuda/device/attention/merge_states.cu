// Merges partitions' states, one warp per row and head. Many states are loaded at a time to hide memory latency; they
// fold in order.
#include "kernels/cuda/device/attention/score_shape.hpp"
#include "kernels/cuda/device/elements.hpp"
#include "kernels/cuda/device/launch.hpp"

namespace troupe::kernels::cuda {

namespace {

/// `Columns`: dimensions per lane.
template <int Columns>
struct merge_kernel {
  static constexpr const char* name = "merge of attention";
  static constexpr unsigned threads = 128;
  static constexpr unsigned warps = threads / warp_lanes;
  static constexpr unsigned least_blocks = 3;
  static constexpr int batch = 64 / Columns; // states in registers
  attention_params p;
  std::int32_t first;

  struct partial {
    float o[Columns], m, l;
  };

  TROUPE_DEVICE void operator()() const {
    const int head = static_cast<int>(simt::block_y() * warps + simt::warp());
    if (head >= p.heads)
      return;
    const std::int32_t index = p.list[first + static_cast<std::int32_t>(simt::block_x())];
    const attention_row row = p.rows[index];
    partial sum;
    for (int c = 0; c < Columns; ++c)
      sum.o[c] = 0;
    sum.m = -simt::infinity();
    sum.l = 0;
    const int partitions = row.end_partition() - row.first_partition;
    for (int i = 0; i < partitions; i += batch) {
      partial states[batch];
#pragma unroll
      for (int j = 0; j < batch; ++j)
        load(states[j], row.slot + at_most(i + j, partitions - 1), head);
      fold(sum, states, partitions - i);
    }
    if (p.unified) {
      const bool suits = sum.l > least_sum && sum.l < largest_sum;
      if (row.position > 0)
        count(head, suits);
      if (!suits)
        sum = attend(row, index, head);
    }
    const float share = share_of_values(p, head, sum.m, sum.l);
    for (int c = 0; c < Columns; ++c)
      if (column(c) < p.cache.head_dim)
        store_float(p.out, p.out_type, index * p.out_stride + std::size_t(head) * p.cache.head_dim + column(c),
                    sum.o[c] * share);
  }

  TROUPE_DEVICE void count(int head, bool suits) const {
    if (simt::lane() != 0)
      return;
    if (head == 0)
      simt::atomic_add(&p.counts->sums, static_cast<std::uint64_t>(p.heads));
    if (!suits)
      simt::atomic_add(&p.counts->recomputed, std::uint64_t(1));
  }

  TROUPE_DEVICE static int column(int c) { return c * static_cast<int>(warp_lanes) + static_cast<int>(simt::lane()); }

  TROUPE_DEVICE void load(partial& to, int slot, int head) const {
    const int dim = p.cache.head_dim;
    const float* state = p.states + (std::size_t(slot) * p.heads + head) * state_floats(dim);
    for (int c = 0; c < Columns; ++c)
      to.o[c] = column(c) < dim ? state[column(c)] : 0;
    to.m = state[dim];
    to.l = state[dim + 1];
  }

  /// Adds `count` states, at most a batch. What rows share of a batch depends on their own partitions only.
  TROUPE_DEVICE void fold(partial& sum, const partial (&states)[batch], int count) const {
    float highest = sum.m;
#pragma unroll
    for (int j = 0; j < batch; ++j)
      highest = simt::larger(highest, states[j].m);
    const float base = highest == -simt::infinity() ? 0 : highest, keep = simt::exp2(sum.m - base);
    sum.m = highest;
    sum.l *= keep;
    for (int c = 0; c < Columns; ++c)
      sum.o[c] *= keep;
#pragma unroll
    for (int j = 0; j < batch; ++j) {
      const float share = j < count ? simt::exp2(states[j].m - base) : 0;
      sum.l = simt::fused(states[j].l, share, sum.l);
      for (int c = 0; c < Columns; ++c)
        sum.o[c] = simt::fused(states[j].o[c], share, sum.o[c]);
    }
  }

  // A unified maximum does not suit a row whose sum of exponentials is outside these: its precision is lost.
  static constexpr float least_sum = 4e-18f, largest_sum = 2e17f; // e^-40, e^40

  /// A row's complete attention, token by token with a running maximum; q in bf16 as on tensor cores. Slow, and rare.
  TROUPE_DEVICE partial attend(const attention_row& row, std::int32_t index, int head) const {
    const int dim = p.cache.head_dim, kv_head = head / (p.heads / p.cache.kv_heads);
    const float* from = p.q + index * p.q_stride + std::size_t(head) * dim;
    partial sum;
    float q[Columns];
    for (int c = 0; c < Columns; ++c) {
      sum.o[c] = 0;
      q[c] = column(c) < dim ? simt::bf16_to_float(simt::float_to_bf16(from[column(c)])) : 0;
    }
    sum.m = -simt::infinity();
    sum.l = 0;
    const float slope = slope_of(p, head);
    for (int t = row.first; t < row.end; ++t) {
      const int token = t % block_tokens;
      const auto block = p.cache.head(p.tables[p.places[index].first_block + t / block_tokens], kv_head);
      float score = 0;
      for (int c = 0; c < Columns; ++c)
        if (column(c) < dim)
          score = simt::fused(q[c], load_cell(block.data, p.cache.type, block.key(token, column(c))), score);
      score = simt::warp_sum(score) * p.scale;
      float value_scale = 1;
      if (is_scaled(p.cache.type)) {
        score *= block.scales()[token];
        value_scale = block.scales()[block_tokens + token];
      }
      if (is_shaped(p))
        score = shaped_score(p, score, slope, t - row.position);
      const float highest = simt::larger(sum.m, score);
      const float keep = simt::exp2(sum.m - highest), weight = simt::exp2(score - highest);
      sum.m = highest;
      sum.l = simt::fused(sum.l, keep, weight);
      for (int c = 0; c < Columns; ++c)
        if (column(c) < dim)
          sum.o[c] = simt::fused(simt::mul(weight, value_scale),
                                 load_cell(block.data, p.cache.type, block.value(token, column(c))),
                                 simt::mul(sum.o[c], keep));
    }
    return sum;
  }
};

template <int Columns>
void launch_merge(const stream& on, const attention_params& params, std::int32_t first, std::size_t count) {
  using kernel = merge_kernel<Columns>;
  const auto blocks = ceil_div(static_cast<unsigned>(params.heads), kernel::warps);
  launch(on, {static_cast<unsigned>(count), blocks}, 0, kernel{params, first});
}

} // namespace

void merge_states(const stream& on, const attention_params& params, std::int32_t first, std::size_t count) {
  if (params.cache.head_dim <= 64)
    launch_merge<2>(on, params, first, count);
  else if (params.cache.head_dim <= 128)
    launch_merge<4>(on, params, first, count);
  else if (params.cache.head_dim <= 256)
    launch_merge<8>(on, params, first, count);
  else
    launch_merge<20>(on, params, first, count);
}

} // namespace troupe::kernels::cuda
