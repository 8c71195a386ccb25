#include "kernels/cpu/attention.hpp"

#include "kernels/cpu/tensor_rows.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::kernels {

namespace {

/// Notes the largest scores of a partition in the queries that see some of it.
void note_highest(attention_tile& tile, attention_state state) {
  for (int i = 0; i < tile.count; ++i)
    if (const float* query = state.data + static_cast<std::size_t>(i) * state.stride; query[1] != 0)
      tile.queries[i].highest = query[0];
}

} // namespace

cpu_attention::cpu_attention(const target& kernels, thread_pool& pool)
  : kernels_(kernels), pool_(pool), plan_(pool.size()), scratch_(pool.size()) {}

void cpu_attention::rope_write_kv(const tensor& qkv, int heads, const head_norm& norm, const rope_rows& rope,
                                  const layer_cache& cache, const batch& step) {
  rope_op op;
  op.cache = cache;
  op.heads = heads;
  op.q_norm = norm.q;
  op.k_norm = norm.k;
  op.eps = norm.eps;
  op.norm_behind = norm.behind;
  op.queries_only = qkv.cols == static_cast<std::size_t>(heads) * static_cast<std::size_t>(cache.head_dim);
  chunks_.clear();
  for (const auto& s : step.sequences)
    for (int row = 0; row < s.rows; row += rows_per_chunk)
      chunks_.push_back({&s, row, std::min<int>(s.rows, row + rows_per_chunk)});
  pool_.parallel_for(chunks_.size(), [&](std::size_t i, int) {
    const auto& [s, from, to] = chunks_[i];
    auto own = op;
    own.rope = rope.of(*s);
    for (int row = from; row < to; ++row) {
      const int position = s->first_position + row;
      kernels_.rope_write_kv(own, row_of<float>(qkv, s->first_row + row), position,
                             step.block_tables[s->first_block + position / block_tokens]);
    }
  });
}

void cpu_attention::run(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                        const layer_cache& cache, const batch& step, const distance_scores* distances) {
  call call;
  call.op.cache = cache;
  call.op.scale = scores.scale;
  call.op.soft_cap = scores.soft_cap;
  call.op.slopes = scores.slopes;
  call.op.sinks = scores.sinks;
  if (distances != nullptr) {
    expect(scores.soft_cap == 0 && scores.slopes == nullptr, "attention: scores by distance have no caps and slopes");
    expect(distances->mixes.type == dtype::f32 && distances->mixes.rows == qkv.rows &&
             distances->mixes.cols == static_cast<std::size_t>(heads * distances->width),
           "attention: distances must have f32 mixes of all heads");
    call.op.distances = distances->table + distance_padding;
    call.op.distance_width = distances->width;
    call.op.distance_extent = distances->extent;
    call.op.distance_stride = distances->stride();
    call.mixes = &distances->mixes;
  }
  if (scores.threshold > 0)
    call.op.least = std::log2(scores.threshold);
  call.op.out_bf16 = out.type == dtype::bf16;
  call.q = &qkv;
  call.out = &out;
  call.blocks = step.block_tables.data();
  const int kv_heads = call.op.cache.kv_heads;
  expect(heads % kv_heads == 0, "attention: heads must be a multiple of the KV heads");
  expect(out.type != dtype::f16, "attention: out must be f32 or bf16");
  call.group = heads / kv_heads;
  call.stride = state_stride(call.op.cache.head_dim);
  call.tile_queries = call.op.cache.type == kv_type::f32 ? kernels_.wide_queries : kernels_.narrow_queries;
  call.shape = {kv_heads, call.group, scores.window, call.tile_queries, scores.chunk, scores.ahead};
  plan_.make(call.shape, step);
  call.slots = states_.reserve(plan_.slots() * call.stride);
  if (scores.threshold > 0)
    find_highest(call);
  // Head after head: the pieces of a long prompt then find its K and V in the cache.
  const std::size_t pieces = plan_.pieces().size(), merges = plan_.merges().size();
  pool_.parallel_for(pieces * kv_heads, [&](std::size_t i, int thread) {
    attend(call, plan_.pieces()[i % pieces], static_cast<int>(i / pieces), scratch_[thread]);
  });
  pool_.parallel_for(merges * kv_heads, [&](std::size_t i, int thread) {
    merge(call, plan_.merges()[i % merges], static_cast<int>(i / merges), scratch_[thread].tiles);
  });
}

void cpu_attention::find_highest(call& call) {
  behind_first_.clear();
  for (const auto& piece : plan_.pieces())
    if (piece.first_partition > 0)
      for (const int run : plan_.runs_of(piece))
        if (const auto& r = plan_.run(run);
            call.shape.first_seen(r.sequence->first_position + r.first / call.group) < partition_tokens)
          behind_first_.push_back(run);
  std::ranges::sort(behind_first_);
  behind_first_.erase(std::ranges::unique(behind_first_).begin(), behind_first_.end());
  highest_.assign(call.q->rows * call.group * call.shape.kv_heads, -std::numeric_limits<float>::infinity());
  call.highest = highest_.data();
  const auto runs = behind_first_.size(), kv_heads = static_cast<std::size_t>(call.shape.kv_heads);
  pool_.parallel_for(runs * kv_heads, [&](std::size_t i, int thread) {
    alignas(64) float memory[max_queries * state_stride(max_head_dim)];
    const attention_state state{memory, call.stride};
    const auto& run = plan_.run(behind_first_[i % runs]);
    auto& tiles = scratch_[thread].tiles;
    tiles.clear();
    add_queries(call, run, static_cast<int>(i / runs), partition_tokens / block_tokens, tiles);
    int query = run.first;
    for (auto& tile : tiles) {
      kernels_.attend_partition(call.op, tile, 0, state);
      note_highest(tile, state);
      for (int i = 0; i < tile.count; ++i, ++query)
        highest_[call.place(*run.sequence, query, tile.queries[i].head)] = tile.queries[i].highest;
    }
  });
}

std::size_t cpu_attention::unread_bytes() const {
  std::size_t bytes = 0;
  for (const auto& own : scratch_)
    bytes += own.unread;
  return bytes;
}

void cpu_attention::add_queries(const call& call, const query_run& run, int kv_head, int end_block,
                                std::vector<attention_tile>& tiles) const {
  const auto& s = *run.sequence;
  const std::size_t dim = call.op.cache.head_dim;
  for (int i = run.first; i < run.first + run.count; ++i) {
    if (tiles.empty() || tiles.back().count == call.tile_queries) {
      auto& tile = tiles.emplace_back();
      tile.kv_head = kv_head;
      tile.blocks = call.blocks + s.first_block;
      tile.end_block = end_block;
    }
    const int row = i / call.group;
    const int head = kv_head * call.group + i % call.group;
    const std::size_t column = head * dim;
    char* out = static_cast<char*>(row_of(*call.out, s.first_row + row)) + column * size_of(call.out->type);
    auto& tile = tiles.back();
    const int position = s.first_position + row;
    tile.queries[tile.count++] = {row_of<float>(*call.q, s.first_row + row) + column,
                                  out,
                                  position,
                                  head,
                                  call.shape.first_seen(position),
                                  call.shape.end_seen(position, s)};
    if (call.highest != nullptr)
      tile.queries[tile.count - 1].highest = call.highest[call.place(s, i, head)];
    if (call.mixes != nullptr)
      tile.queries[tile.count - 1].mix = row_of<float>(*call.mixes, s.first_row + row) + head * call.op.distance_width;
  }
}

void cpu_attention::divide(const call& call, const attention_piece& piece, thread_scratch& own) const {
  own.stretches.clear();
  const auto runs = plan_.runs_of(piece);
  std::size_t run = 0;
  int taken = 0; // queries of the run that earlier tiles have
  for (auto& tile : own.tiles) {
    own.readers.clear();
    for (int left = tile.count; left > 0;) {
      const auto& from = plan_.run(runs[run]);
      const int queries = std::min(left, from.count - taken);
      const auto* blocks = call.blocks + from.sequence->first_block +
        piece.first_partition * (partition_tokens / block_tokens);
      own.readers.push_back({blocks, queries, plan_.blocks_seen(runs[run], piece.first_partition)});
      left -= queries;
      taken += queries;
      if (taken == from.count) {
        ++run;
        taken = 0;
      }
    }
    const auto before = own.stretches.size();
    add_stretches(own.readers, own.stretches);
    tile.stretch_count = static_cast<int>(own.stretches.size() - before);
  }
  const auto* next = own.stretches.data();
  for (auto& tile : own.tiles) {
    tile.stretches = next;
    next += tile.stretch_count;
  }
}

void cpu_attention::attend(const call& call, const attention_piece& piece, int kv_head, thread_scratch& own) const {
  alignas(64) float memory[max_queries * state_stride(max_head_dim)];
  const attention_state part{memory, call.stride};
  const auto runs = plan_.runs_of(piece);
  const auto& first = *plan_.run(runs.front()).sequence;
  const int end = std::min((piece.first_partition + piece.partitions) * partition_tokens,
                           call.shape.end_seen(first.first_position + first.rows - 1, first));
  own.tiles.clear();
  for (const int run : runs)
    add_queries(call, plan_.run(run), kv_head, static_cast<int>(ceil_div(end, block_tokens)), own.tiles);
  if (piece.parting)
    divide(call, piece, own);
  float* states = piece.finish ? own.states.reserve(piece.queries * call.stride)
                               : call.slot(piece.slot + kv_head * piece.head_slots).data;
  for (int p = 0; p < piece.partitions; ++p)
    for (std::size_t t = 0, query = 0; t < own.tiles.size(); query += own.tiles[t++].count) {
      const bool folded = piece.fold && p > 0;
      const attention_state state{states + (query + (piece.fold ? 0 : p * piece.queries)) * call.stride, call.stride};
      own.unread += kernels_.attend_partition(call.op, own.tiles[t], piece.first_partition + p, folded ? part : state);
      if (call.highest != nullptr && piece.first_partition + p == 0)
        note_highest(own.tiles[t], state);
      if (folded)
        kernels_.merge(call.op, own.tiles[t].count, state, part);
    }
  if (piece.finish)
    for (std::size_t t = 0, query = 0; t < own.tiles.size(); query += own.tiles[t++].count)
      kernels_.finish(call.op, own.tiles[t], {states + query * call.stride, call.stride});
}

void cpu_attention::merge(const call& call, const attention_merge& merged, int kv_head,
                          std::vector<attention_tile>& tiles) const {
  const auto& run = plan_.run(merged.run);
  const auto part = [&](std::size_t i) {
    const auto& [slot, head_slots] = plan_.part(merged.first_part + i);
    return call.slot(slot + kv_head * head_slots);
  };
  for (std::size_t i = 1; i < merged.parts; ++i)
    kernels_.merge(call.op, run.count, part(0), part(i));
  tiles.clear();
  add_queries(call, run, kv_head, 0, tiles);
  for (std::size_t t = 0, query = 0; t < tiles.size(); query += tiles[t++].count)
    kernels_.finish(call.op, tiles[t], {part(0).data + query * call.stride, call.stride});
}

} // namespace troupe::kernels
