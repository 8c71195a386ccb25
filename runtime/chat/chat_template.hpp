// The chat template of a checkpoint: from its files to the text of a prompt, as transformers' apply_chat_template makes
// it. Immutable once loaded; rendered by the front end on any thread.
#pragma once

#include "runtime/chat/jinja/program.hpp"

#include <filesystem>
#include <stop_token>

namespace troupe {

class chat_template {
public:
  /// From chat_template.jinja (and additional_chat_templates/tool_use.jinja), else chat_template.json, else the
  /// `chat_template` of tokenizer_config.json: a string, or a list of {name, template} with a "default" and perhaps a
  /// "tool_use", which is used when there are tools. The special tokens are those of tokenizer_config.json, and where
  /// it has none of special_tokens_map.json. Nothing where the folder has no template.
  /// Throws failure(bad_file | unsupported) naming the file.
  static std::optional<chat_template> load(const std::filesystem::path& folder);

  /// The text of the template that `load` would take, for files that have one place for it. Throws as `load`.
  static std::optional<std::string> source(const std::filesystem::path& folder);

  /// Throws failure(bad_file | unsupported).
  static chat_template parse(std::string_view source, std::string bos_token, std::string eos_token);

  struct arguments {
    jinja::value messages;        // a list of dicts
    jinja::value tools = nullptr; // a list of dicts, or none
    bool add_generation_prompt = true;
    jinja::value extra = nullptr;              // a dict of what else the template can name, or none
    std::optional<std::tm> now = std::nullopt; // what strftime_now prints; the local time unless given
    std::stop_token stop = {};                 // ends the rendering
  };

  /// Throws failure(bad_request, ..., "messages"), with the template's own sentence where it refuses the messages or
  /// that it does too much work; failure(cancelled) soon after `stop` is requested.
  std::string render(const arguments& args) const;

private:
  explicit chat_template(jinja::program program) : default_(std::move(program)) {}
  /// What the template can name. Throws jinja::fault where it nests too deeply or is too large.
  jinja::dict names(const arguments& args) const;

  jinja::program default_;
  std::optional<jinja::program> tool_use_;
  jinja::dict special_tokens_; // "bos_token" and so on, by what templates call them
};

} // namespace troupe
