#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/instruction_sets.hpp"

#include <algorithm>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#include <sys/prctl.h>
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

/// Whether products of bf16 pairs (VDPBF16PS) are faster than of the same numbers as floats. Intel's processors begin
/// one in the time of four FMAs, so that without AMX they are half as fast; AMD's begin one in the time of two or less.
/// The vendor decides and not a measurement, as results differ between targets: a machine always has the same one.
bool pairs_are_fast() { return !__builtin_cpu_is("intel"); }

/// Two that clang's __builtin_cpu_supports does not know. AVX2 tells that the system keeps their registers.
bool has_f16c() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & (1u << 29)) != 0;
}
bool has_avx_vnni() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & (1u << 4)) != 0;
}

std::vector<isa> find_isas() {
  std::vector<isa> found{isa::portable};
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_f16c())
    return found;
  found.push_back(isa::avx2);
  if (has_avx_vnni())
    found.push_back(isa::avx_vnni);
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
    return found;
  found.push_back(isa::avx512);
  if (!__builtin_cpu_supports("avx512vnni"))
    return found;
  found.push_back(isa::avx512_vnni);
  if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vbmi")) // all but Cooper Lake have both
    return found;
  found.insert(pairs_are_fast() ? found.end() : found.end() - 1, isa::avx512_bf16);
  if (request_amx())
    found.push_back(isa::avx512_amx);
  return found;
}

} // namespace

#elif defined(__aarch64__)

namespace {

/// Registers of SVE have the length that the system gives this process, which is 0 where there is none. SVE's targets
/// need the products of int8 and bf16 besides (as Neoverse V1, N2 and later).
std::vector<isa> find_isas() {
  const auto bits = getauxval(AT_HWCAP), more = getauxval(AT_HWCAP2);
  std::vector<isa> found{isa::portable, isa::neon};
  if ((bits & HWCAP_ASIMDDP) == 0)
    return found;
  found.push_back(isa::neon_dotprod);
  if ((more & HWCAP2_I8MM) == 0 || (more & HWCAP2_BF16) == 0)
    return found;
  found.push_back(isa::neon_i8mm);
  if ((bits & HWCAP_SVE) == 0 || (more & HWCAP2_SVEI8MM) == 0 || (more & HWCAP2_SVEBF16) == 0)
    return found;
  const int length = prctl(PR_SVE_GET_VL);
  switch (length < 0 ? 0 : (length & PR_SVE_VL_LEN_MASK) * 8) {
    case 128: found.push_back(isa::sve_128); break;
    case 256: found.push_back(isa::sve_256); break;
    case 512: found.push_back(isa::sve_512); break;
    default: break;
  }
  return found;
}

} // namespace

#else

namespace {

std::vector<isa> find_isas() { return {isa::portable}; }

} // namespace

#endif

std::vector<isa> available_isas() {
  static const std::vector<isa> found = [] {
    auto result = find_isas();
    std::erase_if(result, [](isa i) { return !is_compiled(i); });
    return result;
  }();
  return found;
}

std::string_view to_string(isa target) {
  switch (target) {
    case isa::portable: return "portable";
    case isa::neon: return "neon";
    case isa::neon_dotprod: return "neon-dotprod";
    case isa::neon_i8mm: return "neon-i8mm";
    case isa::sve_128: return "sve-128";
    case isa::sve_256: return "sve-256";
    case isa::sve_512: return "sve-512";
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
