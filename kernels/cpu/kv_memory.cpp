#include "kernels/cpu/kv_memory.hpp"

#include "kernels/cpu/tensor_rows.hpp"

#include <cstring>

namespace troupe::kernels {

cpu_kv_cache::cpu_kv_cache(const kv_shape& wanted) {
  shape = wanted;
  expect(shape.own.empty() || shape.own.size() == static_cast<std::size_t>(shape.layers), "a KV cache of other layers");
  for (int i = 0; i < (shape.own.empty() ? 1 : shape.layers); ++i) {
    const auto [heads, dim, values] = shape.layer(i);
    expect(shape.layers > 0 && heads > 0, "a KV cache needs layers and heads");
    expect(dim > 0 && dim % 2 == 0 && dim <= max_head_dim,
           "the CPU backend's attention takes an even head_dim of at most 640");
  }
  data_ = allocate_zeroed(shape.block_bytes() * shape.blocks + cache_slack);
}

layer_cache cpu_kv_cache::layer(int index) const {
  const auto [heads, dim, values] = shape.layer(index);
  const std::size_t head_block = (values ? kv_bytes(shape.type, dim) : key_bytes(shape.type, dim)) * block_tokens;
  const std::size_t scales = is_scaled(shape.type) ? 2 * block_tokens * sizeof(float) : 0;
  layer_cache layer;
  layer.head_bytes = head_block * shape.blocks;
  layer.value_bytes = values ? (head_block - scales) / 2 : 0;
  layer.key_bytes = head_block - layer.value_bytes;
  layer.value_offset = layer.key_bytes * shape.blocks;
  layer.data = static_cast<char*>(data_.get()) + shape.block_bytes_before(index) * shape.blocks;
  layer.kv_heads = heads;
  layer.head_dim = dim;
  layer.type = shape.type;
  return layer;
}

void cpu_kv_cache::copy(std::span<const block_copy> copies, thread_pool& pool) {
  if (copies.empty())
    return;
  pool.parallel_for(shape.layers, [&](std::size_t i, int) {
    const auto layer = this->layer(static_cast<int>(i));
    for (int head = 0; head < layer.kv_heads; ++head) {
      char* keys = layer.data + head * layer.head_bytes;
      char* values = keys + layer.value_offset;
      for (const auto& copy : copies) {
        std::memmove(keys + copy.to * layer.key_bytes, keys + copy.from * layer.key_bytes, layer.key_bytes);
        std::memmove(values + copy.to * layer.value_bytes, values + copy.from * layer.value_bytes, layer.value_bytes);
      }
    }
  });
}

void cpu_kv_cache::copy_tokens(int index, std::span<const token_copy> copies, thread_pool& pool) {
  if (copies.empty())
    return;
  const auto layer = this->layer(index);
  const bool pairs = shape.type == kv_type::bf16, scaled = is_scaled(shape.type);
  const auto dim = static_cast<std::size_t>(layer.head_dim);
  const std::size_t number = pairs ? 2 : scaled ? 1 : sizeof(float);                 // bytes
  const std::size_t word = pairs ? 2 * number : number, words = dim * number / word; // of K, one for each token
  pool.parallel_for(static_cast<std::size_t>(layer.kv_heads), [&](std::size_t head, int) {
    char* const keys = layer.data + head * layer.head_bytes;
    char* const values = keys + layer.value_offset;
    for (const auto& copy : copies) {
      const auto place = static_cast<std::size_t>(copy.place);
      const auto move = [&](char* of_layer, std::size_t block_bytes, std::size_t at, std::size_t bytes) {
        std::memcpy(of_layer + static_cast<std::size_t>(copy.to) * block_bytes + at,
                    of_layer + static_cast<std::size_t>(copy.from) * block_bytes + at, bytes);
      };
      for (std::size_t i = 0; scaled && i < 2; ++i)
        move(keys, layer.key_bytes, (i * block_tokens + place) * sizeof(float), sizeof(float));
      const std::size_t first = scaled ? 2 * block_tokens * sizeof(float) : 0; // behind the scales
      for (std::size_t i = 0; i < words; ++i)
        move(keys, layer.key_bytes, first + (i * block_tokens + place) * word, word);
      if (layer.value_bytes == 0)
        continue;
      if (!pairs)
        move(values, layer.value_bytes, place * dim * number, dim * number);
      for (std::size_t d = 0; pairs && d < dim; ++d)
        move(values, layer.value_bytes, ((place / 2 * dim + d) * 2 + place % 2) * number, number);
    }
  });
}

/// Calls move(part of the cache, block, offset in its canonical form, bytes) for K and V of every layer, head and
/// block.
template <class Block, class Move>
void cpu_kv_cache::move_parts(std::span<const Block> blocks, thread_pool& pool, const Move& move) const {
  for (const auto& b : blocks)
    expect(b.block >= 0 && static_cast<std::size_t>(b.block) < shape.blocks, "a block outside the KV cache");
  const auto layers = static_cast<std::size_t>(shape.layers);
  pool.parallel_for(blocks.size() * layers, [&](std::size_t i, int) {
    const auto& block = blocks[i / layers];
    const auto layer = this->layer(static_cast<int>(i % layers));
    const auto index = static_cast<std::size_t>(block.block);
    auto offset = shape.block_bytes_before(static_cast<int>(i % layers));
    for (int head = 0; head < layer.kv_heads; ++head) {
      char* keys = layer.data + static_cast<std::size_t>(head) * layer.head_bytes;
      move(keys + index * layer.key_bytes, block, offset, layer.key_bytes);
      offset += layer.key_bytes;
      move(keys + layer.value_offset + index * layer.value_bytes, block, offset, layer.value_bytes);
      offset += layer.value_bytes;
    }
  });
}

void cpu_kv_cache::export_blocks(std::span<const block_export> blocks, thread_pool& pool) const {
  move_parts(blocks, pool, [](const char* part, const block_export& b, std::size_t offset, std::size_t bytes) {
    std::memcpy(static_cast<char*>(b.to) + offset, part, bytes);
  });
}

void cpu_kv_cache::import_blocks(std::span<const block_import> blocks, thread_pool& pool) {
  move_parts(blocks, pool, [](char* part, const block_import& b, std::size_t offset, std::size_t bytes) {
    std::memcpy(part, static_cast<const char*>(b.from) + offset, bytes);
  });
}

} // namespace troupe::kernels
