// The instruction sets that kernels are compiled for.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace troupe::kernels {

/// Dispatch targets, slowest first, but those of ARM, which come before those of x86. Results differ between targets;
/// on each they are schedule-invariant. Those of SVE, one for each length of registers, give the same results.
enum class isa : std::uint8_t {
  portable,
  neon,
  neon_dotprod,
  neon_i8mm, // and bf16
  sve_128,
  sve_256,
  sve_512,
  avx2,
  avx_vnni,
  avx512,
  avx512_vnni,
  avx512_bf16,
  avx512_amx
};

std::string_view to_string(isa target);

/// The targets that this machine can run, slowest first; never empty. On Intel's processors `avx512_bf16` comes before
/// `avx512_vnni`. On processors with tile registers, the first call
/// requests them from the system for the whole process, including threads that are already running.
std::vector<isa> available_isas();

} // namespace troupe::kernels
