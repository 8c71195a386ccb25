#include "api/embed/gpu.hpp"

#include "runtime/execution/gpu/plugin/gpu_plugin.hpp"
#include "runtime/support/error.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <vector>

// Programs that are linked statically have none.
extern "C" [[gnu::weak]] const char _DYNAMIC[]; // NOLINT(bugprone-reserved-identifier)

namespace troupe {

namespace {

namespace fs = std::filesystem;

constexpr const char* driver_name = "libcuda.so.1";
constexpr const char* plugin_name = "troupe-cuda.so";

/// Beside the program, as in a build folder, or below the prefix of an installation.
std::vector<fs::path> plugin_folders() {
  std::error_code ignored;
  const auto program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  std::vector<fs::path> folders;
  if (!program.empty())
    folders.push_back(program);
  std::string_view configured = TROUPE_PLUGIN_FOLDERS;
  while (!configured.empty()) {
    const fs::path folder = configured.substr(0, configured.find(':'));
    configured.remove_prefix(std::min(configured.size(), folder.native().size() + 1));
    if (folder.is_absolute())
      folders.push_back(folder);
    else if (!program.empty())
      folders.push_back(program.parent_path() / folder);
  }
  return folders;
}

std::string last_error() {
  const char* text = dlerror();
  return text ? text : "unknown reason";
}

/// The plug-in stays loaded, as its device may live as long as the program.
const gpu_plugin& load() {
  if (_DYNAMIC == nullptr)
    throw failure(errc::bad_request, "this program is linked statically, which excludes GPUs", "device");
  void* const driver = dlopen(driver_name, RTLD_LAZY | RTLD_LOCAL);
  if (driver == nullptr)
    throw failure(errc::bad_request, "no NVIDIA driver was found", "device");
  dlclose(driver);
  std::string looked;
  std::error_code ignored;
  for (const auto& folder : plugin_folders()) {
    const auto file = folder / plugin_name;
    if (!fs::exists(file, ignored)) {
      looked += (looked.empty() ? "" : ", ") + folder.string();
      continue;
    }
    void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      throw kernels::device_error(file.string() + " cannot be loaded: " + last_error());
    const auto entry = reinterpret_cast<const gpu_plugin* (*)()>(dlsym(library, gpu_plugin_entry));
    if (entry == nullptr)
      throw kernels::device_error(file.string() + " is no plug-in of Troupe");
    const auto* const plugin = entry();
    if (plugin->build != gpu_plugin_build())
      throw kernels::device_error(file.string() + " is of another build (" + plugin->build + ") than this program (" +
                                  gpu_plugin_build() + ")");
    return *plugin;
  }
  throw kernels::device_error("there is an NVIDIA driver, but " + std::string(plugin_name) +
                              ", which computes on its GPUs, is in none of " + looked);
}

} // namespace

std::shared_ptr<const device> open_gpu_plugin(const gpu_options& options) {
  static const gpu_plugin* loaded = nullptr;
  static std::mutex loading;
  {
    const std::lock_guard lock(loading);
    if (loaded == nullptr)
      try {
        loaded = &load();
      } catch (const failure& f) {
        throw failure(errc::bad_request,
                      "there is no device `cuda:" + std::to_string(options.index) + "`: " + f.what_failed().message,
                      "device");
      }
  }
  return loaded->open(options);
}

} // namespace troupe
