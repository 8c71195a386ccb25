// What the bits of K and V depend on besides tokens and salts. Blocks are exchanged only between parts with equal ids,
// within a process, between processes, and through files. Plain data; any thread.
#pragma once

#include "runtime/support/files/file_state.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>

namespace troupe {

namespace kernels {
class thread_pool;
}

struct numerics_id {
  int first_layer = 0, end_layer = 0; // of the range
  std::string backend;                // "cpu"
  std::string instructions;           // "avx512_bf16", or what a device says of itself
  std::string precision;              // of activations and weights: "bf16 int8"
  std::string kv;                     // type and shape: "bf16 8x64"
  std::string model;                  // its identity, and those of models beside it

  /// "layers 0-15, cpu avx512_bf16, computed in bf16 int8, K and V bf16 8x64, model 4f2a..., form 1 of troupe 0.9"
  std::string text() const;

  /// The hash of text().
  std::array<std::uint64_t, 2> hash() const;

  bool operator==(const numerics_id&) const = default;
};

/// 32 hexadecimal digits.
std::string to_hex(const std::array<std::uint64_t, 2>& value);

/// The identity of a model in files: a hash of all their bytes, read by `pool`. Not of their names. Throws as
/// mapped_file.
std::string identity_of(std::span<const file_state> files, kernels::thread_pool& pool);

} // namespace troupe
