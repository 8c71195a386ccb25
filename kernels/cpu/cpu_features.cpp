#include "kernels/cpu/cpu_backend.hpp"

namespace troupe::kernels {

std::string_view to_string(isa target) {
  switch (target) {
    case isa::portable: return "portable";
    case isa::avx2: return "avx2";
    case isa::avx512: return "avx512";
    case isa::avx512_bf16: return "avx512-bf16";
  }
  return "unknown";
}

std::vector<isa> available_isas() {
  std::vector<isa> found{isa::portable};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("f16c"))
    return found;
  found.push_back(isa::avx2);
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq"))
    return found;
  found.push_back(isa::avx512);
  if (__builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni"))
    found.push_back(isa::avx512_bf16);
#endif
  return found;
}

} // namespace troupe::kernels
