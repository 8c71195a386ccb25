// Prints the name of the fastest instruction set that this machine may use, as in TROUPE_INSTRUCTION_SETS. Where that
// is `native`, the build compiles this with cpu_features.cpp and runs it. It is part of no library.
#include "kernels/cpu/dispatch.hpp"

#include <algorithm>
#include <cstdio>
#include <string>

bool troupe::kernels::is_compiled(isa) { return true; }

int main() {
  std::string name{to_string(troupe::kernels::available_isas().back())};
  std::replace(name.begin(), name.end(), '-', '_');
  std::puts(name.c_str());
}
