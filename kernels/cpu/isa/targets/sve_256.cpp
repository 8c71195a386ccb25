#define TROUPE_SVE 1
#include "kernels/cpu/isa/attention_kernel.hpp"
#include "kernels/cpu/isa/index_kernel.hpp"
#include "kernels/cpu/isa/linear_kernel.hpp"
#include "kernels/cpu/isa/row_kernels.hpp"

namespace troupe::kernels {

const target& sve_256_target() {
  static constexpr target table{tile_rows,        tile_rows,       512,      true,   wide_queries, narrow_queries,
                                linear,           quantised_rows,  quantise, widen,  rms_norm,     rope_write_kv,
                                attend_partition, score_positions, merge,    finish, layer_norm,   scale,
                                add_scaled,       narrow,          low_rank};
  return table;
}

} // namespace troupe::kernels
