#include "kernels/cpu/dispatch.hpp"

#include "kernels/ops.hpp"

#include <algorithm>
#include <string>

namespace troupe::kernels {

// The build defines TROUPE_CASES as a TROUPE_CASE(name) for each instruction set that it compiles kernels for.

bool is_compiled(isa wanted) {
#define TROUPE_CASE(name)                                                                                              \
  case isa::name: return true;
  switch (wanted) {
    TROUPE_CASES
    default: return wanted == isa::portable;
  }
#undef TROUPE_CASE
}

const target& find_target(isa wanted) {
  const auto available = available_isas();
  if (std::find(available.begin(), available.end(), wanted) == available.end())
    throw device_error("this machine cannot run the CPU target " + std::string(to_string(wanted)));
#define TROUPE_CASE(name)                                                                                              \
  case isa::name: return name##_target();
  switch (wanted) {
    TROUPE_CASES
    default: return portable_target();
  }
#undef TROUPE_CASE
}

} // namespace troupe::kernels
