// gram_ops on a CPU. Tasks are sequences and ranges of channels; a sum takes taps in their order, so bits depend on no
// schedule.
#pragma once

#include "kernels/cpu/recurrent.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/gram_ops.hpp"

namespace troupe::kernels {

void recall_tokens(std::int32_t* to, const std::int32_t* tokens, std::size_t rows, const cpu_state_cache& states,
                   int index, thread_pool& pool);

void convolve_spread(const tensor& out, const tensor& in, const convolution& how, const cpu_state_cache& states,
                     int index, thread_pool& pool);

void take_agreed(const tensor& out, const tensor& a, const tensor& b, const tensor& value, float scale,
                 thread_pool& pool);

} // namespace troupe::kernels
