#include "kernels/cpu/dispatch.hpp"

#include <algorithm>

namespace troupe::kernels {

const target& find_target(isa wanted) {
  const auto available = available_isas();
  if (std::find(available.begin(), available.end(), wanted) == available.end())
    throw device_error("this machine cannot run the CPU target " + std::string(to_string(wanted)));
#if defined(__x86_64__)
  switch (wanted) {
    case isa::avx2: return avx2_target();
    case isa::avx_vnni: return avx_vnni_target();
    case isa::avx512: return avx512_target();
    case isa::avx512_vnni: return avx512_vnni_target();
    case isa::avx512_bf16: return avx512_bf16_target();
    case isa::avx512_amx: return avx512_amx_target();
    case isa::portable: break;
  }
#endif
  return portable_target();
}

} // namespace troupe::kernels
