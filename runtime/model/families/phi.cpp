// Phi 1 and 2 (parallel residual, layer norm, rotary in part) and Phi 3 and 4 (fused matrices, LongRoPE).
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"

namespace troupe::families {

void read_phi(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "gelu_new");
  read_sizes(config, model, {.norm_eps = "layer_norm_eps", .default_norm_eps = 1e-5});
  require(config, "qk_layernorm", false);
  model.norm = norm_type::layer;
  model.norm_bias = model.parallel = model.shared_norm = true;
  model.qkv_bias = model.o_bias = model.mlp_bias = model.head_bias = true;
  model.gated = false;
  read_positions(config, model, {.partial = true, .default_partial = 0.5});
}

void arrange_phi(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  tensors.rename("model.norm", "model.final_layernorm");
  for (int layer = 0; layer < model.layers; ++layer)
    tensors.rename(layer,
                   {{"self_attn.o_proj", "self_attn.dense"}, {"mlp.up_proj", "mlp.fc1"}, {"mlp.down_proj", "mlp.fc2"}});
}

void read_phi3(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_norm_eps = 1e-5});
  read_one_window(config, model, 0);
  read_positions(config, model, {.default_context = 4096, .partial = true});
}

void arrange_phi3(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.split_qkv(layer, "self_attn.qkv_proj", tensor_arranger::fusion::stacked);
    tensors.split_gate_up(layer, "mlp.gate_up_proj");
  }
}

} // namespace troupe::families
