#include "runtime/import/gguf/gguf_names.hpp"

#include "runtime/import/gguf/gguf_architectures.hpp"

#include <span>

namespace troupe {

namespace {

/// When a pair of names counts. Others count always.
enum condition : unsigned {
  norms_around = 1,  // of attention and MLP, ahead and behind
  norms_behind = 2,  // also those that are ahead of the MLP, where files call them after their place behind attention
  norms_of_sums = 4, // with the residual, as encoders have them
  falcon_norms = 8,  // one for attention, one for the MLP, side by side
};

/// The beginnings of a name that is the same behind them.
struct gguf_name {
  std::string_view file, folder;
  unsigned when = 0; // a condition
};

constexpr gguf_name outer_names[] = {
  {"token_embd.", "model.embed_tokens."},
  {"output_norm.", "model.norm."},
  {"output.", "lm_head."},
  {"position_embd.", "model.position_embeddings."},
  {"token_embd_norm.", "model.embedding_norm."},
  {"token_types.", "model.token_type_embeddings."},
  {"per_layer_token_embd.", "model.embed_tokens_per_layer."},
  {"per_layer_model_proj.", "model.per_layer_model_projection."},
  {"per_layer_proj_norm.", "model.per_layer_projection_norm."},
};

/// Tensors of a layer, without the prefixes "blk.N." and "model.layers.N.". Of several pairs that count, the first is
/// taken, in both directions.
constexpr gguf_name layer_names[] = {
  {"attn_norm.", "post_attention_layernorm.", falcon_norms}, // of the MLP, whose input differs from attention's
  {"attn_norm_2.", "input_layernorm.", falcon_norms},
  {"attn_norm.", "input_layernorm."},
  {"attn_output_norm.", "post_attention_layernorm.", norms_of_sums},
  {"layer_output_norm.", "post_feedforward_layernorm.", norms_of_sums},
  {"ffn_norm.", "pre_feedforward_layernorm.", norms_around},
  {"post_attention_norm.", "post_attention_layernorm.", norms_behind},
  {"ffn_norm.", "post_attention_layernorm."},
  {"post_attention_norm.", "post_attention_layernorm."},
  {"post_ffw_norm.", "post_feedforward_layernorm."},
  {"attn_q.", "self_attn.q_proj."},
  {"attn_k.", "self_attn.k_proj."},
  {"attn_v.", "self_attn.v_proj."},
  {"attn_output.", "self_attn.o_proj."},
  {"attn_sinks.weight", "self_attn.sinks"},
  {"attn_q_a.", "self_attn.q_a_proj."},
  {"attn_q_a_norm.", "self_attn.q_a_layernorm."},
  {"attn_q_b.", "self_attn.q_b_proj."},
  {"attn_kv_a_mqa.", "self_attn.kv_a_proj_with_mqa."},
  {"attn_kv_a_norm.", "self_attn.kv_a_layernorm."},
  {"attn_kv_b.", "self_attn.kv_b_proj."},
  {"attn_q_norm.", "self_attn.q_norm."},
  {"attn_k_norm.", "self_attn.k_norm."},
  {"ffn_gate.", "mlp.gate_proj."},
  {"ffn_up.", "mlp.up_proj."},
  {"ffn_down.", "mlp.down_proj."},
  {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"}, // before what it begins with
  {"ffn_down_exps.scale", "mlp.gate.expert_scale"},
  {"ffn_gate_inp.", "mlp.gate."},
  {"ffn_gate_inp_shexp.", "mlp.shared_expert_gate."},
  {"ffn_gate_shexp.", "mlp.shared_expert.gate_proj."},
  {"ffn_up_shexp.", "mlp.shared_expert.up_proj."},
  {"ffn_down_shexp.", "mlp.shared_expert.down_proj."},
  {"inp_gate.", "per_layer_input_gate."}, // what layers get of each token, and numbers of theirs
  {"proj.", "per_layer_projection."},
  {"post_norm.", "post_per_layer_input_norm."},
  {"layer_output_scale.weight", "layer_scalar"},
  {"pre_ffw_norm_2.", "mlp.experts_norm."}, // of experts apart
  {"post_ffw_norm_1.", "mlp.shared_expert_norm."},
  {"post_ffw_norm_2.", "mlp.experts_result_norm."},
  {"altup_correct_coef.", "altup.correction_coefs."}, // of alternating updates
  {"altup_correct_scale.weight", "altup.correct_output_scale"},
  {"altup_predict_coef.", "altup.prediction_coefs."},
  {"altup_router.", "altup.modality_router."},
  {"altup_router_norm.", "altup.router_norm."},
  {"laurel_l.", "laurel.linear_left."},
  {"laurel_r.", "laurel.linear_right."},
  {"laurel_post_norm.", "laurel.post_laurel_norm."},
  {"nextn.eh_proj.", "eh_proj."}, // of multi-token prediction
  {"nextn.enorm.", "enorm."},
  {"nextn.hnorm.", "hnorm."},
  {"nextn.shared_head_norm.", "shared_head.norm."},
  {"nextn.shared_head_head.", "shared_head.head."},
  {"nextn.embed_tokens.", "embed_tokens."},
};

using side = std::string_view gguf_name::*;

std::string translated(std::string_view name, side from, side to, unsigned conditions) {
  constexpr gguf_name layers{"blk.", "model.layers."};
  std::string prefix;
  auto rest = name;
  std::span<const gguf_name> names = outer_names;
  if (name.starts_with(layers.*from)) {
    const auto number_end = name.find('.', (layers.*from).size());
    if (number_end == name.npos)
      return std::string(name);
    prefix = std::string(layers.*to) +
      std::string(name.substr((layers.*from).size(), number_end + 1 - (layers.*from).size()));
    rest = name.substr(number_end + 1);
    names = layer_names;
  }
  for (const auto& pair : names)
    if (rest.starts_with(pair.*from) && (pair.when & ~conditions) == 0)
      return prefix + std::string(pair.*to) + std::string(rest.substr((pair.*from).size()));
  return std::string(name);
}

} // namespace

gguf_names::gguf_names(const model_config& model) {
  const auto* written = gguf_architecture_of_family(model.family);
  if (model.norms == norm_place::both)
    conditions_ |= norms_around;
  if (model.norms == norm_place::sum)
    conditions_ |= norms_of_sums;
  if (model.norms != norm_place::before || (written && written->is(gguf_architecture::named_by_place)))
    conditions_ |= norms_behind;
  if (model.family == "falcon" && !model.shared_norm)
    conditions_ |= falcon_norms;
}

std::string gguf_names::in_file(std::string_view folder) const {
  return translated(folder, &gguf_name::folder, &gguf_name::file, conditions_);
}

std::string gguf_names::in_folder(std::string_view file) const {
  return translated(file, &gguf_name::file, &gguf_name::folder, conditions_);
}

std::string gguf_tensor_name(std::string_view folder) { return gguf_names().in_file(folder); }

} // namespace troupe
