#include "runtime/import/gguf/gguf_names.hpp"

#include "runtime/import/gguf/gguf_architectures.hpp"
#include "runtime/support/types.hpp"

#include <charconv>
#include <limits>
#include <optional>
#include <span>

namespace troupe {

namespace {

namespace gguf_rows { // whose names are short

using enum gguf_storage;
using form = gguf_architecture;

/// When a row counts, beside the forms of an architecture.
enum condition : std::uint64_t {
  norms_around = 1ULL << 50U,  // of attention and MLP, ahead and behind
  norms_behind = 1ULL << 51U,  // also those that are ahead of the MLP, where files call them after their place
  norms_of_sums = 1ULL << 52U, // with the residual, as encoders have them
  layer_normed = 1ULL << 53U,  // heads of q and k have weights of their own
  gated = 1ULL << 54U,         // attention
  apart = 1ULL << 55U,         // what is beside experts is the layer's MLP
  alone = 1ULL << 56U,         // an MLP without a mixer
  convolved = 1ULL << 57U,     // short convolutions
  recurrent = 1ULL << 58U,     // other recurrences,
  delta = 1ULL << 59U,         // of these kinds
  channels = 1ULL << 60U,
  ssd = 1ULL << 61U,
  selective = 1ULL << 62U,
};

/// Names end with a dot where what is behind it stays. `#` counts matrices that files have as one tensor.
struct row {
  std::string_view file, folder;
  std::uint64_t when = 0; // forms and conditions
  gguf_storage how = whole;
};

constexpr row outer_rows[] = {
  {"token_embd_norm.weight", "model.norm.weight", convolved},
  {"token_embd.", "model.embed_tokens."},
  {"output_norm.", "model.norm."},
  {"output.", "lm_head."},
  {"position_embd.", "model.position_embeddings."},
  {"token_embd_norm.", "model.embedding_norm."},
  {"token_types.", "model.token_type_embeddings."},
  {"per_layer_token_embd.", "model.embed_tokens_per_layer."},
  {"per_layer_model_proj.", "model.per_layer_model_projection."},
  {"per_layer_proj_norm.", "model.per_layer_projection_norm."},
  {"altup_proj.", "model.altup_projections.#."},
  {"altup_unembd_proj.", "model.altup_unembed_projections.#."},
};

/// Tensors of a layer, without the prefixes "blk.N." and "model.layers.N.". Of several rows that count, the first is
/// taken, in both directions.
constexpr row layer_rows[] = {
  {"attn_norm.", "post_attention_layernorm.", form::two_norms}, // of the MLP, whose input differs from attention's
  {"attn_norm_2.", "input_layernorm.", form::two_norms},
  {"attn_norm.", "post_attention_layernorm.", alone},
  {"ffn_norm", "post_attention_layernorm.weight", form::bare_norm},
  {"attn_norm.", "input_layernorm."},
  {"attn_output_norm.", "post_attention_layernorm.", norms_of_sums},
  {"layer_output_norm.", "post_feedforward_layernorm.", norms_of_sums},
  {"ffn_norm.", "pre_feedforward_layernorm.", norms_around},
  {"post_attention_norm.", "post_attention_layernorm.", norms_behind},
  {"ffn_norm.", "post_attention_layernorm."},
  {"post_attention_norm.", "post_attention_layernorm."},
  {"post_ffw_norm.", "post_feedforward_layernorm."},
  // Attention.
  {"attn_q.", "recurrent.q_proj.", channels},
  {"attn_k.", "recurrent.k_proj.", channels},
  {"attn_v.", "recurrent.v_proj.", channels},
  {"attn_output.", "recurrent.out_proj.", channels},
  {"attn_q.weight", "self_attn.q_proj.weight", gated, turns},
  {"attn_q.weight", "self_attn.attn_gate.weight", gated, turns},
  {"attn_qkv.", "self_attn.q_proj.", form::fused_qkv, rows},
  {"attn_qkv.", "self_attn.k_proj.", form::fused_qkv, rows},
  {"attn_qkv.", "self_attn.v_proj.", form::fused_qkv, rows},
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
  {"attn_k_b.", "self_attn.latent_key.#."},
  {"attn_v_b.", "self_attn.latent_value.#."},
  {"attn_q_norm.weight", "self_attn.q_norm.weight", layer_normed, heads},
  {"attn_k_norm.weight", "self_attn.k_norm.weight", layer_normed, heads},
  {"attn_q_norm.", "self_attn.q_norm."},
  {"attn_k_norm.", "self_attn.k_norm."},
  // MLPs and experts.
  {"ffn_up.weight", "mlp.gate_proj.weight", form::fused_up, rows},
  {"ffn_up.weight", "mlp.up_proj.weight", form::fused_up, rows},
  {"ffn_gate.", "mlp.shared_expert.gate_proj.", apart},
  {"ffn_up.", "mlp.shared_expert.up_proj.", apart},
  {"ffn_down.", "mlp.shared_expert.down_proj.", apart},
  {"ffn_gate.", "mlp.gate_proj."},
  {"ffn_up.", "mlp.up_proj."},
  {"ffn_down.", "mlp.down_proj."},
  {"ffn_gate_up_exps.", "mlp.experts.#.gate_proj.", form::fused_experts},
  {"ffn_gate_up_exps.", "mlp.experts.#.up_proj.", form::fused_experts},
  {"ffn_gate_exps.", "mlp.experts.#.gate_proj."},
  {"ffn_up_exps.", "mlp.experts.#.up_proj."},
  {"ffn_down_exps.", "mlp.experts.#.down_proj."},
  {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"}, // before what it begins with
  {"ffn_down_exps.scale", "mlp.gate.expert_scale"},
  {"ffn_gate_inp.scale", "mlp.gate_norm.weight", apart},
  {"ffn_gate_inp.", "mlp.gate."},
  {"ffn_gate_inp_shexp.", "mlp.shared_expert_gate.", 0, vector},
  {"ffn_gate_shexp.", "mlp.shared_expert.gate_proj."},
  {"ffn_up_shexp.", "mlp.shared_expert.up_proj."},
  {"ffn_down_shexp.", "mlp.shared_expert.down_proj."},
  {"pre_ffw_norm_2.", "mlp.experts_norm."}, // of experts apart
  {"post_ffw_norm_1.", "mlp.shared_expert_norm."},
  {"post_ffw_norm_2.", "mlp.experts_result_norm."},
  // What layers get of each token, numbers of theirs, alternating updates.
  {"inp_gate.", "per_layer_input_gate."},
  {"proj.", "per_layer_projection."},
  {"post_norm.", "post_per_layer_input_norm."},
  {"layer_output_scale.weight", "layer_scalar"},
  {"altup_correct_coef.", "altup.correction_coefs."},
  {"altup_correct_scale.weight", "altup.correct_output_scale"},
  {"altup_predict_coef.", "altup.prediction_coefs."},
  {"altup_router.", "altup.modality_router."},
  {"altup_router_norm.", "altup.router_norm."},
  {"laurel_l.", "laurel.linear_left."},
  {"laurel_r.", "laurel.linear_right."},
  {"laurel_post_norm.", "laurel.post_laurel_norm."},
  // Recurrences.
  {"shortconv.", "recurrent.", convolved},
  {"ssm_a", "recurrent.decay", ssd, column},
  {"ssm_a", "recurrent.decay", channels, inner_column},
  {"ssm_a", "recurrent.decay", recurrent},
  {"ssm_dt.bias", "recurrent.dt_bias", recurrent},
  {"ssm_d", "recurrent.skip", ssd, column},
  {"ssm_norm.weight", "recurrent.norm.weight", ssd, groups},
  {"ssm_norm.weight", "recurrent.norm.weight", recurrent},
  {"ssm_in.", "recurrent.gate_proj.", ssd, rows},
  {"ssm_in.", "recurrent.conv_proj.", ssd, rows},
  {"ssm_in.", "recurrent.rate_proj.", ssd, rows},
  {"ssm_in.", "recurrent.conv_proj.", selective, rows},
  {"ssm_in.", "recurrent.gate_proj.", selective, rows},
  {"ssm_x.", "recurrent.parts.", selective},
  {"ssm_dt.weight", "recurrent.rate_up.weight", selective},
  {"ssm_dt_norm.", "recurrent.dt_norm.", selective},
  {"ssm_b_norm.", "recurrent.b_norm.", selective},
  {"ssm_c_norm.", "recurrent.c_norm.", selective},
  {"ssm_d", "recurrent.skip", selective},
  {"ssm_ba.", "recurrent.beta_proj.", form::fused_rates, turns},
  {"ssm_ba.", "recurrent.rate_proj.", form::fused_rates, turns},
  {"ssm_alpha.", "recurrent.rate_proj.", delta},
  {"ssm_beta.", "recurrent.beta_proj.", recurrent},
  {"attn_qkv.", "recurrent.conv_proj.", delta},
  {"attn_gate.", "recurrent.gate_proj.", delta},
  {"ssm_f_a.", "recurrent.rate_down.", channels},
  {"ssm_f_b.", "recurrent.rate_up.", channels},
  {"ssm_g_a.", "recurrent.gate_down.", channels},
  {"ssm_g_b.", "recurrent.gate_up.", channels},
  {"ssm_conv1d_q.", "recurrent.q_conv.", channels, inner_channels},
  {"ssm_conv1d_k.", "recurrent.k_conv.", channels, inner_channels},
  {"ssm_conv1d_v.", "recurrent.v_conv.", channels, inner_channels},
  {"ssm_conv1d.", "recurrent.conv.", recurrent},
  {"ssm_out.", "recurrent.out_proj.", recurrent},
  // Multi-token prediction.
  {"nextn.eh_proj.", "eh_proj."},
  {"nextn.enorm.", "enorm."},
  {"nextn.hnorm.", "hnorm."},
  {"nextn.shared_head_norm.", "shared_head.norm."},
  {"nextn.shared_head_head.", "shared_head.head."},
  {"nextn.embed_tokens.", "embed_tokens."},
};

constexpr row layer_prefixes{"blk.", "model.layers."};

/// A name, taken apart.
struct parts_of_name {
  int layer = -1;          // none
  std::string number = {}; // of the layer, with a dot behind it
  std::string_view rest;
};

parts_of_name take_apart(std::string_view name, std::string_view layers) {
  const auto end = name.starts_with(layers) ? name.find('.', layers.size()) : name.npos;
  if (end == name.npos)
    return {.rest = name};
  parts_of_name parts{.number = std::string(name.substr(layers.size(), end + 1 - layers.size())),
                      .rest = name.substr(end + 1)};
  const auto* digits = parts.number.data();
  if (std::from_chars(digits, digits + parts.number.size(), parts.layer).ptr == digits)
    parts.layer = std::numeric_limits<int>::max(); // of no layer that there is
  return parts;
}

/// What is behind `pattern`; nothing where the name begins otherwise.
std::optional<std::string_view> behind(std::string_view pattern, std::string_view name, int& number) {
  if (const auto mark = pattern.find('#'); mark != pattern.npos) {
    if (!name.starts_with(pattern.substr(0, mark)))
      return std::nullopt;
    const auto* end = name.data() + name.size();
    const auto digits = std::from_chars(name.data() + mark, end, number).ptr;
    name = {digits, end};
    pattern.remove_prefix(mark + 1);
  }
  if (!name.starts_with(pattern) || (!pattern.ends_with('.') && name.size() != pattern.size()))
    return std::nullopt;
  return name.substr(pattern.size());
}

} // namespace gguf_rows

} // namespace

gguf_names::gguf_names(const model_config& model) {
  using namespace gguf_rows;
  outer_ = gguf_architecture_of_family(model.family).forms;
  const auto add = [&](std::uint64_t what, bool holds) { outer_ |= holds ? what : 0; };
  add(norms_around, model.norms == norm_place::both);
  add(norms_of_sums, model.norms == norm_place::sum);
  add(norms_behind, model.norms != norm_place::before || (outer_ & form::named_by_place) != 0);
  add(layer_normed, model.qk_norm_layer);
  add(gated, model.attention_gate);
  add(convolved, model.recurrent.type == recurrent_type::short_convolution);
  if (model.shared_norm)
    outer_ &= ~std::uint64_t{form::two_norms};
  layers_.assign(as_size(model.layers), outer_);
  for (int i = 0; i < model.layers; ++i) {
    const auto parts = model.parts_of(i);
    auto& layer = layers_[as_size(i)];
    if (model.experts.apart && model.is_sparse(i))
      layer |= apart;
    if (!parts.mixes() && (outer_ & form::lists_mlps) != 0)
      layer |= alone;
    using kind = recurrent_type;
    if (parts.recurrence && model.recurrent.type != kind::short_convolution)
      layer |= recurrent |
        (model.recurrent.type == kind::delta             ? delta
           : model.recurrent.type == kind::channel_delta ? channels
           : model.recurrent.type == kind::selective     ? selective
                                                         : ssd);
  }
}

void gguf_names::assume(int layer, std::uint64_t forms, bool given) {
  auto& known = layers_[as_size(layer)];
  known = given ? known | forms : known & ~forms;
}

gguf_place gguf_names::counterpart(std::string_view full, bool of_file, bool alone) const {
  using namespace gguf_rows;
  const auto from = of_file ? &row::file : &row::folder, to = of_file ? &row::folder : &row::file;
  const auto name = take_apart(full, layer_prefixes.*from);
  const auto known = name.layer >= 0 && as_size(name.layer) < layers_.size() ? layers_[as_size(name.layer)] : outer_;
  const auto prefix = name.number.empty() ? std::string() : std::string(layer_prefixes.*to) + name.number;
  for (const auto& row : name.number.empty() ? std::span<const row>(outer_rows) : std::span<const row>(layer_rows)) {
    const bool shares = row.how == rows || row.how == turns || row.folder.find('#') != row.folder.npos;
    if ((row.when & ~known) != 0 || (alone && shares))
      continue;
    int slice = -1;
    if (const auto rest = behind(row.*from, name.rest, slice))
      return {prefix + std::string(row.*to) + std::string(*rest), row.how, slice};
  }
  return {std::string(full)};
}

gguf_place gguf_names::place_of(std::string_view folder) const { return counterpart(folder, false, false); }

std::string gguf_names::in_file(std::string_view folder) const { return counterpart(folder, false, true).name; }

std::string gguf_names::in_folder(std::string_view file) const { return counterpart(file, true, true).name; }

std::string gguf_tensor_name(std::string_view folder) { return gguf_names().in_file(folder); }

} // namespace troupe
