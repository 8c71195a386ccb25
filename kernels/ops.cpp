#include "kernels/ops.hpp"

namespace troupe::kernels {

const char* to_string(dtype t) {
  switch (t) {
    case dtype::f32: return "f32";
    case dtype::f16: return "f16";
    case dtype::bf16: return "bf16";
  }
  return "unknown";
}

} // namespace troupe::kernels
