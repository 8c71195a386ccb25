#include "runtime/import/gguf/gguf_experts.hpp"

#include "runtime/model/config_limits.hpp"

#include <cmath>

namespace troupe {

using namespace config_limits;

void describe_experts(const architecture_keys& keys, model_config& model) {
  auto& experts = model.experts;
  experts.count = keys.size("expert_count", max_experts);
  experts.chosen = keys.size("expert_used_count", max_experts);
  if (experts.chosen > experts.count)
    throw failure(errc::bad_file,
                  keys.label("expert_used_count") + " is " + std::to_string(experts.chosen) +
                    ", more than the experts, " + std::to_string(experts.count));
  if (std::int64_t{experts.count} * model.layers > max_layer_experts)
    throw failure(errc::unsupported,
                  keys.label("expert_count") + " is " + std::to_string(experts.count) + " in each of " +
                    std::to_string(model.layers) + " layers, supported are " + std::to_string(max_layer_experts) +
                    " in all");
  experts.ffn = keys.integer("expert_feed_forward_length", 1, max_ffn).value_or(model.ffn);
  for (int i = 0; i < model.layers; ++i)
    model.sparse.push_back(keys.tensor("blk." + std::to_string(i) + ".ffn_gate_inp.weight") != nullptr);
}

namespace {

/// Experts are chosen within groups: V2 takes a group for as good as its best expert, V3 as its two best.
void describe_expert_groups(const architecture_keys& keys, expert_config& experts) {
  experts.groups = keys.integer("expert_group_count", 0, max_experts).value_or(1);
  experts.chosen_groups = keys.integer("expert_group_used_count", 0, max_experts).value_or(1);
  if (experts.groups <= 1) {
    experts.groups = experts.chosen_groups = 1;
    return;
  }
  if (experts.count % experts.groups != 0 || experts.chosen_groups < 1 || experts.chosen_groups > experts.groups ||
      experts.chosen > experts.chosen_groups * (experts.count / experts.groups))
    throw failure(errc::bad_file,
                  keys.label("expert_group_count") + " is " + std::to_string(experts.groups) + " and " +
                    shown(keys.full("expert_group_used_count")) + " is " + std::to_string(experts.chosen_groups) +
                    ", which does not fit " + std::to_string(experts.count) + " experts of which " +
                    std::to_string(experts.chosen) + " are chosen");
  experts.group_by_two = experts.scores == router_scores::sigmoid;
}

} // namespace

void describe_deepseek2(const architecture_keys& keys, model_config& model) {
  const auto& latent = model.latent;
  double scale = 1 / std::sqrt(double(latent.plain + latent.rotated));
  const auto multiplier = keys.number("rope.scaling.yarn_log_multiplier", 0, 1e6).value_or(0);
  if (model.rope.type == rope_type::yarn && multiplier > 0) { // scores are scaled, and not cosines and sines
    model.rope.attention_factor = keys.number("rope.scaling.attn_factor", 1e-6, 1e6).value_or(1);
    const double grown = model.rope.factor > 1 ? multiplier * std::log(model.rope.factor) + 1 : 1;
    scale *= grown * grown;
  }
  model.attention_scale = static_cast<float>(scale);
  model.rope.dims = latent.rotated; // of the cached key
  if (keys.integer("expert_count", 0, max_experts).value_or(0) == 0)
    return;
  describe_experts(keys, model);
  auto& experts = model.experts;
  const int shared = keys.integer("expert_shared_count", 0, max_experts).value_or(0);
  if (std::int64_t{shared} * experts.ffn > max_ffn)
    throw failure(errc::unsupported,
                  keys.label("expert_shared_count") + " is " + std::to_string(shared) + ", which times " +
                    shown(keys.full("expert_feed_forward_length")) + " is more than the supported " +
                    std::to_string(max_ffn));
  experts.shared_ffn = shared * experts.ffn;
  for (int i = 0; i < model.layers && !experts.correction; ++i)
    experts.correction = keys.tensor("blk." + std::to_string(i) + ".exp_probs_b.bias") != nullptr;
  constexpr int softmax = 1, sigmoid = 2;
  const int gating = keys.integer("expert_gating_func", 0, 1 << 16).value_or(0); // 0: not said, as in older files
  if (gating > sigmoid)
    throw failure(errc::unsupported,
                  keys.label("expert_gating_func") + " is " + std::to_string(gating) +
                    ", supported are 1 (softmax) and 2 (sigmoid)");
  if (gating == sigmoid || (gating != softmax && experts.correction))
    experts.scores = router_scores::sigmoid;
  else
    model.family = "deepseek_v2";
  experts.renormalise = keys.boolean("expert_weights_norm").value_or(false);
  if (const auto given = keys.number("expert_weights_scale", 0, 1e6); given && *given > 0)
    experts.scale = static_cast<float>(*given);
  describe_expert_groups(keys, experts);
}

void describe_routed_experts(const architecture_keys& keys, model_config& model, bool renormalise) {
  describe_experts(keys, model);
  auto& experts = model.experts;
  const int shared = keys.integer("expert_shared_count", 0, max_experts).value_or(0);
  for (int i = 0; i < model.layers; ++i) {
    const auto blk = "blk." + std::to_string(i) + ".";
    experts.correction = experts.correction || keys.tensor(blk + "exp_probs_b.bias") != nullptr;
    if (const auto* up = keys.tensor(blk + "ffn_up_shexp.weight"); up && experts.shared_ffn == 0)
      experts.shared_ffn = static_cast<int>(up->info.shape[0]);
  }
  if (experts.shared_ffn > 0 && shared > 1 && experts.shared_ffn % shared != 0)
    throw failure(errc::bad_file,
                  keys.label("expert_shared_count") + " is " + std::to_string(shared) +
                    ", which does not divide the shared expert's " + std::to_string(experts.shared_ffn) + " outputs");
  constexpr int softmax = 1, sigmoid = 2;
  const int gating = keys.integer("expert_gating_func", 0, 1 << 16).value_or(0);
  if (gating > sigmoid)
    throw failure(errc::unsupported,
                  keys.label("expert_gating_func") + " is " + std::to_string(gating) +
                    ", supported are 1 (softmax) and 2 (sigmoid)");
  if (gating == sigmoid)
    experts.scores = router_scores::sigmoid;
  else if (gating == softmax)
    experts.scores = router_scores::softmax;
  experts.renormalise = keys.boolean("expert_weights_norm").value_or(renormalise);
  if (const auto given = keys.number("expert_weights_scale", 0, 1e6); given && *given > 0)
    experts.scale = static_cast<float>(*given);
  describe_expert_groups(keys, experts);
}

} // namespace troupe
