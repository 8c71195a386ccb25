#include "runtime/model_source.hpp"

#include "runtime/error.hpp"
#include "runtime/safetensors.hpp"

namespace troupe {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view synthetic_prefix = "synthetic:";

bool is_gguf(const fs::path& file) { return file.extension() == ".gguf" && fs::is_regular_file(file); }

} // namespace

std::optional<fs::path> gguf_file_of(const std::string& model) {
  const fs::path path(model);
  if (fs::is_regular_file(path)) {
    if (is_gguf(path))
      return path;
    throw failure(errc::unsupported, model + ": a model is a folder or a .gguf file, not a file of another kind");
  }
  if (!fs::is_directory(path))
    throw failure(errc::not_found, model +
                                     ": no such folder; a model is a folder with config.json, model.safetensors and "
                                     "tokenizer.json, or a .gguf file");
  if (fs::exists(path / "config.json"))
    return std::nullopt;
  std::optional<fs::path> only;
  for (const auto& entry : fs::directory_iterator(path))
    if (is_gguf(entry.path())) {
      if (only)
        throw failure(errc::bad_file, model + ": holds several .gguf files, name one of them");
      only = entry.path();
    }
  return only;
}

bool is_synthetic(std::string_view model) { return model.starts_with(synthetic_prefix); }

model_source open_model(const std::string& model) {
  if (is_synthetic(model))
    return make_synthetic(std::string_view(model).substr(synthetic_prefix.size()));
  if (const auto file = gguf_file_of(model))
    return open_gguf(*file);
  const fs::path folder(model);
  auto config_file = state_of(folder / "config.json");
  auto [config, generation, quantised] = read_config(folder);
  auto tensors = quantised ? open_quantised(open_safetensors(folder), *quantised) : open_safetensors(folder);
  auto files = tensors->files();
  files.push_back(std::move(config_file));
  // "folder/" and "." still have a name.
  const auto full = fs::weakly_canonical(folder);
  const auto named = full.filename() == "model" ? full.parent_path() : full;
  return {named.filename().string(),
          std::move(config),
          std::move(generation),
          std::move(tensors),
          [folder] { return tokenizer::load(folder); },
          [folder] { return chat_template::load(folder); },
          std::move(files)};
}

std::shared_ptr<const tokenizer> open_tokenizer(const std::string& model) {
  if (is_synthetic(model))
    throw failure(errc::unsupported, model + " has no tokenizer");
  const auto file = gguf_file_of(model);
  return file ? open_gguf(*file).load_tokenizer() : tokenizer::load(model);
}

} // namespace troupe
