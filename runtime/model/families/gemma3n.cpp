// The text part of Gemma 3n: several streams of which layers compute one and correct the others (AltUp), a low-rank
// product beside attention (LAuReL), gates of which only the largest pass, an input for each token and layer, and last
// layers that read K and V of earlier ones.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace troupe::families {

using namespace config_limits;

namespace {

constexpr int max_streams = 16, max_laurel = 1 << 14;

/// How many deviations above the mean a share of `below` of normally distributed numbers ends: Newton's method.
double deviations_above(double below) {
  double x = 0;
  for (int i = 0; i < 100; ++i) {
    const double error = std::erfc(-x / std::numbers::sqrt2) / 2 - below;
    const double step = error * std::sqrt(2 * std::numbers::pi) * std::exp(x * x / 2);
    x -= std::clamp(step, -1.0, 1.0);
    if (std::abs(step) < 1e-12)
      break;
  }
  return x;
}

/// One number for all layers, or a list with one for each.
template <class Number>
std::vector<double> of_layers(const reader& config, const char* key, int layers, const Number& read,
                              std::vector<double> fallback) {
  const auto found = config.find(key);
  if (!found)
    return fallback;
  if (!found->is_array())
    return std::vector<double>(as_size(layers), read(config.at(key)));
  std::vector<double> values;
  for (const auto& item : config.at(key).items())
    values.push_back(read(item));
  if (values.size() != as_size(layers))
    throw failure(errc::bad_file,
                  config.label(key) + " must hold a number for each of " + std::to_string(layers) + " layers, found " +
                    std::to_string(values.size()));
  return values;
}

void read_mlps(const reader& config, model_config& model) {
  const auto widths = of_layers(
    config, "intermediate_size", model.layers, [](const reader& at) { return at.number(1, max_ffn); },
    std::vector<double>(as_size(model.layers), 16384));
  for (const double width : widths)
    model.ffns.push_back(static_cast<int>(width));
  model.ffn = std::ranges::max(model.ffns);
  if (std::ranges::min(model.ffns) == model.ffn)
    model.ffns.clear();
  std::vector<double> usual(as_size(model.layers), 0);
  if (model.layers > 10)
    std::fill_n(usual.begin(), 10, 0.95);
  const auto shares = of_layers(
    config, "activation_sparsity_pattern", model.layers, [](const reader& at) { return at.number(0, 0.999999); },
    usual);
  for (const double share : shares)
    model.gate_cutoffs.push_back(share == 0 ? -std::numeric_limits<float>::infinity()
                                            : static_cast<float>(deviations_above(share)));
  if (std::ranges::all_of(shares, [](double share) { return share == 0; }))
    model.gate_cutoffs.clear();
}

} // namespace

void read_gemma3n(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_activation", "gelu_pytorch_tanh");
  read_sizes(config, model, {.ffn = nullptr, .default_kv_heads = 2, .default_head_dim = 256, .tied = true});
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
  model.embedding_scale = std::sqrt(static_cast<float>(model.hidden));
  model.norms = norm_place::both;
  model.attention_scale = 1;
  model.qk_norm = model.value_norm = true;
  read_alternating_windows(config, model, 512, 5);
  read_layer_positions(config, model, {.default_context = 32768, .theta = 1000000},
                       config.number("rope_local_base_freq", 1.000001, 1e30).value_or(10000));
  read_kv_sharing(config, model, 15);
  read_mlps(config, model);
  if (!model.gate_cutoffs.empty() && model.act.type != kernels::activation_type::gelu_tanh)
    throw failure(errc::unsupported,
                  config.label("hidden_activation") + " must be gelu_pytorch_tanh where few gates count");
  model.logit_cap = 30;
  if (config.contains("final_logit_softcapping")) // null: none
    model.logit_cap = static_cast<float>(config.number("final_logit_softcapping", 1e-3, 1e9).value_or(0));
  model.layer_inputs = config.integer("hidden_size_per_layer_input", 1, max_hidden, 256);
  const int rows = config.integer("vocab_size_per_layer_input", 1, max_vocab, 262144);
  model.layer_input_rows = rows == model.vocab ? 0 : rows;
  if (std::int64_t{model.layer_inputs} * model.layers > max_ffn)
    throw failure(errc::unsupported,
                  config.label("hidden_size_per_layer_input") + " is " + std::to_string(model.layer_inputs) +
                    " for each of " + std::to_string(model.layers) + " layers, supported are " +
                    std::to_string(max_ffn) + " in all");
  auto& altup = model.altup;
  altup.streams = config.integer("altup_num_inputs", 2, max_streams, 4);
  altup.active = config.integer("altup_active_idx", 0, altup.streams - 1, 0);
  altup.laurel = config.integer("laurel_rank", 1, max_laurel, 64);
  altup.scaled = config.boolean("altup_correct_scale", true);
}

} // namespace troupe::families
