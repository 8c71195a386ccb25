// Replaces available_isas() in programs that are linked with emulated targets.
#define available_isas isas_of_the_machine
#include "kernels/cpu/cpu_features.cpp"
#undef available_isas

#include <algorithm>

namespace troupe::kernels {

std::vector<isa> available_isas() {
  const auto real = isas_of_the_machine();
  const auto has = [&](isa wanted) { return std::ranges::find(real, wanted) != real.end(); };
  std::vector<isa> emulated{isa::portable};
  if (has(isa::avx2))
    emulated.push_back(isa::avx_vnni);
  if (has(isa::avx512_vnni)) {
    emulated.push_back(isa::avx512_bf16);
    emulated.push_back(isa::avx512_amx);
  }
  return emulated;
}

} // namespace troupe::kernels
