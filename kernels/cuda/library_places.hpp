// Where NVIDIA's libraries lie on machines that have them. Python wheels, such as PyTorch's, and unpacked toolkits keep
// them outside the loader's path. Plain logic over the file system; gemm_library.hpp loads what is found.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace troupe::kernels::cuda {

/// What decides where libraries are looked for.
struct library_surroundings {
  std::filesystem::path program;                                             // the folder of the program
  std::function<std::optional<std::string>(const std::string&)> environment; // value of a variable
  std::filesystem::path root = "/";                                          // tests look into a folder

  /// The surroundings of this process.
  static library_surroundings of_process();
};

/// Arguments for dlopen, in the order to try them: the file that TROUPE_CUBLASLT names (then only that), the program's
/// own folder, `name` by the loader's rules, toolkits (CUDA_HOME, CUDA_PATH, /usr/local/cuda*), then wheels for the
/// major version `major` in the active Python environment, the user's and the system's. Except for the first and the
/// loader's, only files that exist.
std::vector<std::string> library_places(const std::string& name, int major, const library_surroundings& around);

} // namespace troupe::kernels::cuda
