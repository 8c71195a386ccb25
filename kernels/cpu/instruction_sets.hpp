// The instruction sets that kernels are compiled for.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace troupe::kernels {

/// Dispatch targets, slowest first. Results differ between targets; on each they are schedule-invariant.
enum class isa : std::uint8_t { portable, avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16, avx512_amx };

std::string_view to_string(isa target);

/// The targets that this machine can run, slowest first; never empty. On processors with tile registers, the first call
/// requests them from the system for the whole process, including threads that are already running.
std::vector<isa> available_isas();

} // namespace troupe::kernels
