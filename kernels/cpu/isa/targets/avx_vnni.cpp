#include "kernels/cpu/isa/quantised_kernel.hpp"

namespace troupe::kernels {
namespace {

void linear(const linear_op& op, const linear_task& task, float* scratch) {
  if (is_grouped(op.kind))
    linear_quantised(op, task, scratch);
  else
    avx2_target().linear(op, task, scratch);
}

} // namespace

/// AVX-VNNI only has instructions for dots of integers.
const target& avx_vnni_target() {
  static const target table = [] {
    target to = avx2_target();
    to.linear = linear;
    to.quantised_rows = quantised_rows;
    to.quantise = quantise;
    return to;
  }();
  return table;
}

} // namespace troupe::kernels
