#include "runtime/import/gguf/gguf_recurrent.hpp"

#include "runtime/import/gguf/gguf_experts.hpp"
#include "runtime/model/config_limits.hpp"
#include "runtime/model/families/recurrent_reading.hpp"
#include "runtime/model/recurrent_layers.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

using namespace config_limits;

std::string block(int layer) { return "blk." + std::to_string(layer) + "."; }

bool has(const architecture_keys& keys, int layer, const char* name) {
  return keys.tensor(block(layer) + name) != nullptr;
}

/// What layers consist of, by the tensors that they have. `beside`: attention may be beside a recurrence.
void describe_parts(const architecture_keys& keys, model_config& model, const char* recurrent, bool beside = false) {
  model.parts.clear();
  for (int i = 0; i < model.layers; ++i) {
    layer_parts parts{.attention = has(keys, i, "attn_q.weight"), .recurrence = has(keys, i, recurrent)};
    parts.attention = parts.attention && (beside || !parts.recurrence);
    parts.mlp = has(keys, i, "ffn_up.weight") || has(keys, i, "ffn_gate_inp.weight");
    model.parts.push_back(parts);
  }
}

/// Whether the first layer with a recurrence has a tensor.
bool has_of_first(const architecture_keys& keys, const model_config& model, const char* name) {
  const auto first = std::ranges::find(model.parts, true, &layer_parts::recurrence) - model.parts.begin();
  return has(keys, static_cast<int>(first), name);
}

void describe_delta(const architecture_keys& keys, model_config& model) {
  auto& r = model.recurrent;
  r.type = recurrent_type::delta;
  r.taps = keys.size("ssm.conv_kernel", max_taps);
  r.key_dim = keys.size("ssm.state_size", max_state_dim);
  r.key_heads = keys.size("ssm.group_count", max_heads);
  r.heads = keys.size("ssm.time_step_rank", max_heads);
  r.value_dim = keys.size("ssm.inner_size", max_ffn) / r.heads;
  r.norm = kernels::gate_norm::before;
  r.norm_group = r.value_dim;
  r.head_norm = true;
  r.log_decay = false;
  families::bound_recurrence(keys.file().name(), model);
  model.qk_norm = model.attention_gate = true;
  describe_parts(keys, model, "ssm_conv1d.weight");
}

void describe_mamba(const architecture_keys& keys, model_config& model, bool beside = false) {
  auto& r = model.recurrent;
  r.type = recurrent_type::ssd;
  r.taps = keys.size("ssm.conv_kernel", max_taps);
  r.key_dim = keys.size("ssm.state_size", max_state_dim);
  r.key_heads = keys.integer("ssm.group_count", 1, max_heads).value_or(1);
  r.heads = keys.size("ssm.time_step_rank", max_heads);
  const int inner = keys.size("ssm.inner_size", max_ffn);
  r.value_dim = inner / r.heads;
  r.log_decay = false;
  r.least_dt = static_cast<float>(keys.number("ssm.time_step_min", 0, 1e6).value_or(0));
  families::bound_recurrence(keys.file().name(), model);
  if (r.inner() != inner)
    throw failure(errc::bad_file,
                  keys.label("ssm.inner_size") + " is " + std::to_string(inner) + ", which " +
                    shown(keys.full("ssm.time_step_rank")) + ", " + std::to_string(r.heads) + ", does not divide");
  describe_parts(keys, model, "ssm_in.weight", beside);
  r.conv_bias = has_of_first(keys, model, "ssm_conv1d.bias");
  r.norm_group = inner / r.key_heads;
  if (has_of_first(keys, model, "ssm_norm.weight"))
    r.norm = kernels::gate_norm::after;
}

void describe_short_convolution(const architecture_keys& keys, model_config& model) {
  model.qk_norm = true;
  model.recurrent.type = recurrent_type::short_convolution;
  model.recurrent.taps = keys.size("shortconv.l_cache", max_taps);
  describe_parts(keys, model, "shortconv.conv.weight");
  model.recurrent.conv_bias = model.recurrent.projection_bias = has_of_first(keys, model, "shortconv.conv.bias");
}

float factor_of(const architecture_keys& keys, std::string_view key) {
  return static_cast<float>(keys.number(key, 1e-9, 1e9).value_or(1));
}

} // namespace

// -- what metadata says -----------------------------------------------------------------------------------------------

void describe_qwen3next(const architecture_keys& keys, model_config& model) {
  describe_delta(keys, model);
  describe_routed_experts(keys, model, true);
  model.experts.shared_gate = true;
}

/// Values' heads are stored in turns: first those of each head of keys, then the second of each.
void describe_qwen35(const architecture_keys& keys, model_config& model) {
  describe_delta(keys, model);
  model.recurrent.in_turns = model.recurrent.heads != model.recurrent.key_heads;
}

void describe_qwen35moe(const architecture_keys& keys, model_config& model) {
  describe_qwen3next(keys, model);
  model.recurrent.in_turns = model.recurrent.heads != model.recurrent.key_heads;
}

void describe_lfm2(const architecture_keys& keys, model_config& model) { describe_short_convolution(keys, model); }

void describe_lfm2moe(const architecture_keys& keys, model_config& model) {
  describe_short_convolution(keys, model);
  model.experts.scores = router_scores::sigmoid;
  describe_routed_experts(keys, model, true);
}

/// Also Bamba's, whose attention rotates.
void describe_granite_hybrid(const architecture_keys& keys, model_config& model) {
  model.embedding_scale = factor_of(keys, "embedding_scale");
  model.residual_scale = factor_of(keys, "residual_scale");
  model.logit_scale = 1 / factor_of(keys, "logit_scale");
  model.attention_scale = static_cast<float>(keys.number("attention.scale", 1e-9, 1e9).value_or(0));
  describe_mamba(keys, model);
  if (!keys.boolean("rope.scaling.finetuned").value_or(false))
    model.unrotated.assign(as_size(model.layers), true);
  if (keys.integer("expert_count", 0, max_experts).value_or(0) == 0)
    return;
  describe_routed_experts(keys, model, false);
  model.experts.scores = router_scores::chosen;
}

/// A layer is a mixer or an MLP.
void describe_nemotron_h(const architecture_keys& keys, model_config& model) {
  model.gated = false;
  model.act = {kernels::activation_type::relu_squared};
  model.unrotated.assign(as_size(model.layers), true);
  describe_mamba(keys, model);
  for (int i = 0; i < model.layers; ++i)
    if (has(keys, i, "ffn_latent_down.weight") || has(keys, i, "moe_latent_down.weight"))
      throw failure(errc::unsupported, keys.file().name() + ": experts of latents are not supported");
  if (keys.integer("expert_count", 0, max_experts).value_or(0) == 0)
    return;
  model.experts.scores = router_scores::sigmoid;
  describe_routed_experts(keys, model, true);
}

/// Files have its multipliers in the weights.
void describe_falcon_h1(const architecture_keys& keys, model_config& model) { describe_mamba(keys, model, true); }

void describe_kimi_linear(const architecture_keys& keys, model_config& model) {
  auto& r = model.recurrent;
  r.type = recurrent_type::channel_delta;
  r.taps = keys.size("ssm.conv_kernel", max_taps);
  r.key_dim = r.value_dim = keys.size("kda.head_dim", max_state_dim);
  describe_parts(keys, model, "ssm_conv1d_q.weight");
  for (int i = 0; i < model.layers; ++i) {
    const auto* betas = keys.tensor(block(i) + "ssm_beta.weight");
    const auto* low = keys.tensor(block(i) + "ssm_f_a.weight");
    if (!betas || !low || betas->info.shape.size() != 2 || low->info.shape.size() != 2)
      continue;
    r.heads = r.key_heads = static_cast<int>(std::min<std::size_t>(betas->info.shape[0], max_heads + 1));
    r.rank = static_cast<int>(std::min<std::size_t>(low->info.shape[0], max_ffn));
  }
  r.norm = kernels::gate_norm::before;
  r.norm_group = r.value_dim;
  r.head_norm = r.sigmoid_gate = true;
  r.log_decay = false;
  families::bound_recurrence(keys.file().name(), model);
  model.unrotated.assign(as_size(model.layers), true);
  model.rope.dims = model.latent.rotated;
  model.rope.interleaved = false;
  model.attention_scale = static_cast<float>(1 / std::sqrt(double(model.latent.plain + model.latent.rotated)));
  model.experts.scores = router_scores::sigmoid;
  describe_routed_experts(keys, model, true);
}

void describe_mamba2(const architecture_keys& keys, model_config& model) { describe_mamba(keys, model); }

} // namespace troupe
