// A CPU, with one of its instruction sets, as a device that models run on.
#pragma once

#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/execution/device.hpp"

namespace troupe {

/// A CPU device with one rank, or with several that divide layers among them (kernels/sharded). All ranks have the same
/// instruction set.
std::shared_ptr<const device> make_cpu_device(std::vector<kernels::cpu_options> ranks);

/// The fastest instruction that weights of that kind can be multiplied with. Floats in bf16 are multiplied in f32 if
/// there is no such instruction for them.
device_peaks peaks_of(const kernels::machine_peaks& peaks, kernels::dtype compute, bool quantised);

} // namespace troupe
