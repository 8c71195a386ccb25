// The CPU backend: run-time dispatch over instruction sets, a thread pool of its own whose idle threads sleep.
#pragma once

#include "kernels/ops.hpp"

#include <memory>
#include <string_view>
#include <vector>
#include <cstdint>

namespace troupe::kernels {

/// Dispatch targets, slowest first. Results differ between targets; within one they are schedule-invariant.
enum class isa : std::uint8_t { portable, avx2, avx_vnni, avx512, avx512_vnni, avx512_bf16, avx512_amx };

std::string_view to_string(isa target);

/// The targets that this machine can run, slowest first; never empty. The first call asks the system for the tile
/// registers, where the processor has some: for the whole process, threads that run already included.
std::vector<isa> available_isas();

struct cpu_options {
  int threads = 0;                    // 0: one per core that this process may use
  isa target = available_isas().back();
};

std::unique_ptr<backend> make_cpu_backend(const cpu_options& options = {});

} // namespace troupe::kernels
