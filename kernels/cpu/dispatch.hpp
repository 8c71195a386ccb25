// Finds the kernels that are compiled for an instruction set.
#pragma once

#include "kernels/cpu/instruction_sets.hpp"
#include "kernels/cpu/target.hpp"

namespace troupe::kernels {

/// Whether this build has kernels for it (TROUPE_INSTRUCTION_SETS).
bool is_compiled(isa wanted);

/// Throws device_error if this machine cannot run it.
const target& find_target(isa wanted);

} // namespace troupe::kernels
