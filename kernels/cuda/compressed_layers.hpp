// Entries of compressed keys (kernels/compressed_attention.hpp) on the backend's stream. Attention over them is attention_layers',
// the choice among them indexer_layers'.
#pragma once

#include "kernels/compressed_attention.hpp"
#include "kernels/cuda/device_scratch.hpp"
#include "kernels/cuda/kv_memory.hpp"
#include "kernels/cuda/step_memory.hpp"

namespace troupe::kernels::cuda {

class compressed_layers {
public:
  compressed_layers(const stream& on, step_memory& step) : on_(on), step_(step) {}

  void make_entries(const entry_making& how, const device_kv_cache& cache, int from, int to, const batch& rows);
  void undo_rotation(const tensor& out, const tensor& x, int heads, int pairs, const float* angles, const batch& rows);

  std::uint64_t growths() const { return means_.growths(); }

private:
  const stream& on_;
  step_memory& step_;
  device_scratch means_;
};

} // namespace troupe::kernels::cuda
