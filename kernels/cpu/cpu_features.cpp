#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/instruction_sets.hpp"

#include <algorithm>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace troupe::kernels {

#if defined(__x86_64__)

namespace {

/// Whether there is AMX with bf16 and int8, and the system lets this process use it. Linux grants the 8 KiB of tile
/// registers only on request (arch_prctl, "Using XSTATE features in user space applications").
bool request_amx() {
  constexpr unsigned bf16 = 1u << 22, tile = 1u << 24, int8 = 1u << 25;
  constexpr long request_permission = 0x1023, tile_data = 18;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & (bf16 | tile | int8)) != (bf16 | tile | int8))
    return false;
  return syscall(SYS_arch_prctl, request_permission, tile_data) == 0;
}

std::vector<isa> find_isas() {
  std::vector<isa> found{isa::portable};
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
    return found;
  found.push_back(isa::avx2);
  if (__builtin_cpu_supports("avxvnni"))
    found.push_back(isa::avx_vnni);
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
    return found;
  found.push_back(isa::avx512);
  if (!__builtin_cpu_supports("avx512vnni"))
    return found;
  found.push_back(isa::avx512_vnni);
  if (!__builtin_cpu_supports("avx512bf16"))
    return found;
  found.push_back(isa::avx512_bf16);
  if (request_amx())
    found.push_back(isa::avx512_amx);
  return found;
}

} // namespace

std::vector<isa> available_isas() {
  static const std::vector<isa> found = [] {
    auto result = find_isas();
    std::erase_if(result, [](isa i) { return !is_compiled(i); });
    return result;
  }();
  return found;
}

#else

std::vector<isa> available_isas() { return {isa::portable}; }

#endif

std::string_view to_string(isa target) {
  switch (target) {
    case isa::portable: return "portable";
    case isa::avx2: return "avx2";
    case isa::avx_vnni: return "avx-vnni";
    case isa::avx512: return "avx512";
    case isa::avx512_vnni: return "avx512-vnni";
    case isa::avx512_bf16: return "avx512-bf16";
    case isa::avx512_amx: return "avx512-amx";
  }
  return "unknown";
}

} // namespace troupe::kernels
