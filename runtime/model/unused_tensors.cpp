#include "runtime/model/unused_tensors.hpp"

#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>

namespace troupe {

namespace {

/// Suffixes of tensors that are not needed: rotary frequencies and masks follow from the configuration; scales of
/// activations and of K and V are for 8-bit products and caches.
constexpr std::array<std::string_view, 17> needless{".rotary_emb.inv_freq",
                                                    ".attn_rot_embd.weight",
                                                    ".masked_bias",
                                                    ".attn.bias",
                                                    ".attention.bias",
                                                    ".input_scale",
                                                    ".output_scale",
                                                    ".q_scale",
                                                    ".k_scale",
                                                    ".v_scale",
                                                    ".kv_scale",
                                                    ".prob_scale",
                                                    ".act_fn.beta",       // read where it is there (weights.cpp)
                                                    ".grams.multipliers", // compared (gram_layers)
                                                    ".grams.rows",
                                                    ".grams.first_rows",
                                                    ".act_fn.eps"};

/// Prefixes of tensors outside the layers that text depends on, in Hugging Face's checkpoints and in GGUF files.
constexpr std::array<std::string_view, 9> around_layers{"model.embed", "model.position", "model.norm",
                                                        "lm_head",     "token_",         "position_embd",
                                                        "output",      "rope_",          "language_model."};

constexpr std::array<std::string_view, 2> layer_prefixes{"model.layers.", "blk."};

/// "model.layers.7.mlp..." → 7
std::optional<int> layer_of(std::string_view name) {
  for (const auto prefix : layer_prefixes)
    if (name.starts_with(prefix)) {
      int layer = 0;
      const auto* begin = name.data() + prefix.size();
      const auto [end, error] = std::from_chars(begin, name.data() + name.size(), layer);
      return error == std::errc() && end != begin ? std::optional(layer) : std::nullopt;
    }
  return std::nullopt;
}

/// K and V of layers that read those of earlier ones, which some checkpoints have nevertheless.
bool is_of_unread_keys(std::string_view name, const model_config& config) {
  constexpr std::array<std::string_view, 4> parts{"k_proj.weight", "v_proj.weight", "k_norm.weight", "v_norm.weight"};
  const auto layer = layer_of(name);
  return layer && *layer >= 0 && *layer < config.layers && config.kv_layer_of(*layer) != *layer &&
    std::ranges::any_of(parts,
                        [&](std::string_view part) { return name.ends_with(std::string(".self_attn.") += part); });
}

bool is_needless(const std::string& name, const model_config& config) {
  return is_of_unread_keys(name, config) || (config.tied && name == "lm_head.weight") ||
    std::ranges::any_of(needless, [&](std::string_view end) { return name.ends_with(end); });
}

bool is_bias_of_zeros(const checkpoint& tensors, const std::string& name) {
  const auto& info = *tensors.find(name);
  const auto format = weight_format_of(info.type);
  if (!name.ends_with(".bias") || info.shape.size() != 1 || !format || has_blocks(info.type))
    return false;
  std::vector<float> values(info.shape[0]);
  to_floats(*format, tensors.read(name).get(), values.size(), values.data());
  return std::ranges::all_of(values, [](float v) { return v == 0; });
}

/// Unused tensors of one kind.
struct left_out {
  std::size_t count = 0;
  std::string first;

  void add(const std::string& name) {
    if (count++ == 0)
      first = name;
  }
};

} // namespace

std::vector<std::string> check_unused_tensors(const checkpoint& tensors, const model_config& config,
                                              const std::set<std::string>& used) {
  left_out beyond, others;
  for (const auto& name : tensors.tensors()) {
    if (used.contains(name) || is_needless(name, config))
      continue;
    const auto layer = layer_of(name);
    const bool around = std::ranges::any_of(around_layers, [&](auto prefix) { return name.starts_with(prefix); });
    if (layer && *layer >= config.layers)
      beyond.add(name);
    else if (!layer && !around)
      others.add(name);
    else if (!is_bias_of_zeros(tensors, name))
      throw failure(errc::unsupported,
                    tensors.where(name) + ": tensor " + shown(name) + " is not one that a " + config.family +
                      " model uses here, and without it answers would be "
                      "wrong");
  }
  const auto sentence = [&](const left_out& what, const std::string& which) {
    const auto first = shown(what.first);
    const auto what_is = what.count == 1
      ? "tensor " + first + which + " is"
      : std::to_string(what.count) + " tensors" + which + ", the first " + first + ", are";
    return tensors.name() + ": " + what_is + " not used";
  };
  std::vector<std::string> lines;
  if (beyond.count > 0)
    lines.push_back(
      sentence(beyond, " of layers beyond the " + std::to_string(config.layers) + " of the configuration"));
  if (!config.multimodal.empty())
    lines.push_back(tensors.name() + ": of this " + config.multimodal + " model only the text is used" +
                    (others.count == 0
                       ? ""
                       : "; " + std::to_string(others.count) + (others.count == 1 ? " tensor" : " tensors") +
                         " of other parts, the first " + shown(others.first) + ", are left out"));
  else if (others.count > 0)
    lines.push_back(sentence(others, ""));
  return lines;
}

} // namespace troupe
