// Step 3.5 and 3.7 (their text): a gate for each head, more heads of queries and a rotation of their own in layers with a
// window, norms of 1 + w, experts by a sigmoid with a correction beside a shared one, and cut SwiGLU in some layers.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/model/families/mixture_reading.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace troupe::families {

using namespace config_limits;

namespace {

/// What a list says of the model's layers. It may go on with layers of multi-token prediction. Empty if the key is
/// absent, or no list.
std::vector<reader> listed_layers(const reader& config, const model_config& model, const char* key) {
  const auto given = config.child(key);
  if (!given || !given->get().is_array())
    return {};
  auto items = given->items();
  const int more = config.integer("num_nextn_predict_layers", 0, max_layers, 0);
  if (items.size() != as_size(model.layers) && items.size() != as_size(model.layers + more))
    throw failure(errc::bad_file,
                  config.label(key) + " must say something for each of " + std::to_string(model.layers) +
                    " layers, found " + std::to_string(items.size()));
  items.resize(as_size(model.layers), *given);
  return items;
}

/// Which layers are the second of two kinds.
std::vector<bool> listed_kinds(const reader& config, const model_config& model, const char* key, std::string_view first,
                               std::string_view second) {
  std::vector<bool> kinds;
  for (const auto& item : listed_layers(config, model, key)) {
    if (item.string() != first && item.string() != second)
      throw failure(errc::unsupported,
                    config.label(key) + " holds `" + std::string(item.string()) + "`, supported are " +
                      std::string(first) + " and " + std::string(second));
    kinds.push_back(item.string() == second);
  }
  return kinds;
}

void read_windows(const reader& config, model_config& model) {
  const int window = read_window(config, 0);
  const auto slides = listed_kinds(config, model, "layer_types", "full_attention", "sliding_attention");
  for (std::size_t i = 0; i < slides.size(); ++i)
    model.windows[i] = slides[i] ? window : 0;
  int heads = model.heads;
  if (const auto others = config.object("attention_other_setting"))
    heads = others->integer("num_attention_heads", 1, max_heads, heads);
  heads = config.integer("num_sliding_attention_heads", 1, max_heads, heads);
  if (heads % model.kv_heads != 0)
    throw failure(errc::bad_file,
                  config.label("num_sliding_attention_heads") + " must be a multiple of the " +
                    std::to_string(model.kv_heads) + " heads of K and V, found " + std::to_string(heads));
  model.local_heads = heads != model.heads ? heads : 0;
}

/// Where one number is given for each layer: that of layers with a window, or of the others, which must be alike.
std::optional<double> number_of_kind(const reader& config, const model_config& model, const char* key, bool slides) {
  const auto listed = listed_layers(config, model, key);
  std::optional<double> found;
  for (std::size_t i = 0; i < listed.size(); ++i) {
    const double value = listed[i].number(0, 1e30);
    if (model.slides(static_cast<int>(i)) != slides)
      continue;
    if (found && *found != value)
      throw failure(errc::unsupported, config.label(key) + " must be the same for all layers of a kind");
    found = value;
  }
  return found;
}

/// Reads rotations by kind of layer, or from the authors' lists.
void read_rotations(const reader& config, model_config& model) {
  const int positions = config.integer("max_position_embeddings", 1, max_positions, 128000);
  const auto parameters = config.object("rope_parameters");
  const auto of = [&](bool slides) {
    const auto given = parameters ? parameters->object(slides ? "sliding_attention" : "full_attention") : std::nullopt;
    position_rules rules{.partial = true};
    if (!given) {
      const auto theta = config.child("rope_theta");
      rules.theta_by_layer = theta && theta->get().is_array();
      if (rules.theta_by_layer)
        rules.theta = number_of_kind(config, model, "rope_theta", slides).value_or(10000);
      rules.default_partial = number_of_kind(config, model, "partial_rotary_factors", slides).value_or(1);
    }
    // Scaling is that of layers without a window.
    return read_rope(config, given || slides ? given : config.object("rope_scaling"), model.head_dim, positions, rules);
  };
  model.rope = of(false);
  set_context(model, positions);
  if (const auto local = of(true); local != model.rope)
    model.local_rope = local;
}

std::vector<float> read_limits(const reader& config, const model_config& model, const char* key) {
  std::vector<float> limits;
  for (const auto& item : listed_layers(config, model, key))
    limits.push_back(item.get().is_null() ? 0.0f : static_cast<float>(item.number(0, 1e9)));
  if (std::ranges::all_of(limits, [](float limit) { return limit == 0; }))
    limits.clear();
  return limits;
}

/// The layers with experts: `mlp_layer_types`, else those that `moe_layers_enum` lists, else all but three.
void read_mixture_layers(const reader& config, model_config& model) {
  auto sparse = listed_kinds(config, model, "mlp_layer_types", "dense", "sparse");
  if (sparse.empty()) {
    sparse.assign(as_size(model.layers), false);
    if (const auto named = config.string("moe_layers_enum")) {
      for (const char *at = named->data(), *end = at + named->size(); at < end; ++at) {
        std::size_t layer = 0;
        const auto [next, error] = std::from_chars(at, end, layer);
        if (error != std::errc() || (next != end && *next != ','))
          throw failure(errc::bad_file, config.label("moe_layers_enum") + " must be numbers of layers, with commas");
        if (layer < sparse.size())
          sparse[layer] = true;
        at = next;
      }
    } else {
      for (std::size_t i = 3; i < sparse.size(); ++i)
        sparse[i] = true;
    }
  }
  model.sparse = sparse;
}

} // namespace

void read_step3p5(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu", true);
  read_sizes(config, model,
             {.kv_heads = config.has("num_attention_groups") ? "num_attention_groups" : "num_key_value_heads",
              .default_kv_heads = 8,
              .default_head_dim = 128,
              .default_norm_eps = 1e-5});
  require(config, "attention_bias", false);
  require(config, "mlp_bias", false);
  model.qk_norm = model.attention_gate = true;
  read_windows(config, model);
  read_rotations(config, model);
  if (const auto scalar = config.number("query_pre_attn_scalar", 1e-6, 1e9))
    model.attention_scale = static_cast<float>(1 / std::sqrt(*scalar));
  auto& experts = model.experts;
  read_expert_counts(config, model, {"n_routed_experts", "moe_num_experts", "num_local_experts"}, 288, 8);
  if (config.has("moe_top_k"))
    experts.chosen = config.integer("moe_top_k", 1, experts.count, experts.chosen);
  experts.ffn = config.integer("moe_intermediate_size", 1, max_ffn, 1280);
  experts.shared_ffn = config.integer(config.has("share_expert_dims") ? "share_expert_dims" : "share_expert_dim", 1,
                                      max_ffn, 1280);
  experts.scale = static_cast<float>(config.number("moe_router_scaling_factor", 0, 1e6).value_or(1));
  experts.scores = router_scores::sigmoid;
  experts.correction = experts.renormalise = true;
  read_mixture_layers(config, model);
  model.mlp_limits = read_limits(config, model, "swiglu_limits_shared");
  model.expert_limits = read_limits(config, model, "swiglu_limits");
}

void arrange_step3p5(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  tensors.shift_norms(1);
  const auto count = as_size(model.experts.count);
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.repeat_gates(layer, "self_attn.g_proj");
    if (!model.is_sparse(layer))
      continue;
    tensors.rename(layer, "mlp.gate", "moe.gate");
    tensors.take(layer, "mlp.gate.e_score_correction_bias", "moe.router_bias");
    tensors.rename_shared_experts(layer, "share_expert");
    for (std::size_t e = 0; e < count; ++e)
      for (const std::string part : {"gate_proj", "up_proj", "down_proj"})
        tensors.add(layer, "mlp.experts." + std::to_string(e) + "." + part + ".weight",
                    {.name = tensors.stored(layer, "moe." + part + ".weight"), .slices = count, .slice = e});
  }
}

const family step3p5_family{"step3p5", read_step3p5, arrange_step3p5};

} // namespace troupe::families
