#include "kernels/cpu/isa/recurrent_kernels.hpp"

namespace troupe::kernels {

const recurrent_target& avx2_recurrent_target() { return recurrent_table; }

} // namespace troupe::kernels
