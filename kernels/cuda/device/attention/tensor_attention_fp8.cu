// Tensor-core attention over K and V in fp8.
#include "kernels/cuda/device/attention/flash_attention.hpp"
#include "kernels/cuda/device/attention/split_attention.hpp"

namespace troupe::kernels::cuda {

template void attend_split<fp8_cells>(const stream&, const attention_params&, const attention_work*, std::size_t, int,
                                      bool);
template void attend_flash_cells<fp8_cells>(const stream&, const attention_params&, const attention_work*, std::size_t);

} // namespace troupe::kernels::cuda
