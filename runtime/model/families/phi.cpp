// Phi 1 and 2 (parallel residual, layer norm, rotary in part), Phi 3 and 4 (fused matrices, LongRoPE), and Phi 3.5's
// mixture of experts, weighed by SparseMixer.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/lineages.hpp"

namespace troupe::families {

void read_phi(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "gelu_new");
  read_sizes(config, model, {.norm_eps = "layer_norm_eps", .default_norm_eps = 1e-5});
  require(config, "qk_layernorm", false);
  model.qkv_bias = model.o_bias = model.mlp_bias = model.head_bias = true;
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

void read_phimoe(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 8, .default_norm_eps = 1e-5});
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
  model.head_bias = config.boolean("lm_head_bias", false);
  read_one_window(config, model, 0);
  read_positions(config, model, {.default_context = 131072, .theta = 1000000});
  for (const char* place : {"rope_parameters", "rope_scaling"})
    if (const auto given = config.object(place); given && model.rope.type == rope_type::longrope) {
      const auto shorter = given->number("short_mscale", 0, 1e6), longer = given->number("long_mscale", 0, 1e6);
      if (!shorter || !longer || *shorter != *longer)
        throw failure(errc::unsupported, given->label("short_mscale") + " and `long_mscale` must be there and alike");
      model.rope.attention_factor = *longer;
    }
  read_expert_counts(config, model, {"num_local_experts"}, 16, 2);
  require_number(config, "num_experts_per_tok", 2);
  model.experts.scores = router_scores::mixed;
  model.experts.margin = 2 * static_cast<float>(config.number("router_jitter_noise", 0, 1).value_or(0.01));
}

void arrange_phi3(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.split_qkv(layer, "self_attn.qkv_proj", tensor_arranger::fusion::stacked);
    tensors.split_gate_up(layer, "mlp.gate_up_proj");
  }
}

const family phi_family{
  "phi", read_phi, arrange_phi, {{"phi2", partial | fused_qkv | gelu_tanh}}, layer_norm | ungated | shared_norm};
const family phi3_family{"phi3", read_phi3, arrange_phi3, {{"phi3", partial | fused_qkv | fused_up}}};
const family phimoe_family{"phimoe", read_phimoe, arrange_mixtral, {}, layer_norm};

} // namespace troupe::families
