// The text part of Gemma 4: layers with a window and full ones have heads of different shapes and rotations, the last
// layers read K and V of earlier ones, and each layer gets an input for each token.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <tuple>

namespace troupe::families {

using namespace config_limits;

namespace {

int even_width(const reader& config, const std::string& key, int width) {
  if (width % 2 != 0 || width > max_latent_dim)
    throw failure(errc::unsupported,
                  config.label(key) + " is " + std::to_string(width) + ", supported are even numbers up to " +
                    std::to_string(max_latent_dim));
  return width;
}

/// What `per_layer_config`, an object of objects by the layers' numbers, says of full layers, which must be alike.
/// Published configurations say it in `global_head_dim` and `num_global_key_value_heads`.
void read_full_heads(const reader& config, model_config& model, int& dim, int& kv_heads) {
  dim = config.integer("global_head_dim", 1, max_ffn, 512);
  kv_heads = config.boolean("attention_k_eq_v", false)
    ? config.integer("num_global_key_value_heads", 1, max_heads, model.kv_heads)
    : model.kv_heads;
  const auto given = config.object("per_layer_config");
  if (!given)
    return;
  std::vector<std::pair<int, int>> found(as_size(model.layers), {model.head_dim, model.kv_heads});
  for (const auto [key, value] : given->object()) {
    int layer = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), layer);
    const auto own = given->object(key);
    if (error != std::errc() || end != key.data() + key.size() || layer < 0 || layer >= model.layers || !own)
      throw failure(errc::bad_file, given->label(key) + " must be an object of a layer's number");
    found[as_size(layer)] = {own->integer("head_dim", 1, max_ffn, model.head_dim),
                             own->integer("num_key_value_heads", 1, max_heads, model.kv_heads)};
  }
  const auto full = std::ranges::find(model.windows, 0);
  if (full == model.windows.end())
    return;
  std::tie(dim, kv_heads) = found[static_cast<std::size_t>(full - model.windows.begin())];
  for (int i = 0; i < model.layers; ++i)
    if (found[as_size(i)] != (model.slides(i) ? std::pair(model.head_dim, model.kv_heads) : std::pair(dim, kv_heads)))
      throw failure(errc::unsupported,
                    config.label("per_layer_config") +
                      " must be the same for all full layers, and leave those with a window as they are");
}

void read_heads(const reader& config, model_config& model) {
  const int local_dim = model.head_dim, local_kv = model.kv_heads;
  int dim = 0, kv_heads = 0;
  read_full_heads(config, model, dim, kv_heads);
  even_width(config, "global_head_dim", dim);
  if (dim < local_dim || model.heads % kv_heads != 0)
    throw failure(errc::unsupported,
                  config.label("global_head_dim") + ": full layers with " + std::to_string(kv_heads) +
                    " heads of K and V of " + std::to_string(dim) + " dimensions are not supported beside others of " +
                    std::to_string(local_dim) + ", for " + std::to_string(model.heads) + " heads of queries");
  model.head_dim = dim;
  model.local_head_dim = local_dim;
  model.kv_heads = std::max(local_kv, kv_heads);
  model.local_kv_heads = local_kv;
  model.full_kv_heads = kv_heads;
}

/// MLPs of layers that read K and V of earlier ones may be twice as wide.
void read_wide_mlps(const reader& config, model_config& model) {
  const bool wide = config.boolean("use_double_wide_mlp", false);
  for (int i = 0; i < model.layers && !model.kv_layers.empty(); ++i)
    model.ffns.push_back(wide && model.kv_layer_of(i) != i ? 2 * model.ffn : model.ffn);
}

/// Beside the MLP of each layer, which counts as the expert that all rows have.
void read_experts(const reader& config, model_config& model) {
  if (!model.ffns.empty() && std::ranges::any_of(model.ffns, [&](int ffn) { return ffn != model.ffn; }))
    throw failure(errc::unsupported,
                  config.label("use_double_wide_mlp") + ": MLPs of two widths are not supported beside experts");
  config.size("num_experts", max_experts);
  config.size("top_k_experts", max_experts);
  read_expert_counts(config, model, {"num_experts"}, 1, config.integer("top_k_experts", 1, max_experts, 1));
  auto& experts = model.experts;
  experts.chosen = config.integer("top_k_experts", 1, experts.count, 1);
  experts.ffn = config.size("moe_intermediate_size", max_ffn);
  experts.shared_ffn = model.ffn;
  experts.renormalise = experts.apart = true;
}

} // namespace

void read_gemma4(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_activation", "gelu_pytorch_tanh");
  read_sizes(config, model, {.default_kv_heads = 4, .default_head_dim = 256, .tied = true});
  if (config.string("use_bidirectional_attention").value_or("vision") != "vision")
    throw failure(errc::unsupported,
                  config.label("use_bidirectional_attention") + " other than vision is not supported");
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
  model.embedding_scale = std::sqrt(static_cast<float>(model.hidden));
  model.attention_scale = 1;
  model.value_norm = model.layer_scales = true;
  read_alternating_windows(config, model, 512, 6);
  model.max_context = config.integer("max_position_embeddings", 1, max_positions, 131072);
  read_heads(config, model);
  model.rope = read_proportional(config, "full_attention", 1000000, 0.25);
  model.local_rope = read_proportional(config, "sliding_attention", 10000, 1);
  read_kv_sharing(config, model, 0);
  read_wide_mlps(config, model);
  if (config.boolean("enable_moe_block", false))
    read_experts(config, model);
  if (config.has("final_logit_softcapping"))
    model.logit_cap = static_cast<float>(config.number("final_logit_softcapping", 1e-3, 1e9).value_or(0));
  model.layer_inputs = config.integer("hidden_size_per_layer_input", 0, max_hidden, 256);
  const int known = config.integer("vocab_size_per_layer_input", 1, max_vocab, 262144);
  if (model.layer_inputs > 0 && known != model.vocab)
    throw failure(errc::unsupported,
                  config.label("vocab_size_per_layer_input") + " is " + std::to_string(known) +
                    ", supported is `vocab_size`, " + std::to_string(model.vocab));
  if (std::int64_t{model.layer_inputs} * model.layers > max_ffn)
    throw failure(errc::unsupported,
                  config.label("hidden_size_per_layer_input") + " is " + std::to_string(model.layer_inputs) +
                    " for each of " + std::to_string(model.layers) + " layers, supported are " +
                    std::to_string(max_ffn) + " in all");
}

namespace {

void arrange_apart(const model_config& model, tensor_arranger& tensors, int layer) {
  const auto one = [&](const char* name, const char* from, float factor = 1) {
    tensors.add(layer, name, {.name = tensors.stored(layer, from), .factor = factor});
  };
  for (const std::string name : {"gate_proj", "up_proj", "down_proj"})
    tensors.rename(layer, "mlp.shared_expert." + name, "mlp." + name);
  tensors.split_experts(layer, "experts.gate_up_proj", "experts.down_proj");
  one("mlp.gate.weight", "router.proj.weight");
  one("mlp.gate_norm.weight", "router.scale", 1 / std::sqrt(static_cast<float>(model.hidden)));
  one("mlp.gate.expert_scale", "router.per_expert_scale");
  one("mlp.experts_norm.weight", "pre_feedforward_layernorm_2.weight");
  one("mlp.shared_expert_norm.weight", "post_feedforward_layernorm_1.weight");
  one("mlp.experts_result_norm.weight", "post_feedforward_layernorm_2.weight");
}

} // namespace

/// Where V is K, full layers have no v_proj.
void arrange_gemma4(const model_config& model, const checkpoint& stored, arrangement& to) {
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer) {
    if (model.experts.apart)
      arrange_apart(model, tensors, layer);
    const auto key = tensors.stored(layer, "self_attn.k_proj.weight");
    if (model.slides(layer) || !stored.find(key) || stored.find(tensors.stored(layer, "self_attn.v_proj.weight")))
      continue;
    tensors.rename(layer, "self_attn.v_proj", "self_attn.k_proj");
    tensors.rename(layer, "self_attn.k_proj", "self_attn.k_proj");
  }
}

namespace {

/// Keys give the heads of full layers, and under other names those of layers with a window.
void describe_gemma4(const architecture_keys& keys, model_config& model) {
  model.attention_scale = 1;
  model.value_norm = model.layer_scales = true;
  slide(keys, model, model.windows.front(), 6);
  const int layers = model.layers;
  model.local_head_dim = keys.integer("attention.key_length_swa", 2, max_head_dim).value_or(model.head_dim);
  if (model.local_head_dim % 2 != 0 || model.local_head_dim > model.head_dim)
    throw failure(errc::unsupported,
                  keys.label("attention.key_length_swa") + " is " + std::to_string(model.local_head_dim) +
                    ", supported are even numbers up to the " + std::to_string(model.head_dim) + " of other layers");
  model.local_kv_heads = model.full_kv_heads = model.kv_heads;
  const auto* listed = keys.file().metadata().find(keys.full("attention.head_count_kv"));
  if (listed && listed->type == gguf_type::array) {
    const auto heads = *keys.file().metadata().integers(keys.full("attention.head_count_kv"));
    if (heads.size() != as_size(layers))
      throw failure(errc::bad_file,
                    keys.label("attention.head_count_kv") + " must hold a number for each of " +
                      std::to_string(layers) + " layers");
    for (int i = 0; i < layers; ++i)
      (model.slides(i) ? model.local_kv_heads : model.full_kv_heads) = heads[as_size(i)];
    for (int i = 0; i < layers; ++i)
      if (const int own = model.kv_heads_of(i); own != heads[as_size(i)] || own < 1 || model.heads % own != 0)
        throw failure(errc::unsupported,
                      keys.label("attention.head_count_kv") +
                        " must be the same for all layers of a kind, and divide " + std::to_string(model.heads));
  }
  rotate_by_kind(keys, model);
  if (const auto cap = keys.number("final_logit_softcapping", 0, 1e9); cap && *cap > 0)
    model.logit_cap = static_cast<float>(*cap);
  model.layer_inputs = keys.integer("embedding_length_per_layer_input", 0, max_hidden).value_or(0);
  share_keys(keys, model, 0);
  read_widths(keys, model);
  if (!has_experts(keys))
    return;
  auto& experts = model.experts;
  experts.count = keys.size("expert_count", max_experts);
  experts.chosen = std::min(keys.size("expert_used_count", max_experts), experts.count);
  experts.ffn = keys.size("expert_feed_forward_length", max_ffn);
  experts.shared_ffn = model.ffn;
  experts.renormalise = experts.apart = true;
  model.sparse.assign(as_size(layers), true);
  if (!model.ffns.empty() || std::int64_t{experts.count} * layers > max_layer_experts)
    throw failure(errc::unsupported,
                  keys.label("expert_count") +
                    ": so many experts, or MLPs of two widths beside "
                    "them, are not supported");
}

} // namespace

const family gemma4_text_family{"gemma4_text",
                                read_gemma4,
                                arrange_gemma4,
                                {{"gemma4", wide_heads | scaled_embedding | gelu_tanh, describe_gemma4}},
                                norms_both | normed_heads};

} // namespace troupe::families
