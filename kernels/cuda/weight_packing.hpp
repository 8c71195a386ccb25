// Fills the memory of planned weights (weights.hpp) from what a checkpoint stores, on the host, at load.
#pragma once

#include "kernels/cuda/uploader.hpp"
#include "kernels/cuda/weights.hpp"

namespace troupe::kernels::cuda {

std::unique_ptr<device_matrix> pack_weights(uploader& to_device, std::span<const stored_matrix> stacked, dtype compute,
                                            quantization how, bool gated);

std::unique_ptr<device_table> pack_table(uploader& to_device, const stored_matrix& table);

} // namespace troupe::kernels::cuda
