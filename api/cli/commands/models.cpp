#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/size_table.hpp"
#include "api/cli/terminal/standard_streams.hpp"
#include "api/cli/terminal/word_wrap.hpp"
#include "api/cli/values.hpp"
#include "runtime/engine/loading/model_check.hpp"
#include "runtime/import/local_models.hpp"
#include "runtime/support/json/json_text.hpp"
#include "runtime/support/text/byte_size.hpp"
#include "runtime/support/text/utf8.hpp"
#include "runtime/support/text/visible_text.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <iostream>
#include <span>

#include <unistd.h>

namespace troupe::cli {

namespace {

struct models_options {
  engine_options engine;
  bool estimate = false, json = false;
  std::string of;         // a model to estimate on paper; empty: all that are here
  std::size_t memory = 0; // that this one is to fit into
};

/// "135 M", "1.2 B"
std::string count_of(std::size_t parameters) {
  std::array<char, 32> text = {};
  const auto number = static_cast<double>(parameters);
  if (parameters >= 1'000'000'000)
    std::snprintf(text.data(), text.size(), "%.1f B", number / 1e9);
  else
    std::snprintf(text.data(), text.size(), number < 1e7 ? "%.1f M" : "%.0f M", number / 1e6);
  return text.data();
}

class models_table {
public:
  explicit models_table(std::vector<std::string> titles) : widths_(titles.size()) { add(std::move(titles)); }

  void add(std::vector<std::string> cells) {
    for (std::size_t i = 0; i < cells.size(); ++i)
      widths_[i] = std::max(widths_[i], count_characters(cells[i]));
    rows_.push_back(std::move(cells));
  }

  /// Below the row added last.
  void note(const std::string& text) { rows_.push_back({text}); }

  /// In lines of at most so many columns, unless that is 0: as a paragraph for each row where the table is wider.
  std::string text(std::size_t columns) const {
    std::size_t width = 0;
    for (const auto column : widths_)
      width += column + 2;
    return columns > 0 && width - 2 > columns ? paragraphs(columns) : table();
  }

private:
  std::string table() const {
    std::string result;
    for (const auto& cells : rows_) {
      std::string line;
      if (cells.size() == 1)
        line = "  " + cells.front();
      else
        for (std::size_t i = 0; i < cells.size(); ++i)
          line += cells[i] + std::string(widths_[i] + 2 - count_characters(cells[i]), ' ');
      result += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return result;
  }

  std::string paragraphs(std::size_t columns) const {
    std::string result;
    const auto& titles = rows_.front();
    for (const auto& cells : std::span(rows_).subspan(1)) {
      std::string line;
      for (std::size_t i = 1; i < cells.size(); ++i)
        line += (i == 1 ? "" : ", ") + small_letters(titles[i]) + ' ' + cells[i];
      result += (cells.size() == 1 ? "  " + wrapped(cells.front(), columns, 2)
                                   : cells.front() + "\n  " + wrapped(line, columns, 2)) +
        "\n";
    }
    return result;
  }

  static std::string small_letters(std::string text) {
    std::ranges::transform(text, text.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
    return text;
  }

  std::vector<std::size_t> widths_;
  std::vector<std::vector<std::string>> rows_; // of one cell: a note
};

std::string json_model(const local_model& model, const model_check& check, bool estimate) {
  const bool loads = check.why_not.empty();
  auto text = "{\"name\":" + json_text(to_utf8(model.name)) + ",\"path\":" + json_text(to_utf8(model.path.string())) +
    ",\"source\":" + json_text(model.source) + ",\"file_bytes\":" + std::to_string(model.bytes);
  if (!check.family.empty())
    text += ",\"family\":" + json_text(to_utf8(check.family)) + ",\"parameters\":" + std::to_string(check.parameters) +
      ",\"weights\":" + json_text(check.weights) + ",\"context\":" + std::to_string(check.context);
  text += std::string(",\"loads\":") + (loads ? "true" : "false");
  if (!loads)
    text += ",\"error\":" + json_text(to_utf8(check.why_not));
  if (estimate && loads) {
    text += ",\"estimate\":{\"weight_bytes\":" + std::to_string(check.weight_bytes) +
      ",\"step_bytes\":" + std::to_string(check.step_bytes) +
      ",\"kv_bytes_per_token\":" + std::to_string(check.kv_token_bytes) +
      ",\"kv_bytes_of_one_sequence\":" + std::to_string(check.sequence_bytes) +
      ",\"needed_bytes\":" + std::to_string(check.needed()) +
      ",\"available_bytes\":" + std::to_string(check.available) +
      ",\"fitting_context\":" + std::to_string(check.fitting_context);
    if (!check.no_room.empty())
      text += ",\"error\":" + json_text(to_utf8(check.no_room));
    text += "}";
  }
  return text + "}";
}

std::vector<std::string> cells_of(const local_model& model, const model_check& check, bool estimate) {
  const bool known = !check.family.empty(), loads = check.why_not.empty();
  std::vector<std::string> cells{visible_name(model.name),
                                 model.source,
                                 known ? visible_name(check.family) : "-",
                                 known ? count_of(check.parameters) : "-",
                                 known ? check.weights : "-",
                                 to_size(model.bytes),
                                 known ? std::to_string(check.context) : "-",
                                 loads ? "yes" : "no"};
  if (!estimate)
    return cells;
  if (!loads) {
    cells.insert(cells.end(), {"-", "-", "-", "-"});
    return cells;
  }
  cells.push_back(to_size(check.weight_bytes + check.step_bytes));
  cells.push_back(to_size(check.kv_token_bytes * 1024));
  cells.push_back(to_size(check.needed()));
  cells.push_back(!check.no_room.empty()                    ? "no"
                    : check.fitting_context < check.context ? "with " + std::to_string(check.fitting_context)
                                                            : "yes");
  return cells;
}

int list_models(const models_options& options) {
  if (!options.of.empty() && !options.estimate)
    throw usage_failure("a model is named for --estimate: `troupe models --estimate " + options.of + "`");
  if (options.memory > 0 && options.of.empty())
    throw usage_failure("--memory needs a model: `troupe models --estimate config.json --memory 40GB`");
  if (!options.of.empty()) {
    print(size_table(options.of, options.engine.compute, options.engine.max_context, options.memory, options.json));
    return 0;
  }
  std::vector<std::string> remarks;
  const auto models = list_local_models(remarks);
  const auto check = [&](const local_model& model) {
    auto engine = options.engine;
    engine.model = model.path.string();
    return check_model(engine);
  };
  for (const auto& remark : remarks)
    std::cerr << "troupe: " << visible_name(remark) << "\n";
  if (options.json) {
    std::string text = "{\"models\":[";
    for (const auto& model : models)
      text += (text.back() == '[' ? "" : ",") + json_model(model, check(model), options.estimate);
    print(text + "]}\n");
    return 0;
  }
  if (models.empty()) {
    std::string places;
    for (const auto& place : model_places())
      places += (places.empty() ? "" : ", ") + place.folder.string();
    std::cerr << "troupe: no models in " << visible_name(places) << "\n";
    return 0;
  }
  std::vector<std::string> titles{"NAME", "IN", "FAMILY", "PARAMETERS", "WEIGHTS", "FILES", "CONTEXT", "LOADS"};
  if (options.estimate)
    titles.insert(titles.end(), {"MEMORY", "PER 1024 TOKENS", "WITH CONTEXT", "FITS"});
  models_table table(std::move(titles));
  for (const auto& model : models) {
    const auto checked = check(model);
    table.add(cells_of(model, checked, options.estimate));
    if (!checked.why_not.empty())
      table.note(visible_name(checked.why_not));
    else if (options.estimate && !checked.no_room.empty())
      table.note(visible_name(checked.no_room));
  }
  print(table.text(columns_of(STDOUT_FILENO)));
  return 0;
}

} // namespace

command add_models(CLI::App& troupe) {
  const auto options = std::make_shared<models_options>();
  auto* app = troupe.add_subcommand("models", "List the models on this machine, and whether they load");
  app->add_flag("--estimate", options->estimate,
                "Also show the memory that each model takes: of weights and steps, of 1024 tokens in the KV cache, and "
                "with one sequence of the whole context; and whether that fits into the memory that is available");
  app->add_option(
    "MODEL", options->of,
    "With --estimate: a config.json, a folder, a GGUF file or the name of a model here, of which weights are "
    "not read: parameters times bytes, K and V of a token, and of sequences");
  app->add_option("--memory", options->memory, "With --estimate MODEL: what it is to fit into, such as 40GB")
    ->transform(size_value())
    ->type_name("SIZE")
    ->group(limits_group);
  add_compute_options(*app, options->engine.compute);
  add_integer(*app, "--max-context", options->engine.max_context, 0, 1 << 28,
              "Tokens that a prompt and its answer may have together; 0: the model's limit")
    ->group(limits_group);
  add_integer(*app, "--max-sequences", options->engine.max_sequences, 1, 1 << 20,
              "With --estimate: sequences that steps are planned for")
    ->group(limits_group);
  app->add_flag("--json", options->json, "Print one JSON object rather than a table")->group(output_group);
  add_common_options(*app);
  app->footer("Models are looked for below ~/models, and in the caches of Hugging Face's programs ($HF_HOME), Ollama "
              "($OLLAMA_MODELS) and llama.cpp ($LLAMA_CACHE). `--model NAME` of other commands takes these names.\n"
              "Examples:\n"
              "  troupe models\n"
              "  troupe models --estimate --quantize int8 --max-context 8192\n"
              "  troupe models --estimate config.json --memory 40GB");
  return {app, [options] { return list_models(*options); }};
}

} // namespace troupe::cli
