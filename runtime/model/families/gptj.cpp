// GPT-J: attention and MLP beside each other behind one layer norm, rotation of neighbouring pairs in a part of a head.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"

#include "runtime/model/config_limits.hpp"

namespace troupe::families {

void read_gptj(const reader& config, model_config& model) {
  read_activation(config, model, "activation_function", "gelu_new");
  read_sizes(config, model,
             {.hidden = "n_embd",
              .layers = "n_layer",
              .heads = "n_head",
              .kv_heads = nullptr,
              .ffn = nullptr,
              .norm_eps = "layer_norm_epsilon",
              .default_norm_eps = 1e-5});
  model.ffn = config.integer("n_inner", 1, config_limits::max_ffn, 4 * model.hidden);
  require(config, "scale_attn_weights", true);
  model.mlp_bias = model.head_bias = true;
  const int rotated = config.integer("rotary_dim", 2, model.head_dim, 64);
  read_positions(config, model,
                 {.context = "n_positions",
                  .partial = true,
                  .default_partial = static_cast<double>(rotated) / model.head_dim,
                  .interleaved = true});
}

void arrange_gptj(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to, "transformer.h.");
  tensors.rename("model.embed_tokens", "transformer.wte");
  tensors.rename("model.norm", "transformer.ln_f");
  for (int layer = 0; layer < model.layers; ++layer)
    tensors.rename(layer,
                   {{"input_layernorm", "ln_1"},
                    {"self_attn.q_proj", "attn.q_proj"},
                    {"self_attn.k_proj", "attn.k_proj"},
                    {"self_attn.v_proj", "attn.v_proj"},
                    {"self_attn.o_proj", "attn.out_proj"},
                    {"mlp.up_proj", "mlp.fc_in"},
                    {"mlp.down_proj", "mlp.fc_out"}});
}

const family gptj_family{"gptj", read_gptj, arrange_gptj, {}, layer_norm | shared_norm | ungated | paired_heads};

} // namespace troupe::families
