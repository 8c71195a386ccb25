#include "runtime/model_source.hpp"

#include "runtime/error.hpp"
#include "runtime/safetensors.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <system_error>

namespace troupe {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view synthetic_prefix = "synthetic:";

/// Blobs of download caches have no extension.
bool begins_as_gguf(const fs::path& file) {
  char magic[4] = {};
  std::ifstream(file, std::ios::binary).read(magic, sizeof magic);
  return std::string_view(magic, sizeof magic) == "GGUF";
}

} // namespace

bool has_gguf_extension(const fs::path& file) {
  auto extension = file.extension().string();
  std::ranges::transform(extension, extension.begin(), [](unsigned char c) { return c < 0x80 ? std::tolower(c) : c; });
  return extension == ".gguf";
}

std::optional<fs::path> gguf_file_of(const std::string& model) {
  const fs::path path(model);
  std::error_code error;
  const auto there = fs::status(path, error);
  if (there.type() == fs::file_type::not_found)
    throw failure(errc::not_found, model +
                                     ": no such folder; a model is a folder with config.json, model.safetensors and "
                                     "tokenizer.json, or a .gguf file");
  if (error)
    throw failure(errc::not_found, model + ": cannot be read: " + error.message());
  if (fs::is_regular_file(there) && (has_gguf_extension(path) || begins_as_gguf(path)))
    return path;
  if (!fs::is_directory(there))
    throw failure(errc::unsupported, model + ": a model is a folder or a .gguf file, not a file of another kind");
  if (is_there(path / "config.json"))
    return std::nullopt;
  std::optional<fs::path> only;
  auto entry = fs::directory_iterator(path, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code ignored;
    if (!has_gguf_extension(entry->path()) || !entry->is_regular_file(ignored))
      continue;
    if (only)
      throw failure(errc::bad_file, model + ": holds several .gguf files, name one of them");
    only = entry->path();
  }
  if (error)
    throw failure(errc::bad_file, model + ": cannot be read: " + error.message());
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
  std::error_code ignored;
  const auto full = fs::weakly_canonical(folder, ignored);
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
