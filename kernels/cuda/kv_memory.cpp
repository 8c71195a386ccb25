#include "kernels/cuda/kv_memory.hpp"

#include "kernels/cuda/device/rows.hpp"
#include "kernels/cuda/expect.hpp"

#include <algorithm>
#include <set>

namespace troupe::kernels::cuda {

namespace {

/// One copy, unless the cache is so large that the distance of its layers exceeds the largest pitch.
void copy_layers(const stream& on, unsigned char* to, std::size_t to_pitch, const unsigned char* from,
                 std::size_t from_pitch, std::size_t bytes, int layers) {
  const auto count = static_cast<std::size_t>(layers);
  if (std::max(to_pitch, from_pitch) <= most_pitch)
    return copy_rows(on, to, to_pitch, from, from_pitch, bytes, count);
  for (std::size_t i = 0; i < count; ++i)
    copy_rows(on, to + i * to_pitch, bytes, from + i * from_pitch, bytes, bytes, 1);
}

} // namespace

device_kv_cache::device_kv_cache(const kv_shape& wanted) {
  shape = wanted;
  data_ = allocate(shape.block_bytes() * shape.blocks);
}

unsigned char* device_kv_cache::data(int layer) const {
  return static_cast<unsigned char*>(data_.get()) + shape.block_bytes_before(layer) * shape.blocks;
}

layer_cache device_kv_cache::layer(int index) const {
  const auto [heads, dim, values] = shape.layer(index);
  return {data(index), heads, dim, shape.type, values};
}

std::vector<device_kv_cache::alike> device_kv_cache::layers() const {
  std::vector<alike> all;
  const int count = shape.own.empty() ? shape.layers : 1;
  for (int first = 0; first < shape.layers; first += count) {
    const auto bytes = shape.block_bytes_before(first + 1) - shape.block_bytes_before(first);
    all.push_back({first, count, bytes, bytes * shape.blocks});
  }
  return all;
}

unsigned char* device_kv_cache::address(const alike& layers, std::int32_t block) const {
  expect(block >= 0 && static_cast<std::size_t>(block) < shape.blocks, "a block outside the KV cache");
  return data(layers.first) + static_cast<std::size_t>(block) * layers.block_bytes;
}

// Copies run concurrently up to the first that depends on an earlier one.
void device_kv_cache::copy(const stream& on, device_scratch& list, std::span<const block_copy> copies) const {
  std::set<std::int32_t> read, written;
  std::size_t first = 0;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    const auto [from, to] = copies[i];
    if (written.contains(from) || written.contains(to) || read.contains(to)) {
      copy_together(on, list, copies.subspan(first, i - first));
      first = i;
      read.clear();
      written.clear();
    }
    read.insert(from);
    written.insert(to);
  }
  copy_together(on, list, copies.subspan(first));
}

void device_kv_cache::copy_together(const stream& on, device_scratch& list, std::span<const block_copy> copies) const {
  copy_blocks_params p;
  p.copies = list.upload(on, copies.data(), copies.size());
  p.count = copies.size();
  for (const auto& l : layers()) {
    p.cache = data(l.first);
    p.block_bytes = l.block_bytes;
    p.layer_bytes = l.layer_bytes;
    p.layers = l.count;
    copy_blocks(on, p);
  }
}

void device_kv_cache::save(const stream& on, std::int32_t block, void* host) const {
  for (const auto& l : layers())
    copy_layers(on, static_cast<unsigned char*>(host) + shape.block_bytes_before(l.first), l.block_bytes,
                address(l, block), l.layer_bytes, l.block_bytes, l.count);
}

void device_kv_cache::restore(const stream& on, std::int32_t block, const void* host) const {
  for (const auto& l : layers())
    copy_layers(on, address(l, block), l.layer_bytes,
                static_cast<const unsigned char*>(host) + shape.block_bytes_before(l.first), l.block_bytes,
                l.block_bytes, l.count);
}

} // namespace troupe::kernels::cuda
