#include "runtime/model/tensor_names.hpp"

namespace troupe {

wanted_tensor tensor_names::post_norm(int layer) const {
  const auto* name = config_.norms_of(layer) == norm_place::both ? "pre_feedforward_layernorm"
                                                                 : "post_attention_layernorm";
  return {block_prefix(layer) + name + ".weight", {hidden_}};
}

std::vector<wanted_tensor> tensor_names::qk_norms(int layer) const {
  if (!config_.qk_normed(layer) || config_.qk_norm_plain)
    return {};
  if (!config_.has_kv(layer))
    return {q_norm(layer)};
  return {q_norm(layer), k_norm(layer)};
}

std::vector<wanted_tensor> tensor_names::qkv(int layer) const {
  const auto p = block_prefix(layer) + "self_attn.";
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
  if (config_.compressed)
    return {{p + "q_a_proj.weight", {as_size(config_.compressed.q_rank), hidden_}},
            {p + "kv_proj.weight", {as_size(config_.head_dim), hidden_}}};
  const auto q = q_width(layer), kv = kv_width(layer), value = as_size(config_.value_dim_of(layer));
  const auto read = as_size(config_.attention_input());
  if (!config_.has_kv(layer))
    return {{p + "q_proj.weight", {q, read}}};
  std::vector<wanted_tensor> result{{p + "q_proj.weight", {q, read}},
                                    {p + "k_proj.weight", {kv, read}},
                                    {p + "v_proj.weight", {as_size(config_.kv_heads_of(layer)) * value, read}}};
  if (config_.attention_gate)
    result.push_back({p + "attn_gate.weight", {as_size(config_.heads_of(layer)) * value, hidden_}});
  if (config_.distances)
    result.push_back({p + "distance_proj.weight", {as_size(config_.mixes_of(layer)), hidden_}});
  return result;
}

std::vector<wanted_tensor> tensor_names::o(int layer) const {
  return {{block_prefix(layer) + "self_attn.o_proj.weight", {hidden_, as_size(config_.attended_of(layer))}}};
}

namespace {

void add_pair(std::vector<wanted_tensor>& to, const std::string& stem, std::size_t rank, std::size_t inputs,
              std::size_t outputs) {
  to.push_back({stem + ".down.weight", {rank, inputs}});
  to.push_back({stem + ".up.weight", {outputs, rank}});
}

} // namespace

std::vector<wanted_tensor> tensor_names::gate_up_pairs(int layer) const {
  std::vector<wanted_tensor> pairs;
  if (const auto rank = as_size(config_.shared_blocks.mlp_rank); rank > 0)
    add_pair(pairs, prefix(layer) + "shared_block.pair.gate_up", rank, hidden_,
             (config_.gated ? 2 : 1) * as_size(config_.ffn_of(layer)));
  return pairs;
}

std::vector<wanted_tensor> tensor_names::qkv_pairs(int layer) const {
  std::vector<wanted_tensor> pairs;
  constexpr const char* names[] = {"q", "k", "v"};
  const auto rank = as_size(config_.shared_blocks.attention_rank);
  const auto matrices = qkv(layer);
  for (std::size_t i = 0; rank > 0 && i < 3; ++i)
    add_pair(pairs, prefix(layer) + "shared_block.pair." + names[i], rank, matrices[i].shape[1], matrices[i].shape[0]);
  return pairs;
}

std::size_t tensor_names::latent_queries() const {
  const auto& latent = config_.latent;
  return latent.q_rank > 0 ? as_size(latent.q_rank) : as_size(config_.heads) * as_size(latent.plain + latent.rotated);
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

std::vector<wanted_tensor> tensor_names::entries_of(int layer, const std::string& stem, int dim) const {
  const auto p = prefix(layer) + stem;
  const auto width = as_size(dim) * (config_.indexes(layer) ? 2 : 1);
  return {{p + "kv_proj.weight", {width, hidden_}},
          {p + "gate_proj.weight", {width, hidden_}},
          {p + "position_bias", {as_size(config_.compressed.rates[as_size(layer)]) * width}},
          {p + "norm.weight", {as_size(dim)}}};
}

std::vector<wanted_tensor> tensor_names::mlp(int layer, const std::string& stem, std::size_t ffn) const {
  const auto p = block_prefix(layer) + stem;
  std::vector<wanted_tensor> result;
  if (config_.gated)
    result.push_back({p + "gate_proj.weight", {ffn, hidden_}});
  result.push_back({p + "up_proj.weight", {ffn, hidden_}});
  return result;
}

std::vector<wanted_tensor> tensor_names::laurel(int layer) const {
  const auto rank = as_size(config_.altup.laurel);
  return {{prefix(layer) + "laurel.linear_left.weight", {rank, hidden_}},
          {prefix(layer) + "laurel.linear_right.weight", {hidden_, rank}}};
}

std::vector<wanted_tensor> tensor_names::hyper(const std::string& stem, bool written) const {
  const auto streams = as_size(config_.hyper.streams), width = streams * hidden_, rank = as_size(config_.hyper.rank);
  if (rank == 0) {
    const std::size_t kinds = !written ? 1
      : config_.hyper.mixes()          ? 3
                                       : 2, // to read, to write, to mix
      weights = streams * (kinds < 3 ? kinds : 2 + streams);
    return {{stem + "fn.weight", {weights, width}}, {stem + "base", {weights}}, {stem + "scale", {kinds}}};
  }
  std::vector<wanted_tensor> result{{stem + "hc_norm.weight", {width}},
                                    {stem + "input_mix_weight_down.weight", {rank, width}},
                                    {stem + "input_mix_weight_up.weight", {width, rank}}};
  if (written)
    result.push_back({stem + "block_inject_weight.weight", {streams, width}});
  return result;
}

std::vector<wanted_tensor> tensor_names::activation(int layer) const {
  if (config_.act.type != kernels::activation_type::xielu)
    return {};
  return {{prefix(layer) + "mlp.act_fn.alpha_p", {1}}, {prefix(layer) + "mlp.act_fn.alpha_n", {1}}};
}

bool tensor_names::on_host(const std::string& name) {
  return name.ends_with(".e_score_correction_bias") || name.ends_with(".layer_scalar") ||
    name.ends_with(".branches.scale") || name.ends_with(".expert_scale") || name.ends_with(".rotary_emb.alpha") ||
    name.find(".softmax_scaling.") != name.npos || name.find(".act_fn.") != name.npos ||
    (name.find("hyper_connection") != name.npos && (name.ends_with(".base") || name.ends_with(".scale")));
}

std::vector<wanted_tensor> tensor_names::mixture_norms(int layer) const {
  std::vector<wanted_tensor> norms;
  for (const char* name : {"mlp.gate_norm.weight", "mlp.experts_norm.weight", "mlp.shared_expert_norm.weight",
                           "mlp.experts_result_norm.weight"})
    norms.push_back({prefix(layer) + name, {hidden_}});
  return norms;
}

} // namespace troupe
