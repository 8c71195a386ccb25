// Tasks of recurrent layers on a CPU: the convolution by sequences and ranges of channels, the recurrence by sequences
// and heads, so that each task alone writes its part of a state.
#pragma once

#include "kernels/cpu/instruction_sets.hpp"
#include "kernels/cpu/memory.hpp"
#include "kernels/cpu/recurrent_target.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/recurrent.hpp"

namespace troupe::kernels {

/// States are [slot][layer][tail | matrices], in a slot behind its layers the tails of spread convolutions; what is
/// pending is [running slot][layer][inputs | rows of each head], with inputs of spread convolutions likewise.
class cpu_state_cache final : public state_cache {
public:
  /// Throws std::invalid_argument for a shape that the kernels do not take.
  explicit cpu_state_cache(const state_shape& wanted);

  float* tail(int slot, int layer) const;
  float* matrix(int slot, int layer, int head) const;
  float* inputs_log(int slot, int layer) const;
  float* head_log(int slot, int layer, int head) const;
  float* spread_tail(int slot, int index) const;
  float* spread_log(int slot, int index) const;

  void copy(std::span<const state_copy> copies, thread_pool& pool);
  void copy_out(std::span<const state_export> out, thread_pool& pool) const;
  void copy_in(std::span<const state_import> in, thread_pool& pool);

private:
  /// Calls f(first, count) for ranges of a slot's bytes, on all threads.
  template <class F>
  void for_parts(thread_pool& pool, const F& f) const;

  buffer states_, logs_;
};

class cpu_recurrence {
public:
  cpu_recurrence(isa target, thread_pool& pool);

  void convolve(const tensor& out, const tensor& in, const convolution& how, const cpu_state_cache& states, int layer);
  void recur(const tensor& out, const tensor& in, const tensor& rates, const tensor& betas, const recurrence& how,
             const cpu_state_cache& states, int layer);
  void gate(const tensor& out, const tensor& x, const tensor& gate, const gated_rows& how);
  void multiply(const tensor& out, const tensor& a, const tensor& b);

private:
  const recurrent_target& kernels_;
  thread_pool& pool_;
  scratch<float> scratch_;
};

} // namespace troupe::kernels
