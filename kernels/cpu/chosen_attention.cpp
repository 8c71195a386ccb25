#include "kernels/cpu/chosen_attention.hpp"

#include "kernels/cpu/tensor_rows.hpp"
#include "kernels/formats/e4m3.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

namespace troupe::kernels {

namespace {

constexpr std::size_t partition_positions = partition_tokens, block_positions = block_tokens;

constexpr std::size_t score_memory = std::size_t(8) << 20, // bytes of scores that are there at once
  slot_memory = std::size_t(16) << 20;                     // and of states

constexpr std::int32_t in_order[partition_tokens / block_tokens] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                                    8, 9, 10, 11, 12, 13, 14, 15};

/// Copies `count` elements that are `stride` apart in both.
template <class T>
void copy_strided(char* to, const char* from, std::size_t count, std::size_t stride) {
  auto* into = reinterpret_cast<T*>(to);
  const auto* of = reinterpret_cast<const T*>(from);
  for (std::size_t i = 0; i < count * stride; i += stride)
    into[i] = of[i];
}

/// Makes V of a token in a block of its K there.
void copy_key_to_value(kv_type type, std::size_t dim, char* keys, char* values, std::size_t slot) {
  constexpr std::size_t tokens = block_tokens;
  if (type == kv_type::bf16) {
    const auto* from = reinterpret_cast<const std::uint16_t*>(keys);
    auto* to = reinterpret_cast<std::uint16_t*>(values) + slot / 2 * 2 * dim + slot % 2;
    for (std::size_t d = 0; d < dim; ++d)
      to[2 * d] = from[(d / 2 * tokens + slot) * 2 + d % 2];
    return;
  }
  if (type == kv_type::f32) {
    for (std::size_t d = 0; d < dim; ++d)
      reinterpret_cast<float*>(values)[slot * dim + d] = reinterpret_cast<const float*>(keys)[d * tokens + slot];
    return;
  }
  auto* scales = reinterpret_cast<float*>(keys);
  scales[tokens + slot] = scales[slot];
  for (std::size_t d = 0; d < dim; ++d)
    values[slot * dim + d] = keys[2 * tokens * sizeof(float) + d * tokens + slot];
}

/// Copies K and V of one token, from `from_slot` of a block to `to_slot` of another. Without `from_values`, K is V, too.
void copy_token(kv_type type, std::size_t dim, char* to_keys, char* to_values, std::size_t to_slot,
                const char* from_keys, const char* from_values, std::size_t from_slot) {
  constexpr std::size_t tokens = block_tokens, pair = 2;
  if (type == kv_type::bf16) {
    copy_strided<std::uint32_t>(to_keys + to_slot * 4, from_keys + from_slot * 4, dim / 2, tokens);
    const auto at = [&](std::size_t slot) { return (slot / pair * pair * dim + slot % pair) * 2; };
    if (from_values == nullptr)
      return copy_key_to_value(type, dim, to_keys, to_values, to_slot);
    copy_strided<std::uint16_t>(to_values + at(to_slot), from_values + at(from_slot), dim, pair);
    return;
  }
  if (type == kv_type::f32) {
    copy_strided<float>(to_keys + to_slot * 4, from_keys + from_slot * 4, dim, tokens);
    if (from_values == nullptr)
      return copy_key_to_value(type, dim, to_keys, to_values, to_slot);
    std::memcpy(to_values + to_slot * dim * 4, from_values + from_slot * dim * 4, dim * 4);
    return;
  }
  constexpr std::size_t scales = 2 * tokens * sizeof(float);
  for (const std::size_t first : {std::size_t(0), tokens}) // of K, of V
    std::memcpy(to_keys + (first + to_slot) * 4, from_keys + (first + from_slot) * 4, 4);
  copy_strided<std::int8_t>(to_keys + scales + to_slot, from_keys + scales + from_slot, dim, tokens);
  if (from_values == nullptr)
    return copy_key_to_value(type, dim, to_keys, to_values, to_slot);
  std::memcpy(to_values + to_slot * dim, from_values + from_slot * dim, dim);
}

/// Adds the key of a token, in `slot` of a block, to `to` [dim].
void add_key(kv_type type, std::size_t dim, float* to, const char* keys, std::size_t slot) {
  constexpr std::size_t tokens = block_tokens;
  if (type == kv_type::f32) {
    const auto* from = reinterpret_cast<const float*>(keys) + slot;
    for (std::size_t d = 0; d < dim; ++d)
      to[d] += from[d * tokens];
    return;
  }
  if (type == kv_type::bf16) { // pairs of dimensions
    const auto* from = reinterpret_cast<const std::uint16_t*>(keys) + 2 * slot;
    for (std::size_t d = 0; d < dim; ++d)
      to[d] += std::bit_cast<float>(std::uint32_t{from[d / 2 * 2 * tokens + d % 2]} << 16);
    return;
  }
  const float scale = reinterpret_cast<const float*>(keys)[slot];
  const char* from = keys + 2 * tokens * sizeof(float) + slot;
  for (std::size_t d = 0; d < dim; ++d) {
    const char code = from[d * tokens];
    to[d] += scale *
      (type == kv_type::fp8 ? from_e4m3(static_cast<std::uint8_t>(code))
                            : static_cast<float>(static_cast<std::int8_t>(code)));
  }
}

/// The sum of the keys of a group becomes its key.
void finish_key(float* key, std::size_t dim, const key_groups& how, const float* angles) {
  float squares = 0;
  for (std::size_t d = 0; d < dim; ++d) {
    key[d] /= static_cast<float>(how.size);
    squares += key[d] * key[d];
  }
  const float scale = 1 / std::sqrt(squares / static_cast<float>(dim) + how.eps);
  for (std::size_t d = 0; d < dim; ++d)
    key[d] = key[d] * scale * how.norm[d];
  if (angles == nullptr)
    return;
  for (std::size_t d = 0; d < dim / 2; ++d) {
    const float a = key[d], b = key[d + dim / 2], cosine = angles[d], sine = angles[d + dim / 2];
    key[d] = a * cosine - b * sine;
    key[d + dim / 2] = b * cosine + a * sine;
  }
}

/// A key that orders higher numbers first and, of one number, the earlier position.
std::uint64_t key_of(float score, std::uint32_t position) {
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0f); // -0 is 0
  const auto ordered = bits & 0x80000000 ? ~bits : bits | 0x80000000;
  return std::uint64_t{ordered} << 32 | ~position;
}

} // namespace

void rows_before_choice(const batch& step, int most, std::vector<sequence_rows>& to) {
  to.clear();
  for (auto s : step.sequences) {
    s.rows = std::min(s.rows, most - s.first_position);
    if (s.rows > 0)
      to.push_back(s);
  }
}

chosen_attention::chosen_attention(const target& kernels, thread_pool& pool)
  : kernels_(kernels), pool_(pool), scratch_(static_cast<std::size_t>(pool.size())) {}

std::size_t chosen_attention::scratch_bytes(const planned_steps& steps) const {
  const auto& choice = steps.choice;
  if (choice.seen == 0)
    return 0;
  const auto threads = scratch_.size(), kv_heads = static_cast<std::size_t>(std::max(1, steps.cache.kv_heads)),
             rows = std::max<std::size_t>(1, steps.rows);
  std::size_t bytes = std::bit_ceil(rows) * sizeof(choosing_row) + std::bit_ceil(rows * kv_heads) * sizeof(head_group);
  if (choice.dim > 0) {
    // At least a row, and as many as there is memory for.
    const auto partitions = ceil_div(ceil_div(steps.context, choice.group), partition_positions) * choice.choosers,
               all = rows * partitions,
               parts = std::min(all, std::max(partitions, score_memory / (partition_tokens * sizeof(float))));
    bytes += parts * partition_tokens * sizeof(float) + std::bit_ceil(parts) * sizeof(row_part);
    bytes += threads *
      (std::bit_ceil(ceil_div(steps.context, choice.each)) * sizeof(std::uint64_t) + choice.dim * sizeof(float));
    if (choice.group > 1) {
      const auto blocks = ceil_div(ceil_div(steps.context, choice.group), block_positions);
      bytes += blocks * block_positions * choice.dim * sizeof(float) + cache_slack +
        std::bit_ceil(blocks) * sizeof(std::int32_t);
    }
  }
  const auto state = choice.sharing * state_stride(steps.cache.head_dim) * sizeof(float),
             slots = state * ceil_div(choice.seen, partition_positions);
  bytes += std::min(std::max<std::size_t>(1, slot_memory / slots), threads - 1) * slots;
  const auto gathered = partition_positions * kv_bytes(steps.cache.type, steps.cache.head_dim) + cache_slack;
  return bytes + threads * (gathered + 2 * state);
}

std::size_t chosen_attention::held_bytes() const {
  std::size_t bytes = scores_.bytes() + slots_.bytes() + pooled_.bytes() + rows_.capacity() * sizeof(choosing_row) +
    parts_.capacity() * sizeof(row_part) + groups_.capacity() * sizeof(head_group) +
    in_order_.capacity() * sizeof(std::int32_t);
  for (const auto& own : scratch_)
    bytes += own.keys.capacity() * sizeof(std::uint64_t) + own.gathered.bytes() + own.states.bytes() +
      own.part.bytes() + own.key.bytes();
  return bytes;
}

void chosen_attention::find_rows(const batch& step, int first_position) {
  rows_.clear();
  for (const auto& s : step.sequences)
    for (std::int32_t r = std::max(0, first_position - s.first_position); r < s.rows; ++r)
      rows_.push_back({&s, s.first_row + r, s.first_position + r});
}

void chosen_attention::choose(position_choice& to, const tensor& queries, const tensor& weights, int heads,
                              const layer_cache& keys, const batch& step, int rate) {
  const bool weighed = to.blocks.size == 0;
  expect(queries.type == dtype::f32 && keys.kv_heads == 1 &&
           (!weighed || (weights.type == dtype::f32 && weights.cols == static_cast<std::size_t>(heads))) &&
           queries.cols == static_cast<std::size_t>(heads) * static_cast<std::size_t>(keys.head_dim),
         "choose_positions: queries and weights must be f32, of heads that share one key");
  const auto first_choosing = (std::int64_t{to.most} + 1) * rate - 1;
  find_rows(step, static_cast<int>(std::min<std::int64_t>(first_choosing, std::numeric_limits<int>::max())));
  call call;
  call.op.cache = keys;
  call.op.scale = 0x1.62e43p-1f; // ln 2: kernels multiply queries by its inverse, and equal products stay equal
  call.q = &queries;
  call.blocks = step.block_tables.data();
  call.rate = rate;
  call.tile_queries = keys.type == kv_type::f32 ? kernels_.wide_queries : kernels_.narrow_queries;
  if (to.blocks.size > 0)
    return choose_blocks(to, call, heads);
  if (to.groups.size == 1)
    return choose_rows(to, call, weights, heads, 0, rows_.size());
  expect(block_tokens % to.groups.size == 0 && to.most >= to.groups.size && (to.most + 1) % to.groups.size == 0,
         "choose_positions: groups must divide blocks, and `most` be whole groups and the rest of one");
  call.grouped = to.groups.size;
  call.tile_queries = kernels_.wide_queries;
  for (std::size_t first = 0, end = 0; first < rows_.size(); first = end) { // each sequence has keys of its own
    const auto& of = *rows_[first].sequence;
    while (end < rows_.size() && rows_[end].sequence == &of)
      ++end;
    call.op.cache = pool_keys(keys, call.blocks + of.first_block, of, (rows_[end - 1].position + 1) / call.grouped,
                              to.groups);
    choose_rows(to, call, weights, heads, first, end);
  }
}

void chosen_attention::choose_blocks(position_choice& to, const call& call, int heads) {
  const int size = to.blocks.size, best = to.most / size;
  expect(to.most % size == 0 && to.blocks.last > 0 && to.heads == heads,
         "choose_positions: whole blocks, the last of which is chosen, for each head");
  const auto per_row = static_cast<std::size_t>(heads);
  for (std::size_t first = 0; first < rows_.size();) {
    // Takes as many rows as there is memory for their products, whole partitions of each.
    std::size_t end = first, width = 0;
    for (; end < rows_.size(); ++end) {
      const auto needed = std::max(width,
                                   ceil_div(static_cast<std::size_t>(rows_[end].position) + 1, partition_positions));
      if (end > first && (end - first + 1) * per_row * needed * partition_tokens * sizeof(float) > score_memory)
        break;
      width = needed;
    }
    width *= partition_tokens;
    auto* scores = scores_.reserve((end - first) * per_row * width);
    parts_.clear();
    for (std::size_t i = 0; i < (end - first) * per_row; ++i)
      for (int p = 0; p * partition_tokens <= rows_[first + i / per_row].position; ++p)
        parts_.push_back({i, p});
    pool_.parallel_for(parts_.size(), [&](std::size_t i, int thread) {
      const auto& [at, partition] = parts_[i];
      multiply(call, rows_[first + at / per_row], static_cast<int>(at % per_row), partition,
               scores + at * width + static_cast<std::size_t>(partition) * partition_tokens,
               scratch_[static_cast<std::size_t>(thread)]);
    });
    pool_.parallel_for((end - first) * per_row, [&](std::size_t i, int thread) {
      const auto& row = rows_[first + i / per_row];
      const int blocks = row.position / size + 1;
      auto* own = scores + i * width; // the blocks' scores take the places of the products
      for (int b = 0; b < blocks; ++b)
        own[b] = *std::max_element(own + b * size, own + std::min((b + 1) * size, row.position + 1));
      for (int b = std::max(0, blocks - to.blocks.last); b < blocks; ++b)
        own[b] = INFINITY;
      auto* chosen = to.of(static_cast<std::size_t>(row.row), static_cast<int>(i % per_row));
      choose_best(chosen, best, own, blocks, 1, scratch_[static_cast<std::size_t>(thread)].keys);
      const int count = to.count(row.position);
      for (int b = best - 1; b >= 0; --b) // from the last on, as positions take the places of blocks
        for (int of = chosen[b] * size, k = std::min(size, count - b * size) - 1; k >= 0; --k)
          chosen[b * size + k] = of + k;
    });
    first = end;
  }
}

void chosen_attention::multiply(const call& call, const choosing_row& row, int head, int partition, float* products,
                                thread_scratch& own) const {
  const auto dim = static_cast<std::size_t>(call.op.cache.head_dim);
  const auto* q = row_of<float>(*call.q, static_cast<std::size_t>(row.row)) + static_cast<std::size_t>(head) * dim;
  auto* opposite = own.key.reserve(dim);
  std::transform(q, q + dim, opposite, std::negate<>());
  attention_tile tile;
  tile.blocks = call.blocks + row.sequence->first_block;
  tile.end_block = row.position / block_tokens + 1;
  tile.count = 1;
  // Scores are sums of what is above 0: of the query, less of its opposite.
  for (const auto& [query, weight] : {std::pair(q, 1.0f), std::pair<const float*, float>(opposite, -1.0f)}) {
    tile.queries[0] = {query, nullptr, row.position, head, 0, row.position + 1};
    kernels_.score_positions(call.op, tile, partition, &weight, weight > 0, products);
  }
}

layer_cache chosen_attention::pool_keys(const layer_cache& from, const std::int32_t* blocks, const sequence_rows& of,
                                        int count, const key_groups& how) {
  const auto dim = static_cast<std::size_t>(from.head_dim), size = static_cast<std::size_t>(how.size),
             groups = static_cast<std::size_t>(count), each = block_positions / size;
  layer_cache to;
  to.kv_heads = 1;
  to.head_dim = from.head_dim;
  to.key_bytes = block_positions * dim * sizeof(float);
  const auto in = ceil_div(groups, block_positions);
  to.data = pooled_.reserve(in * to.key_bytes + cache_slack);
  for (auto block = in_order_.size(); block < in; ++block)
    in_order_.push_back(static_cast<std::int32_t>(block));
  const float* angles = how.rope.of(of);
  pool_.parallel_for(ceil_div(groups, each), [&](std::size_t block, int thread) {
    auto* key = scratch_[static_cast<std::size_t>(thread)].key.reserve(dim);
    const char* keys = from.data + static_cast<std::size_t>(blocks[block]) * from.key_bytes;
    for (std::size_t g = block * each; g < std::min(groups, (block + 1) * each); ++g) {
      std::fill_n(key, dim, 0.0f);
      for (std::size_t i = 0; i < size; ++i)
        add_key(from.type, dim, key, keys, (g - block * each) * size + i);
      finish_key(key, dim, how, angles == nullptr ? nullptr : angles + g * size * dim);
      auto* slot = reinterpret_cast<float*>(to.data + g / block_positions * to.key_bytes) + g % block_positions;
      for (std::size_t d = 0; d < dim; ++d)
        slot[d * block_positions] = key[d];
    }
  });
  return to;
}

void chosen_attention::choose_rows(position_choice& to, const call& call, const tensor& weights, int heads,
                                   std::size_t first, std::size_t last) {
  const auto seen_by = [&](const choosing_row& row) { return (row.position + 1) / call.grouped; };
  const int best = (to.most + 1 - call.grouped) / call.grouped;
  while (first < last) {
    // Takes as many rows as there is memory for their scores, whole partitions of each.
    std::size_t end = first, width = 0;
    for (; end < last; ++end) {
      const auto needed = std::max(width, ceil_div(static_cast<std::size_t>(seen_by(rows_[end])), partition_positions));
      if (end > first && (end - first + 1) * needed * partition_tokens * sizeof(float) > score_memory)
        break;
      width = needed;
    }
    width *= partition_tokens;
    auto* scores = scores_.reserve((end - first) * width);
    parts_.clear();
    for (std::size_t i = first; i < end; ++i)
      for (int p = 0; p * partition_tokens < seen_by(rows_[i]); ++p)
        parts_.push_back({i, p});
    pool_.parallel_for(parts_.size(), [&](std::size_t i, int) {
      const auto& [at, partition] = parts_[i];
      const auto& row = rows_[at];
      score(call, row, row_of<float>(weights, static_cast<std::size_t>(row.row)), heads, partition,
            scores + (at - first) * width + static_cast<std::size_t>(partition) * partition_tokens);
    });
    pool_.parallel_for(end - first, [&](std::size_t i, int thread) {
      const auto& row = rows_[first + i];
      auto* chosen = to.of(static_cast<std::size_t>(row.row));
      choose_best(chosen, best, scores + i * width, seen_by(row), call.rate,
                  scratch_[static_cast<std::size_t>(thread)].keys);
      if (call.grouped == 1)
        return;
      for (int g = best - 1; g >= 0; --g) // from the last on, as positions take the places of groups
        for (int of = chosen[g] * call.grouped, k = call.grouped - 1; k >= 0; --k)
          chosen[g * call.grouped + k] = of + k;
      std::iota(chosen + best * call.grouped, chosen + to.count(row.position), seen_by(row) * call.grouped);
    });
    first = end;
  }
}

void chosen_attention::score(const call& call, const choosing_row& row, const float* weights, int heads, int partition,
                             float* sums) const {
  const auto dim = static_cast<std::size_t>(call.op.cache.head_dim);
  const auto* q = row_of<float>(*call.q, static_cast<std::size_t>(row.row));
  attention_tile tile;
  const int seen = (row.position + 1) / call.grouped;
  tile.blocks = call.grouped > 1 ? in_order_.data() : call.blocks + row.sequence->first_block;
  tile.end_block = (seen - 1) / block_tokens + 1;
  for (int head = 0; head < heads; head += tile.count) {
    tile.count = std::min(call.tile_queries, heads - head);
    for (int i = 0; i < tile.count; ++i)
      tile.queries[i] = {q + static_cast<std::size_t>(head + i) * dim, nullptr, seen - 1, head + i, 0, seen};
    kernels_.score_positions(call.op, tile, partition, weights + head, head == 0, sums);
  }
}

void chosen_attention::choose_best(std::int32_t* to, int best, const float* scores, int count, int rate,
                                   std::vector<std::uint64_t>& keys) const {
  keys.clear();
  for (int i = rate - 1; i < count; i += rate)
    keys.push_back(key_of(scores[i], static_cast<std::uint32_t>(i)));
  std::nth_element(keys.begin(), keys.begin() + best, keys.end(), std::greater<>());
  std::transform(keys.begin(), keys.begin() + best, to,
                 [](std::uint64_t key) { return static_cast<std::int32_t>(~static_cast<std::uint32_t>(key)); });
  std::sort(to, to + best);
}

chosen_attention::call chosen_attention::call_of(const tensor& out, const tensor& qkv, int heads,
                                                 const attention_scores& scores, const layer_cache& cache,
                                                 const batch& step) const {
  expect(heads % cache.kv_heads == 0, "attention: heads must be a multiple of the KV heads");
  expect(out.type != dtype::f16, "attention: out must be f32 or bf16");
  expect(scores.window == 0 && scores.chunk == 0 && scores.ahead == 0 && scores.slopes == nullptr,
         "attention over chosen positions: scores without windows, chunks and slopes");
  call call;
  call.op.cache = call.others = cache;
  call.op.scale = scores.scale;
  call.op.soft_cap = scores.soft_cap;
  call.op.sinks = scores.sinks;
  call.op.out_bf16 = out.type == dtype::bf16;
  call.q = &qkv;
  call.out = &out;
  call.blocks = step.block_tables.data();
  call.group = heads / cache.kv_heads;
  call.tile_queries = cache.type == kv_type::f32 ? kernels_.wide_queries : kernels_.narrow_queries;
  call.stride = state_stride(cache.head_dim);
  return call;
}

void chosen_attention::attend(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                              const position_choice& chosen, const layer_cache& cache, const batch& step) {
  const auto call = call_of(out, qkv, heads, scores, cache, step);
  find_rows(step, chosen.most);
  groups_.clear();
  for (const auto& row : rows_)
    for (int head = 0; head < cache.kv_heads; ++head)
      groups_.push_back(
        {&row, head, 0, 0, chosen.of(static_cast<std::size_t>(row.row), head), chosen.count(row.position)});
  attend(call);
}

void chosen_attention::attend_entries(const tensor& out, const tensor& q, int heads, const attention_scores& scores,
                                      const entry_view& seen, const layer_cache& tokens, const layer_cache* entries,
                                      const batch& step) {
  expect(tokens.kv_heads == 1 && tokens.value_bytes == 0 && (!entries || entries->key_bytes == tokens.key_bytes),
         "attend_entries: layers of K alone, of one head");
  auto call = call_of(out, q, heads, scores, tokens, step);
  if (entries)
    call.others = *entries;
  call.rate = seen.rate;
  find_rows(step, 0);
  groups_.clear();
  for (const auto& row : rows_) {
    const int first = std::max(0, row.position + 1 - seen.window), ended = entries ? (row.position + 1) / seen.rate : 0;
    head_group group{&row, 0, first, row.position + 1 - first, nullptr, ended};
    if (seen.chosen && ended > seen.chosen->most) {
      group.chosen = seen.chosen->of(static_cast<std::size_t>(row.row));
      group.others = seen.chosen->most;
    }
    groups_.push_back(group);
  }
  attend(call);
}

void chosen_attention::attend(const call& call) {
  int most = 1;
  for (const auto& group : groups_)
    most = std::max(most, group.count());
  const auto slots = ceil_div(static_cast<std::size_t>(most), partition_positions),
             floats = static_cast<std::size_t>(call.group) * call.stride;
  const auto partitions_of = [](const head_group& of) {
    return ceil_div(static_cast<std::size_t>(of.count()), partition_positions);
  };
  const auto add_part = [&](const head_group& of, float* states, float* part) {
    for_tiles(call, of, 0, [&](const attention_tile& tile, std::size_t query) {
      const auto at = query * call.stride;
      kernels_.merge(call.op, tile.count, {states + at, call.stride}, {part + at, call.stride});
    });
  };
  const auto finish = [&](const head_group& of, float* states) {
    for_tiles(call, of, 0, [&](const attention_tile& tile, std::size_t query) {
      kernels_.finish(call.op, tile, {states + query * call.stride, call.stride});
    });
  };
  if (groups_.size() >= static_cast<std::size_t>(pool_.size())) {
    pool_.parallel_for(groups_.size(), [&](std::size_t i, int thread) {
      auto& own = scratch_[static_cast<std::size_t>(thread)];
      auto *states = own.states.reserve(floats), *part = own.part.reserve(floats);
      for (std::size_t p = 0; p < partitions_of(groups_[i]); ++p) {
        attend_part(call, groups_[i], static_cast<int>(p), p == 0 ? states : part, own);
        if (p > 0)
          add_part(groups_[i], states, part);
      }
      finish(groups_[i], states);
    });
    return;
  }
  // Too few for all threads: partitions are computed at once, as many as there is memory for.
  const auto at_once = std::max<std::size_t>(1, slot_memory / (slots * floats * sizeof(float)));
  for (std::size_t first = 0; first < groups_.size(); first += at_once) {
    const auto count = std::min(at_once, groups_.size() - first);
    auto* memory = slots_.reserve(count * slots * floats);
    pool_.parallel_for(count * slots, [&](std::size_t i, int thread) {
      if (const auto& group = groups_[first + i / slots]; i % slots < partitions_of(group))
        attend_part(call, group, static_cast<int>(i % slots), memory + i * floats,
                    scratch_[static_cast<std::size_t>(thread)]);
    });
    pool_.parallel_for(count, [&](std::size_t i, int) {
      auto* states = memory + i * slots * floats;
      for (std::size_t p = 1; p < partitions_of(groups_[first + i]); ++p)
        add_part(groups_[first + i], states, states + p * floats);
      finish(groups_[first + i], states);
    });
  }
}

template <class F>
void chosen_attention::for_tiles(const call& call, const head_group& of, int partition, const F& f) const {
  const auto dim = static_cast<std::size_t>(call.op.cache.head_dim);
  const auto row = static_cast<std::size_t>(of.row->row);
  const int seen = std::min(partition_tokens, of.count() - partition * partition_tokens);
  attention_tile tile;
  tile.blocks = in_order;
  tile.end_block = static_cast<int>(ceil_div(static_cast<std::size_t>(seen), block_positions));
  for (int first = 0; first < call.group; first += tile.count) {
    tile.count = std::min(call.tile_queries, call.group - first);
    for (int i = 0; i < tile.count; ++i) {
      const int head = of.kv_head * call.group + first + i;
      const auto column = static_cast<std::size_t>(head) * dim;
      tile.queries[i] = {row_of<float>(*call.q, row) + column,
                         static_cast<char*>(row_of(*call.out, row)) + column * size_of(call.out->type),
                         of.row->position,
                         head,
                         0,
                         seen};
    }
    f(tile, static_cast<std::size_t>(first));
  }
}

layer_cache chosen_attention::gather(const call& call, const head_group& of, int partition, thread_scratch& own) const {
  const auto& from = call.op.cache;
  constexpr std::size_t blocks = partition_tokens / block_tokens;
  const auto dim = static_cast<std::size_t>(from.head_dim);
  const std::size_t value_bytes = block_positions *
    (kv_bytes(from.type, from.head_dim) - key_bytes(from.type, from.head_dim));
  auto to = from;
  to.value_bytes = value_bytes;
  to.data = own.gathered.reserve(blocks * (from.key_bytes + value_bytes) + cache_slack);
  to.kv_heads = 1;
  to.value_offset = blocks * from.key_bytes;
  to.head_bytes = blocks * (from.key_bytes + value_bytes);
  const auto* table = call.blocks + of.row->sequence->first_block;
  const int first = partition * partition_tokens;
  const auto count = static_cast<std::size_t>(std::min(partition_tokens, of.count() - first));
  // The last block is filled up with numbers that are finite, too: unseen tokens are multiplied by 0.
  for (std::size_t i = 0; i < ceil_div(count, block_positions) * block_positions; ++i) {
    const int at = first + static_cast<int>(std::min(i, count - 1)), other = at - of.tokens;
    const auto& layer = other < 0 ? from : call.others;
    const auto position = static_cast<std::size_t>(other < 0     ? of.first_token + at
                                                     : of.chosen ? of.chosen[other]
                                                                 : (other + 1) * call.rate - 1);
    const auto block = static_cast<std::size_t>(table[position / block_positions]);
    const char* keys = layer.data + static_cast<std::size_t>(of.kv_head) * layer.head_bytes;
    copy_token(from.type, dim, to.data + i / block_positions * from.key_bytes,
               to.data + to.value_offset + i / block_positions * value_bytes, i % block_positions,
               keys + block * layer.key_bytes,
               layer.value_bytes > 0 ? keys + layer.value_offset + block * layer.value_bytes : nullptr,
               position % block_positions);
  }
  return to;
}

void chosen_attention::attend_part(const call& call, const head_group& of, int partition, float* states,
                                   thread_scratch& own) const {
  auto op = call.op;
  op.cache = gather(call, of, partition, own);
  for_tiles(call, of, partition, [&](const attention_tile& tile, std::size_t query) {
    kernels_.attend_partition(op, tile, 0, {states + query * call.stride, call.stride});
  });
}

} // namespace troupe::kernels
