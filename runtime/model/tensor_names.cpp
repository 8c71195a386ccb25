#include "runtime/model/tensor_names.hpp"

#include "runtime/support/types.hpp"

namespace troupe {

namespace {

std::string prefix(int layer) { return "model.layers." + std::to_string(layer) + "."; }

} // namespace

tensor_names::tensor_names(const model_config& config) : config_(config), hidden_(as_size(config.hidden)) {}

std::size_t tensor_names::q_width(int layer) const {
  return as_size(config_.heads_of(layer)) * as_size(config_.head_dim_of(layer));
}

std::size_t tensor_names::kv_width(int layer) const {
  return as_size(config_.kv_heads_of(layer)) * as_size(config_.head_dim_of(layer));
}

wanted_tensor tensor_names::embedding() const {
  return {"model.embed_tokens.weight", {as_size(config_.vocab), hidden_}};
}

wanted_tensor tensor_names::token_types() const {
  return {"model.token_type_embeddings.weight", {as_size(config_.token_types), hidden_}};
}

wanted_tensor tensor_names::embedding_norm() const { return {"model.embedding_norm.weight", {hidden_}}; }

wanted_tensor tensor_names::final_norm() const { return {"model.norm.weight", {hidden_}}; }

wanted_tensor tensor_names::head() const {
  return config_.tied ? embedding() : wanted_tensor{"lm_head.weight", {as_size(config_.vocab), hidden_}};
}

wanted_tensor tensor_names::head_bias() const { return {"lm_head.bias", {as_size(config_.vocab)}}; }

wanted_tensor tensor_names::positions() const {
  return {"model.position_embeddings.weight", {config_.position_rows, hidden_}};
}

wanted_tensor tensor_names::input_norm(int layer) const {
  return {prefix(layer) + "input_layernorm.weight", {hidden_}};
}

wanted_tensor tensor_names::post_norm(int layer) const {
  const auto* name = config_.norms_of(layer) == norm_place::both ? "pre_feedforward_layernorm"
                                                                 : "post_attention_layernorm";
  return {prefix(layer) + name + ".weight", {hidden_}};
}

wanted_tensor tensor_names::attention_norm(int layer) const {
  return {prefix(layer) + "post_attention_layernorm.weight", {hidden_}};
}

wanted_tensor tensor_names::mlp_norm(int layer) const {
  return {prefix(layer) + "post_feedforward_layernorm.weight", {hidden_}};
}

wanted_tensor tensor_names::q_norm(int layer) const {
  return {prefix(layer) + "self_attn.q_norm.weight",
          {config_.qk_norm_whole ? q_width(layer) : as_size(config_.head_dim_of(layer))}};
}

wanted_tensor tensor_names::k_norm(int layer) const {
  return {prefix(layer) + "self_attn.k_norm.weight",
          {config_.qk_norm_whole ? kv_width(layer) : as_size(config_.head_dim_of(layer))}};
}

std::vector<wanted_tensor> tensor_names::qk_norms(int layer) const {
  if (!config_.qk_normed(layer) || config_.qk_norm_plain)
    return {};
  if (!config_.has_kv(layer))
    return {q_norm(layer)};
  return {q_norm(layer), k_norm(layer)};
}

wanted_tensor tensor_names::sinks(int layer) const {
  return {prefix(layer) + "self_attn.sinks", {as_size(config_.heads_of(layer))}};
}

std::vector<wanted_tensor> tensor_names::qkv(int layer) const {
  const auto p = prefix(layer) + "self_attn.";
  if (config_.latent) {
    const auto& latent = config_.latent;
    const auto down = as_size(latent.kv_rank + config_.latent_rotated_of(layer));
    std::vector<wanted_tensor> result{
      {p + (latent.q_rank > 0 ? "q_a_proj.weight" : "q_proj.weight"), {latent_queries(), hidden_}}};
    if (config_.has_kv(layer))
      result.push_back({p + "kv_a_proj_with_mqa.weight", {down, hidden_}});
    if (config_.attention_gate)
      result.push_back({p + "attn_gate.weight", {as_size(config_.heads) * as_size(latent.value), hidden_}});
    return result;
  }
  const auto q = q_width(layer), kv = kv_width(layer), value = as_size(config_.value_dim_of(layer));
  if (!config_.has_kv(layer))
    return {{p + "q_proj.weight", {q, hidden_}}};
  std::vector<wanted_tensor> result{{p + "q_proj.weight", {q, hidden_}},
                                    {p + "k_proj.weight", {kv, hidden_}},
                                    {p + "v_proj.weight", {as_size(config_.kv_heads_of(layer)) * value, hidden_}}};
  if (config_.attention_gate)
    result.push_back({p + "attn_gate.weight", {as_size(config_.heads_of(layer)) * value, hidden_}});
  return result;
}

std::vector<wanted_tensor> tensor_names::o(int layer) const {
  const auto given = as_size(config_.heads_of(layer)) * as_size(config_.value_dim_of(layer));
  return {{prefix(layer) + "self_attn.o_proj.weight", {hidden_, given}}};
}

std::size_t tensor_names::latent_queries() const {
  const auto& latent = config_.latent;
  return latent.q_rank > 0 ? as_size(latent.q_rank) : as_size(config_.heads) * as_size(latent.plain + latent.rotated);
}

wanted_tensor tensor_names::latent_q_norm(int layer) const {
  return {prefix(layer) + "self_attn.q_a_layernorm.weight", {as_size(config_.latent.q_rank)}};
}

wanted_tensor tensor_names::latent_kv_norm(int layer) const {
  return {prefix(layer) + "self_attn.kv_a_layernorm.weight", {as_size(config_.latent.kv_rank)}};
}

wanted_tensor tensor_names::latent_q(int layer) const {
  const auto& latent = config_.latent;
  return {prefix(layer) + "self_attn.q_b_proj.weight",
          {as_size(config_.heads) * as_size(latent.plain + latent.rotated), as_size(latent.q_rank)}};
}

wanted_tensor tensor_names::latent_key(int layer, int head) const {
  return {prefix(layer) + "self_attn.latent_key." + std::to_string(head) + ".weight",
          {as_size(config_.latent.kv_rank), as_size(config_.latent_plain_of(layer))}};
}

wanted_tensor tensor_names::latent_value(int layer, int head) const {
  return {prefix(layer) + "self_attn.latent_value." + std::to_string(head) + ".weight",
          {as_size(config_.latent.value), as_size(config_.latent.kv_rank)}};
}

wanted_tensor tensor_names::index_q(int layer) const {
  const auto& indexer = config_.indexer;
  return {
    prefix(layer) + "self_attn.indexer.wq_b.weight",
    {as_size(indexer.heads) * as_size(indexer.dim), indexer.reads_hidden ? hidden_ : as_size(config_.latent.q_rank)}};
}

wanted_tensor tensor_names::index_key(int layer) const {
  return {prefix(layer) + "self_attn.indexer.wk.weight", {as_size(config_.indexer.dim), hidden_}};
}

wanted_tensor tensor_names::index_norm(int layer) const {
  return {prefix(layer) + "self_attn.indexer.k_norm.weight", {as_size(config_.indexer.dim)}};
}

wanted_tensor tensor_names::index_query_norm(int layer) const {
  return {prefix(layer) + "self_attn.indexer.q_input_norm.weight", {hidden_}};
}

wanted_tensor tensor_names::frequencies() const {
  return {"model.rotary_emb.alpha", {as_size(config_.latent.rotated) / 2}};
}

namespace {

std::vector<wanted_tensor> growth_of(const std::string& stem, int heads) {
  return {{stem + "softmax_scaling.scale", {as_size(heads)}}, {stem + "softmax_scaling.bias", {as_size(heads)}}};
}

} // namespace

std::vector<wanted_tensor> tensor_names::head_growth(int layer) const {
  return growth_of(prefix(layer) + "self_attn.", config_.heads);
}

std::vector<wanted_tensor> tensor_names::index_growth(int layer) const {
  return growth_of(prefix(layer) + "self_attn.indexer.", config_.indexer.heads);
}

wanted_tensor tensor_names::index_weights(int layer) const {
  return {prefix(layer) + "self_attn.indexer.weights_proj.weight", {as_size(config_.indexer.heads), hidden_}};
}

std::vector<wanted_tensor> tensor_names::mlp(int layer, const std::string& stem, std::size_t ffn) const {
  const auto p = prefix(layer) + stem;
  std::vector<wanted_tensor> result;
  if (config_.gated)
    result.push_back({p + "gate_proj.weight", {ffn, hidden_}});
  result.push_back({p + "up_proj.weight", {ffn, hidden_}});
  return result;
}

std::vector<wanted_tensor> tensor_names::gate_up(int layer) const {
  return mlp(layer, "mlp.", as_size(config_.ffn_of(layer)));
}

std::vector<wanted_tensor> tensor_names::down(int layer) const {
  return {{prefix(layer) + "mlp.down_proj.weight", {hidden_, as_size(config_.ffn_of(layer))}}};
}

wanted_tensor tensor_names::layer_inputs() const {
  return {"model.embed_tokens_per_layer.weight",
          {as_size(config_.layer_input_rows > 0 ? config_.layer_input_rows : config_.vocab),
           as_size(config_.layers) * as_size(config_.layer_inputs)}};
}

wanted_tensor tensor_names::layer_projection() const {
  return {"model.per_layer_model_projection.weight",
          {as_size(config_.layers) * as_size(config_.layer_inputs), hidden_}};
}

wanted_tensor tensor_names::layer_projection_norm() const {
  return {"model.per_layer_projection_norm.weight", {as_size(config_.layer_inputs)}};
}

wanted_tensor tensor_names::input_gate(int layer) const {
  return {prefix(layer) + "per_layer_input_gate.weight", {as_size(config_.layer_inputs), hidden_}};
}

wanted_tensor tensor_names::input_projection(int layer) const {
  return {prefix(layer) + "per_layer_projection.weight", {hidden_, as_size(config_.layer_inputs)}};
}

wanted_tensor tensor_names::input_projection_norm(int layer) const {
  return {prefix(layer) + "post_per_layer_input_norm.weight", {hidden_}};
}

wanted_tensor tensor_names::altup_in(int stream) const {
  return {"model.altup_projections." + std::to_string(stream - 1) + ".weight", {hidden_, hidden_}};
}

wanted_tensor tensor_names::altup_out(int stream) const {
  return {"model.altup_unembed_projections." + std::to_string(stream - 1) + ".weight", {hidden_, hidden_}};
}

wanted_tensor tensor_names::altup_router(int layer) const {
  return {prefix(layer) + "altup.modality_router.weight", {as_size(config_.altup.streams), hidden_}};
}

wanted_tensor tensor_names::altup_router_norm(int layer) const {
  return {prefix(layer) + "altup.router_norm.weight", {hidden_}};
}

wanted_tensor tensor_names::altup_prediction(int layer) const {
  const auto streams = as_size(config_.altup.streams);
  return {prefix(layer) + "altup.prediction_coefs.weight", {streams * streams, streams}};
}

wanted_tensor tensor_names::altup_correction(int layer) const {
  const auto streams = as_size(config_.altup.streams);
  return {prefix(layer) + "altup.correction_coefs.weight", {streams, streams}};
}

wanted_tensor tensor_names::altup_output_scale(int layer) const {
  return {prefix(layer) + "altup.correct_output_scale", {hidden_}};
}

std::vector<wanted_tensor> tensor_names::laurel(int layer) const {
  const auto rank = as_size(config_.altup.laurel);
  return {{prefix(layer) + "laurel.linear_left.weight", {rank, hidden_}},
          {prefix(layer) + "laurel.linear_right.weight", {hidden_, rank}}};
}

wanted_tensor tensor_names::laurel_norm(int layer) const {
  return {prefix(layer) + "laurel.post_laurel_norm.weight", {hidden_}};
}

wanted_tensor tensor_names::layer_scale(int layer) const { return {prefix(layer) + "layer_scalar", {1}}; }

std::vector<wanted_tensor> tensor_names::activation(int layer) const {
  if (config_.act.type != kernels::activation_type::xielu)
    return {};
  return {{prefix(layer) + "mlp.act_fn.alpha_p", {1}}, {prefix(layer) + "mlp.act_fn.alpha_n", {1}}};
}

bool tensor_names::on_host(const std::string& name) {
  return name.ends_with(".e_score_correction_bias") || name.ends_with(".layer_scalar") ||
    name.ends_with(".expert_scale") || name.ends_with(".rotary_emb.alpha") ||
    name.find(".softmax_scaling.") != name.npos || name.find(".act_fn.") != name.npos;
}

wanted_tensor tensor_names::router(int layer) const {
  return {prefix(layer) + "mlp.gate.weight", {as_size(config_.experts.count), hidden_}};
}

wanted_tensor tensor_names::router_correction(int layer) const {
  return {prefix(layer) + "mlp.gate.e_score_correction_bias", {as_size(config_.experts.count)}};
}

std::vector<wanted_tensor> tensor_names::expert_gate_up(int layer, int expert) const {
  return mlp(layer, "mlp.experts." + std::to_string(expert) + ".", as_size(config_.experts.ffn));
}

std::vector<wanted_tensor> tensor_names::expert_down(int layer, int expert) const {
  return {{prefix(layer) + "mlp.experts." + std::to_string(expert) + ".down_proj.weight",
           {hidden_, as_size(config_.experts.ffn)}}};
}

std::vector<wanted_tensor> tensor_names::shared_gate_up(int layer) const {
  return mlp(layer, "mlp.shared_expert.", as_size(config_.experts.shared_ffn));
}

std::vector<wanted_tensor> tensor_names::shared_down(int layer) const {
  return {{prefix(layer) + "mlp.shared_expert.down_proj.weight", {hidden_, as_size(config_.experts.shared_ffn)}}};
}

wanted_tensor tensor_names::shared_gate(int layer) const {
  return {prefix(layer) + "mlp.shared_expert_gate.weight", {1, hidden_}};
}

std::vector<wanted_tensor> tensor_names::mixture_norms(int layer) const {
  std::vector<wanted_tensor> norms;
  for (const char* name : {"mlp.gate_norm.weight", "mlp.experts_norm.weight", "mlp.shared_expert_norm.weight",
                           "mlp.experts_result_norm.weight"})
    norms.push_back({prefix(layer) + name, {hidden_}});
  return norms;
}

wanted_tensor tensor_names::expert_scales(int layer) const {
  return {prefix(layer) + "mlp.gate.expert_scale", {as_size(config_.experts.count)}};
}

} // namespace troupe
