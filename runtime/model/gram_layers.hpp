// Tables of n-grams (gram_config): names and shapes of their tensors, as the decoder wants them ("model.layers.N.grams.",
// then as below), and which rows of a table a token looks up.
#pragma once

#include "runtime/model/tensor_names.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace troupe {

class gram_tensors {
public:
  gram_tensors(const model_config& config, int layer) : config_(config), layer_(layer) {}

  wanted_tensor table(int part) const; // [rows, dim]
  wanted_tensor key() const;           // [streams * hidden, width]
  wanted_tensor value() const;         // [hidden, width]
  // Of each stream, [streams * hidden]: norms of keys, of what the streams have, and of what is convolved.
  wanted_tensor key_norm() const { return norm("key_norm.weight"); }
  wanted_tensor stream_norm() const { return norm("stream_norm.weight"); }
  wanted_tensor value_norm() const { return norm("value_norm.weight"); }
  wanted_tensor convolution() const; // [streams * hidden, taps]

  std::vector<wanted_tensor> all() const;

private:
  wanted_tensor named(const std::string& name, std::vector<std::size_t> shape) const;
  wanted_tensor norm(const char* name) const;

  const model_config& config_;
  int layer_;
};

/// The rows of a layer's table that a token looks up: [lookups]. `before`: the size - 1 tokens before it, the nearest
/// first; -1 where there is none.
void gram_rows(const gram_config& config, int layer, token_id token, std::span<const std::int32_t> before,
               std::int64_t* to);

/// Checkpoints may hold a layer's hashes beside its table. Throws failure(bad_file) if they are not those that the
/// configuration gives.
void check_stored_hashes(const checkpoint& tensors, const gram_config& config, int layer);

} // namespace troupe
