// GLM 4: half of a head's dimensions are rotated, as neighbouring pairs; `glm4` also normalises what attention and MLP
// give.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"

namespace troupe::families {

void read_glm(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 2, .default_head_dim = 128, .default_norm_eps = 1.5625e-7});
  model.qkv_bias = config.boolean("attention_bias", true);
  read_positions(config, model,
                 {.default_context = 131072, .partial = true, .default_partial = 0.5, .interleaved = true});
}

void arrange_glm(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.split_gate_up(layer, "mlp.gate_up_proj");
    if (model.norms == norm_place::both)
      tensors.rename(layer,
                     {{"pre_feedforward_layernorm", "post_attention_layernorm"},
                      {"post_attention_layernorm", "post_self_attn_layernorm"},
                      {"post_feedforward_layernorm", "post_mlp_layernorm"}});
  }
}

const family glm_family{
  "glm", read_glm, arrange_glm, {{"chatglm", partial | pairs | fused_qkv | fused_up}}, paired_heads};
const family glm4_family{
  "glm4", read_glm, arrange_glm, {{"glm4", partial | pairs | fused_up}}, norms_both | paired_heads};

} // namespace troupe::families
