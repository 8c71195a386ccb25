#include "api/cli/size_table.hpp"

#include "runtime/import/model_source.hpp"
#include "runtime/model/size_estimate.hpp"
#include "runtime/support/json/json.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/byte_size.hpp"
#include "runtime/support/text/number_text.hpp"
#include "runtime/support/text/utf8.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <vector>

namespace troupe::cli {

namespace {

namespace fs = std::filesystem;
using kernels::kv_type;

struct weight_type {
  const char* name;
  double bytes; // of a parameter
};

constexpr std::array weight_types{weight_type{"f32", 4}, weight_type{"bf16", 2}, weight_type{"fp8", 1},
                                  weight_type{"int8", 1}, weight_type{"int4", 0.5}};
constexpr std::array kv_types{kv_type::f32, kv_type::bf16, kv_type::int8, kv_type::fp8};

model_config config_of(const std::string& model) {
  const fs::path path(model);
  std::error_code ignored;
  if (path.extension() == ".json" && fs::is_regular_file(path, ignored))
    return parse_model_config(json::document::load(model));
  if (fs::is_directory(path, ignored) && fs::exists(path / "config.json", ignored))
    return read_config(path).model;
  return open_model(model).config;
}

/// What one model takes.
struct sizes {
  model_config config;
  int context = 0;
  std::size_t parameters = 0, state = 0;

  std::size_t weights(const weight_type& type) const {
    return static_cast<std::size_t>(static_cast<double>(parameters) * type.bytes);
  }
  std::size_t kv(kv_type type) const { return kv_bytes_per_token(config, type); }
};

/// The types of weights that the options name.
std::vector<weight_type> weights_of(const compute_options& options) {
  const auto& name = options.quantize != "none" ? options.quantize : options.dtype;
  std::vector<weight_type> result;
  for (const auto& type : weight_types)
    if (name == "auto" || name == type.name)
      result.push_back(type);
  return result;
}

std::vector<kv_type> kv_of(const compute_options& options) {
  std::vector<kv_type> result;
  for (const auto type : kv_types)
    if (options.kv_dtype == "auto" || options.kv_dtype == to_string(type))
      result.push_back(type);
  return result;
}

/// Quarters of the longest context, down to 1,024 tokens.
std::vector<int> contexts_of(int longest) {
  std::vector<int> result{longest};
  while (result.front() / 4 >= 1024 && result.size() < 5)
    result.insert(result.begin(), result.front() / 4);
  return result;
}

constexpr std::array batches{1, 4, 16, 64};

std::string padded(std::string text, std::size_t width) {
  return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::string percent(std::size_t part, std::size_t whole) {
  return to_fixed(100. * static_cast<double>(part) / static_cast<double>(whole), 0) + " %";
}

std::string billions(std::size_t parameters) {
  const auto number = static_cast<double>(parameters);
  return parameters >= 1'000'000'000 ? to_fixed(number / 1e9, 2) + " B" : to_fixed(number / 1e6, 1) + " M";
}

std::string text_of(const sizes& s, const compute_options& options, std::size_t memory) {
  auto text = s.config.family + ", " + billions(s.parameters) + " parameters, context of " + std::to_string(s.context) +
    " tokens\n\nweights, parameters x bytes\n";
  for (const auto& type : weights_of(options)) {
    const auto bytes = s.weights(type);
    text += padded(type.name, 8) + padded(to_size(bytes), 12) +
      (memory > 0 ? ", " + percent(bytes, memory) + " of " + to_size(memory) : "") + "\n";
  }
  text += "\nK and V of a token\n";
  for (const auto type : kv_of(options))
    text += padded(to_string(type), 8) + padded(to_size(s.kv(type)), 12) + "\n";
  if (s.state > 0)
    text += "and of a sequence, in recurrent layers, " + to_size(s.state) + "\n";
  for (const auto type : kv_of(options)) {
    text += std::string("\nK and V in ") + to_string(type) +
      ", by sequences (down) and their tokens (across)\n        ";
    const auto contexts = contexts_of(s.context);
    for (const auto tokens : contexts)
      text += padded(std::to_string(tokens), 12);
    for (const auto batch : batches) {
      text += "\n" + padded(std::to_string(batch), 8);
      for (const auto tokens : contexts)
        text += padded(
          to_size(static_cast<std::size_t>(batch) * (s.kv(type) * static_cast<std::size_t>(tokens) + s.state)), 12);
    }
    text += "\n";
  }
  if (memory > 0) {
    text += "\nleft for K and V of " + to_size(memory) + ", and tokens that fit\n";
    for (const auto& type : weights_of(options)) {
      const auto weights = s.weights(type);
      const auto left = memory > weights ? memory - weights : 0;
      text += padded(type.name, 8) + padded(to_size(left), 12) + ", " + percent(left, memory);
      for (const auto kv : kv_of(options))
        if (s.kv(kv) > 0)
          text += std::string(", ") + to_string(kv) + " " + std::to_string(left / s.kv(kv));
      text += "\n";
    }
  }
  return text;
}

std::string json_of(const sizes& s, const compute_options& options, std::size_t memory) {
  json_object weights, kv;
  for (const auto& type : weights_of(options))
    weights.number(type.name, s.weights(type));
  for (const auto type : kv_of(options))
    kv.number(to_string(type), s.kv(type));
  auto all = json_object()
               .text("family", to_utf8(s.config.family))
               .number("parameters", s.parameters)
               .number("context", s.context)
               .object("weight_bytes", weights)
               .object("kv_bytes_per_token", kv)
               .number("state_bytes_per_sequence", s.state);
  if (memory > 0)
    all.number("memory_bytes", memory);
  return all.str() + "\n";
}

} // namespace

std::string size_table(const std::string& model, const compute_options& options, int max_context, std::size_t memory,
                       bool json) {
  sizes s{.config = config_of(model)};
  s.context = max_context > 0 ? std::min(max_context, s.config.max_context) : s.config.max_context;
  s.parameters = count_parameters(s.config);
  s.state = state_bytes_per_sequence(s.config);
  return json ? json_of(s, options, memory) : text_of(s, options, memory);
}

} // namespace troupe::cli
