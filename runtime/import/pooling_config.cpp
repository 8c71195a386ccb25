#include "runtime/import/pooling_config.hpp"

#include "runtime/import/folder_files.hpp"
#include "runtime/support/files/file_reading.hpp"
#include "runtime/support/json/json_reader.hpp"

#include <algorithm>
#include <string_view>

namespace troupe {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view mode_prefix = "pooling_mode_";

embedding_style without_embeddings(const std::string& why) {
  return {.how = pooling::none, .normalise = false, .refusal = why};
}

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
  if (!config.boolean("include_prompt", true))
    return without_embeddings("its pooling leaves prompts out, which is not supported");
  return {.how = how, .normalise = false};
}

sentence_style read_module_style(const fs::path& folder) {
  const auto document = json::document::load(folder / modules_file);
  sentence_style style{without_embeddings("its modules.json has no pooling")};
  for (const auto& [name, place] : read_modules(document)) {
    if (name == "Pooling")
      style.embeddings = read_pooling(folder / place / "config.json");
    else if (name == "Normalize")
      style.embeddings.normalise = true;
    else if (name == "Dense" && style.embeddings.how != pooling::none && !style.embeddings.normalise)
      style.dense.push_back(folder / place);
    else if (name != "Transformer")
      return {without_embeddings("its module `" + name + "` is not supported")};
    if (name == "Pooling" && style.embeddings.how == pooling::none)
      return style;
  }
  return style;
}

constexpr auto sentence_file = "config_sentence_transformers.json", length_file = "sentence_bert_config.json";

/// The activation of scores; prompts by their names, of which one may be usual.
void read_sentence_file(const fs::path& folder, sentence_style& sentences) {
  constexpr std::size_t most = 256;
  const auto file = folder / sentence_file;
  if (!is_there(file))
    return;
  auto& style = sentences.embeddings;
  const auto document = json::document::load(file);
  const json::reader config(document);
  sentences.activation = config.string("activation_fn").value_or("");
  const auto prompts = config.object("prompts");
  if (prompts)
    for (auto [key, value] : prompts->object()) {
      if (style.prompts.size() >= most)
        prompts->refuse("has more than " + std::to_string(most) + " prompts");
      style.prompts.push_back({std::string(key), prompts->string(key).value_or("")});
    }
  style.usual_prompt = config.string("default_prompt_name").value_or("");
  if (!style.usual_prompt.empty() &&
      std::ranges::find(style.prompts, style.usual_prompt, &text_prompt::name) == style.prompts.end())
    config.at("default_prompt_name").refuse("is not the name of one of `prompts`");
}

/// The longest text: sentence-transformers cuts others, since version 6 as the tokenizer says.
int read_most_tokens(const fs::path& folder) {
  constexpr int most = 1 << 28;
  const auto length = folder / length_file, tokens = folder / "tokenizer_config.json";
  if (is_there(length)) {
    const auto document = json::document::load(length);
    if (const auto stated = json::reader(document).integer("max_seq_length", 1, most, 0))
      return stated;
  }
  const bool is_sentence_model = is_there(length) || is_there(folder / sentence_file) ||
    is_there(folder / modules_file);
  if (!is_sentence_model || !is_there(tokens))
    return 0;
  const auto document = json::document::load(tokens);
  double stated = 0; // mostly 1e30 where there is no limit
  const auto found = json::find(document.root(), "model_max_length");
  return found && !found->get(stated) && stated >= 1 && stated <= most ? static_cast<int>(stated) : 0;
}

} // namespace

sentence_style read_sentence_style(const fs::path& folder) {
  sentence_style style;
  const auto pooling_file = folder / "1_Pooling" / "config.json";
  if (is_there(folder / modules_file))
    style = read_module_style(folder);
  else if (is_there(pooling_file))
    style = {read_pooling(pooling_file)};
  read_sentence_file(folder, style);
  style.max_tokens = read_most_tokens(folder);
  return style;
}

} // namespace troupe
