// Families with layer norm and rotary positions: GPT-NeoX (Pythia) and Falcon with parallel residuals and fused q, k
// and v, StableLM, StarCoder 2 and Nemotron.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include "runtime/model/config_limits.hpp"

#include <cmath>

namespace troupe::families {

using namespace config_limits;

void read_gpt_neox(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "gelu");
  read_sizes(config, model, {.kv_heads = nullptr, .norm_eps = "layer_norm_eps", .default_norm_eps = 1e-5});
  model.mlp_bias = true;
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", true);
  model.parallel = config.boolean("use_parallel_residual", true);
  // transformers 4 has keys of its own.
  read_positions(config, model,
                 {.theta = config.number("rotary_emb_base", 1.000001, 1e30).value_or(10000),
                  .partial = true,
                  .default_partial = config.number("rotary_pct", 0, 1).value_or(0.25)});
}

void arrange_gpt_neox(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to, "gpt_neox.layers.");
  tensors.rename("model.embed_tokens", "gpt_neox.embed_in");
  tensors.rename("model.norm", "gpt_neox.final_layer_norm");
  tensors.rename("lm_head", "embed_out");
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.rename(layer,
                   {{"input_layernorm", "input_layernorm"},
                    {"post_attention_layernorm", "post_attention_layernorm"},
                    {"self_attn.o_proj", "attention.dense"},
                    {"mlp.up_proj", "mlp.dense_h_to_4h"},
                    {"mlp.down_proj", "mlp.dense_4h_to_h"}});
    tensors.split_qkv(layer, "attention.query_key_value", tensor_arranger::fusion::grouped);
  }
}

void read_falcon(const reader& config, model_config& model) {
  read_activation(config, model, "activation", "gelu");
  const bool renewed = config.boolean("new_decoder_architecture", false);
  read_sizes(config, model,
             {.kv_heads = renewed ? "num_kv_heads" : nullptr,
              .ffn = nullptr,
              .norm_eps = "layer_norm_epsilon",
              .default_norm_eps = 1e-5,
              .tied = true});
  if (!renewed && config.boolean("multi_query", true))
    model.kv_heads = 1;
  model.ffn = config.integer("ffn_hidden_size", 1, max_ffn, 4 * model.hidden);
  model.qkv_bias = model.o_bias = model.mlp_bias = config.boolean("bias", false);
  model.parallel = renewed || config.boolean("parallel_attn", true);
  model.shared_norm = model.parallel && (!renewed || config.integer("num_ln_in_parallel_attn", 1, 2, 2) == 1);
  read_positions(config, model);
  if (config.boolean("alibi", false)) {
    model.positions = position_type::alibi;
    model.alibi_scale = 1 / std::sqrt(static_cast<float>(model.head_dim));
  }
}

void arrange_falcon(const model_config& model, const checkpoint& stored, arrangement& to) {
  tensor_arranger tensors(model, to, "transformer.h.");
  tensors.rename("model.embed_tokens", "transformer.word_embeddings");
  tensors.rename("model.norm", "transformer.ln_f");
  const bool two_norms = stored.find("transformer.h.0.ln_attn.weight") != nullptr;
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.rename(layer,
                   {{"input_layernorm", two_norms ? "ln_attn" : "input_layernorm"},
                    {"post_attention_layernorm", two_norms ? "ln_mlp" : "post_attention_layernorm"},
                    {"self_attn.o_proj", "self_attention.dense"},
                    {"mlp.up_proj", "mlp.dense_h_to_4h"},
                    {"mlp.down_proj", "mlp.dense_4h_to_h"}});
    tensors.split_qkv(layer, "self_attention.query_key_value", tensor_arranger::fusion::grouped);
  }
}

void read_stablelm(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 32, .norm_eps = "layer_norm_eps", .default_norm_eps = 1e-5});
  require(config, "qk_layernorm", false);
  model.qkv_bias = config.boolean("use_qkv_bias", false);
  model.parallel = model.shared_norm = config.boolean("use_parallel_residual", false);
  read_positions(config, model, {.default_context = 4096, .partial = true, .default_partial = 0.25});
}

void read_starcoder2(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "gelu_pytorch_tanh");
  read_sizes(config, model,
             {.default_kv_heads = 2, .norm_eps = "norm_epsilon", .default_norm_eps = 1e-5, .tied = true});
  model.qkv_bias = model.o_bias = model.mlp_bias = config.boolean("use_bias", true);
  read_one_window(config, model, 0);
  read_positions(config, model, {.default_context = 4096});
}

void arrange_starcoder2(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer)
    tensors.rename(layer, {{"mlp.up_proj", "mlp.c_fc"}, {"mlp.down_proj", "mlp.c_proj"}});
}

void read_nemotron(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "relu2");
  read_sizes(config, model, {.norm_eps = "norm_eps", .default_norm_eps = 1e-5});
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
  model.mlp_bias = config.boolean("mlp_bias", false);
  read_positions(config, model, {.default_context = 4096, .partial = true, .default_partial = 0.5});
}

void arrange_nemotron(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger(model, to).shift_norms(1);
}

namespace {

void describe_stablelm(const architecture_keys& keys, model_config& model) {
  model.parallel = model.shared_norm = !has(keys, 0, "ffn_norm.weight");
}

} // namespace

const family falcon_family{
  "falcon", read_falcon, arrange_falcon, {{"falcon", fused_qkv | two_norms | parallel | gelu}}, layer_norm | ungated};
const family gpt_neox_family{"gpt_neox",
                             read_gpt_neox,
                             arrange_gpt_neox,
                             {{"gptneox", partial | fused_qkv | says_parallel | gelu}},
                             layer_norm | ungated};
const family nemotron_family{
  "nemotron", read_nemotron, arrange_nemotron, {{"nemotron", partial | relu_squared}}, layer_norm | ungated};
const family stablelm_family{
  "stablelm", read_stablelm, nullptr, {{"stablelm", partial, describe_stablelm}}, layer_norm};
const family starcoder2_family{
  "starcoder2", read_starcoder2, arrange_starcoder2, {{"starcoder2", gelu_tanh}}, layer_norm | ungated};

} // namespace troupe::families
