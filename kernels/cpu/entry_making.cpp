#include "kernels/cpu/entry_making.hpp"

#include "kernels/cpu/tensor_rows.hpp"
#include "kernels/formats/bf16.hpp"
#include "kernels/formats/e4m3.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace troupe::kernels {

namespace {

constexpr std::size_t entry_slots = block_tokens;

float from_bits(std::uint16_t bits) { return std::bit_cast<float>(std::uint32_t{bits} << 16); }

/// K, or V, of a token's head as floats.
void read_token(float* to, const layer_cache& cache, std::size_t head, std::size_t block, std::size_t slot,
                bool values) {
  const auto dim = static_cast<std::size_t>(cache.head_dim);
  const char* keys = cache.data + head * cache.head_bytes + block * cache.key_bytes;
  const char* of = values ? cache.data + head * cache.head_bytes + cache.value_offset + block * cache.value_bytes
                          : keys;
  if (cache.type == kv_type::f32) {
    const auto* from = reinterpret_cast<const float*>(of);
    for (std::size_t d = 0; d < dim; ++d)
      to[d] = values ? from[slot * dim + d] : from[d * entry_slots + slot];
    return;
  }
  if (cache.type == kv_type::bf16) {
    const auto* from = reinterpret_cast<const std::uint16_t*>(of);
    for (std::size_t d = 0; d < dim; ++d)
      to[d] = from_bits(values ? from[slot / 2 * 2 * dim + slot % 2 + 2 * d]
                               : from[(d / 2 * entry_slots + slot) * 2 + d % 2]);
    return;
  }
  const float scale = reinterpret_cast<const float*>(keys)[(values ? entry_slots : 0) + slot];
  const auto* codes = values ? of : keys + 2 * entry_slots * sizeof(float);
  for (std::size_t d = 0; d < dim; ++d) {
    const char code = values ? codes[slot * dim + d] : codes[d * entry_slots + slot];
    to[d] = scale *
      (cache.type == kv_type::int8 ? static_cast<float>(static_cast<std::int8_t>(code))
                                   : from_e4m3(static_cast<std::uint8_t>(code)));
  }
}

} // namespace

entry_maker::entry_maker(const target& kernels, thread_pool& pool)
  : kernels_(kernels), pool_(pool), scratch_(static_cast<std::size_t>(pool.size())) {}

void entry_maker::make(const entry_making& how, const layer_cache& from, const layer_cache& to, const batch& step) {
  expect(how.rate > 0 && from.kv_heads == (how.overlaps ? 2 : 1) && from.value_bytes > 0 && to.kv_heads == 1 &&
           to.value_bytes == 0 && from.head_dim == to.head_dim,
         "make_entries: layers of other shapes");
  groups_.clear();
  for (const auto& s : step.sequences)
    for (std::int32_t p = s.first_position; p < s.first_position + s.rows; ++p)
      if ((p + 1) % how.rate == 0)
        groups_.push_back({step.block_tables.data() + s.first_block, p});
  pool_.parallel_for(groups_.size(), [&](std::size_t i, int thread) {
    make_one(how, from, to, groups_[i], scratch_[static_cast<std::size_t>(thread)]);
  });
}

void entry_maker::make_one(const entry_making& how, const layer_cache& from, const layer_cache& to, const group& of,
                           thread_scratch& own) const {
  const auto dim = static_cast<std::size_t>(from.head_dim), rate = static_cast<std::size_t>(how.rate),
             heads = static_cast<std::size_t>(from.kv_heads), half = dim / 2,
             first = static_cast<std::size_t>(of.last) + 1 - rate,
             before = how.overlaps && first > 0 ? rate : 0, // tokens of the group before
    tokens = before + rate;
  own.given.resize(tokens * dim);
  own.gates.resize(tokens * dim);
  own.entry.assign(dim, 0);
  for (std::size_t t = 0; t < tokens; ++t) {
    const auto position = first - before + t, head = t < before ? 0 : heads - 1;
    const auto block = static_cast<std::size_t>(of.blocks[position / entry_slots]);
    auto* gates = own.gates.data() + t * dim;
    read_token(own.given.data() + t * dim, from, head, block, position % entry_slots, false);
    read_token(gates, from, head, block, position % entry_slots, true);
    const float* bias = how.bias + (t % rate * heads + head) * dim;
    for (std::size_t d = 0; d < dim; ++d)
      gates[d] += bias[d];
  }
  float squares = 0;
  for (std::size_t d = 0; d < dim; ++d) {
    float top = own.gates[d], sum = 0, mean = 0;
    for (std::size_t t = 1; t < tokens; ++t)
      top = std::max(top, own.gates[t * dim + d]);
    for (std::size_t t = 0; t < tokens; ++t) {
      const float weight = std::exp(own.gates[t * dim + d] - top);
      sum += weight;
      mean += weight * own.given[t * dim + d];
    }
    own.entry[d] = mean / sum;
    squares += own.entry[d] * own.entry[d];
  }
  const float factor = 1 / std::sqrt(squares / static_cast<float>(dim) + how.eps);
  for (std::size_t d = 0; d < dim; ++d)
    own.entry[d] *= factor * how.norm[d];
  const float* angles = how.angles + first * dim;
  for (std::size_t i = 0; i < half; ++i) {
    const float one = own.entry[i], other = own.entry[half + i];
    own.entry[i] = one * angles[i] - other * angles[half + i];
    own.entry[half + i] = other * angles[i] + one * angles[half + i];
  }
  rope_op op;
  op.cache = to;
  kernels_.rope_write_kv(op, own.entry.data(), of.last % block_tokens, of.blocks[of.last / block_tokens]);
}

std::size_t entry_maker::scratch_bytes(const planned_steps& steps) const {
  const auto tokens = steps.choice.entry_tokens;
  if (tokens == 0)
    return 0;
  const auto dim = std::max(static_cast<std::size_t>(steps.cache.head_dim), steps.choice.dim);
  return scratch_.size() * (2 * tokens + 1) * dim * sizeof(float) + std::bit_ceil(steps.rows) * sizeof(group);
}

std::size_t entry_maker::held_bytes() const {
  std::size_t bytes = groups_.capacity() * sizeof(group);
  for (const auto& own : scratch_)
    bytes += (own.given.capacity() + own.gates.capacity() + own.entry.capacity()) * sizeof(float);
  return bytes;
}

void entry_maker::undo_rotation(const tensor& out, const tensor& x, int heads, int pairs, const float* angles,
                                const batch& step) {
  const auto dim = x.cols / static_cast<std::size_t>(heads), half = dim / 2, turned = static_cast<std::size_t>(pairs);
  expect(x.type == dtype::f32 && out.cols == x.cols && dim * static_cast<std::size_t>(heads) == x.cols &&
           turned <= half && out.type != dtype::f16,
         "undo_rotation: heads of f32 rows into f32 or bf16");
  for (const auto& s : step.sequences)
    for_rows(pool_, static_cast<std::size_t>(s.rows), [&](std::size_t r) {
      const auto row = static_cast<std::size_t>(s.first_row) + r;
      const float* cosines = angles + (static_cast<std::size_t>(s.first_position) + r) * dim;
      const auto put = [&](std::size_t at, float value) {
        if (out.type == dtype::f32)
          row_of<float>(out, row)[at] = value;
        else
          row_of<std::uint16_t>(out, row)[at] = to_bf16(value);
      };
      for (std::size_t first = 0; first < x.cols; first += dim) {
        const float* head = row_of<float>(x, row) + first;
        for (std::size_t i = turned; i < half; ++i) {
          put(first + i - turned, head[i]);
          put(first + half - turned + i - turned, head[half + i]);
        }
        for (std::size_t i = 0; i < turned; ++i) {
          const float one = head[i], other = head[half + i];
          put(first + dim - 2 * turned + 2 * i, one * cosines[i] + other * cosines[half + i]);
          put(first + dim - 2 * turned + 2 * i + 1, other * cosines[i] - one * cosines[half + i]);
        }
      }
    });
}

} // namespace troupe::kernels
