// Long chunks on tensor cores in one pass with a running maximum (FlashAttention-2; Dao 2023). K and V pass through
// shared memory once for the 128 queries of a block, copied while the tokens before them are processed. Only for
// kernels.
#pragma once

#include "kernels/cuda/device/attention/tensor_attention.hpp"
#include "kernels/cuda/device/elements.hpp"

namespace troupe::kernels::cuda {

/// A block has 128 packed queries, a warp 32, or 16 if registers do not hold the sums of 32. Queries pass over the
/// context in stages of 32 tokens, or 16 if shared memory does not hold more beside q.
template <class Cells, int Dim>
struct flash_attention_kernel {
  static constexpr const char* name = "flash attention";
  static constexpr int tiles = Dim <= 128 ? 2 : 1, warp_queries = 16 * tiles, warps = flash_tile / warp_queries;
  static constexpr unsigned threads = warps * warp_lanes;
  static constexpr int stage_blocks = Dim <= 192 ? 2 : 1, stage_tokens = stage_blocks * block_tokens;
  using part = tensor_attention<Cells, Dim, tiles, stage_blocks>;
  static constexpr int row_bytes = Dim * Cells::bytes;
  /// If all rows of K would start in the same bank, odd rows start with their second 64 bytes.
  static constexpr unsigned swizzle = row_bytes % 128 == 0 ? 64 : 0;
  static constexpr std::size_t stage_bytes = std::size_t(stage_blocks) * part::head_bytes;
  static constexpr std::size_t query_bytes = flash_tile / 16 * part::query_bytes;
  static constexpr std::size_t shared_bytes = query_bytes + 2 * stage_bytes;
  static_assert(query_bytes % 16 == 0 && stage_bytes % 16 == 0);
  /// What scores may exceed the number by that exponents are relative to, as an exponent of two, before sums are scaled
  /// down (FlashAttention-4): most stages then leave them alone.
  static constexpr float slack = 8;
  attention_params p;
  const attention_work* works;

  TROUPE_DEVICE void operator()() const {
    // The last works have the longest contexts, so they start first.
    const attention_work work = works[simt::grid_x() - 1 - simt::block_x()];
    const part warp{p, work, static_cast<int>(simt::block_y())};
    const int end = p.rows[warp.row_of(work.count - 1)].end; // context of the last query
    const int begin = p.rows[warp.row_of(0)].first / stage_tokens * stage_tokens;
    std::int32_t blocks[stage_blocks] = {}; // of the stage that is copied next, read a stage ahead
    read_table(blocks, work, begin, end);
    load(blocks, warp.kv_head, begin, end);
    read_table(blocks, work, begin + stage_tokens, end);

    const int first = static_cast<int>(simt::warp()) * warp_queries;
    unsigned char* q = simt::shared() + first / 16 * part::query_bytes;
#pragma unroll
    for (int i = 0; i < tiles; ++i)
      warp.stage_queries(q + i * part::query_bytes, first + 16 * i, 0, 1);
    // What the warp's first and last rows see; the last's end is 0 if the warp has no queries.
    const attention_row warp_first = p.rows[warp.row_of(first)];
    const attention_row warp_last = p.rows[warp.row_of(first + warp_queries - 1)];
    const int warp_least = warp_first.end, warp_end = first < work.count ? warp_last.end : 0;
    const int unseen = warp_first.first; // tokens before this no row sees,
    const int all_see = warp_last.first; // and from this on all rows see

    float o[tiles][part::dims][4] = {}, m[tiles][2], l[tiles][2] = {};
#pragma unroll
    for (int i = 0; i < tiles; ++i)
      m[i][0] = m[i][1] = -simt::infinity();
    for (int start = begin; start < end; start += stage_tokens) {
      simt::wait_for_copies();
      simt::sync_block(); // this stage is complete, and the one before is no longer used
      if (start + stage_tokens < end) {
        load(blocks, warp.kv_head, start + stage_tokens, end);
        read_table(blocks, work, start + 2 * stage_tokens, end);
      }
      if (start >= all_see && start + stage_tokens <= warp_least && warp_end > 0)
        attend<true>(warp, q, first, start, warp_end, o, m, l);
      else if (start < warp_end && start + stage_tokens > unseen)
        attend<false>(warp, q, first, start, warp_end, o, m, l);
    }
#pragma unroll
    for (int i = 0; i < tiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store(warp, query_of(first, i, half), half, o[i], m[i][half], part::row_sum(l[i][half]));
  }

  TROUPE_DEVICE static int query_of(int first, int tile, int half) {
    return first + 16 * tile + 8 * half + static_cast<int>(part::group_lane());
  }

  /// The shared memory of the stage that begins with token `start`.
  TROUPE_DEVICE static unsigned char* stage(int start) {
    return simt::shared() + query_bytes + start / stage_tokens % 2 * stage_bytes;
  }

  /// Reads the block table for the stage that begins with token `start`.
  TROUPE_DEVICE void read_table(std::int32_t (&blocks)[stage_blocks], const attention_work& work, int start,
                                int end) const {
#pragma unroll
    for (int b = 0; b < stage_blocks; ++b)
      if (start + b * block_tokens < end)
        blocks[b] = p.tables[work.table + start / block_tokens + b];
  }

  /// Starts copying the stage that begins with token `start`, except blocks from token `end` on.
  TROUPE_DEVICE void load(const std::int32_t (&blocks)[stage_blocks], int kv_head, int start, int end) const {
    constexpr unsigned row_chunks = row_bytes / 16, key_chunks = part::key_bytes / 16, chunks = part::head_bytes / 16;
    // A thread's chunks of K are all in odd rows or all in even ones.
    static_assert(swizzle == 0 || (key_chunks % threads == 0 && threads % (2 * row_chunks) == 0));
    const unsigned at = 16 * simt::thread(), key_at = at ^ simt::thread() / row_chunks % 2 * swizzle;
#pragma unroll
    for (int b = 0; b < stage_blocks; ++b) {
      if (start + b * block_tokens >= end)
        return;
      unsigned char* to = stage(start) + b * part::head_bytes;
      const unsigned char* from = part::head(p.cache, blocks[b], kv_head).data + at;
#pragma unroll
      for (unsigned chunk = 0; chunk < chunks; chunk += threads)
        if (chunk + threads <= chunks || simt::thread() < chunks - chunk)
          simt::copy_async(to + (chunk < key_chunks ? key_at : at) + 16 * chunk, from + 16 * chunk);
    }
  }

  /// Attends to the stage that begins with token `start`. `first`: the warp's first query. `Whole`: all rows see all
  /// its tokens; what rows see is read again in the other stages, which are few.
  template <bool Whole>
  TROUPE_DEVICE void attend(const part& warp, const unsigned char* q, int first, int start, int warp_end,
                            float (&o)[tiles][part::dims][4], float (&m)[tiles][2], float (&l)[tiles][2]) const {
    unsigned char* data = stage(start);
    const auto heads = [&](int b) { return head_block{data + b * part::head_bytes, Dim}; };
    float scores[tiles][part::columns][4], next[tiles][2];
    warp.score(q, heads, swizzle, scores);
    bool grown = false;
#pragma unroll
    for (int i = 0; i < tiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        warp.shape(scores[i], query_of(first, i, half), half, start);
        if constexpr (!Whole) {
          const attention_row row = p.rows[warp.row_of(query_of(first, i, half))];
          part::mask(scores[i], half, row.first - start, row.end - start);
        }
        const float highest = part::row_max(scores[i], half) * p.scale;
        next[i][half] = highest > m[i][half] + slack ? highest : m[i][half];
        grown |= next[i][half] != m[i][half];
      }
    if (simt::any(grown))
#pragma unroll
      for (int i = 0; i < tiles; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float keep = simt::exp2(m[i][half] - part::base(next[i][half]));
          m[i][half] = next[i][half];
          l[i][half] *= keep;
#pragma unroll
          for (int d = 0; d < part::dims; ++d) {
            o[i][d][2 * half] *= keep;
            o[i][d][2 * half + 1] *= keep;
          }
        }
#pragma unroll
    for (int i = 0; i < tiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        l[i][half] += warp.exponentiate(scores[i], half, part::base(m[i][half]));
    warp.template add_values<Whole>(heads, 0, at_most(warp_end - start, stage_tokens), scores, o);
  }

  TROUPE_DEVICE void store(const part& warp, int query, int half, const float (&o)[part::dims][4], float m,
                           float l) const {
    if (query >= warp.work.count)
      return;
    const std::size_t at = warp.row_of(query) * p.out_stride + std::size_t(warp.head_of(query)) * Dim +
      2 * part::thread_lane();
    const float share = share_of_values(p, warp.head_of(query), m, l);
#pragma unroll
    for (int d = 0; d < part::dims; ++d)
      store_pair(p.out, p.out_type, at + 8 * d, o[d][2 * half] * share, o[d][2 * half + 1] * share, p.aligned);
  }
};

template <class Cells>
void attend_flash_cells(const stream& on, const attention_params& params, const attention_work* works,
                        std::size_t count) {
  with_dim(params.cache.head_dim, [&](auto dim) {
    launch_works(on, flash_attention_kernel<Cells, dim.value>{params, works}, count);
  });
}

} // namespace troupe::kernels::cuda
