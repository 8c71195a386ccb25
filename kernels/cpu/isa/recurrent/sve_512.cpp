#define TROUPE_SVE 1
#include "kernels/cpu/isa/recurrent_kernels.hpp"

namespace troupe::kernels {

const recurrent_target& sve_512_recurrent_target() { return recurrent_table; }

} // namespace troupe::kernels
