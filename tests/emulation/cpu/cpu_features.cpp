// Replaces available_isas() in programs that are linked with emulated targets: what this machine lacks, as the tests of what
// it has run natively, behind `portable`, which every list begins with. CMake leaves out what the machine that builds has.
#define available_isas isas_of_the_machine
#include "kernels/cpu/cpu_features.cpp"
#undef available_isas

#include <algorithm>

namespace troupe::kernels {

std::vector<isa> available_isas() {
  const auto real = isas_of_the_machine();
  const auto has = [&](isa wanted) { return std::ranges::find(real, wanted) != real.end(); };
  std::vector<isa> emulated{isa::portable};
  const auto add = [&](isa wanted, isa needed) {
    if (has(needed) && !has(wanted))
      emulated.push_back(wanted);
  };
#if defined(TROUPE_EMULATES_avx_vnni)
  add(isa::avx_vnni, isa::avx2);
#endif
#if defined(TROUPE_EMULATES_avx512_bf16)
  add(isa::avx512_bf16, isa::avx512_vnni);
#endif
  add(isa::avx512_amx, isa::avx512_vnni);
  return emulated;
}

} // namespace troupe::kernels
