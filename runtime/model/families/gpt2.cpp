// GPT-2, GPT-BigCode (StarCoder) and OPT: learned positions, layer norm, MLPs without a gate.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include "runtime/model/config_limits.hpp"

namespace troupe::families {

namespace {

using namespace config_limits;

void describe(model_config& model, int positions, int offset) {
  model.qkv_bias = model.o_bias = model.mlp_bias = true;
  model.positions = position_type::learned;
  model.max_context = positions;
  model.position_offset = static_cast<std::size_t>(offset);
  model.position_rows = static_cast<std::size_t>(positions + offset);
}

} // namespace

void read_gpt2(const reader& config, model_config& model) {
  read_activation(config, model, "activation_function", "gelu_new");
  read_sizes(config, model,
             {.hidden = "n_embd",
              .layers = "n_layer",
              .heads = "n_head",
              .kv_heads = nullptr,
              .ffn = nullptr,
              .norm_eps = "layer_norm_epsilon",
              .default_norm_eps = 1e-5,
              .tied = true});
  model.ffn = config.integer("n_inner", 1, max_ffn, 4 * model.hidden);
  require(config, "scale_attn_weights", true);
  require(config, "scale_attn_by_inverse_layer_idx", false);
  require(config, "add_cross_attention", false);
  describe(model, config.integer("n_positions", 1, max_positions, 1024), 0);
}

void arrange_gpt2(const model_config& model, const checkpoint& stored, arrangement& to) {
  const std::string prefix = stored.find("wte.weight") ? "" : "transformer.";
  tensor_arranger tensors(model, to, prefix + "h.");
  tensors.rename("model.embed_tokens", prefix + "wte");
  tensors.rename("model.position_embeddings", prefix + "wpe");
  tensors.rename("model.norm", prefix + "ln_f");
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.rename(layer, {{"input_layernorm", "ln_1"}, {"post_attention_layernorm", "ln_2"}});
    tensors.split_qkv(layer, "attn.c_attn", tensor_arranger::fusion::stacked, true);
    tensors.transpose(layer, "self_attn.o_proj", "attn.c_proj");
    tensors.transpose(layer, "mlp.up_proj", "mlp.c_fc");
    tensors.transpose(layer, "mlp.down_proj", "mlp.c_proj");
  }
}

/// Matrices as outputs by inputs, and one head of keys and values.
void read_gpt_bigcode(const reader& config, model_config& model) {
  read_gpt2(config, model);
  if (config.boolean("multi_query", true))
    model.kv_heads = 1;
}

void arrange_gpt_bigcode(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to, "transformer.h.");
  tensors.rename("model.embed_tokens", "transformer.wte");
  tensors.rename("model.position_embeddings", "transformer.wpe");
  tensors.rename("model.norm", "transformer.ln_f");
  const auto how = model.kv_heads == 1 ? tensor_arranger::fusion::stacked : tensor_arranger::fusion::grouped;
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.rename(layer,
                   {{"input_layernorm", "ln_1"},
                    {"post_attention_layernorm", "ln_2"},
                    {"self_attn.o_proj", "attn.c_proj"},
                    {"mlp.up_proj", "mlp.c_fc"},
                    {"mlp.down_proj", "mlp.c_proj"}});
    tensors.split_qkv(layer, "attn.c_attn", how);
  }
}

void read_opt(const reader& config, model_config& model) {
  read_activation(config, model, "activation_function", "relu");
  read_sizes(
    config, model,
    {.kv_heads = nullptr, .ffn = "ffn_dim", .norm_eps = "layer_norm_eps", .default_norm_eps = 1e-5, .tied = true});
  require(config, "do_layer_norm_before", true);
  require(config, "_remove_final_layer_norm", false);
  require(config, "layer_norm_elementwise_affine", true);
  if (const auto width = config.integer("word_embed_proj_dim", 1, max_hidden); width && *width != model.hidden)
    throw failure(errc::unsupported,
                  config.label("word_embed_proj_dim") + " is " + std::to_string(*width) +
                    ", supported is only that of `hidden_size`, " + std::to_string(model.hidden));
  describe(model, config.integer("max_position_embeddings", 1, max_positions, 2048), 2);
  model.qkv_bias = model.o_bias = model.mlp_bias = config.boolean("enable_bias", true);
}

void arrange_opt(const model_config& model, const checkpoint& stored, arrangement& to) {
  const std::string prefix = stored.find("decoder.embed_tokens.weight") ? "decoder." : "model.decoder.";
  tensor_arranger tensors(model, to, prefix + "layers.");
  tensors.rename("model.embed_tokens", prefix + "embed_tokens");
  tensors.rename("model.position_embeddings", prefix + "embed_positions");
  tensors.rename("model.norm", prefix + "final_layer_norm");
  for (int layer = 0; layer < model.layers; ++layer)
    tensors.rename(layer,
                   {{"input_layernorm", "self_attn_layer_norm"},
                    {"post_attention_layernorm", "final_layer_norm"},
                    {"self_attn.q_proj", "self_attn.q_proj"},
                    {"self_attn.k_proj", "self_attn.k_proj"},
                    {"self_attn.v_proj", "self_attn.v_proj"},
                    {"self_attn.o_proj", "self_attn.out_proj"},
                    {"mlp.up_proj", "fc1"},
                    {"mlp.down_proj", "fc2"}});
}

const family gpt2_family{
  "gpt2", read_gpt2, arrange_gpt2, {{"gpt2", fused_qkv | learned_positions | gelu_tanh}}, layer_norm | ungated};
const family gpt_bigcode_family{"gpt_bigcode",
                                read_gpt_bigcode,
                                arrange_gpt_bigcode,
                                {{"starcoder", fused_qkv | learned_positions | gelu_tanh}},
                                layer_norm | ungated};
const family opt_family{"opt", read_opt, arrange_opt, {}, layer_norm | ungated};

} // namespace troupe::families
