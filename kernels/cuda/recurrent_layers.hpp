// The ops of recurrent layers (kernels/recurrent.hpp) on the backend's stream. Checks arguments and launches kernels.
#pragma once

#include "kernels/cuda/state_memory.hpp"
#include "kernels/cuda/step_memory.hpp"

namespace troupe::kernels::cuda {

class recurrent_layers {
public:
  recurrent_layers(const stream& on, step_memory& step) : on_(on), step_(step) {}

  void convolve(const tensor& out, const tensor& in, const convolution& how, const device_state_cache& states,
                int layer);
  void recur(const tensor& out, const tensor& in, const tensor& rates, const tensor& betas, const recurrence& how,
             const device_state_cache& states, int layer);
  void gate(const tensor& out, const tensor& x, const tensor& gate, const gated_rows& how);

  // See gram_ops.
  void recall_tokens(std::int32_t* to, const std::int32_t* tokens, std::size_t rows, const device_state_cache& states,
                     int index);
  void convolve_spread(const tensor& out, const tensor& in, const convolution& how, const device_state_cache& states,
                       int index);
  void take_agreed(const tensor& out, const tensor& a, const tensor& b, const tensor& value, float scale);

  void multiply(const tensor& out, const tensor& a, const tensor& b);

private:
  convolve_params convolution_of(const tensor& out, const tensor& in, const convolution& how, const layer_states& of,
                                 const device_state_cache& states);

  const stream& on_;
  step_memory& step_;
  device_scratch recalled_;
};

} // namespace troupe::kernels::cuda
