// Computes the states of a partition on tensor cores, for decode and short chunks. Only for kernels.
#pragma once

#include "kernels/cuda/device/attention/tensor_attention.hpp"

namespace troupe::kernels::cuda {

inline constexpr int most_warps = partition_quarters, warp_tokens = quarter_tokens; // of each
inline constexpr int warp_blocks = warp_tokens / block_tokens;

/// Whether there is also a kernel for tiles of 32 queries; each takes seconds to compile. Otherwise two blocks share
/// such a tile, and K and V are read twice.
constexpr bool has_large_tiles(int head_dim) { return head_dim == 64 || head_dim == 96 || head_dim == 128; }

/// A block has a tile and a partition, each of its four warps a quarter of the partition. Quarters merge in order. Or
/// it keeps the states of common quarters apart, as they are. `Distances`: scores have numbers of distances.
template <class Cells, int Dim, int Tiles, bool Distances = false>
struct split_attention_kernel {
  static constexpr const char* name = "split attention";
  static constexpr unsigned threads = most_warps * warp_lanes;
  static constexpr unsigned least_blocks = Dim <= 128 ? 4 / Tiles : 3;
  static constexpr int queries = 16 * Tiles;
  static_assert(queries <= static_cast<int>(warp_lanes));
  /// Dimensions of o that are computed and merged at a time. More fit neither registers nor shared memory.
  static constexpr int pass_dims = Dim <= 128 ? Dim : Dim / 2, eights = pass_dims / 8;
  static_assert(pass_dims % 8 == 0 && pass_dims <= 4 * static_cast<int>(warp_lanes));
  static constexpr int o_stride = pass_dims + 4;
  using part = tensor_attention<Cells, Dim, Tiles, warp_blocks>;
  static constexpr std::size_t state_bytes = std::size_t(most_warps) * queries * (o_stride + 2) * sizeof(float);
  static constexpr std::size_t query_bytes = Tiles * part::query_bytes;
  static constexpr std::size_t shared_bytes = state_bytes > query_bytes ? state_bytes : query_bytes;
  attention_params p;
  const attention_work* works;
  unsigned parts; // blocks that share a work, each with its next 16 * Tiles queries
  bool apart;     // common quarters, alone

  TROUPE_DEVICE void operator()() const {
    attention_work work = works[simt::block_x() / parts];
    const int others = static_cast<int>(simt::block_x() % parts) * queries;
    work.packed += others;
    work.count = at_most(work.count - others, queries);
    if (work.count <= 0)
      return;
    const part warp{p, work, static_cast<int>(simt::block_y())};
    unsigned char* q = simt::shared();
#pragma unroll
    for (int i = 0; i < Tiles; ++i)
      warp.stage_queries(q + i * part::query_bytes, 16 * i, static_cast<int>(simt::warp()), most_warps);
    simt::sync_block();

    const int quarter = static_cast<int>(simt::warp());
    const int start = work.partition * partition_tokens + quarter * warp_tokens;
    int firsts[Tiles][2], ends[Tiles][2]; // what the lane's rows see, from `start` on
    for (int i = 0; i < Tiles; ++i)
      for (int half = 0; half < 2; ++half) {
        const attention_row row = p.rows[warp.row_of(query_of(i, half))];
        firsts[i][half] = row.first - start;
        ends[i][half] = row.end - start;
      }
    const attention_row mine = p.rows[warp.row_of(static_cast<int>(simt::lane()))];
    const bool computes = (quarter < work.common) == apart;
    const int last = computes ? at_most(simt::warp_max(mine.end - start), warp_tokens) : 0;
    // All rows see all tokens.
    const bool whole = -simt::warp_max(start - mine.end) >= warp_tokens && simt::warp_max(mine.first - start) <= 0;

    float scores[Tiles][part::columns][4] = {}, m[Tiles][2], l[Tiles][2] = {};
    for (int i = 0; i < Tiles; ++i)
      m[i][0] = m[i][1] = -simt::infinity();
    const std::int32_t* blocks = p.tables + work.table + quarter * warp_blocks;
    const int count = ceil_div(last, block_tokens); // of blocks with visible tokens
    const auto heads = [&](int b) { return part::head(p.cache, blocks[b < count ? b : 0], warp.kv_head); };
    if (last > 0) {
      warp.score(q, heads, 0, scores);
#pragma unroll
      for (int i = 0; i < Tiles; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          if constexpr (Distances)
            warp.add_distances(scores[i], query_of(i, half), half, start);
          else
            warp.shape(scores[i], query_of(i, half), half, start);
          if (!whole)
            part::mask(scores[i], half, firsts[i][half], ends[i][half]);
          m[i][half] = p.unified ? p.maximum : part::row_max(scores[i], half) * p.scale;
          l[i][half] = part::row_sum(warp.exponentiate(scores[i], half, part::base(m[i][half])));
        }
    }
#pragma unroll 1
    for (int first = 0; first < Dim; first += pass_dims) {
      float o[Tiles][eights][4] = {};
      if (last > 0)
        warp.template add_values<false>(heads, first, last, scores, o);
      simt::sync_block(); // states replace q, or those of the pass before, in shared memory
      if (computes || apart)
        keep(o, m, l);
      else
        take_over(warp, first);
      simt::sync_block();
      if (apart)
        keep_apart(warp, first);
      else
        merge(warp, first);
    }
  }

  TROUPE_DEVICE static int query_of(int tile, int half) {
    return 16 * tile + 8 * half + static_cast<int>(part::group_lane());
  }

  /// Shared memory: o of a pass, [warps][queries][o_stride], then m and l, [warps][queries][2].
  TROUPE_DEVICE static float* o_of(int warp, int query) {
    return reinterpret_cast<float*>(simt::shared()) + (warp * queries + query) * o_stride;
  }
  TROUPE_DEVICE static float* m_of(int warp, int query) {
    return reinterpret_cast<float*>(simt::shared()) + most_warps * queries * o_stride + (warp * queries + query) * 2;
  }

  TROUPE_DEVICE static void keep(const float (&o)[Tiles][eights][4], const float (&m)[Tiles][2],
                                 const float (&l)[Tiles][2]) {
    const int warp = static_cast<int>(simt::warp());
    const int g = static_cast<int>(part::group_lane()), t = static_cast<int>(part::thread_lane());
#pragma unroll
    for (int i = 0; i < Tiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int query = 16 * i + 8 * half + g;
#pragma unroll
        for (int d = 0; d < eights; ++d) {
          o_of(warp, query)[8 * d + 2 * t] = o[i][d][2 * half];
          o_of(warp, query)[8 * d + 2 * t + 1] = o[i][d][2 * half + 1];
        }
        if (t == 0) {
          m_of(warp, query)[0] = m[i][half];
          m_of(warp, query)[1] = l[i][half];
        }
      }
  }

  /// The state of a common quarter, in memory.
  TROUPE_DEVICE float* common_state(const part& tile, int query, int quarter) const {
    const std::size_t slot = p.rows[tile.row_of(query)].common_slot + quarter;
    return p.states + (slot * p.heads + tile.head_of(query)) * state_floats(Dim);
  }

  /// pass_dims dimensions of the warp's quarter, from `first` on.
  TROUPE_DEVICE void take_over(const part& tile, int first) const {
    const int quarter = static_cast<int>(simt::warp()), d = 4 * static_cast<int>(simt::lane());
    for (int query = 0; query < tile.work.count; ++query) {
      const float* state = common_state(tile, query, quarter);
      if (d < pass_dims)
        *reinterpret_cast<words4*>(o_of(quarter, query) + d) = *reinterpret_cast<const words4*>(state + first + d);
      if (d == 0) {
        m_of(quarter, query)[0] = state[Dim];
        m_of(quarter, query)[1] = state[Dim + 1];
      }
    }
  }

  /// Those of all common quarters: a warp each query.
  TROUPE_DEVICE void keep_apart(const part& tile, int first) const {
    const int d = 4 * static_cast<int>(simt::lane());
    for (int query = static_cast<int>(simt::warp()); query < tile.work.count; query += most_warps)
      for (int quarter = 0; quarter < tile.work.common; ++quarter) {
        float* state = common_state(tile, query, quarter);
        if (d < pass_dims)
          *reinterpret_cast<words4*>(state + first + d) = *reinterpret_cast<const words4*>(o_of(quarter, query) + d);
        if (first + d == 0) {
          state[Dim] = m_of(quarter, query)[0];
          state[Dim + 1] = m_of(quarter, query)[1];
        }
      }
  }

  /// Merges pass_dims dimensions of the quarters, from `first` on: a warp each query, a lane four dimensions.
  TROUPE_DEVICE void merge(const part& tile, int first) const {
    for (int query = static_cast<int>(simt::warp()); query < tile.work.count; query += most_warps) {
      const attention_row row = p.rows[tile.row_of(query)];
      if (tile.work.partition < row.first_partition || tile.work.partition >= row.end_partition())
        continue; // the row does not see this partition
      float share[most_warps], m = m_of(0, query)[0], l = 0;
#pragma unroll
      for (int w = 1; w < most_warps; ++w)
        m = simt::larger(m, m_of(w, query)[0]);
#pragma unroll
      for (int w = 0; w < most_warps; ++w) {
        share[w] = simt::exp2(m_of(w, query)[0] - part::base(m)); // 0 if the quarter has no tokens
        l = simt::fused(m_of(w, query)[1], share[w], l);
      }
      const std::size_t slot = row.slot + tile.work.partition - row.first_partition;
      float* state = p.states + (slot * p.heads + tile.head_of(query)) * state_floats(Dim);
      const int d = 4 * static_cast<int>(simt::lane());
      if (d < pass_dims) {
        float o[4] = {};
#pragma unroll
        for (int w = 0; w < most_warps; ++w) {
          const words4 part_o = *reinterpret_cast<const words4*>(o_of(w, query) + d);
#pragma unroll
          for (int i = 0; i < 4; ++i)
            o[i] = simt::fused(simt::bits_to_float(word_of(part_o, i)), share[w], o[i]);
        }
        *reinterpret_cast<words4*>(state + first + d) = {simt::float_to_bits(o[0]), simt::float_to_bits(o[1]),
                                                         simt::float_to_bits(o[2]), simt::float_to_bits(o[3])};
      }
      if (first + d == 0) {
        state[Dim] = m;
        state[Dim + 1] = l;
      }
    }
  }
};

template <class Kernel>
void launch_tiles(const stream& on, const attention_params& params, const attention_work* works, std::size_t count,
                  int tile, bool apart) {
  const auto parts = static_cast<unsigned>(tile / Kernel::queries);
  launch_works(on, Kernel{params, works, parts, apart}, count * parts);
}

template <class Cells>
void attend_split(const stream& on, const attention_params& params, const attention_work* works, std::size_t count,
                  int tile, bool apart) {
  with_dim(params.cache.head_dim, [&](auto dim) {
    using small = split_attention_kernel<Cells, dim.value, 1>;
    using large = split_attention_kernel<Cells, dim.value, has_large_tiles(dim.value) ? 2 : 1>;
    using by_distance = split_attention_kernel<Cells, dim.value, 1, has_distances(dim.value)>;
    if (params.distances.table != nullptr)
      launch_tiles<by_distance>(on, params, works, count, tile, apart);
    else if (tile == small_tile)
      launch_tiles<small>(on, params, works, count, tile, apart);
    else
      launch_tiles<large>(on, params, works, count, tile, apart);
  });
}

} // namespace troupe::kernels::cuda
