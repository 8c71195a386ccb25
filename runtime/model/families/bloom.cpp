// BLOOM: biases by distance in place of positions (ALiBi), a norm of the embeddings, q, k and v of each head together.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/lineages.hpp"

namespace troupe::families {

void read_bloom(const reader& config, model_config& model) {
  read_sizes(config, model,
             {.hidden = config.has("n_embed") && !config.has("hidden_size") ? "n_embed" : "hidden_size",
              .layers = config.has("n_layer") ? "n_layer" : "num_hidden_layers",
              .heads = config.has("n_head") ? "n_head" : "num_attention_heads",
              .kv_heads = nullptr,
              .ffn = nullptr,
              .norm_eps = "layer_norm_epsilon",
              .default_norm_eps = 1e-5,
              .tied = true});
  require(config, "apply_residual_connection_post_layernorm", false);
  model.ffn = 4 * model.hidden;
  model.act = {kernels::activation_type::gelu_tanh};
  model.embedding_norm = true;
  model.qkv_bias = model.o_bias = model.mlp_bias = true;
  read_positions(config, model, {.context = "seq_length"});
  model.positions = position_type::alibi;
}

void arrange_bloom(const model_config& model, const checkpoint& stored, arrangement& to) {
  const std::string prefix = stored.find("word_embeddings.weight") ? "" : "transformer.";
  tensor_arranger tensors(model, to, prefix + "h.");
  tensors.rename("model.embed_tokens", prefix + "word_embeddings");
  tensors.rename("model.embedding_norm", prefix + "word_embeddings_layernorm");
  tensors.rename("model.norm", prefix + "ln_f");
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.rename(layer,
                   {{"input_layernorm", "input_layernorm"},
                    {"post_attention_layernorm", "post_attention_layernorm"},
                    {"self_attn.o_proj", "self_attention.dense"},
                    {"mlp.up_proj", "mlp.dense_h_to_4h"},
                    {"mlp.down_proj", "mlp.dense_4h_to_h"}});
    tensors.split_qkv(layer, "self_attention.query_key_value", tensor_arranger::fusion::grouped);
  }
}

namespace {

void describe_bloom(const architecture_keys&, model_config& model) {
  model.positions = position_type::alibi;
  model.embedding_norm = true;
}

} // namespace

const family bloom_family{
  "bloom", read_bloom, arrange_bloom, {{"bloom", fused_qkv | gelu_tanh, describe_bloom}}, layer_norm | ungated};

} // namespace troupe::families
