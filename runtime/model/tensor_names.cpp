#include "runtime/model/tensor_names.hpp"

#include "runtime/model/unused_tensors.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <iterator>

namespace troupe {

namespace {

std::string prefix(int layer) { return "model.layers." + std::to_string(layer) + "."; }

} // namespace

tensor_names::tensor_names(const model_config& config)
  : config_(config),
    hidden_(as_size(config.hidden)),
    ffn_(as_size(config.ffn)),
    q_(as_size(config.heads) * as_size(config.head_dim)),
    kv_(as_size(config.kv_heads) * as_size(config.head_dim)) {}

wanted_tensor tensor_names::embedding() const {
  return {"model.embed_tokens.weight", {as_size(config_.vocab), hidden_}};
}

wanted_tensor tensor_names::final_norm() const { return {"model.norm.weight", {hidden_}}; }

wanted_tensor tensor_names::head() const {
  return config_.tied ? embedding() : wanted_tensor{"lm_head.weight", {as_size(config_.vocab), hidden_}};
}

wanted_tensor tensor_names::input_norm(int layer) const {
  return {prefix(layer) + "input_layernorm.weight", {hidden_}};
}

wanted_tensor tensor_names::post_norm(int layer) const {
  return {prefix(layer) + "post_attention_layernorm.weight", {hidden_}};
}

wanted_tensor tensor_names::q_norm(int layer) const {
  return {prefix(layer) + "self_attn.q_norm.weight", {as_size(config_.head_dim)}};
}

wanted_tensor tensor_names::k_norm(int layer) const {
  return {prefix(layer) + "self_attn.k_norm.weight", {as_size(config_.head_dim)}};
}

std::vector<wanted_tensor> tensor_names::qkv(int layer) const {
  const auto p = prefix(layer) + "self_attn.";
  return {
    {p + "q_proj.weight", {q_, hidden_}}, {p + "k_proj.weight", {kv_, hidden_}}, {p + "v_proj.weight", {kv_, hidden_}}};
}

std::vector<wanted_tensor> tensor_names::o(int layer) const {
  return {{prefix(layer) + "self_attn.o_proj.weight", {hidden_, q_}}};
}

std::vector<wanted_tensor> tensor_names::gate_up(int layer) const {
  const auto p = prefix(layer) + "mlp.";
  return {{p + "gate_proj.weight", {ffn_, hidden_}}, {p + "up_proj.weight", {ffn_, hidden_}}};
}

std::vector<wanted_tensor> tensor_names::down(int layer) const {
  return {{prefix(layer) + "mlp.down_proj.weight", {hidden_, ffn_}}};
}

std::vector<wanted_tensor> tensor_names::biases(const std::vector<wanted_tensor>& matrices) {
  std::vector<wanted_tensor> result;
  for (const auto& m : matrices)
    result.push_back({m.name.substr(0, m.name.rfind('.')) + ".bias", {m.shape[0]}});
  return result;
}

std::vector<wanted_tensor> tensor_names::all() const {
  std::vector<wanted_tensor> result{embedding(), final_norm()};
  if (!config_.tied)
    result.push_back(head());
  auto add = [&](const std::vector<wanted_tensor>& matrices, bool bias) {
    result.insert(result.end(), matrices.begin(), matrices.end());
    if (bias)
      std::ranges::copy(biases(matrices), std::back_inserter(result));
  };
  for (int layer = 0; layer < config_.layers; ++layer) {
    result.push_back(input_norm(layer));
    result.push_back(post_norm(layer));
    if (config_.qk_norm) {
      result.push_back(q_norm(layer));
      result.push_back(k_norm(layer));
    }
    add(qkv(layer), config_.qkv_bias);
    add(o(layer), config_.o_bias);
    add(gate_up(layer), config_.mlp_bias);
    add(down(layer), config_.mlp_bias);
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

std::vector<std::string> check_tensors(const checkpoint& tensors, const model_config& config) {
  for (const auto& w : tensor_names(config).all())
    require_tensor(tensors, w);
  return check_unused_tensors(tensors, config, tensors_used(config));
}

} // namespace troupe
