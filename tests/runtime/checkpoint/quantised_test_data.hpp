// Shared by the tests of folders whose matrices are quantised.
#pragma once

#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/engine/loading/weight_loading.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/decoder.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace troupe::test {

/// The logits behind up to 64 tokens, computed in f32.
inline std::vector<float> logits_of_source(const model_source& source, const std::vector<token_id>& ids) {
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  const auto weights = load_weights(*source.tensors, source.config, *backend, kernels::dtype::f32);
  CHECK(weights->bytes == estimate_memory(*source.tensors, source.config, kernels::dtype::f32, *backend, {}).weights);
  const auto rows = static_cast<std::int32_t>(ids.size());
  decoder graph(weights, *backend, rows, 64);
  const auto cache = backend->make_kv_cache(kv_shape_of(source.config, kernels::dtype::f32, 4));
  const std::vector<std::int32_t> blocks{0, 1, 2, 3};
  const auto vocab = static_cast<std::size_t>(source.config.vocab);
  std::vector<float> logits(vocab);
  const auto memory = backend->allocate(vocab * sizeof(float));
  const kernels::tensor out{memory.get(), kernels::dtype::f32, 1, vocab, vocab};
  const kernels::sequence_rows all{0, rows, 0, 0};
  const std::int32_t last = rows - 1;
  graph.forward(ids, {{&all, 1}, blocks}, {&last, 1}, *cache, out);
  backend->download(logits.data(), out);
  return logits;
}

} // namespace troupe::test
