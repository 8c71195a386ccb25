// The part of tensor_names that knows which tensors a model needs, and checks whether a checkpoint has them.
#include "runtime/model/branch_convolutions.hpp"
#include "runtime/model/gram_layers.hpp"
#include "runtime/model/recurrent_layers.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/model/unused_tensors.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <iterator>

namespace troupe {

wanted_tensor tensor_names::bias(const wanted_tensor& weight) {
  return {weight.name.substr(0, weight.name.rfind('.')) + ".bias", {weight.shape[0]}};
}

std::vector<wanted_tensor> tensor_names::biases(const std::vector<wanted_tensor>& matrices) {
  std::vector<wanted_tensor> result;
  std::ranges::transform(matrices, std::back_inserter(result), bias);
  return result;
}

std::vector<wanted_tensor> tensor_names::layer_norms(int layer) const {
  std::vector<wanted_tensor> result;
  if (config_.plain_norm)
    return result;
  const auto parts = config_.parts_of(layer);
  const auto norms = config_.norms_of(layer);
  if (norms == norm_place::before || norms == norm_place::both) {
    if (parts.mixes() && (layer > 0 || !config_.skips_first_norm))
      result.push_back(input_norm(layer));
    if (config_.holds_block(layer))
      result.push_back(joined_norm(layer));
    if (parts.mlp && !config_.shared_norm && !config_.borrows_block(layer))
      result.push_back(post_norm(layer));
  }
  if (config_.norms_attention(layer))
    result.push_back(attention_norm(layer));
  if (config_.norms_mlp(layer))
    result.push_back(mlp_norm(layer));
  return result;
}

std::vector<wanted_tensor> tensor_names::all() const {
  const auto part = config_.part();
  std::vector<wanted_tensor> result;
  auto add = [&](const std::vector<wanted_tensor>& tensors, bool bias) {
    result.insert(result.end(), tensors.begin(), tensors.end());
    if (bias)
      std::ranges::copy(biases(tensors), std::back_inserter(result));
  };
  if (part.embeds || (config_.has_head() && config_.tied))
    result.push_back(embedding());
  if (part.heads && config_.final_norm && !config_.plain_norm)
    add({final_norm()}, config_.norm_bias);
  if (part.embeds && config_.positions == position_type::learned)
    result.push_back(positions());
  if (part.embeds && config_.token_types > 0)
    result.push_back(token_types());
  if (part.embeds && config_.embedding_norm && !config_.plain_norm && !config_.embedding_norm_plain)
    add({embedding_norm()}, config_.norm_bias);
  if (config_.learned_frequencies)
    result.push_back(frequencies());
  if (config_.layer_inputs > 0)
    add({layer_inputs(), layer_projection(), layer_projection_norm()}, false);
  for (int i = 1; i < config_.altup.streams; ++i)
    add({altup_in(i), altup_out(i)}, false);
  if (config_.hyper && part.heads)
    add(hyper_head(), false);
  if (config_.has_head() && !config_.tied)
    result.push_back(head());
  if (config_.has_head() && config_.head_bias)
    result.push_back(head_bias());
  for (int layer = part.first; layer < part.end; ++layer) {
    const auto parts = config_.parts_of(layer);
    add(layer_norms(layer), config_.norm_bias);
    if (parts.recurrence)
      add(recurrent_tensors(config_, layer).all(), false);
    if (config_.layer_inputs > 0)
      add({input_gate(layer), input_projection(layer), input_projection_norm(layer)}, false);
    if (config_.altup) {
      add({altup_router(layer), altup_router_norm(layer), altup_prediction(layer), altup_correction(layer),
           altup_output_scale(layer), laurel_norm(layer)},
          false);
      add(laurel(layer), false);
    }
    if (config_.hyper && parts.mixes())
      add(hyper_attention(layer), false);
    if (config_.hyper && parts.mlp)
      add(hyper_mlp(layer), false);
    if (config_.layer_scales)
      result.push_back(layer_scale(layer));
    add(activation(layer), false);
    if (config_.shared_blocks && parts.attention) {
      result.push_back(block_output(layer));
      add(qkv_pairs(layer), false);
      add(gate_up_pairs(layer), false);
    }
    if (config_.borrows_block(layer))
      continue;
    if (parts.attention) {
      add(qk_norms(layer), false);
      if (config_.has_sinks(layer))
        result.push_back(sinks(layer));
      if (config_.distances)
        result.push_back(distances(layer));
      add(qkv(layer), config_.qkv_bias);
      add(o(layer), config_.o_bias);
    }
    if (config_.latent && parts.attention) {
      if (config_.latent.q_rank > 0)
        add({latent_q_norm(layer), latent_q(layer)}, false);
      if (config_.has_kv(layer))
        result.push_back(latent_kv_norm(layer));
      if (config_.head_growth)
        add(head_growth(layer), false);
      for (int h = 0; h < config_.heads; ++h)
        add({latent_key(layer, h), latent_value(layer, h)}, false);
    }
    if (config_.recurrent.type == recurrent_type::branches)
      add(branch_tensors(config_, layer).all(), false);
    if (config_.grams.at(layer))
      add(gram_tensors(config_, layer).all(), false);
    if (config_.compressed && parts.attention) {
      add({compressed_q_norm(layer), compressed_kv_norm(layer), compressed_q(layer)}, false);
      for (int g = 0; g < config_.compressed.groups; ++g)
        result.push_back(compressed_group(layer, g));
      if (config_.compressed.rates[as_size(layer)] > 0)
        add(entries(layer), false);
      if (config_.indexes(layer)) {
        add(index_entries(layer), false);
        add({index_q(layer), index_weights(layer)}, false);
      }
    } else if (config_.indexes(layer) && config_.indexer.plain()) {
      add({index_q(layer), index_key(layer), index_norm(layer), index_head_norm(layer)}, false);
    } else if (config_.indexes(layer)) {
      add({index_q(layer), index_key(layer), index_weights(layer)}, false);
      add({index_norm(layer)}, true);
      if (config_.indexer.reads_hidden)
        add({index_query_norm(layer)}, true);
      if (config_.head_growth)
        add(index_growth(layer), false);
    }
    if (!parts.mlp)
      continue;
    if (!config_.is_sparse(layer) || config_.experts.shortcut) {
      add(gate_up(layer), config_.mlp_bias);
      add(down(layer), config_.mlp_bias);
    }
    if (!config_.is_sparse(layer))
      continue;
    add({router(layer)}, config_.experts.router_bias);
    if (config_.is_hashed(layer))
      result.push_back(expert_table(layer));
    else if (config_.experts.correction)
      result.push_back(router_correction(layer));
    for (int e = 0; e < config_.experts.count - config_.experts.nulls; ++e) {
      add(expert_gate_up(layer, e), config_.experts.bias);
      add(expert_down(layer, e), config_.experts.bias);
    }
    if (config_.experts.shared_ffn > 0) {
      add(shared_gate_up(layer), false);
      add(shared_down(layer), false);
    }
    if (config_.experts.shared_gate)
      result.push_back(shared_gate(layer));
    if (config_.experts.apart) {
      add(mixture_norms(layer), false);
      result.push_back(expert_scales(layer));
    }
  }
  return result;
}

std::vector<std::string> tensor_names::norms() const {
  std::vector<std::string> result;
  if (!config_.plain_norm && config_.final_norm)
    result.push_back(final_norm().name);
  for (int layer = 0; layer < config_.layers; ++layer) {
    for (const auto& norm : layer_norms(layer))
      result.push_back(norm.name);
    if (config_.parts_of(layer).attention)
      for (const auto& norm : qk_norms(layer))
        result.push_back(norm.name);
  }
  return result;
}

std::set<std::string> tensors_used(const model_config& config) {
  std::set<std::string> used;
  for (const auto& w : tensor_names(config).all())
    used.insert(w.name);
  return used;
}

const tensor_info& require_tensor(const checkpoint& tensors, const wanted_tensor& wanted) {
  const auto* info = tensors.find(wanted.name);
  const auto where = tensors.where(wanted.name) + ": tensor " + shown(wanted.name);
  if (!info)
    throw failure(errc::bad_file, where + " is missing, expected with the shape " + to_string(wanted.shape));
  if (info->shape != wanted.shape)
    throw failure(errc::bad_file,
                  where + " has the shape " + to_string(info->shape) + ", expected " + to_string(wanted.shape));
  if (!weight_format_of(info->type))
    throw failure(errc::unsupported,
                  where + " is stored as " + std::string(to_string(info->type)) + ", supported are F32, F16 and BF16");
  return *info;
}

std::vector<std::string> check_tensors(const checkpoint& tensors, const model_config& config,
                                       const std::set<std::string>& others) {
  for (const auto& w : tensor_names(config).all())
    require_tensor(tensors, w);
  auto used = tensors_used(config);
  used.insert(others.begin(), others.end());
  return check_unused_tensors(tensors, config, used);
}

} // namespace troupe
