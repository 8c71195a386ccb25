#include "api/embed/gpu.hpp"

#ifdef TROUPE_GPU
#include "runtime/execution/gpu/gpu_device.hpp"
#endif

namespace troupe {

gpu_opener built_in_gpus() {
#ifdef TROUPE_GPU
  return open_gpu;
#else
  return nullptr;
#endif
}

} // namespace troupe
