#include "runtime/execution/gpu/plugin/gpu_plugin.hpp"

#include "runtime/execution/gpu/gpu_device.hpp"

extern "C" [[gnu::visibility("default")]] const troupe::gpu_plugin* troupe_gpu_plugin() {
  static const troupe::gpu_plugin plugin{troupe::gpu_plugin_build().c_str(), troupe::open_gpu};
  return &plugin;
}
