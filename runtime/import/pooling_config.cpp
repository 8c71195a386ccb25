#include "runtime/import/pooling_config.hpp"

#include "runtime/support/file_reading.hpp"
#include "runtime/support/json_reader.hpp"

#include <array>
#include <string_view>

namespace troupe {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view mode_prefix = "pooling_mode_";

embedding_style without_embeddings(const std::string& why) { return {pooling::none, false, why}; }

pooling pooling_of(std::string_view mode) {
  return mode == "mean_tokens" || mode == "mean" ? pooling::mean
    : mode == "cls_token" || mode == "cls"       ? pooling::cls
    : mode == "lasttoken"                        ? pooling::last
                                                 : pooling::none;
}

/// Either "pooling_mode": "mean", or booleans "pooling_mode_mean_tokens" and the like, of which one is true.
embedding_style read_pooling(const fs::path& file) {
  const auto document = json::document::load(file);
  const json::reader config(document);
  std::string mode;
  if (const auto name = config.string("pooling_mode"))
    mode = *name;
  else
    for (auto [key, value] : config.object())
      if (key.starts_with(mode_prefix) && config.boolean(key).value_or(false))
        mode += (mode.empty() ? "" : " and ") + std::string(key.substr(mode_prefix.size()));
  if (mode.empty())
    config.refuse("does not name a pooling mode");
  const auto how = pooling_of(mode);
  if (how == pooling::none)
    return without_embeddings("its pooling by `" + mode + "` is not supported");
  return {how, false};
}

/// A module's folder, which must be within the checkpoint's.
std::string folder_of(const json::reader& module) {
  const auto path = module.string("path").value_or("");
  if (path.find_first_of("/\\") != path.npos || path == "..")
    module.at("path").refuse("must be the name of a folder beside it");
  return path;
}

embedding_style read_modules(const fs::path& folder) {
  const auto document = json::document::load(folder / "modules.json");
  embedding_style style{pooling::none, false, "its modules.json has no pooling"};
  for (const auto& module : json::reader(document).items()) {
    const auto type = module.string("type").value_or("");
    const auto name = type.substr(type.rfind('.') + 1);
    if (name == "Pooling")
      style = read_pooling(folder / folder_of(module) / "config.json");
    else if (name == "Normalize")
      style.normalise = true;
    else if (name != "Transformer")
      return without_embeddings("its module `" + name + "` is not supported");
    if (name == "Pooling" && style.how == pooling::none)
      return style;
  }
  return style;
}

} // namespace

embedding_style read_embedding_style(const fs::path& folder) {
  if (is_there(folder / "modules.json"))
    return read_modules(folder);
  const auto pooling_file = folder / "1_Pooling" / "config.json";
  if (is_there(pooling_file))
    return read_pooling(pooling_file);
  return {};
}

} // namespace troupe
