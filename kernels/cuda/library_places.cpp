#include "kernels/cuda/library_places.hpp"

#include <algorithm>
#include <cstdlib>

namespace troupe::kernels::cuda {

namespace {

namespace fs = std::filesystem;

/// Folders in `folder` whose names begin with `prefix`, those that sort last first, because they are newer.
std::vector<fs::path> folders(const fs::path& folder, const std::string& prefix) {
  std::vector<fs::path> found;
  std::error_code ignored;
  for (fs::directory_iterator at(folder, ignored), end; !ignored && at != end; at.increment(ignored))
    if (at->path().filename().string().starts_with(prefix) && fs::is_directory(at->path(), ignored))
      found.push_back(at->path());
  std::ranges::sort(found, std::greater<>());
  return found;
}

} // namespace

library_surroundings library_surroundings::of_process() {
  library_surroundings around;
  std::error_code ignored;
  around.program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  around.environment = [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value != nullptr && *value != '\0' ? std::optional<std::string>(value) : std::nullopt;
  };
  return around;
}

std::vector<std::string> library_places(const std::string& name, int major, const library_surroundings& around) {
  if (const auto wanted = around.environment("TROUPE_CUBLASLT"))
    return {*wanted};
  std::vector<std::string> places;
  const auto add = [&](const fs::path& file) {
    std::error_code ignored;
    const auto path = file.string();
    if (fs::is_regular_file(file, ignored) && std::ranges::find(places, path) == places.end())
      places.push_back(path);
  };
  if (!around.program.empty())
    add(around.program / name);
  places.push_back(name);

  std::vector<fs::path> toolkits;
  for (const auto* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const auto home = around.environment(variable))
      toolkits.emplace_back(*home);
  const auto local = around.root / "usr/local";
  toolkits.push_back(local / "cuda");
  std::ranges::copy(folders(local, "cuda-" + std::to_string(major)), std::back_inserter(toolkits));
  for (const auto& toolkit : toolkits)
    for (const auto* folder : {"lib64", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib", "lib"})
      add(toolkit / folder / name);

  std::vector<fs::path> pythons; // folders that have lib/python3.N/site-packages
  for (const auto* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"})
    if (const auto prefix = around.environment(variable))
      pythons.emplace_back(*prefix);
  if (const auto home = around.environment("HOME"))
    pythons.push_back(fs::path(*home) / ".local");
  for (const auto* prefix : {"usr/local", "usr", "opt/conda", "opt/venv"})
    pythons.push_back(around.root / prefix);
  for (const auto& prefix : pythons)
    for (const auto& python : folders(prefix / "lib", "python3"))
      for (const auto* packages : {"site-packages", "dist-packages"})
        for (const auto& wheel : {"cu" + std::to_string(major), std::string("cublas")})
          add(python / packages / "nvidia" / wheel / "lib" / name);
  return places;
}

} // namespace troupe::kernels::cuda
