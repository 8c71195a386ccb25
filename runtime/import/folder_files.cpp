#include "runtime/import/folder_files.hpp"

namespace troupe {

namespace {

bool is_top_level(std::string_view path) { return path.find('/') == path.npos; }

} // namespace

bool is_folder_file(std::string_view path) {
  if (path.starts_with("additional_chat_templates/") && path.ends_with(".jinja") && path.find('/') == path.rfind('/'))
    return true;
  if (path == "1_Pooling/config.json") // which counts without a list of modules, too
    return true;
  if (!is_top_level(path))
    return false;
  for (const std::string_view end : {".json", ".jinja", ".tiktoken", ".model"})
    if (path.ends_with(end))
      return true;
  for (const std::string_view start : {"LICENSE", "LICENCE", "NOTICE", "USE_POLICY"})
    if (path.starts_with(start))
      return true;
  return path == "merges.txt" || path == "vocab.txt";
}

bool is_folder_weights(std::string_view path, bool listed) {
  // Without a list, variants such as model.fp16.safetensors are not for the reader.
  return path == "model.safetensors" ||
    (listed && is_top_level(path) && path.ends_with(".safetensors") && !path.starts_with("consolidated") &&
     !path.starts_with("adapter"));
}

std::vector<sentence_module> read_modules(const json::document& list) {
  std::vector<sentence_module> result;
  for (const auto& module : json::reader(list).items()) {
    const auto type = module.string("type").value_or("");
    const auto path = module.string("path").value_or("");
    if (path.find_first_of("/\\") != path.npos || path == "..")
      module.at("path").refuse("must be the name of a folder beside it");
    result.push_back({type.substr(type.rfind('.') + 1), path});
  }
  return result;
}

std::vector<std::string> module_files(const json::document& list) {
  std::vector<std::string> result;
  for (const auto& module : read_modules(list))
    if (!module.folder.empty() && module.folder != ".")
      for (const auto* file : {"config.json", "model.safetensors"})
        result.push_back((module.folder / file).string());
  return result;
}

} // namespace troupe
