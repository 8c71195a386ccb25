// What the GPU plug-in, a shared library beside the program, gives the program that loads it (api/embed/gpu.cpp). Both
// use the same classes, so they must be of one build.
#pragma once

#include "runtime/execution/device.hpp"

#include <string>

namespace troupe {

struct gpu_plugin {
  const char* build;                                                 // gpu_plugin_build() of the plug-in
  std::shared_ptr<const device> (*open)(const gpu_options& options); // a gpu_opener
};

/// The one function of the plug-in: `const gpu_plugin* troupe_gpu_plugin()`.
inline constexpr const char* gpu_plugin_entry = "troupe_gpu_plugin";

/// Differs between builds that cannot be mixed, as far as versions and the sizes of shared classes tell.
inline const std::string& gpu_plugin_build() {
  static const std::string build = [] {
    std::string text = TROUPE_VERSION ", " __VERSION__;
    for (const auto size : {sizeof(gpu_options), sizeof(device_capabilities), sizeof(runner_spec), sizeof(sampler_spec),
                            sizeof(step_plan), sizeof(step_tokens), sizeof(step_result), sizeof(kernels::batch)})
      text += ", " + std::to_string(size);
    return text;
  }();
  return build;
}

} // namespace troupe
