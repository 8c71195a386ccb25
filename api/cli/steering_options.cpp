#include "api/cli/steering_options.hpp"

#include "api/cli/common_options.hpp"
#include "api/cli/values.hpp"

#include <CLI/CLI.hpp>

#include <charconv>

namespace troupe::cli {

namespace {

constexpr int most_layers = 1 << 20;

/// Adds an option that may be given several times, each parsed by `parse`.
template <class T>
void add_parsed(CLI::App& command, const std::string& flag, std::vector<T>& to, T (*parse)(std::string_view),
                const char* type, const char* group, const char* help) {
  command
    .add_option_function<std::vector<std::string>>(
      flag,
      [&to, parse, flag](const std::vector<std::string>& texts) {
        to.clear(); // CLI11 parses twice where there is a configuration file
        for (const auto& text : texts)
          try {
            to.push_back(parse(text));
          } catch (const failure& f) {
            throw CLI::ValidationError(flag, f.what());
          }
      },
      help)
    ->take_all()
    ->allow_extra_args(false)
    ->type_name(type)
    ->group(group);
}

} // namespace

steering_source parse_steering_source(std::string_view text) {
  const auto sign = text.find('=');
  if (sign == 0 || sign == text.npos || sign + 1 == text.size())
    throw failure(errc::bad_request, "must be NAME=FILE, not " + std::string(text.substr(0, 80)));
  return {std::string(text.substr(0, sign)), std::string(text.substr(sign + 1))};
}

steering_choice parse_steering_choice(std::string_view text) {
  const auto refuse = [text] {
    throw failure(errc::bad_request,
                  "must be NAME, NAME=STRENGTH or NAME=STRENGTH@FIRST-LAST, not " + std::string(text.substr(0, 80)));
  };
  const auto sign = text.find('=');
  steering_choice result{std::string(text.substr(0, sign))};
  if (result.name.empty())
    refuse();
  if (sign == text.npos)
    return result;
  auto strength = text.substr(sign + 1);
  if (const auto at = strength.find('@'); at != strength.npos) {
    const auto range = strength.substr(at + 1);
    const auto dash = range.find('-');
    if (dash == range.npos)
      refuse();
    result.first_layer = static_cast<int>(parse_integer(range.substr(0, dash), 0, most_layers));
    result.last_layer = static_cast<int>(parse_integer(range.substr(dash + 1), 0, most_layers));
    strength = strength.substr(0, at);
  }
  const auto end = strength.data() + strength.size();
  if (strength.empty() || std::from_chars(strength.data(), end, result.strength).ptr != end)
    refuse();
  return result;
}

void add_steer_option(CLI::App& command, std::vector<steering_source>& sources) {
  add_parsed(command, "--steer", sources, parse_steering_source, "NAME=FILE", model_group,
             "A file of steering vectors, safetensors or a GGUF control vector, for requests to choose by NAME; may be "
             "given several times");
}

void add_lora_options(CLI::App& command, engine_options& options) {
  add_parsed<adapter_source>(
    command, "--lora", options.lora,
    [](std::string_view text) {
      auto [name, path] = parse_steering_source(text);
      return adapter_source{std::move(name), std::move(path)};
    },
    "NAME=PATH", model_group,
    "A LoRA adapter, a PEFT folder or a GGUF file, that requests choose with NAME as their model; may be given several "
    "times");
  command
    .add_flag("--lora-endpoints", options.lora_endpoints,
              "Let clients load and unload adapters by paths on this machine (POST /v1/load_lora_adapter, "
              "/v1/unload_lora_adapter)")
    ->group(model_group);
}

void add_steering_option(CLI::App& command, std::vector<steering_choice>& choices) {
  add_parsed(command, "--steering", choices, parse_steering_choice, "NAME[=STRENGTH[@FIRST-LAST]]", sampling_group,
             "Add this vector of --steer to the output of every layer, or of layers FIRST to LAST, counted from 0; may "
             "be given several times");
}

} // namespace troupe::cli
