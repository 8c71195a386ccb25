#include "runtime/kv/numerics_id.hpp"

#include "kernels/block_transfer.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "runtime/support/files/checksum.hpp"
#include "runtime/support/files/mapped_file.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

#include <xxhash.h>

namespace troupe {

namespace {

/// Raised when kernels or the decoder come to compute other bits of K and V from the same model.
constexpr int arithmetic_version = 6;

std::array<std::uint64_t, 2> hash_of(const void* data, std::size_t bytes) {
  const auto h = XXH3_128bits(data, bytes);
  return {h.high64, h.low64};
}

} // namespace

std::string to_hex(const std::array<std::uint64_t, 2>& value) {
  char digits[33];
  std::snprintf(digits, sizeof digits, "%016llx%016llx", static_cast<unsigned long long>(value[0]),
                static_cast<unsigned long long>(value[1]));
  return digits;
}

std::string numerics_id::text() const {
  return "layers " + std::to_string(first_layer) + "-" + std::to_string(end_layer - 1) + ", " + backend + " " +
    instructions + ", computed in " + precision + ", K and V " + kv + ", model " + model + ", form " +
    std::to_string(kernels::block_form_version) + ", arithmetic " + std::to_string(arithmetic_version);
}

std::array<std::uint64_t, 2> numerics_id::hash() const {
  const auto all = text();
  return hash_of(all.data(), all.size());
}

std::string identity_of(std::span<const file_state> files, kernels::thread_pool& pool) {
  std::vector<std::uint64_t> sums;
  for (const auto& file : files) {
    const mapped_file mapped(file.path);
    const auto bytes = mapped.bytes();
    mapped.prefetch(bytes);
    const auto chunks = (bytes.size() + checksum::chunk - 1) / checksum::chunk;
    const auto first = sums.size();
    sums.resize(first + chunks);
    pool.parallel_for(chunks, [&](std::size_t i, int) {
      const auto at = i * checksum::chunk;
      sums[first + i] = checksum::of_chunk(bytes.subspan(at, std::min(checksum::chunk, bytes.size() - at)));
    });
    sums.push_back(bytes.size());
  }
  return to_hex(hash_of(sums.data(), sums.size() * sizeof sums[0]));
}

} // namespace troupe
