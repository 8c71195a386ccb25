// Mamba 2 alone (mamba2), and beside attention: Bamba, Granite 4, Nemotron H, Falcon H1.
#include "runtime/model/config_limits.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/recurrent_reading.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::families {

using namespace config_limits;

namespace {

float multiplier(const reader& config, const char* key) {
  return static_cast<float>(config.number(key, 1e-9, 1e9).value_or(1));
}

std::vector<float> multipliers(const reader& config, const char* key, std::size_t count) {
  if (!config.has(key))
    return std::vector<float>(count, 1);
  std::vector<float> result;
  for (const auto& item : config.at(key).items())
    result.push_back(static_cast<float>(item.number(1e-9, 1e9)));
  if (result.size() != count)
    throw failure(errc::bad_file, config.label(key) + " must hold " + std::to_string(count) + " numbers");
  return result;
}

} // namespace

// -- mamba2 -----------------------------------------------------------------------------------------------------------

void read_mamba2(const reader& config, model_config& model) {
  read_mixers_alone(config, model, false);
  read_mamba(config, model,
             {.heads = "num_heads",
              .head_dim = "head_dim",
              .groups = "n_groups",
              .state = "state_size",
              .taps = "conv_kernel",
              .expand = "expand",
              .conv_bias = "use_conv_bias",
              .bias = "use_bias",
              .default_groups = 8,
              .default_state = 128});
}

void arrange_mamba2(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to, "backbone.layers.");
  rename_backbone(model, tensors, to);
  for (int layer = 0; layer < model.layers; ++layer)
    arrange_mamba(model, tensors, layer, "mixer.");
}

// -- Bamba ------------------------------------------------------------------------------------------------------------

void read_bamba(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu", true);
  read_sizes(config, model, {.default_kv_heads = 8, .default_norm_eps = 1e-5});
  require(config, "attention_bias", false);
  require(config, "mlp_bias", false);
  read_positions(config, model, {.default_context = 262144, .partial = true, .default_partial = 0.5});
  read_mamba(config, model);
  const auto attending = config.integers("attn_layer_indices", 0, max_layers).value_or(std::vector<std::int32_t>{});
  for (int i = 0; i < model.layers; ++i) {
    const bool attends = std::ranges::find(attending, i) != attending.end();
    model.parts.push_back({.attention = attends, .recurrence = !attends});
  }
}

void arrange_bamba(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  to.names["model.final_layernorm.weight"] = "model.norm.weight";
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.rename(layer,
                   {{"post_attention_layernorm", "pre_ff_layernorm"},
                    {"mlp.gate_proj", "feed_forward.gate_proj"},
                    {"mlp.up_proj", "feed_forward.up_proj"},
                    {"mlp.down_proj", "feed_forward.down_proj"}});
    if (model.parts_of(layer).recurrence)
      arrange_mamba(model, tensors, layer, "mamba.");
  }
}

// -- Granite 4 --------------------------------------------------------------------------------------------------------

void read_granite_hybrid(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu", true);
  read_sizes(config, model);
  require(config, "attention_bias", false);
  read_positions(config, model);
  model.embedding_scale = multiplier(config, "embedding_multiplier");
  model.attention_scale = multiplier(config, "attention_multiplier");
  model.residual_scale = multiplier(config, "residual_multiplier");
  model.logit_scale = 1 / multiplier(config, "logits_scaling");
  read_mamba(config, model);
  auto words = read_layer_words(config, config.has("layer_types") ? "layer_types" : "layers_block_type");
  if (!words)
    words.emplace(as_size(model.layers), "linear_attention");
  set_layer_parts(config, model, "layer_types", *words);
  if (config.string("position_embedding_type").value_or("") != "rope")
    model.unrotated.assign(as_size(model.layers), true);
  const int shared = config.integer("shared_intermediate_size", 1, max_ffn, 1024);
  if (config.integer("num_local_experts", 0, max_experts, 8) == 0) {
    model.ffn = shared;
    return;
  }
  read_expert_counts(config, model, {"num_local_experts"}, 8, 2);
  model.experts.scores = router_scores::chosen;
  model.experts.shared_ffn = shared;
}

void arrange_granite_hybrid(const model_config& model, const checkpoint& stored, arrangement& to) {
  if (model.experts.count > 0)
    arrange_granitemoe(model, stored, to);
  tensor_arranger tensors(model, to);
  const auto shared = as_size(model.experts.count > 0 ? model.experts.shared_ffn : model.ffn);
  for (int layer = 0; layer < model.layers; ++layer) {
    if (model.parts_of(layer).recurrence)
      arrange_mamba(model, tensors, layer, "mamba.");
    const std::string stem = model.experts.count > 0 ? "mlp.shared_expert." : "mlp.";
    const auto half = [&](const char* name, std::size_t first) {
      tensors.take(layer, stem + name, "shared_mlp.input_linear.weight", tensors.rows(first, shared), 2 * shared);
    };
    half("gate_proj.weight", 0);
    half("up_proj.weight", shared);
    tensors.rename(layer, stem + "down_proj", "shared_mlp.output_linear");
  }
}

// -- Nemotron H -------------------------------------------------------------------------------------------------------

namespace {

/// A layer is a mixer or an MLP, as a list of words or one letter for each says.
std::vector<std::string> nemotron_layers(const reader& config) {
  if (auto words = read_layer_words(config, "layers_block_type"))
    return *words;
  if (auto words = read_layer_words(config, "layer_types"))
    return *words;
  const auto pattern = config.string("hybrid_override_pattern");
  if (!pattern)
    throw failure(errc::bad_file, config.label("layers_block_type") + " is missing");
  std::vector<std::string> words;
  for (const char letter : *pattern)
    switch (letter) {
      case 'M': words.emplace_back("linear_attention"); break;
      case '*': words.emplace_back("full_attention"); break;
      case '-': words.emplace_back("mlp"); break;
      case 'E': words.emplace_back("moe"); break;
      default:
        throw failure(errc::unsupported,
                      config.label("hybrid_override_pattern") + " holds `" + letter + "`, supported are M, *, - and E");
    }
  return words;
}

void read_nemotron_experts(const reader& config, model_config& model) {
  auto& experts = model.experts;
  read_expert_counts(config, model, {"n_routed_experts", "num_local_experts"}, 8, 2);
  if (config.has("moe_latent_size"))
    throw failure(errc::unsupported, config.label("moe_latent_size") + ": experts of latents are not supported");
  experts.ffn = config.integer("moe_intermediate_size", 1, max_ffn, 7688);
  experts.shared_ffn = config.integer("moe_shared_expert_intermediate_size", 1, max_ffn, 7688);
  experts.scores = router_scores::sigmoid;
  experts.correction = true;
  experts.renormalise = config.boolean("norm_topk_prob", true);
  experts.scale = static_cast<float>(config.number("routed_scaling_factor", 0, 1e6).value_or(1));
  experts.groups = config.integer("n_group", 1, max_experts, 1);
  experts.chosen_groups = config.integer("topk_group", 1, max_experts, 1);
  experts.group_by_two = true;
  if (experts.count % experts.groups != 0 || experts.chosen_groups > experts.groups ||
      experts.chosen > experts.chosen_groups * (experts.count / experts.groups))
    throw failure(errc::bad_file, config.label("n_group") + " and `topk_group` do not fit the experts");
}

} // namespace

void read_nemotron_h(const reader& config, model_config& model) {
  read_activation(config, model, "mlp_hidden_act", "relu2");
  const auto words = nemotron_layers(config);
  if (words.empty() || words.size() > max_layers)
    throw failure(errc::unsupported, config.source() + ": " + std::to_string(words.size()) + " layers");
  model.vocab = config.size("vocab_size", max_vocab);
  model.hidden = config.size("hidden_size", max_hidden);
  model.layers = static_cast<int>(words.size());
  model.heads = config.size("num_attention_heads", max_heads);
  model.kv_heads = config.integer("num_key_value_heads", 1, max_heads, 8);
  model.head_dim = config.integer("head_dim", 2, max_head_dim, 128);
  if (model.heads % model.kv_heads != 0 || model.head_dim % 2 != 0)
    throw failure(errc::bad_file,
                  config.label("num_attention_heads") +
                    " must be a multiple of `num_key_value_heads`, and `head_dim` "
                    "even");
  model.ffn = config.size("intermediate_size", max_ffn);
  model.tied = config.boolean("tie_word_embeddings", false);
  model.norm_eps = static_cast<float>(config.number("layer_norm_epsilon", 0, 1).value_or(1e-5));
  for (const char* bias : {"attention_bias", "mlp_bias", "use_bias"})
    require(config, bias, false);
  model.windows.assign(as_size(model.layers), 0);
  model.unrotated.assign(as_size(model.layers), true);
  model.max_context = config.integer("max_position_embeddings", 1, max_positions, 4096);
  read_mamba(config, model,
             {.heads = "mamba_num_heads",
              .head_dim = "mamba_head_dim",
              .groups = config.has("mamba_n_groups") ? "mamba_n_groups" : "n_groups",
              .state = "ssm_state_size",
              .taps = config.has("mamba_d_conv") ? "mamba_d_conv" : "conv_kernel",
              .conv_bias = config.has("mamba_conv_bias") ? "mamba_conv_bias" : "use_conv_bias",
              .default_groups = 8,
              .default_state = 128,
              .inner = static_cast<int>(
                std::min<std::int64_t>(std::int64_t{config.integer("mamba_num_heads", 1, max_heads, 128)} *
                                         config.integer("mamba_head_dim", 1, max_state_dim, 64),
                                       1 << 30))});
  auto& r = model.recurrent;
  r.least_dt = static_cast<float>(config.number("time_step_min", 0, 1e6).value_or(0.001)); // and no upper limit
  r.most_dt = 0;
  set_layer_parts(config, model, "layers_block_type", words, true);
  if (std::ranges::find(words, "moe") == words.end())
    return;
  read_nemotron_experts(config, model);
  for (std::size_t i = 0; i < words.size(); ++i)
    model.sparse[i] = words[i] == "moe";
}

void arrange_nemotron_h(const model_config& model, const checkpoint& stored, arrangement& to) {
  const bool bare = stored.find("backbone.layers.0.norm.weight") != nullptr;
  tensor_arranger tensors(model, to, bare ? "backbone.layers." : "model.layers.");
  rename_backbone(model, tensors, to);
  to.names["model.embeddings.weight"] = "model.embed_tokens.weight";
  to.names["model.norm_f.weight"] = "model.norm.weight";
  for (int layer = 0; layer < model.layers; ++layer) {
    const auto parts = model.parts_of(layer);
    if (parts.recurrence)
      arrange_mamba(model, tensors, layer, "mixer.");
    else if (parts.attention)
      tensors.rename(layer,
                     {{"self_attn.q_proj", "mixer.q_proj"},
                      {"self_attn.k_proj", "mixer.k_proj"},
                      {"self_attn.v_proj", "mixer.v_proj"},
                      {"self_attn.o_proj", "mixer.o_proj"}});
    else if (!model.is_sparse(layer))
      tensors.rename(layer, {{"mlp.up_proj", "mixer.up_proj"}, {"mlp.down_proj", "mixer.down_proj"}});
    else {
      tensors.rename(layer,
                     {{"mlp.gate", "mixer.gate"},
                      {"mlp.shared_expert.up_proj", "mixer.shared_experts.up_proj"},
                      {"mlp.shared_expert.down_proj", "mixer.shared_experts.down_proj"}});
      tensors.take(layer, "mlp.gate.e_score_correction_bias", "mixer.gate.e_score_correction_bias");
      for (int e = 0; e < model.experts.count; ++e)
        for (const char* name : {"up_proj", "down_proj"}) {
          const auto one = "experts." + std::to_string(e) + "." + name;
          tensors.rename(layer, "mlp." + one, "mixer." + one);
        }
    }
  }
}

// -- Falcon H1 --------------------------------------------------------------------------------------------------------

/// Mamba 2 and attention in every layer, and a multiplier for each product. Those of attention become part of the
/// scores' scale and of what is added.
void read_falcon_h1(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu", true);
  read_sizes(config, model, {.default_kv_heads = 8, .default_norm_eps = 1e-5});
  for (const char* bias : {"attention_bias", "mlp_bias", "projectors_bias"})
    require(config, bias, false);
  read_positions(config, model, {.default_context = 8192});
  mamba_keys keys;
  if (!config.contains("mamba_d_ssm") || config.has("mamba_d_ssm"))
    keys.inner = config.integer("mamba_d_ssm", 1, max_ffn, 1024);
  read_mamba(config, model, keys);
  auto& r = model.recurrent;
  if (!config.boolean("mamba_rms_norm", false))
    r.norm = kernels::gate_norm::none;
  else if (config.boolean("mamba_norm_before_gate", true))
    r.norm = kernels::gate_norm::before;
  model.parts.assign(as_size(model.layers), {.attention = true, .recurrence = true, .mlp = true});
  model.embedding_scale = multiplier(config, "embedding_multiplier");
  model.logit_scale = multiplier(config, "lm_head_multiplier");
  const float in = multiplier(config, "attention_in_multiplier");
  model.attention_scale = in * in * multiplier(config, "key_multiplier") /
    std::sqrt(static_cast<float>(model.head_dim));
  r.attention_scale = in * multiplier(config, "attention_out_multiplier");
  const auto parts = multipliers(config, "ssm_multipliers", 5);
  const float all = multiplier(config, "ssm_in_multiplier");
  r.gate_scale = all * parts[0];
  r.x_scale = all * parts[1];
  r.b_scale = all * parts[2];
  r.c_scale = all * parts[3];
  r.rate_scale = all * parts[4];
  r.out_scale = multiplier(config, "ssm_out_multiplier");
  const auto mlp = multipliers(config, "mlp_multipliers", 2);
  r.mlp_gate_scale = mlp[0];
  r.mlp_down_scale = mlp[1];
}

void arrange_falcon_h1(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  to.names["model.final_layernorm.weight"] = "model.norm.weight";
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.rename(layer, {{"post_attention_layernorm", "pre_ff_layernorm"}, {"mlp.up_proj", "feed_forward.up_proj"}});
    const auto scaled = [&](const std::string& name, float by) {
      stored_part part;
      part.name = tensors.stored(layer, "feed_forward." + name);
      part.factor = by;
      tensors.add(layer, "mlp." + name, std::move(part));
    };
    scaled("gate_proj.weight", model.recurrent.mlp_gate_scale);
    scaled("down_proj.weight", model.recurrent.mlp_down_scale);
    arrange_mamba(model, tensors, layer, "mamba.");
    if (model.recurrent.norm == kernels::gate_norm::none)
      to.tensors.erase(tensors.presented(layer, "recurrent.norm.weight"));
  }
}

namespace {

void describe_mamba2(const architecture_keys& keys, model_config& model) { describe_mamba(keys, model, false); }

/// Also Bamba's, whose attention rotates.
void describe_granite_hybrid(const architecture_keys& keys, model_config& model) {
  describe_mamba(keys, model, false);
  if (!keys.boolean("rope.scaling.finetuned").value_or(false))
    model.unrotated.assign(as_size(model.layers), true);
  if (!has_experts(keys))
    return;
  describe_routed_experts(keys, model, false);
  model.experts.scores = router_scores::chosen;
}

/// A layer is a mixer or an MLP.
void describe_nemotron_h(const architecture_keys& keys, model_config& model) {
  model.mlp_bias = false;
  model.unrotated.assign(as_size(model.layers), true);
  describe_mamba(keys, model, false);
  for (int i = 0; i < model.layers; ++i)
    if (has(keys, i, "ffn_latent_down.weight") || has(keys, i, "moe_latent_down.weight"))
      throw failure(errc::unsupported, keys.file().name() + ": experts of latents are not supported");
  if (!has_experts(keys))
    return;
  model.experts.scores = router_scores::sigmoid;
  describe_routed_experts(keys, model, true);
}

/// Files have its multipliers in the weights.
void describe_falcon_h1(const architecture_keys& keys, model_config& model) { describe_mamba(keys, model, true); }

} // namespace

const family bamba_family{
  "bamba", read_bamba, arrange_bamba, {{"granitehybrid", pairs | says_rotation | only_written}}};
const family falcon_h1_family{
  "falcon_h1", read_falcon_h1, arrange_falcon_h1, {{"falcon-h1", bare_norm | scaled, describe_falcon_h1}}};
const family granitemoehybrid_family{
  "granitemoehybrid",
  read_granite_hybrid,
  arrange_granite_hybrid,
  {{"granitehybrid", partial | pairs | multiplies | says_rotation, describe_granite_hybrid}}};
const family mamba2_family{"mamba2", read_mamba2, arrange_mamba2, {{"mamba2", without_attention, describe_mamba2}}};
const family nemotron_h_family{"nemotron_h",
                               read_nemotron_h,
                               arrange_nemotron_h,
                               {{"nemotron_h", named_by_place | lists_mlps | relu_squared, describe_nemotron_h},
                                {"nemotron_h_moe", with_experts | relu_squared, describe_nemotron_h}},
                               ungated | parts_predict | chained_predict};

} // namespace troupe::families
