#include "runtime/model_source.hpp"

#include "runtime/error.hpp"
#include "runtime/safetensors.hpp"

namespace troupe {

namespace {
constexpr std::string_view synthetic_prefix = "synthetic:";
}

bool is_synthetic(std::string_view model) { return model.starts_with(synthetic_prefix); }

model_source open_model(const std::string& model) {
  if (is_synthetic(model))
    return make_synthetic(std::string_view(model).substr(synthetic_prefix.size()));
  const std::filesystem::path folder(model);
  if (!std::filesystem::is_directory(folder))
    throw failure(errc::not_found, model +
                                     ": no such folder; a model is a folder with config.json, model.safetensors and "
                                     "tokenizer.json");
  auto [config, generation] = read_config(folder);
  // "folder/" and "." still have a name.
  const auto full = std::filesystem::weakly_canonical(folder);
  const auto named = full.filename() == "model" ? full.parent_path() : full;
  return {named.filename().string(), std::move(config), std::move(generation), open_safetensors(folder)};
}

} // namespace troupe
