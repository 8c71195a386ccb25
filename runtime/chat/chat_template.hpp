// The chat template of a checkpoint: loads it and renders prompts as transformers' apply_chat_template does. Immutable
// once loaded; rendered by the front end on any thread.
#pragma once

#include "runtime/chat/jinja/program.hpp"

#include <filesystem>
#include <stop_token>

namespace troupe {

class chat_template {
public:
  /// From chat_template.jinja (and additional_chat_templates/tool_use.jinja), else chat_template.json, else the
  /// `chat_template` of tokenizer_config.json: a string, or a list of {name, template} with a "default" and optionally
  /// a "tool_use", which renders requests with tools. Special tokens come from tokenizer_config.json, then from
  /// special_tokens_map.json. Nothing if the folder has no template. `instead`: a file whose template replaces those of
  /// the folder. Throws failure(not_found | bad_file | unsupported) naming the file.
  static std::optional<chat_template> load(const std::filesystem::path& folder, const std::string& instead = {});

  /// The sources of a folder's templates, for export. Throws as `load`.
  struct template_sources {
    std::string standard;
    std::optional<std::string> tool_use;
  };
  static std::optional<template_sources> source(const std::filesystem::path& folder);

  /// From a file of another format. `tool_use`: for requests with tools, if there is one; `special_tokens`: texts by
  /// the names that templates use, "bos_token" and so on. Throws failure(bad_file | unsupported).
  static chat_template parse(std::string_view source, std::optional<std::string_view> tool_use,
                             jinja::dict special_tokens);
  static chat_template parse(std::string_view source, std::string bos_token, std::string eos_token);

  struct arguments {
    jinja::value messages;        // a list of dicts
    jinja::value tools = nullptr; // a list of dicts, or none
    bool add_generation_prompt = true;
    jinja::value extra = nullptr;              // a dict of further variables, or none
    std::optional<std::tm> now = std::nullopt; // for strftime_now; local time by default
    std::stop_token stop = {};                 // cancels the rendering
  };

  /// Throws failure(bad_request, ..., "messages") if the template refuses the messages (with its own sentence) or does
  /// too much work; failure(cancelled) soon after `stop` is requested.
  std::string render(const arguments& args) const;

  /// What the template writes behind an answer that ends the conversation; empty if it does not show answers.
  std::string behind_answer() const;

  /// The template's text, and that of the one for requests with tools behind it.
  const std::string& text() const { return text_; }

private:
  chat_template(jinja::program program, std::string text) : default_(std::move(program)), text_(std::move(text)) {}
  /// Whether the template shows messages whose content is a list of parts, but not those whose content is a text, as
  /// many of multimodal models do.
  bool shows_parts_only() const;
  /// The rendering of a few short messages, each a role and its content; empty if the template refuses them.
  std::string render_probe(const std::vector<std::pair<std::string_view, jinja::value>>& messages) const;
  /// The variables of the template. Throws jinja::fault if they nest too deeply or are too large.
  jinja::dict names(const arguments& args) const;

  jinja::program default_;
  std::optional<jinja::program> tool_use_;
  std::string text_;
  bool parts_only_ = false;    // then texts become lists of one part
  jinja::dict special_tokens_; // by the names that templates use: "bos_token", ...
};

} // namespace troupe
