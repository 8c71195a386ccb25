// The configuration of a model as keys of llama.cpp's.
#include "runtime/import/gguf/gguf_architectures.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <ranges>

namespace troupe {

namespace {

std::uint32_t u32(int n) { return static_cast<std::uint32_t>(n); }

/// By which scores of latent attention grow with YaRN, for each e-fold of its factor; 0: they do not.
double latent_growth(const model_config& config) {
  const auto& latent = config.latent;
  if (!latent || config.rope.type != rope_type::yarn || config.rope.factor <= 1)
    return 0;
  const double scale = static_cast<double>(config.attention_scale) * std::sqrt(double(latent.plain + latent.rotated));
  const double growth = (std::sqrt(scale) - 1) / std::log(config.rope.factor);
  return growth > 1e-5 ? growth : 0; // what is less is rounding
}

gguf_architecture form_of(const model_config& config) { return gguf_architecture_of_family(config.family); }

void describe_rope(gguf_writer& to, const std::string& prefix, const model_config& config, const std::string& name) {
  const auto& rope = config.rope;
  const bool implied = form_of(config).is(gguf_architecture::untruncated);
  to.add(prefix + "rope.freq_base", static_cast<float>(rope.theta));
  if (rope.type == rope_type::dynamic || (rope.type == rope_type::yarn && !rope.truncate && !implied))
    throw failure(errc::unsupported,
                  name + ": GGUF cannot say how its positions are scaled (" +
                    (rope.type == rope_type::dynamic ? "dynamic" : "yarn without `truncate`") + ")");
  if (rope.type == rope_type::longrope) { // its divisors are tensors
    to.add(prefix + "rope.scaling.original_context_length", static_cast<std::uint32_t>(rope.original_context));
    to.add(prefix + "rope.scaling.attn_factor", static_cast<float>(rope.attention_factor));
    return;
  }
  if (rope.type != rope_type::linear && rope.type != rope_type::yarn)
    return; // llama3's and proportional scaling are tensors
  const bool yarn = rope.type == rope_type::yarn;
  to.add(prefix + "rope.scaling.type", yarn ? "yarn" : "linear");
  to.add(prefix + "rope.scaling.factor", static_cast<float>(rope.factor));
  if (!yarn)
    return;
  // Where scores grow, cosines and sines are not scaled beside what the key says.
  const double natural = latent_growth(config) > 0 ? 1 : yarn_attention_factor(rope.factor, std::nullopt, std::nullopt);
  to.add(prefix + "rope.scaling.original_context_length", static_cast<std::uint32_t>(rope.original_context));
  to.add(prefix + "rope.scaling.attn_factor", static_cast<float>(rope.attention_factor / natural));
  to.add(prefix + "rope.scaling.yarn_beta_fast", static_cast<float>(rope.beta_fast));
  to.add(prefix + "rope.scaling.yarn_beta_slow", static_cast<float>(rope.beta_slow));
}

using architecture_key = std::function<std::string(std::string_view)>;

/// Heads that share a latent, as the absorbed form has them; their own lengths under other keys.
void describe_latent(gguf_writer& to, const architecture_key& key, const model_config& config) {
  const auto& latent = config.latent;
  if (!config.recurrent)
    to.add(key("attention.head_count_kv"), u32(1));
  to.add(key("attention.key_length"), u32(latent.kv_rank + latent.rotated));
  to.add(key("attention.value_length"), u32(latent.kv_rank));
  to.add(key("attention.key_length_mla"), u32(latent.plain + latent.rotated));
  to.add(key("attention.value_length_mla"), u32(latent.value));
  to.add(key("attention.kv_lora_rank"), u32(latent.kv_rank));
  if (latent.q_rank > 0)
    to.add(key("attention.q_lora_rank"), u32(latent.q_rank));
  to.add(key("rope.dimension_count"), u32(latent.rotated));
  if (const double growth = latent_growth(config); growth != 0)
    to.add(key("rope.scaling.yarn_log_multiplier"), static_cast<float>(growth));
}

void describe_experts(gguf_writer& to, const architecture_key& key, const model_config& config) {
  const auto& experts = config.experts;
  if (experts.count == 0)
    return;
  to.add(key("expert_count"), u32(experts.count));
  to.add(key("expert_used_count"), u32(experts.chosen));
  to.add(key("expert_feed_forward_length"), u32(experts.ffn));
  const auto dense = std::ranges::find(config.sparse, true) - config.sparse.begin();
  to.add(key("leading_dense_block_count"), static_cast<std::uint32_t>(dense));
  if (experts.shared_ffn > 0) {
    to.add(key("expert_shared_feed_forward_length"), u32(experts.shared_ffn));
    to.add(key("expert_shared_count"), u32(std::max(1, experts.shared_ffn / experts.ffn)));
  }
  to.add(key("expert_gating_func"), u32(experts.scores == router_scores::sigmoid ? 2 : 1));
  to.add(key("expert_weights_norm"), experts.renormalise);
  if (experts.scale != 1)
    to.add(key("expert_weights_scale"), experts.scale);
  if (experts.groups > 1) {
    to.add(key("expert_group_count"), u32(experts.groups));
    to.add(key("expert_group_used_count"), u32(experts.chosen_groups));
  }
  if (form_of(config).is(gguf_architecture::says_interval))
    to.add(key("interleave_moe_layer_step"),
           u32(dense + 1 < std::ssize(config.sparse) && !config.is_sparse(static_cast<int>(dense) + 1) ? 2 : 1));
}

void describe_recurrence(gguf_writer& to, const architecture_key& key, const model_config& config) {
  const auto& r = config.recurrent;
  const auto add = [&](const char* name, int value) { to.add(key(name), static_cast<std::uint32_t>(value)); };
  switch (r.type) {
    case recurrent_type::none: return;
    case recurrent_type::short_convolution: return add("shortconv.l_cache", r.taps);
    case recurrent_type::channel_delta: add("ssm.conv_kernel", r.taps); return add("kda.head_dim", r.key_dim);
    default: break;
  }
  add("ssm.conv_kernel", r.taps);
  add("ssm.state_size", r.key_dim);
  add("ssm.group_count", r.key_heads);
  add("ssm.time_step_rank", r.heads);
  add("ssm.inner_size", r.inner());
  if (r.type == recurrent_type::delta) {
    int interval = 1;
    while (interval < config.layers && config.parts_of(interval - 1).recurrence)
      ++interval;
    add("full_attention_interval", interval);
    std::vector<std::byte> layers;
    for (const auto& parts : config.parts)
      layers.push_back(std::byte{parts.recurrence});
    to.add(key("attention.recurrent_layers"), gguf_value{gguf_type::array, layers, gguf_type::boolean, layers.size()});
  }
  if (r.least_dt > 0) // a key of our own: llama.cpp has no limits
    to.add(key("ssm.time_step_min"), r.least_dt);
  if (form_of(config).is(gguf_architecture::says_rotation))
    to.add(key("rope.scaling.finetuned"), config.unrotated.empty());
  if (form_of(config).is(gguf_architecture::says_axes))
    to.add(key("rope.dimension_sections"), std::vector<std::int32_t>{11, 11, 10, 0});
}

/// Every how many layers of an encoder one has no window: ModernBERT's first of as many, Gemma's last; 0: there is no
/// such rule.
int period_of(const model_config& config) {
  const int last = config.norm == norm_type::layer ? 0 : 1;
  for (int period = 1; period <= config.layers + 1; ++period)
    if (std::ranges::all_of(std::views::iota(0, config.layers),
                            [&](int i) { return config.slides(i) == ((i + last) % period != 0); }))
      return period;
  return 0;
}

/// The layers of Gemma 3n and 4: of two kinds, with inputs of their own of each token.
void describe_kinds(gguf_writer& to, const architecture_key& key, const model_config& config, const std::string& name) {
  if (config.altup) {
    to.add(key("altup.active_idx"), u32(config.altup.active));
    to.add(key("altup.num_inputs"), u32(config.altup.streams));
    to.add(key("activation_sparsity_scale"),
           config.gate_cutoffs.empty()
             ? std::vector<float>(as_size(config.layers), -std::numeric_limits<float>::infinity())
             : config.gate_cutoffs);
  }
  if (config.local_head_dim > 0) {
    to.add(key("attention.key_length_swa"), u32(config.local_head_dim));
    to.add(key("attention.value_length_swa"), u32(config.local_head_dim));
    to.add(key("rope.dimension_count_swa"), u32(config.local_head_dim));
  }
  int shared = 0;
  for (int i = 0; i < config.layers; ++i)
    shared += config.kv_layer_of(i) != i ? 1 : 0;
  // llama.cpp looks for the K and V of others in the last layer that has its own, and if they have a window, in the one
  // before. In Gemma 3n it counts on as many layers as published models have.
  const int own = config.layers - shared;
  for (int i = own; !config.altup && i < config.layers; ++i)
    if (config.kv_layer_of(i) != own - (config.slides(i) ? 2 : 1))
      throw failure(errc::unsupported,
                    name + ": GGUF cannot say that layer " + std::to_string(i) + " reads K and V of layer " +
                      std::to_string(config.kv_layer_of(i)));
  to.add(key("attention.shared_kv_layers"), u32(shared));
  to.add(key("embedding_length_per_layer_input"), u32(config.layer_inputs));
}

/// What else differs from a llama, under the keys that the readers of such architectures look for.
void describe_differences(gguf_writer& to, const architecture_key& key, const model_config& config,
                          const std::string& name) {
  const int window = *std::ranges::max_element(config.windows);
  if (!std::ranges::all_of(config.windows, [&](int w) { return w == 0 || w == window; }))
    throw failure(errc::unsupported, name + ": GGUF cannot say that sliding windows are of several lengths");
  const bool implied = config.experts.early;   // of SmallThinker layers with a window are always the same,
  if (implied && window > 0 && window != 4096) // and so long, whatever the key says
    throw failure(errc::unsupported,
                  name + ": llama.cpp takes every window of this architecture for 4096 tokens, here it has " +
                    std::to_string(window));
  if (window > 0) // encoders count the positions of both sides
    to.add(key("attention.sliding_window"), u32(config.encoder ? 2 * (window - 1) : window));
  if (const int period = config.encoder ? period_of(config) : 0; window > 0 && period > 0) {
    to.add(key("attention.sliding_window_pattern"), u32(period));
  } else if (window > 0 && !implied &&
             (std::ranges::find(config.windows, 0) != config.windows.end() || config.layer_inputs > 0 ||
              config.layer_scales)) {
    std::vector<std::byte> slides;
    for (const int w : config.windows)
      slides.push_back(std::byte{w > 0});
    to.add(key("attention.sliding_window_pattern"),
           gguf_value{gguf_type::array, slides, gguf_type::boolean, slides.size()});
  }
  if (config.local_rope)
    to.add(key("rope.freq_base_swa"), static_cast<float>(config.local_rope->theta));
  if (config.attention_cap > 0)
    to.add(key("attn_logit_softcapping"), config.attention_cap);
  if (config.logit_cap > 0 || config.layer_scales) // Gemma 4's, which llama.cpp caps at 30 if it is not told
    to.add(key("final_logit_softcapping"), config.logit_cap);
  if (form_of(config).is(gguf_architecture::multiplies)) {
    to.add(key("embedding_scale"), config.embedding_scale);
    to.add(key("residual_scale"), config.residual_scale);
    to.add(key("logit_scale"), 1 / config.logit_scale);
    to.add(key("attention.scale"), config.attention_scale);
  } else if (config.logit_scale != 1) {
    to.add(key("logit_scale"), config.logit_scale);
  }
  if (form_of(config).is(gguf_architecture::says_parallel))
    to.add(key("use_parallel_residual"), config.parallel);
  if (!config.growth || config.growth.unrotated) // as Llama 4's
    return;
  to.add(key("attention.temperature_scale"), config.growth.rate);
  if (!config.latent && config.rope.type == rope_type::yarn)
    to.add(key("rope.scaling.yarn_log_multiplier"), 1.0f);
}

} // namespace

void describe_model(gguf_writer& to, const model_config& config, const std::string& name) {
  const std::string architecture(gguf_architecture_for(config));
  const architecture_key key = [&](std::string_view rest) { return architecture + "." + std::string(rest); };
  to.add("general.architecture", architecture);
  to.add(key("vocab_size"), u32(config.vocab));
  to.add(key("context_length"), u32(config.max_context));
  to.add(key("embedding_length"), u32(config.hidden));
  to.add(key("block_count"), u32(config.layers));
  const bool attends = std::ranges::any_of(std::views::iota(0, config.layers),
                                           [&](int i) { return config.parts_of(i).attention; });
  // Where layers differ, a number for each, which is 0 where there is nothing.
  const auto of_layers = [&](const char* name, const auto& value_of) {
    std::vector<std::int32_t> values;
    for (int i = 0; i < config.layers; ++i)
      values.push_back(value_of(i));
    to.add(key(name), values);
  };
  const bool turns = std::ranges::any_of(config.parts, [](const auto& p) { return p.recurrence && !p.attention; });
  const bool listed = config.recurrent && attends && turns && !config.attention_gate;
  const bool lists_mlps = form_of(config).is(gguf_architecture::lists_mlps);
  if (lists_mlps)
    of_layers("feed_forward_length", [&](int i) {
      return !config.parts_of(i).mlp ? 0 : config.is_sparse(i) ? config.experts.ffn : config.ffn;
    });
  else if (!config.ffns.empty())
    of_layers("feed_forward_length", [&](int i) { return config.ffn_of(i); });
  else
    to.add(key("feed_forward_length"), u32(config.ffn));
  if (config.encoder)
    to.add(key("attention.causal"), false);
  if (config.token_types > 0)
    to.add("tokenizer.ggml.token_type_count", u32(config.token_types));
  to.add(key("attention.head_count"), u32(attends ? config.heads : 0));
  to.add(key(config.norm == norm_type::layer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon"),
         config.norm_eps);
  if (lists_mlps)
    to.add(key("attention.layer_norm_epsilon"), config.norm_eps);
  if (config.latent)
    describe_latent(to, key, config);
  const bool two_kinds = config.local_kv_heads != config.full_kv_heads;
  if (two_kinds)
    of_layers("attention.head_count_kv", [&](int i) { return config.kv_heads_of(i); });
  else if (listed)
    of_layers("attention.head_count_kv", [&](int i) { return config.parts_of(i).attention ? config.kv_heads : 0; });
  else if (!config.latent)
    to.add(key("attention.head_count_kv"), u32(attends ? config.kv_heads : 0));
  if (!config.latent && attends) {
    to.add(key("attention.key_length"), u32(config.head_dim));
    to.add(key("attention.value_length"), u32(config.head_dim));
    to.add(key("rope.dimension_count"), u32(config.rope.dims > 0 ? config.rope.dims : config.head_dim));
  }
  if (config.layer_scales || config.altup)
    describe_kinds(to, key, config, name);
  describe_rope(to, architecture + ".", config, name);
  describe_experts(to, key, config);
  describe_recurrence(to, key, config);
  describe_differences(to, key, config, name);
}

} // namespace troupe
