// The text part of Gemma 3n: several streams of which layers compute one and correct the others (AltUp), a low-rank
// product beside attention (LAuReL), gates of which only the largest pass, an input for each token and layer, and last
// layers that read K and V of earlier ones.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/gguf_reading.hpp"
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
  model.attention_scale = 1;
  model.value_norm = true;
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

namespace {

/// What keys do not say is as in the models that Google published.
void describe_gemma3n(const architecture_keys& keys, model_config& model) {
  constexpr float usual_cutoff = 1.6448534f; // above which are 5 % of normally distributed gates
  constexpr std::size_t usual_cut = 10;      // layers
  model.attention_scale = 1;
  model.value_norm = true;
  slide(keys, model, model.windows.front(), 5, true);
  rotate_by_kind(keys, model);
  model.logit_cap = static_cast<float>(keys.number("final_logit_softcapping", 1e-3, 1e9).value_or(30));
  model.layer_inputs = keys.integer("embedding_length_per_layer_input", 1, max_hidden).value_or(256);
  if (std::int64_t{model.layer_inputs} * model.layers > max_ffn)
    throw failure(errc::unsupported,
                  keys.label("embedding_length_per_layer_input") + " is " + std::to_string(model.layer_inputs) +
                    " for each of " + std::to_string(model.layers) + " layers, supported are " +
                    std::to_string(max_ffn) + " in all");
  const auto rows = rows_of(keys, "per_layer_token_embd.weight");
  if (rows < as_size(model.vocab))
    model.layer_input_rows = static_cast<int>(rows);
  share_keys(keys, model, std::max(0, model.layers - 20));
  read_widths(keys, model);
  constexpr std::string_view cutoffs = "activation_sparsity_scale";
  const auto* listed = keys.file().metadata().find(keys.full(cutoffs));
  if (listed && listed->type == gguf_type::array) {
    model.gate_cutoffs = *keys.file().metadata().floats(keys.full(cutoffs));
    if (model.gate_cutoffs.size() != as_size(model.layers) ||
        std::ranges::any_of(model.gate_cutoffs, [](float c) { return std::isnan(c) || c > 100; }))
      throw failure(errc::bad_file,
                    keys.label(cutoffs) + " must hold a number for each of " + std::to_string(model.layers) +
                      " layers");
  } else if (model.layers > static_cast<int>(usual_cut)) {
    model.gate_cutoffs.assign(as_size(model.layers), -std::numeric_limits<float>::infinity());
    std::fill_n(model.gate_cutoffs.begin(), usual_cut, usual_cutoff);
  }
  if (std::ranges::none_of(model.gate_cutoffs, [](float c) { return std::isfinite(c); }))
    model.gate_cutoffs.clear();
  auto& altup = model.altup;
  altup.streams = keys.integer("altup.num_inputs", 2, 16).value_or(4);
  altup.active = keys.integer("altup.active_idx", 0, altup.streams - 1).value_or(0);
  altup.laurel = static_cast<int>(std::min<std::size_t>(rows_of(keys, "blk.0.laurel_l.weight"), 1 << 14));
}

} // namespace

const family gemma3n_text_family{"gemma3n_text",
                                 read_gemma3n,
                                 nullptr,
                                 {{"gemma3n", scaled_embedding | gelu_tanh, describe_gemma3n}},
                                 norms_both | normed_heads};

} // namespace troupe::families
