// MiMo V2 Flash: values narrower than keys, and scaled; layers with a window have more heads of K and V, sinks and a
// rotation of their own; experts by a sigmoid with a correction.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/model/families/mixture_reading.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/support/types.hpp"

namespace troupe::families {

using namespace config_limits;

namespace {

/// The authors' key that has a 1 for each layer of a kind, if it is there and a list.
bool read_ones(const reader& config, const char* key, std::vector<bool>& to) {
  const auto given = config.child(key);
  if (!given || !given->get().is_array())
    return false;
  const auto listed = given->items();
  if (listed.size() != to.size())
    throw failure(errc::bad_file,
                  config.label(key) + " must hold " + std::to_string(to.size()) + " numbers, found " +
                    std::to_string(listed.size()));
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] = listed[i].integer(0, 1) == 1;
  return true;
}

void read_windows(const reader& config, model_config& model) {
  int window = read_window(config, 129);
  if (config.has("sliding_window_size")) // without the token itself
    window = config.integer("sliding_window_size", 1, max_positions - 1, 0) + 1;
  std::vector<bool> slides(as_size(model.layers));
  if (const auto types = read_layer_types(config, model.layers))
    slides = *types;
  else if (!read_ones(config, "hybrid_layer_pattern", slides))
    for (int i = 0; i < model.layers; ++i)
      slides[as_size(i)] = i != 0 && (i + 1) % 6 != 0;
  for (int i = 0; i < model.layers; ++i)
    model.windows[as_size(i)] = slides[as_size(i)] ? window : 0;
}

void read_heads(const reader& config, model_config& model) {
  const int local = config.integer("swa_num_key_value_heads", 1, max_heads, 2 * model.kv_heads);
  if (model.heads % local != 0 || local < model.kv_heads)
    throw failure(errc::unsupported,
                  config.label("num_key_value_heads") + ": layers with a window that have " + std::to_string(local) +
                    " heads of K and V are not supported beside others with " + std::to_string(model.kv_heads) +
                    ", for " + std::to_string(model.heads) + " heads of queries");
  if (local != model.kv_heads)
    model.full_kv_heads = model.kv_heads;
  model.kv_heads = local;
  const auto same = [&](const char* key, int expected) {
    if (config.integer(key, 1, max_head_dim, expected) != expected)
      throw failure(errc::unsupported,
                    config.label(key) + " other than that of the other layers, " + std::to_string(expected) +
                      ", is not supported");
  };
  const int value = config.integer("v_head_dim", 1, max_head_dim, 128);
  if (value > model.head_dim)
    throw failure(errc::unsupported,
                  config.label("v_head_dim") + " is " + std::to_string(value) + ", supported is up to `head_dim`, " +
                    std::to_string(model.head_dim));
  model.value_dim = value < model.head_dim ? value : 0;
  same("swa_num_attention_heads", model.heads);
  same("swa_head_dim", model.head_dim);
  same("swa_v_head_dim", value);
}

} // namespace

void read_mimo_v2_flash(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model,
             {.default_kv_heads = 4,
              .default_head_dim = 192,
              .norm_eps = config.has("rms_norm_eps") ? "rms_norm_eps" : "layernorm_epsilon",
              .default_norm_eps = 1e-5});
  model.qkv_bias = config.boolean("attention_bias", false);
  read_windows(config, model);
  read_heads(config, model);
  model.window_sinks = config.boolean("add_swa_attention_sink_bias", true);
  model.attention_sinks = model.window_sinks && config.boolean("add_full_attention_sink_bias", false);
  const bool unscaled = config.contains("attention_value_scale") && !config.has("attention_value_scale");
  model.recurrent.attention_scale = static_cast<float>(
    unscaled ? 1 : config.number("attention_value_scale", 1e-6, 1e6).value_or(0.707));
  read_layer_positions(config, model,
                       {.default_context = 131072, .theta = 5000000, .partial = true, .default_partial = 0.334},
                       config.number("swa_rope_theta", 1.000001, 1e30).value_or(10000));
  read_expert_counts(config, model, {"n_routed_experts", "num_local_experts"}, 256, 8);
  model.experts.ffn = config.integer("moe_intermediate_size", 1, max_ffn, 2048);
  require_number(config, "n_shared_experts", 0);
  model.experts.scale = static_cast<float>(config.number("routed_scaling_factor", 0, 1e6).value_or(1));
  model.sparse.assign(as_size(model.layers), true);
  if (const auto types = read_mlp_types(config, model.layers))
    model.sparse = *types;
  else if (!read_ones(config, "moe_layer_freq", model.sparse))
    model.sparse.front() = false;
  read_groups(config, model, 1, 1);
  read_corrected_router(config, model, true);
}

void arrange_mimo_v2_flash(const model_config& model, const checkpoint& stored, arrangement& to) {
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer)
    if (const auto name = tensors.stored(layer, "self_attn.attention_sink_bias");
        model.has_sinks(layer) && stored.find(name))
      tensors.add(layer, "self_attn.sinks", {.name = name});
}

const family mimo_v2_flash_family{"mimo_v2_flash", read_mimo_v2_flash, arrange_mimo_v2_flash};

} // namespace troupe::families
