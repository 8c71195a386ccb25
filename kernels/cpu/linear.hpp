// Linear layers on the CPU: converts activations to the layout of the kernels and cuts the work into tasks. The sizes
// of tasks change no result.
#pragma once

#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/packed_matrix.hpp"
#include "kernels/cpu/target.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/ops.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe::kernels {

class cpu_linear {
public:
  /// `cache`: bytes of a core's L2 that tasks fill; 0: ask the system.
  cpu_linear(const target& kernels, thread_pool& pool, std::size_t cache);

  /// See backend::linear and backend::linear_activated.
  void run(const tensor& out, const tensor& in, const packed_matrix& weights, const float* bias, store how,
           const activation& act = {});

private:
  /// Copies activations to padded blocks of K. A single row that needs no widening stays in place.
  void arrange_activations(linear_op& op, const tensor& in);

  /// Lists the words of K that are not zero in all rows, and packs them, if they are few enough to gain by it; else
  /// false. For activations behind ReLU, of few rows.
  bool keep_nonzero(linear_op& op, const tensor& in);

  /// Quantises activations to int8, in blocks of groups. A partial last group is filled with zeros.
  void quantise_activations(linear_op& op, const tensor& in);

  const target& kernels_;
  thread_pool& pool_;
  std::size_t cache_; // bytes of L2
  scratch<std::uint32_t> activations_, kept_;
  std::vector<scratch<float>> scratch_; // one per thread
};

} // namespace troupe::kernels
