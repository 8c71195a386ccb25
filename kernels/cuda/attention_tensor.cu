// Attention on tensor cores, K and V in bf16. A warp has 16 or 32 packed queries and goes through 64 tokens at once:
// scores, their softmax, the weighted sum of V; K and V come from memory straight into the operands (kv_layout.hpp), q
// from shared memory. Tokens of a block of 16 are numbered so that what a lane gets as scores is what it needs as the
// operand of the second product: column n of the tile j (0, 1) of 8 is token 4 * (n / 2) + 2 * j + n % 2.
#include "kernels/cuda/attention.hpp"
#include "kernels/cuda/launch.hpp"

#include <type_traits>

namespace troupe::kernels::cuda {

namespace {

inline constexpr int warp_tokens = 64;                       // of a warp at once
inline constexpr int warp_blocks = warp_tokens / block_tokens;
inline constexpr int most_warps = partition_tokens / warp_tokens;

/// What the warps of both kernels do: `Tiles` tiles of 16 queries over 64 tokens.
template <int Dim, int Tiles>
struct tensor_attention {
  static constexpr int q_stride = Dim + 8; // of shared memory, in elements: rows start in different banks
  static constexpr int dims = Dim / 8;

  const attention_params& p;
  const attention_work& work;
  int kv_head;

  TROUPE_DEVICE static unsigned group_lane() { return simt::lane() / 4; }
  TROUPE_DEVICE static unsigned thread_lane() { return simt::lane() % 4; }

  /// The row of a packed query, or -1 beyond the tile's last.
  TROUPE_DEVICE std::int32_t row_of(int query) const {
    return query < work.count ? p.list[work.first + (work.packed + query) / group()] : -1;
  }
  TROUPE_DEVICE int group() const { return p.heads / p.cache.kv_heads; }
  TROUPE_DEVICE int head_of(int query) const { return kv_head * group() + (work.packed + query) % group(); }

  /// q of `queries` packed queries to shared memory, as bf16, by all threads.
  TROUPE_DEVICE void stage_queries(std::uint16_t* q, int queries) const {
    for (int i = static_cast<int>(simt::thread()); i < queries * Dim; i += static_cast<int>(simt::threads())) {
      const int query = i / Dim, d = i % Dim;
      const std::int32_t row = row_of(query);
      const float x = row < 0 ? 0 : p.q[row * p.q_stride + std::size_t(head_of(query)) * Dim + d];
      q[query * q_stride + d] = simt::float_to_bf16(x);
    }
  }

  /// scores[tile][8-token column tile][..] of 64 tokens in `blocks` of the table; `count`: blocks that hold any.
  TROUPE_DEVICE void score(const std::uint16_t* q, const std::int32_t* blocks, int count,
                           float (&scores)[Tiles][2 * warp_blocks][4]) const {
    const unsigned g = group_lane(), t = thread_lane();
    const auto* cache = static_cast<const std::uint16_t*>(p.cache.data);
    const std::uint16_t* keys[warp_blocks];
#pragma unroll
    for (int b = 0; b < warp_blocks; ++b)
      keys[b] = cache + p.cache.keys(blocks[b < count ? b : 0], kv_head) + (4 * (g / 2) + g % 2) * Dim + 8 * t;
#pragma unroll
    for (int i = 0; i < Tiles; ++i)
#pragma unroll
      for (int c = 0; c < 2 * warp_blocks; ++c)
        scores[i][c][0] = scores[i][c][1] = scores[i][c][2] = scores[i][c][3] = 0;
#pragma unroll
    for (int d = 0; d < Dim; d += 32) {
      words4 upper[Tiles], lower[Tiles];
#pragma unroll
      for (int i = 0; i < Tiles; ++i) {
        const std::uint16_t* from = q + (16 * i + g) * q_stride + d + 8 * t;
        upper[i] = *reinterpret_cast<const words4*>(from);
        lower[i] = *reinterpret_cast<const words4*>(from + 8 * q_stride);
      }
#pragma unroll
      for (int c = 0; c < 2 * warp_blocks; ++c) {
        const words4 k = *reinterpret_cast<const words4*>(keys[c / 2] + c % 2 * 2 * Dim + d);
#pragma unroll
        for (int i = 0; i < Tiles; ++i) {
          simt::mma(scores[i][c], {upper[i].x, lower[i].x, upper[i].y, lower[i].y}, {k.x, k.y});
          simt::mma(scores[i][c], {upper[i].z, lower[i].z, upper[i].w, lower[i].w}, {k.z, k.w});
        }
      }
    }
  }

  /// Scales the scores of query row `half` of tile i and hides those outside [from, to), counted from the 64 tokens'
  /// start; returns the largest, over the row.
  TROUPE_DEVICE float limit(float (&scores)[2 * warp_blocks][4], int half, int from, int to) const {
    float highest = -simt::infinity();
#pragma unroll
    for (int c = 0; c < 2 * warp_blocks; ++c)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int token = c / 2 * block_tokens + 4 * static_cast<int>(thread_lane()) + c % 2 * 2 + i;
        float& s = scores[c][2 * half + i];
        s = token >= from && token < to ? s * p.scale : -simt::infinity();
        highest = simt::larger(highest, s);
      }
    highest = simt::larger(highest, simt::shuffle_xor(highest, 1));
    return simt::larger(highest, simt::shuffle_xor(highest, 2));
  }

  /// Turns a row's scores into exponentials, relative to `m`; returns their sum over the row.
  TROUPE_DEVICE float exponentiate(float (&scores)[2 * warp_blocks][4], int half, float m) const {
    float sum = 0;
#pragma unroll
    for (int c = 0; c < 2 * warp_blocks; ++c)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float& s = scores[c][2 * half + i];
        s = s == -simt::infinity() ? 0 : simt::exp(s - m);
        sum += s;
      }
    sum += simt::shuffle_xor(sum, 1);
    return sum + simt::shuffle_xor(sum, 2);
  }

  /// o += scores * V. Slots at and after `last` of the 64 tokens have never been written for this sequence: V there may
  /// be anything, and counts as zero.
  TROUPE_DEVICE void add_values(const std::int32_t* blocks, int last, const float (&scores)[Tiles][2 * warp_blocks][4],
                                float (&o)[Tiles][dims][4]) const {
    const unsigned g = group_lane(), t = thread_lane();
    const auto* cache = static_cast<const std::uint16_t*>(p.cache.data);
#pragma unroll
    for (int b = 0; b < warp_blocks; ++b) {
      if (b * block_tokens >= last)
        return;
      const int left = last - b * block_tokens - 4 * static_cast<int>(t); // of the lane's four tokens
      const std::uint32_t low = left >= 2 ? 0xffffffffu : left == 1 ? 0xffffu : 0;
      const std::uint32_t high = left >= 4 ? 0xffffffffu : left == 3 ? 0xffffu : 0;
      std::uint32_t weights[Tiles][4];
#pragma unroll
      for (int i = 0; i < Tiles; ++i) {
        const auto &first = scores[i][2 * b], &second = scores[i][2 * b + 1];
        weights[i][0] = simt::float_to_bf16_pair(first[0], first[1]);
        weights[i][1] = simt::float_to_bf16_pair(first[2], first[3]);
        weights[i][2] = simt::float_to_bf16_pair(second[0], second[1]);
        weights[i][3] = simt::float_to_bf16_pair(second[2], second[3]);
      }
      const std::uint16_t* values =
        cache + p.cache.keys(blocks[b], kv_head) + block_tokens * Dim + g * block_tokens + 4 * t;
#pragma unroll
      for (int d = 0; d < dims; ++d) {
        const words2 v = *reinterpret_cast<const words2*>(values + 8 * d * block_tokens);
#pragma unroll
        for (int i = 0; i < Tiles; ++i)
          simt::mma(o[i][d], weights[i], {v.x & low, v.y & high});
      }
    }
  }
};

TROUPE_DEVICE int at_least(int x, int least) { return x < least ? least : x; }
TROUPE_DEVICE int at_most(int x, int most) { return x > most ? most : x; }

/// A block has a tile and a partition, each of its four warps a quarter of that; quarters merge in order.
template <int Dim, int Tiles>
struct split_attention_kernel {
  static constexpr const char* name = "split attention";
  static constexpr unsigned threads = most_warps * warp_lanes;
  static constexpr int queries = 16 * Tiles;
  static_assert(queries <= static_cast<int>(warp_lanes));
  static constexpr int o_stride = Dim + 4;
  using part = tensor_attention<Dim, Tiles>;
  static constexpr std::size_t state_bytes = std::size_t(most_warps) * queries * (o_stride + 2) * sizeof(float);
  static constexpr std::size_t query_bytes = std::size_t(queries) * part::q_stride * 2;
  static constexpr std::size_t shared_bytes = state_bytes > query_bytes ? state_bytes : query_bytes;
  attention_params p;
  const attention_work* works;

  TROUPE_DEVICE void operator()() const {
    const attention_work work = works[simt::block_x()];
    const part warp{p, work, static_cast<int>(simt::block_y())};
    auto* q = reinterpret_cast<std::uint16_t*>(simt::shared());
    warp.stage_queries(q, queries);
    simt::sync_block();

    const int quarter = static_cast<int>(simt::warp());
    const int start = work.partition * partition_tokens + quarter * warp_tokens;
    int from[Tiles][2], to[Tiles][2];
    for (int i = 0; i < Tiles; ++i)
      for (int half = 0; half < 2; ++half) {
        const std::int32_t row = warp.row_of(16 * i + 8 * half + static_cast<int>(part::group_lane()));
        const int end = row < 0 ? 0 : p.rows[row].position + 1;
        from[i][half] = p.window > 0 ? end - p.window - start : 0;
        to[i][half] = end - start;
      }
    const std::int32_t mine =
      warp.row_of(static_cast<int>(simt::lane())); // a tile has no more queries than a warp lanes
    const int last = at_most(simt::warp_max(mine < 0 ? 0 : p.rows[mine].position + 1 - start), warp_tokens);

    float o[Tiles][part::dims][4] = {}, m[Tiles][2], l[Tiles][2] = {};
    for (int i = 0; i < Tiles; ++i)
      m[i][0] = m[i][1] = -simt::infinity();
    if (last > 0) {
      const std::int32_t* blocks = p.tables + work.table + quarter * warp_blocks;
      float scores[Tiles][2 * warp_blocks][4];
      warp.score(q, blocks, ceil_div(last, block_tokens), scores);
#pragma unroll
      for (int i = 0; i < Tiles; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          m[i][half] = warp.limit(scores[i], half, from[i][half], to[i][half]);
          l[i][half] = warp.exponentiate(scores[i], half, m[i][half]);
        }
      warp.add_values(blocks, last, scores, o);
    }
    simt::sync_block(); // q is no longer needed: states take its place
    keep(o, m, l);
    simt::sync_block();
    merge(warp);
  }

  /// Shared memory: [warps][queries][o_stride] of o, then [warps][queries][2] of m and l.
  TROUPE_DEVICE static float* o_of(int warp, int query) {
    return reinterpret_cast<float*>(simt::shared()) + (warp * queries + query) * o_stride;
  }
  TROUPE_DEVICE static float* m_of(int warp, int query) {
    return reinterpret_cast<float*>(simt::shared()) + most_warps * queries * o_stride + (warp * queries + query) * 2;
  }

  TROUPE_DEVICE static void keep(const float (&o)[Tiles][part::dims][4], const float (&m)[Tiles][2],
                                 const float (&l)[Tiles][2]) {
    const int warp = static_cast<int>(simt::warp());
    const int g = static_cast<int>(part::group_lane()), t = static_cast<int>(part::thread_lane());
#pragma unroll
    for (int i = 0; i < Tiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int query = 16 * i + 8 * half + g;
#pragma unroll
        for (int d = 0; d < part::dims; ++d) {
          o_of(warp, query)[8 * d + 2 * t] = o[i][d][2 * half];
          o_of(warp, query)[8 * d + 2 * t + 1] = o[i][d][2 * half + 1];
        }
        if (t == 0) {
          m_of(warp, query)[0] = m[i][half];
          m_of(warp, query)[1] = l[i][half];
        }
      }
  }

  TROUPE_DEVICE void merge(const part& tile) const {
    for (int i = static_cast<int>(simt::thread()); i < tile.work.count * Dim; i += threads) {
      const int query = i / Dim, d = i % Dim;
      const std::int32_t index = tile.row_of(query);
      const attention_row row = p.rows[index];
      if (tile.work.partition < row.first_partition || tile.work.partition > row.position / partition_tokens)
        continue; // the row sees nothing of it
      float o = 0, l = 0, m = -simt::infinity();
      for (int w = 0; w < most_warps; ++w) {
        const float part_m = m_of(w, query)[0];
        if (part_m == -simt::infinity())
          continue;
        const float highest = simt::larger(m, part_m);
        const float keep = simt::exp(m - highest), add = simt::exp(part_m - highest);
        o = o * keep + o_of(w, query)[d] * add;
        l = l * keep + m_of(w, query)[1] * add;
        m = highest;
      }
      const std::size_t slot = row.slot + tile.work.partition - row.first_partition;
      float* state = p.states + (slot * p.heads + tile.head_of(query)) * state_floats(Dim);
      state[d] = o;
      if (d == 0) {
        state[Dim] = m;
        state[Dim + 1] = l;
      }
    }
  }
};

/// A block has 64 packed queries, each warp 16; they go through the context with a running maximum.
template <int Dim>
struct flash_attention_kernel {
  static constexpr const char* name = "flash attention";
  static constexpr int warps = flash_tile / 16;
  static constexpr unsigned threads = warps * warp_lanes;
  using part = tensor_attention<Dim, 1>;
  static constexpr std::size_t shared_bytes = std::size_t(flash_tile) * part::q_stride * 2;
  attention_params p;
  const attention_work* works;

  TROUPE_DEVICE void operator()() const {
    // The last works have the longest contexts: they start first.
    const attention_work work = works[simt::grid_x() - 1 - simt::block_x()];
    const part warp{p, work, static_cast<int>(simt::block_y())};
    auto* q = reinterpret_cast<std::uint16_t*>(simt::shared());
    warp.stage_queries(q, flash_tile);
    simt::sync_block();
    const int first = static_cast<int>(simt::warp()) * 16;
    if (first >= work.count)
      return;
    q += first * part::q_stride;
    const int last_query = at_most(work.count, first + 16) - 1;
    const int end = p.rows[warp.row_of(last_query)].position + 1;
    const int least = p.rows[warp.row_of(first)].position + 1; // of the first query
    std::int32_t index[2];
    int ends[2];
    for (int half = 0; half < 2; ++half) {
      index[half] = warp.row_of(first + 8 * half + static_cast<int>(part::group_lane()));
      ends[half] = index[half] < 0 ? end : p.rows[index[half]].position + 1;
    }

    float o[1][part::dims][4] = {}, m[2] = {-simt::infinity(), -simt::infinity()}, l[2] = {};
    const int begin = p.window > 0 ? at_least(0, least - p.window) / warp_tokens * warp_tokens : 0;
    for (int start = begin; start < end; start += warp_tokens) {
      const std::int32_t* blocks = p.tables + work.table + start / block_tokens;
      const int last = at_most(end - start, warp_tokens);
      float scores[1][2 * warp_blocks][4];
      warp.score(q, blocks, ceil_div(last, block_tokens), scores);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int from = p.window > 0 ? ends[half] - p.window - start : 0;
        const float highest = simt::larger(m[half], warp.limit(scores[0], half, from, ends[half] - start));
        const float keep = highest == -simt::infinity() ? 1 : simt::exp(m[half] - highest);
        l[half] = l[half] * keep + warp.exponentiate(scores[0], half, highest);
        m[half] = highest;
#pragma unroll
        for (int d = 0; d < part::dims; ++d) {
          o[0][d][2 * half] *= keep;
          o[0][d][2 * half + 1] *= keep;
        }
      }
      warp.add_values(blocks, last, scores, o);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      if (index[half] < 0)
        continue;
      const int query = first + 8 * half + static_cast<int>(part::group_lane());
      const std::size_t at = index[half] * p.out_stride + std::size_t(warp.head_of(query)) * Dim;
      const float inverse = 1 / l[half];
#pragma unroll
      for (int d = 0; d < part::dims; ++d)
        for (int i = 0; i < 2; ++i)
          store_float(p.out, p.out_type, at + 8 * d + 2 * part::thread_lane() + i, o[0][d][2 * half + i] * inverse);
    }
  }
};

template <class Kernel>
void launch_works(const stream& on, const attention_params& params, const attention_work* works, std::size_t count) {
  launch(on, {static_cast<unsigned>(count), static_cast<unsigned>(params.cache.kv_heads)}, Kernel::shared_bytes,
         Kernel{params, works});
}

/// Calls f with the head_dim as a type; false where there is no kernel for it.
template <class F>
bool with_dim(int head_dim, const F& f) {
  switch (head_dim) {
    case 64: f(std::integral_constant<int, 64>()); return true;
    case 96: f(std::integral_constant<int, 96>()); return true;
    case 128: f(std::integral_constant<int, 128>()); return true;
    default: return false;
  }
}

} // namespace

bool has_tensor_attention(dtype cache_type, int head_dim) {
  return cache_type == dtype::bf16 && with_dim(head_dim, [](auto) {});
}

void attend(const stream& on, const attention_params& params, const attention_work* works, std::size_t count,
            int tile) {
  with_dim(params.cache.head_dim, [&](auto dim) {
    if (tile == small_tile)
      launch_works<split_attention_kernel<dim.value, 1>>(on, params, works, count);
    else
      launch_works<split_attention_kernel<dim.value, 2>>(on, params, works, count);
  });
}

void attend_flash(const stream& on, const attention_params& params, const attention_work* works, std::size_t count) {
  with_dim(params.cache.head_dim,
           [&](auto dim) { launch_works<flash_attention_kernel<dim.value>>(on, params, works, count); });
}

} // namespace troupe::kernels::cuda
