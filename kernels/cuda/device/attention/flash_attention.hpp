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
  static constexpr int row_bytes = Dim * Cells::bytes, value_bytes = block_tokens * row_bytes;
  static constexpr int head_bytes = 2 * value_bytes + (Cells::scaled ? 2 * block_tokens * int(sizeof(float)) : 0);
  /// If all rows of K would start in the same bank, odd rows start with their second 64 bytes.
  static constexpr unsigned swizzle = row_bytes % 128 == 0 ? 64 : 0;
  static constexpr std::size_t stage_bytes = std::size_t(stage_blocks) * head_bytes;
  static constexpr std::size_t query_bytes = std::size_t(flash_tile) * part::q_stride * 2;
  static constexpr std::size_t shared_bytes = query_bytes + 2 * stage_bytes;
  static_assert(query_bytes % 16 == 0 && stage_bytes % 16 == 0);
  attention_params p;
  const attention_work* works;

  TROUPE_DEVICE void operator()() const {
    // The last works have the longest contexts, so they start first.
    const attention_work work = works[simt::grid_x() - 1 - simt::block_x()];
    const part warp{p, work, static_cast<int>(simt::block_y())};
    const int end = p.rows[warp.row_of(work.count - 1)].position + 1; // context of the last query
    const int least = p.rows[warp.row_of(0)].position + 1;            // context of the first
    const int begin = p.window > 0 ? at_least(0, least - p.window) / stage_tokens * stage_tokens : 0;
    load(work, warp.kv_head, begin, end);
    auto* q = reinterpret_cast<std::uint16_t*>(simt::shared());
    warp.stage_queries(q, flash_tile);

    const int first = static_cast<int>(simt::warp()) * warp_queries;
    q += first * part::q_stride;
    int ends[tiles][2], warp_end = 0, warp_begin = end;
#pragma unroll
    for (int i = 0; i < tiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const std::int32_t row = warp.row_of(query_of(first, i, half));
        ends[i][half] = row < 0 ? 0 : p.rows[row].position + 1;
      }
    if (first < work.count) {
      warp_end = p.rows[warp.row_of(at_most(work.count, first + warp_queries) - 1)].position + 1;
      const int warp_least = p.rows[warp.row_of(first)].position + 1;
      warp_begin = p.window > 0 ? warp_least - p.window : 0;
    }

    float o[tiles][part::dims][4] = {}, m[tiles][2], l[tiles][2] = {};
#pragma unroll
    for (int i = 0; i < tiles; ++i)
      m[i][0] = m[i][1] = -simt::infinity();
    for (int start = begin; start < end; start += stage_tokens) {
      simt::wait_for_copies();
      simt::sync_block(); // this stage is complete, and the one before is no longer used
      if (start + stage_tokens < end)
        load(work, warp.kv_head, start + stage_tokens, end);
      if (start < warp_end && start + stage_tokens > warp_begin)
        attend(warp, q, stage(start), start, warp_end, ends, o, m, l);
    }
#pragma unroll
    for (int i = 0; i < tiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
        store(warp, query_of(first, i, half), half, o[i], l[i][half]);
  }

  TROUPE_DEVICE static int query_of(int first, int tile, int half) {
    return first + 16 * tile + 8 * half + static_cast<int>(part::group_lane());
  }

  /// The shared memory of the stage that begins with token `start`.
  TROUPE_DEVICE static unsigned char* stage(int start) {
    return simt::shared() + query_bytes + start / stage_tokens % 2 * stage_bytes;
  }

  /// Starts copying the stage that begins with token `start`, except blocks from token `end` on.
  TROUPE_DEVICE void load(const attention_work& work, int kv_head, int start, int end) const {
    constexpr int chunks = head_bytes / 16, row_chunks = row_bytes / 16;
    const std::int32_t* blocks = p.tables + work.table + start / block_tokens;
    const int count = at_most(ceil_div(end - start, block_tokens), stage_blocks);
#pragma unroll 1 // unrolled, the components of addresses would occupy registers
    for (int i = static_cast<int>(simt::thread()); i < count * chunks; i += static_cast<int>(threads)) {
      const int block = i / chunks, chunk = i % chunks;
      const bool odd = chunk < value_bytes / 16 && chunk / row_chunks % 2 == 1;
      simt::copy_async(stage(start) + block * head_bytes + (chunk * 16 ^ (odd ? swizzle : 0)),
                       p.cache.head(blocks[block], kv_head).data + chunk * 16);
    }
  }

  /// Attends to the stage that begins with token `from`.
  TROUPE_DEVICE void attend(const part& warp, const std::uint16_t* q, unsigned char* data, int from, int warp_end,
                            const int (&ends)[tiles][2], float (&o)[tiles][part::dims][4], float (&m)[tiles][2],
                            float (&l)[tiles][2]) const {
    const auto heads = [&](int b) { return head_block{data + b * head_bytes, Dim}; };
    float scores[tiles][part::columns][4];
    warp.score(q, heads, swizzle, scores);
#pragma unroll
    for (int i = 0; i < tiles; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int least = p.window > 0 ? ends[i][half] - p.window - from : 0;
        const float highest = simt::larger(m[i][half],
                                           part::row_max(warp.limit(scores[i], half, least, ends[i][half] - from)));
        const float keep = highest == -simt::infinity() ? 1 : simt::exp(m[i][half] - highest);
        l[i][half] = simt::fused(l[i][half], keep, warp.exponentiate(scores[i], half, highest));
        m[i][half] = highest;
#pragma unroll
        for (int d = 0; d < part::dims; ++d) {
          o[i][d][2 * half] *= keep;
          o[i][d][2 * half + 1] *= keep;
        }
      }
    warp.add_values(heads, 0, at_most(warp_end - from, stage_tokens), scores, o);
  }

  TROUPE_DEVICE void store(const part& warp, int query, int half, const float (&o)[part::dims][4], float l) const {
    const std::int32_t row = warp.row_of(query);
    if (row < 0)
      return;
    const std::size_t at = row * p.out_stride + std::size_t(warp.head_of(query)) * Dim + 2 * part::thread_lane();
    const float inverse = 1 / l;
#pragma unroll
    for (int d = 0; d < part::dims; ++d)
      for (int i = 0; i < 2; ++i)
        store_float(p.out, p.out_type, at + 8 * d + i, o[d][2 * half + i] * inverse);
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
