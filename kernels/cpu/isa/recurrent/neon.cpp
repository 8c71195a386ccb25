#define TROUPE_NEON 1
#include "kernels/cpu/isa/recurrent_kernels.hpp"

namespace troupe::kernels {

const recurrent_target& neon_recurrent_target() { return recurrent_table; }

} // namespace troupe::kernels
