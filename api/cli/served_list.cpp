#include "api/cli/served_list.hpp"

#include "api/cli/command.hpp"
#include "api/cli/common_options.hpp"
#include "api/cli/config_file.hpp"
#include "api/cli/serve_options.hpp"
#include "api/cli/technique_options.hpp"
#include "api/cli/values.hpp"
#include "runtime/chat/output/find_chat_format.hpp"
#include "runtime/import/local_models.hpp"
#include "runtime/import/model_source.hpp"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <filesystem>
#include <set>
#include <utility>

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;

/// What a model is called that was given by its path or name alone.
std::string usual_name(const std::string& model) {
  std::error_code ignored;
  if (!fs::exists(model, ignored))
    return model; // as `troupe models` lists it
  const auto full = fs::weakly_canonical(model, ignored);
  const auto name = full.filename() == "model" ? full.parent_path().filename() : full.filename();
  return name.extension() == ".gguf" ? name.stem().string() : name.string();
}

/// "NAME=PATH", or a path, which may have that sign itself.
catalogue_model read_given(const std::string& text, const engine_options& common) {
  catalogue_model one{common};
  one.asked = text;
  std::error_code ignored;
  const auto sign = text.find('=');
  if (sign == text.npos || sign == 0 || fs::exists(text, ignored)) {
    one.options.model = text;
    return one;
  }
  one.options.model_name = text.substr(0, sign);
  one.options.model = text.substr(sign + 1);
  if (one.options.model.empty())
    throw usage_failure("--model: `" + text + "` names no path behind the `=`");
  return one;
}

/// The settings that the command line has for all models, without those in `own`.
std::vector<std::string> common_arguments(const CLI::App& given, const CLI::App& of_model,
                                          const std::set<std::string>& own) {
  std::vector<std::string> arguments;
  for (const auto* option : given.get_options()) {
    const auto names = option->get_lnames();
    if (names.empty() || option->count() == 0 || own.contains(names.front()) || names.front() == "model" ||
        names.front() == "model-name" || !of_model.get_option_no_throw("--" + names.front()))
      continue;
    for (const auto& value : option->results())
      arguments.push_back("--" + names.front() + "=" + value);
  }
  return arguments;
}

/// One [[model]].
catalogue_model read_table(const std::string& file, const config_table& table, const CLI::App& given) {
  const auto refuse = [&](std::size_t line, const std::string& why) {
    return failure(errc::bad_request, file + ": line " + std::to_string(line) + ": " + why);
  };
  catalogue_model one;
  CLI::App app;
  app.option_defaults()->take_last();
  add_model_settings(app, one.options, nullptr);
  one.options.model.clear();
  std::set<std::string> own;
  std::vector<config_argument> arguments;
  for (const auto& [key, values, line] : table.settings) {
    const auto only = [&, line = line, key = key, &values = values]() -> const std::string& {
      if (values.size() != 1)
        throw refuse(line, "`" + key + "` takes one value");
      return values.front();
    };
    if (key == "name") {
      one.options.model_name = only();
    } else if (key == "path") {
      one.options.model = only();
    } else if (key == "aliases") {
      one.aliases = values;
    } else if (key == "stays") {
      if (only() != "true" && only() != "false")
        throw refuse(line, "`stays` must be true or false");
      one.stays = only() == "true";
    } else if (key == "model" || key == "model-name" || !is_flag_of(app, key)) {
      throw refuse(line, "unknown key `model." + key + "`");
    } else {
      own.insert(key);
      for (const auto& value : values)
        arguments.push_back({"--" + key + "=" + value, line});
    }
  }
  if (one.options.model.empty())
    throw refuse(table.line, "a [[model]] needs a `path`");
  if (one.options.model_name.empty())
    one.options.model_name = usual_name(one.options.model);
  auto all = common_arguments(given, app, own);
  one.asked = one.options.model;
  for (const auto& each : arguments) {
    all.push_back(each.text);
    one.asked += '\n' + each.text;
  }
  const auto path = one.options.model, name = one.options.model_name;
  try {
    std::ranges::reverse(all); // CLI11 parses from the back
    app.parse(all);
  } catch (const CLI::ParseError& e) {
    throw failure(errc::bad_request, refused_argument(file, arguments, e.what()));
  }
  one.options.model = path;
  one.options.model_name = name;
  return one;
}

void add_folder(const std::string& folder, const engine_options& common, std::vector<catalogue_model>& to) {
  std::vector<std::string> remarks;
  const auto found = models_below(folder, remarks);
  if (found.empty())
    throw failure(errc::not_found,
                  folder + ": there are no models below" + (remarks.empty() ? "" : " (" + remarks.front() + ")"));
  for (const auto& each : found) {
    const auto is_same = [&](const catalogue_model& one) {
      std::error_code ignored;
      return fs::equivalent(one.options.model, each.path, ignored);
    };
    if (std::ranges::any_of(to, is_same)) // it is there by another name
      continue;
    catalogue_model one{common};
    one.asked = one.options.model = each.path.string();
    one.options.model_name = each.name.ends_with(".gguf") ? each.name.substr(0, each.name.size() - 5) : each.name;
    to.push_back(std::move(one));
  }
}

} // namespace

void add_model_settings(CLI::App& command, engine_options& options, std::vector<std::string>* models) {
  add_engine_options(command, options, models);
  add_chat_template_option(command, options);
  add_technique_options(command, options.techniques, technique_option::served, model_group);
  const auto format = [&](const char* flag, std::string& value, std::vector<std::string> names, const char* help) {
    command.add_option(flag, value, help)
      ->check(one_of(std::move(names)))
      ->type_name("NAME")
      ->capture_default_str()
      ->group(model_group);
  };
  format("--tool-parser", options.formats.calls, call_format_names(),
         "How the model writes calls of tools; auto: as its chat template does; none: they are left in the text");
  format("--reasoning-parser", options.formats.reasoning, reasoning_format_names(),
         "How the model marks its reasoning; auto: as its chat template does; none: it is left in the text");
}

std::string served_name(const engine_options& options) {
  return options.model_name.empty() ? usual_name(options.model) : options.model_name;
}

std::vector<catalogue_model> list_served(const serve_options& options, const CLI::App& given) {
  std::vector<catalogue_model> all;
  const auto* config = given.get_option_no_throw("--config");
  if (const auto file = config && config->count() > 0 ? config->as<std::string>() : std::string();
      !file.empty() && options.models.empty())
    for (const auto& table : model_tables(file))
      all.push_back(read_table(file, table, given));
  for (const auto& text : options.models)
    all.push_back(read_given(text, options.engine));
  if (!options.models_folder.empty())
    add_folder(options.models_folder, options.engine, all);
  if (all.empty())
    all.push_back({options.engine}); // the bundled one
  const bool several = all.size() > 1;
  if (several && !options.engine.model_name.empty())
    throw usage_failure("--model-name names one model: of several, give each as --model NAME=PATH");
  if (several && !options.engine.length_model.empty())
    throw usage_failure("--length-model is one model's: of several, give `length-model` in the [[model]] of each");
  for (auto& each : all) {
    require_model(each.options.model);
    if (several && each.options.model_name.empty())
      each.options.model_name = usual_name(each.options.model);
    if (several || options.rules.on_demand)
      each.files = files_of_model(path_of_model(each.options.model)); // what is not there is told now, not to a client
    each.options = with_bundled_second(std::move(each.options));
  }
  return all;
}

} // namespace troupe::cli
