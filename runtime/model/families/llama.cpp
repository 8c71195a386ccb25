// Llama and its nearest relatives: RMS norm, rotary positions, gated SiLU.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include <algorithm>

namespace troupe::families {

namespace {

void read_attention_bias(const reader& config, model_config& model) {
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
}

} // namespace

void read_llama(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu", true);
  read_sizes(config, model);
  read_attention_bias(config, model);
  model.mlp_bias = config.boolean("mlp_bias", false);
  read_positions(config, model);
}

/// A llama whose biases have two names, those of older files first.
void read_internlm3(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 2, .default_head_dim = 128, .default_norm_eps = 1e-5});
  model.qkv_bias = config.boolean("qkv_bias", config.boolean("attention_bias", false));
  model.o_bias = model.mlp_bias = config.boolean("bias", config.boolean("mlp_bias", false));
  read_positions(config, model, {.default_context = 32768});
}

void read_mistral(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu", true);
  read_sizes(config, model, {.default_kv_heads = 8});
  read_one_window(config, model, 4096);
  read_positions(config, model, {.default_context = 131072});
}

/// Every `no_rope_layer_interval`-th layer has no positions.
void read_smollm3(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 4, .tied = true});
  read_attention_bias(config, model);
  model.mlp_bias = config.boolean("mlp_bias", false);
  read_late_windows(config, model, 0);
  read_positions(config, model, {.default_context = 32768, .theta = 2000000});
  const int interval = config.integer("no_rope_layer_interval", 1, 1 << 12, 4);
  const auto rotated = config.integers("no_rope_layers", 0, 1); // 1: the layer is rotated
  if (rotated && rotated->size() != static_cast<std::size_t>(model.layers))
    throw failure(errc::bad_file,
                  config.label("no_rope_layers") + " must hold " + std::to_string(model.layers) + " numbers, found " +
                    std::to_string(rotated->size()));
  for (int i = 0; i < model.layers; ++i)
    model.unrotated.push_back(rotated ? (*rotated)[static_cast<std::size_t>(i)] == 0 : (i + 1) % interval == 0);
  if (std::ranges::find(model.unrotated, true) == model.unrotated.end())
    model.unrotated.clear();
}

/// Scores of queries grow from the original context on.
void read_ministral3(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 8, .default_head_dim = 128, .default_norm_eps = 1e-5});
  read_one_window(config, model, 0);
  read_positions(config, model, {.default_context = 262144, .theta = 1000000});
  model.growth = read_growth(config);
}

void read_seed_oss(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 8, .default_head_dim = 128});
  model.qkv_bias = config.boolean("attention_bias", true);
  model.o_bias = config.boolean("attention_out_bias", false);
  model.mlp_bias = config.boolean("mlp_bias", false);
  read_positions(config, model, {.default_context = 524288});
}

/// An MLP without a gate.
void read_arcee(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "relu2");
  read_sizes(config, model, {.default_norm_eps = 1e-5});
  read_attention_bias(config, model);
  model.mlp_bias = config.boolean("mlp_bias", false);
  read_positions(config, model, {.default_context = 4096});
}

/// An MLP without a gate whose activation has parameters that each layer has learned; attention has q/k norm.
void read_apertus(const reader& config, model_config& model) {
  if (config.string("hidden_act").value_or("xielu") == "xielu")
    model.act = {kernels::activation_type::xielu, 0.8f, -1e-6f, 0.5f, 0.8f};
  else
    read_activation(config, model, "hidden_act", "xielu");
  read_sizes(config, model, {.default_norm_eps = 1e-5});
  read_attention_bias(config, model);
  read_positions(config, model, {.default_context = 65536, .theta = 12000000});
  if (config.has("rope_parameters") || config.has("rope_scaling"))
    return;
  model.rope.type = rope_type::llama3;
  model.rope.factor = 8;
  model.rope.original_context = 8192;
}

void arrange_apertus(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer)
    tensors.rename(layer,
                   {{"input_layernorm", "attention_layernorm"}, {"post_attention_layernorm", "feedforward_layernorm"}});
}

namespace {

/// Reads the multipliers of embeddings, scores, residuals and logits.
void read_multipliers(const reader& config, model_config& model) {
  const auto multiplier = [&](const char* key) {
    return static_cast<float>(config.number(key, 1e-9, 1e9).value_or(1));
  };
  model.embedding_scale = multiplier("embedding_multiplier");
  model.attention_scale = multiplier("attention_multiplier");
  model.residual_scale = multiplier("residual_multiplier");
  model.logit_scale = 1 / multiplier("logits_scaling");
}

} // namespace

void read_granite(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model);
  read_attention_bias(config, model);
  model.mlp_bias = config.boolean("mlp_bias", false);
  read_positions(config, model);
  read_multipliers(config, model);
}

/// A granite with windows in three of four layers, a rotation of its own in each, and sinks in all.
void read_granite_swa(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 4, .default_norm_eps = 1e-5, .tied = true});
  read_attention_bias(config, model);
  model.mlp_bias = config.boolean("mlp_bias", false);
  model.attention_sinks = true;
  read_positions(config, model, {.default_context = 8192});
  read_alternating_windows(config, model, 128, 4, 3);
  read_layer_thetas(config, model);
  read_multipliers(config, model);
}

/// A granite whose MLP is a mixture of experts, stored as three-dimensional tensors.
void read_granitemoe(const reader& config, model_config& model) {
  read_granite(config, model);
  model.mlp_bias = false;
  read_expert_counts(config, model, {"num_local_experts"}, 8, 2);
}

void arrange_granitemoe(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.rename(layer, "mlp.gate", "block_sparse_moe.router.layer");
    tensors.split_experts(layer, "block_sparse_moe.input_linear.weight", "block_sparse_moe.output_linear.weight");
  }
}

namespace {

/// Files of mixtures are called so, too.
void describe_llama(const architecture_keys& keys, model_config& model) {
  if (!has_experts(keys))
    return;
  model.family = "mixtral";
  model.rope.interleaved = true;
  describe_experts(keys, model);
  model.experts.renormalise = true;
}

/// Mistral Small 3 as a part of a multimodal model; Ministral 3 besides scales queries by their positions.
void describe_mistral3(const architecture_keys& keys, model_config& model) {
  describe_llama(keys, model);
  describe_growth(keys, model);
  if (!model.growth)
    return;
  model.family = "ministral3";
  model.rope.interleaved = true;
  const auto multiplier = keys.number("rope.scaling.yarn_log_multiplier", 0, 1e6).value_or(0);
  if (model.rope.type == rope_type::yarn && multiplier > 0)
    model.rope.attention_factor = yarn_attention_factor(model.rope.factor, 1, multiplier);
}

void describe_smollm3(const architecture_keys&, model_config& model) {
  for (int i = 0; i < model.layers; ++i)
    model.unrotated.push_back((i + 1) % 4 == 0);
}

void describe_apertus(const architecture_keys&, model_config& model) {
  model.mlp_bias = false;
  model.act = {kernels::activation_type::xielu, 0.8f, -1e-6f, 0.5f, 0.8f};
}

} // namespace

const family llama_family{"llama",
                          read_llama,
                          nullptr,
                          {{"llama", pairs | halves, describe_llama}, {"mistral3", pairs | halves, describe_mistral3}}};
const family mistral_family{"mistral", read_mistral, nullptr, {{"llama", pairs | only_written}}};
const family apertus_family{
  "apertus", read_apertus, arrange_apertus, {{"apertus", 0, describe_apertus}}, normed_heads | ungated};
const family arcee_family{"arcee", read_arcee, nullptr, {{"arcee", pairs | relu_squared}}, ungated};
const family granite_family{"granite", read_granite, nullptr, {{"granite", pairs | multiplies}}};
const family granite_swa_family{"granite_swa", read_granite_swa};
const family granitemoe_family{
  "granitemoe", read_granitemoe, arrange_granitemoe, {{"granitemoe", pairs | multiplies | experts}}, chosen};
const family ministral3_family{"ministral3", read_ministral3, nullptr, {{"mistral3", pairs | only_written}}};
const family internlm3_family{"internlm3", read_internlm3};
const family seed_oss_family{"seed_oss", read_seed_oss, nullptr, {{"seed_oss", named_by_place}}};
const family smollm3_family{"smollm3", read_smollm3, nullptr, {{"smollm3", pairs, describe_smollm3}}};

} // namespace troupe::families
