// Attention on the backend's stream: plans a step's tiles and partitions, launches their kernels, merges their states.
#pragma once

#include "kernels/compressed_attention.hpp"
#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/device_scratch.hpp"
#include "kernels/cuda/kv_memory.hpp"
#include "kernels/cuda/step_memory.hpp"
#include "kernels/distance_attention.hpp"
#include "kernels/sparse_attention.hpp"

namespace troupe::kernels::cuda {

class attention_layers {
public:
  attention_layers(const stream& on, step_memory& step, const cuda_options& options, const device_info& device);

  void attend(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
              const device_kv_cache& cache, int layer, const batch& rows, const position_choice* chosen = nullptr,
              const distance_scores* distances = nullptr);

  /// See compressed_attention.
  void attend_entries(const tensor& out, const tensor& q, int heads, const attention_scores& scores,
                      const entry_view& seen, const device_kv_cache& cache, const batch& rows);

  /// What cuda_options::unified_maximum has counted; null: nothing.
  const softmax_counts* counts() const { return static_cast<const softmax_counts*>(counts_.get()); }
  std::uint64_t growths() const { return states_.growths(); }

private:
  /// Of all rows, without a unified maximum.
  attention_params params_of(const tensor& out, const tensor& q, int heads, const attention_scores& scores,
                             const device_kv_cache& cache, int layer) const;
  void run(attention_params& p, const attention_options& options, bool tensor_cores);

  const stream& on_;
  step_memory& step_;
  const cuda_options& options_;
  const device_info& device_;
  device_scratch states_;
  buffer counts_; // softmax_counts
};

} // namespace troupe::kernels::cuda
