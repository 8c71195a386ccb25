// Files of random steering vectors for an engine's model, made once per model and removed at the end.
#pragma once

#include "runtime/engine/engine_options.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/techniques/steering/steering_file.hpp"

#include <filesystem>
#include <random>
#include <unistd.h>

namespace troupe::testing {

/// "one" and "other", of values around the size of a residual's.
inline std::vector<std::string> vectors_for(const std::string& model) {
  namespace fs = std::filesystem;
  struct kept {
    fs::path folder = fs::temp_directory_path() / ("troupe-steering-test-" + std::to_string(getpid()));
    std::map<std::string, std::vector<std::string>> made;
    kept() { fs::create_directories(folder); }
    ~kept() {
      std::error_code ignored;
      fs::remove_all(folder, ignored);
    }
  };
  static kept all;
  auto& sources = all.made[model];
  if (!sources.empty())
    return sources;
  const auto config = open_model(model).config;
  std::mt19937 random(static_cast<unsigned>(all.made.size()));
  std::normal_distribution<float> value(0, 0.5f);
  for (const std::string name : {"one", "other"}) {
    layer_directions directions(static_cast<std::size_t>(config.layers));
    for (auto& d : directions) {
      d.resize(static_cast<std::size_t>(config.hidden));
      for (auto& v : d)
        v = value(random);
    }
    const auto file = all.folder / (std::to_string(all.made.size()) + name + (name == "one" ? ".gguf" : ""));
    write_steering(file, directions, config.family);
    sources.push_back(name + "=" + file.string());
  }
  return sources;
}

} // namespace troupe::testing
