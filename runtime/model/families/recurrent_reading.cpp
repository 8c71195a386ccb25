#include "runtime/model/families/recurrent_reading.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/model/recurrent_layers.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <array>

namespace troupe::families {

using namespace config_limits;

namespace {

std::string word_now(std::string_view word) {
  constexpr std::array older{std::pair("mamba", "linear_attention"), std::pair("mamba2", "linear_attention"),
                             std::pair("attention", "full_attention")};
  for (const auto& [was, is] : older)
    if (word == was)
      return is;
  return std::string(word);
}

} // namespace

std::optional<std::vector<std::string>> read_layer_words(const reader& config, const char* key) {
  if (!config.has(key))
    return std::nullopt;
  std::vector<std::string> words;
  for (const auto& item : config.at(key).items())
    words.push_back(word_now(item.string()));
  return words;
}

void set_layer_parts(const reader& config, model_config& model, const char* key, const std::vector<std::string>& words,
                     bool alone) {
  if (words.size() != as_size(model.layers))
    throw failure(errc::bad_file,
                  config.label(key) + " must hold " + std::to_string(model.layers) + " strings, found " +
                    std::to_string(words.size()));
  model.parts.clear();
  for (const auto& word : words) {
    layer_parts parts{.attention = word == "full_attention",
                      .recurrence = word == "linear_attention" || word == "conv",
                      .mlp = !alone || word == "mlp" || word == "moe"};
    if (!parts.mixes() && !(alone && parts.mlp))
      throw failure(errc::unsupported,
                    config.label(key) + " holds `" + word + "`, supported are full_attention and " +
                      (model.recurrent.type == recurrent_type::short_convolution ? "conv" : "linear_attention") +
                      (alone ? ", mlp and moe" : ""));
    model.parts.push_back(parts);
  }
}

void read_mixers_alone(const reader& config, model_config& model, bool tied) {
  constexpr int usual_context = 1 << 17;
  read_activation(config, model, "hidden_act", "silu", true);
  model.vocab = config.size("vocab_size", max_vocab);
  model.hidden = config.size("hidden_size", max_hidden);
  model.layers = config.size("num_hidden_layers", max_layers);
  model.heads = model.kv_heads = 1;
  model.head_dim = 2;
  model.tied = config.boolean("tie_word_embeddings", tied);
  model.norm_eps = static_cast<float>(config.number("layer_norm_epsilon", 0, 1).value_or(1e-5));
  model.windows.assign(as_size(model.layers), 0);
  model.max_context = usual_context;
  model.parts.assign(as_size(model.layers), {.attention = false, .recurrence = true, .mlp = false});
}

void rename_backbone(const model_config& model, tensor_arranger& tensors, arrangement& to) {
  to.names["backbone.embeddings.weight"] = "model.embed_tokens.weight";
  to.names["backbone.embedding.weight"] = "model.embed_tokens.weight";
  to.names["backbone.norm_f.weight"] = "model.norm.weight";
  for (int layer = 0; layer < model.layers; ++layer)
    tensors.rename(layer, model.parts_of(layer).mixes() ? "input_layernorm" : "post_attention_layernorm", "norm");
}

void divide_values(recurrent_config& recurrent, int inner) {
  constexpr int most = 128, lanes = 16; // rows of a state are multiples of 16 floats
  int best = 1;
  for (int dim = 2; dim <= std::min(inner, most); ++dim)
    if (inner % dim == 0 && (dim % lanes == 0 || best % lanes != 0))
      best = dim;
  recurrent.value_dim = best;
  recurrent.heads = inner / best;
}

void read_time_steps(const reader& config, model_config& model) {
  if (!config.has("time_step_limit"))
    return;
  const auto limits = config.at("time_step_limit").items();
  if (limits.size() != 2)
    throw failure(errc::bad_file, config.label("time_step_limit") + " must hold 2 numbers");
  model.recurrent.least_dt = static_cast<float>(limits[0].number(0, 1e9));
  if (limits[1].get().is_number()) // else infinity, as there are several spellings of
    model.recurrent.most_dt = static_cast<float>(limits[1].number(0, 1e30));
}

void bound_recurrence(const std::string& file, const model_config& model) {
  const auto& r = model.recurrent;
  const std::int64_t inner = std::int64_t{r.heads} * r.value_dim, keys = std::int64_t{r.key_heads} * r.key_dim;
  if (r.heads > max_heads || r.key_dim > max_state_dim || r.value_dim > max_state_dim || inner > max_ffn ||
      keys > max_ffn || inner * r.key_dim > max_state || r.taps > max_taps)
    throw failure(errc::unsupported,
                  file + ": states of " + std::to_string(r.heads) + " heads of " + std::to_string(r.key_dim) + " x " +
                    std::to_string(r.value_dim) + " with convolutions of " + std::to_string(r.taps) +
                    " taps are not supported");
  if (r.key_heads > 0 && r.heads % r.key_heads != 0)
    throw failure(errc::bad_file,
                  file + ": " + std::to_string(r.heads) + " heads of a recurrent layer cannot share " +
                    std::to_string(r.key_heads) + " heads of keys equally");
}

void read_mamba(const reader& config, model_config& model, const mamba_keys& keys) {
  auto& r = model.recurrent;
  r.type = recurrent_type::ssd;
  require(config, keys.bias, false);
  const int inner = keys.inner ? *keys.inner
                               : static_cast<int>(std::min<std::int64_t>(
                                   std::int64_t{config.integer(keys.expand, 1, 64, 2)} * model.hidden, 1 << 30));
  r.heads = config.integer(keys.heads, 1, max_heads, keys.default_heads);
  const bool automatic = !config.has(keys.head_dim) || config.find(keys.head_dim)->is_string();
  r.value_dim = automatic ? inner / r.heads : config.integer(keys.head_dim, 1, max_state_dim, 64);
  r.key_heads = config.integer(keys.groups, 1, max_heads, keys.default_groups);
  r.key_dim = config.integer(keys.state, 1, max_state_dim, keys.default_state);
  r.taps = config.integer(keys.taps, 1, max_taps, 4);
  r.conv_bias = config.boolean(keys.conv_bias, true);
  bound_recurrence(config.source(), model);
  if (r.inner() != inner)
    throw failure(errc::bad_file,
                  config.label(keys.heads) + " are " + std::to_string(r.heads) + " heads of " +
                    std::to_string(r.value_dim) + ", which are not the " + std::to_string(inner) +
                    " values that a layer has");
  r.norm = kernels::gate_norm::after;
  r.norm_group = inner / r.key_heads;
  read_time_steps(config, model);
}

void arrange_recurrence(const model_config& model, tensor_arranger& tensors, int layer, const std::string& stem) {
  const auto part = [&](const std::string& name, const std::string& from) {
    tensors.take(layer, "recurrent." + name, stem + from);
  };
  part("conv.weight", "conv1d.weight");
  if (model.recurrent.conv_bias)
    part("conv.bias", "conv1d.bias");
  part("decay", "A_log");
  part("dt_bias", "dt_bias");
  part("norm.weight", "norm.weight");
  part("out_proj.weight", "out_proj.weight");
}

void arrange_mamba(const model_config& model, tensor_arranger& tensors, int layer, const std::string& stem) {
  arrange_recurrence(model, tensors, layer, stem);
  const auto& r = model.recurrent;
  const auto inner = as_size(r.inner()), channels = as_size(recurrent_channels(model)), heads = as_size(r.heads);
  const auto rows = [&](const char* name, std::size_t first, std::size_t count) {
    tensors.take(layer, std::string("recurrent.") + name, stem + "in_proj.weight", tensors.rows(first, count),
                 inner + channels + heads);
  };
  rows("gate_proj.weight", 0, inner);
  rows("conv_proj.weight", inner, channels);
  rows("rate_proj.weight", inner + channels, heads);
  tensors.take(layer, "recurrent.skip", stem + "D");
}

} // namespace troupe::families
