// An indexer's choice of positions on the backend's stream. Choices stay on the device.
#pragma once

#include "kernels/cuda/device_scratch.hpp"
#include "kernels/cuda/kv_memory.hpp"
#include "kernels/cuda/scratch_plan.hpp"
#include "kernels/cuda/step_memory.hpp"
#include "kernels/sparse_attention.hpp"

namespace troupe::kernels::cuda {

class indexer_layers {
public:
  /// `memory`: bytes of scores at a time. A single row may exceed it.
  indexer_layers(const stream& on, step_memory& step, std::size_t memory = score_memory)
    : on_(on), step_(step), memory_(memory) {}

  /// See sparse_attention::choose_positions; with a `rate`, compressed_attention::choose_entries.
  void choose(position_choice& to, const tensor& queries, const tensor& weights, int heads,
              const device_kv_cache& cache, int layer, const batch& rows, int rate = 1);

  std::uint64_t growths() const { return scores_.growths(); }

private:
  const stream& on_;
  step_memory& step_;
  std::size_t memory_;
  device_scratch scores_;
};

} // namespace troupe::kernels::cuda
