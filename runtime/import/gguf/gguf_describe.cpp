// The configuration of a model as keys of llama.cpp's.
#include "runtime/import/gguf/gguf_architectures.hpp"
#include "runtime/import/gguf_model.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <ranges>
#include <type_traits>

namespace troupe {

namespace {

/// Writes the keys of one model, in the order of the file.
class key_writer {
public:
  key_writer(gguf_writer& to, const model_config& config, const std::string& name)
    : to_(to),
      config_(config),
      name_(name),
      architecture_(gguf_architecture_for(config)),
      form_(gguf_architecture_of_family(config.family)) {}

  void write() const {
    const auto& c = config_;
    to_.add("general.architecture", architecture_);
    add("vocab_size", c.vocab);
    add("context_length", c.max_context);
    add("embedding_length", c.hidden);
    add("block_count", c.layers);
    const bool lists_mlps = is(gguf_architecture::lists_mlps);
    if (lists_mlps)
      add("feed_forward_length", of_layers([&](int i) {
            return !c.parts_of(i).mlp ? 0 : c.is_sparse(i) ? c.experts.ffn : c.ffn;
          }));
    else if (!c.ffns.empty())
      add("feed_forward_length", c.ffns);
    else
      add("feed_forward_length", c.ffn);
    add("attention.causal", false, c.encoder);
    if (c.token_types > 0)
      to_.add("tokenizer.ggml.token_type_count", static_cast<std::uint32_t>(c.token_types));
    const auto attending = of_layers([&](int i) { return c.parts_of(i).attention ? c.kv_heads : 0; });
    const bool attends = std::ranges::max(attending) > 0;
    add("attention.head_count", attends ? c.heads : 0);
    add(c.norm == norm_type::layer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon", c.norm_eps);
    add("attention.layer_norm_epsilon", c.norm_eps, lists_mlps);
    if (c.latent)
      write_latent();
    const bool turns = std::ranges::any_of(c.parts, [](const auto& p) { return p.recurrence && !p.attention; });
    if (c.local_kv_heads != c.full_kv_heads)
      add("attention.head_count_kv", of_layers([&](int i) { return c.kv_heads_of(i); }));
    else if (c.recurrent && attends && turns && !c.attention_gate) // 0 where there is no attention
      add("attention.head_count_kv", attending);
    else
      add("attention.head_count_kv", attends ? c.kv_heads : 0, !c.latent);
    const bool usual = !c.latent && attends;
    add("attention.key_length", c.head_dim, usual);
    add("attention.value_length", c.head_dim, usual);
    add("rope.dimension_count", c.rope.dims > 0 ? c.rope.dims : c.head_dim, usual);
    if (c.layer_scales || c.altup)
      write_kinds();
    write_rope();
    if (c.experts.count > 0)
      write_experts();
    if (c.recurrent)
      write_recurrence();
    write_differences();
  }

private:
  bool is(gguf_architecture::form what) const { return form_.is(what); }

  template <class T>
  void add(std::string_view key, const T& value, bool holds = true) const {
    const auto full = architecture_ + "." + std::string(key);
    if (!holds)
      return;
    if constexpr (std::is_same_v<T, int>)
      to_.add(full, static_cast<std::uint32_t>(value));
    else if constexpr (std::is_same_v<T, double>)
      to_.add(full, static_cast<float>(value));
    else
      to_.add(full, value);
  }

  template <class Value>
  std::vector<std::int32_t> of_layers(const Value& value_of) const {
    std::vector<std::int32_t> values;
    for (int i = 0; i < config_.layers; ++i)
      values.push_back(value_of(i));
    return values;
  }

  /// Whether something holds for each layer.
  template <class Holds>
  void add_flags(std::string_view key, const Holds& holds) const {
    std::vector<std::byte> flags;
    for (int i = 0; i < config_.layers; ++i)
      flags.push_back(std::byte{holds(i)});
    add(key, gguf_value{gguf_type::array, flags, gguf_type::boolean, flags.size()});
  }

  [[noreturn]] void refuse(const std::string& what) const { throw failure(errc::unsupported, name_ + ": " + what); }

  /// How scores of latent attention grow with YaRN, for each e-fold of its factor; 0: they do not.
  double latent_growth() const {
    const auto& latent = config_.latent;
    if (!latent || config_.rope.type != rope_type::yarn || config_.rope.factor <= 1)
      return 0;
    const double scale = static_cast<double>(config_.attention_scale) *
      std::sqrt(double(latent.plain + latent.rotated));
    const double growth = (std::sqrt(scale) - 1) / std::log(config_.rope.factor);
    return growth > 1e-5 ? growth : 0; // what is less is rounding
  }

  void write_rope() const {
    const auto& rope = config_.rope;
    add("rope.freq_base", rope.theta);
    if (rope.type == rope_type::dynamic)
      refuse("GGUF cannot say how its positions are scaled (dynamic)");
    const bool yarn = rope.type == rope_type::yarn, divided = rope.type == rope_type::longrope; // by tensors
    if (yarn && !rope.truncate && !is(gguf_architecture::untruncated))
      refuse("GGUF cannot say how its positions are scaled (yarn without `truncate`)");
    const bool named = yarn || rope.type == rope_type::linear; // llama3's and proportional scaling are tensors
    if (named)
      add("rope.scaling.type", yarn ? "yarn" : "linear");
    add("rope.scaling.factor", rope.factor, named);
    // Where scores grow, cosines and sines are not scaled beside what the key says.
    const bool scaled = yarn && latent_growth() == 0;
    const double natural = scaled ? yarn_attention_factor(rope.factor, std::nullopt, std::nullopt) : 1;
    add("rope.scaling.original_context_length", static_cast<int>(rope.original_context), yarn || divided);
    add("rope.scaling.attn_factor", rope.attention_factor / natural, yarn || divided);
    add("rope.scaling.yarn_beta_fast", rope.beta_fast, yarn);
    add("rope.scaling.yarn_beta_slow", rope.beta_slow, yarn);
  }

  /// Heads that share a latent, as the absorbed form has them; their own lengths under other keys.
  void write_latent() const {
    const auto& latent = config_.latent;
    add("attention.head_count_kv", 1, !config_.recurrent);
    add("attention.key_length", latent.kv_rank + latent.rotated);
    add("attention.value_length", latent.kv_rank);
    add("attention.key_length_mla", latent.plain + latent.rotated);
    add("attention.value_length_mla", latent.value);
    add("attention.kv_lora_rank", latent.kv_rank);
    add("attention.q_lora_rank", latent.q_rank, latent.q_rank > 0);
    add("rope.dimension_count", latent.rotated);
    add("rope.scaling.yarn_log_multiplier", latent_growth(), latent_growth() != 0);
  }

  void write_experts() const {
    const auto& experts = config_.experts;
    add("expert_count", experts.count);
    add("expert_used_count", experts.chosen);
    add("expert_feed_forward_length", experts.ffn);
    const int dense = static_cast<int>(std::ranges::find(config_.sparse, true) - config_.sparse.begin());
    add("leading_dense_block_count", dense);
    add("expert_shared_feed_forward_length", experts.shared_ffn, experts.shared_ffn > 0);
    add("expert_shared_count", std::max(1, experts.shared_ffn / experts.ffn), experts.shared_ffn > 0);
    add("expert_gating_func", experts.scores == router_scores::sigmoid ? 2 : 1);
    add("expert_weights_norm", experts.renormalise);
    add("expert_weights_scale", experts.scale, experts.scale != 1);
    add("expert_group_count", experts.groups, experts.groups > 1);
    add("expert_group_used_count", experts.chosen_groups, experts.groups > 1);
    add("interleave_moe_layer_step", dense + 1 < config_.layers && !config_.is_sparse(dense + 1) ? 2 : 1,
        is(gguf_architecture::says_interval));
  }

  void write_recurrence() const {
    const auto& r = config_.recurrent;
    for (const auto& size : families::recurrent_sizes())
      add(size.key, r.*size.value, size.is_of(r.type));
    const bool delta = r.type == recurrent_type::delta;
    add("ssm.inner_size", r.inner(), delta || r.type == recurrent_type::ssd || r.type == recurrent_type::selective);
    add("ssm.dt_b_c_rms", true, r.parts_norm_plain);
    add("ssm.dt_b_c_rms_epsilon", r.norm_eps, r.parts_norm && r.norm_eps > 0); // a key of our own
    if (delta) {
      int interval = 1;
      while (interval < config_.layers && config_.parts_of(interval - 1).recurrence)
        ++interval;
      add("full_attention_interval", interval);
      add_flags("attention.recurrent_layers", [&](int i) { return config_.parts_of(i).recurrence; });
    }
    add("ssm.time_step_min", r.least_dt, r.least_dt > 0); // a key of our own: llama.cpp has no limits
    add("rope.scaling.finetuned", config_.unrotated.empty(), is(gguf_architecture::says_rotation));
    add("rope.dimension_sections", std::vector<std::int32_t>{11, 11, 10, 0}, is(gguf_architecture::says_axes));
  }

  /// Every how many layers of an encoder one has no window: ModernBERT's first of as many, Gemma's last; 0: there is no
  /// such rule.
  int period() const {
    const int last = config_.norm == norm_type::layer ? 0 : 1;
    for (int period = 1; period <= config_.layers + 1; ++period)
      if (std::ranges::all_of(std::views::iota(0, config_.layers),
                              [&](int i) { return config_.slides(i) == ((i + last) % period != 0); }))
        return period;
    return 0;
  }

  /// The layers of Gemma 3n and 4: of two kinds, with inputs of their own of each token.
  void write_kinds() const {
    const auto& c = config_;
    add("altup.active_idx", c.altup.active, bool(c.altup));
    add("altup.num_inputs", c.altup.streams, bool(c.altup));
    const auto never = -std::numeric_limits<float>::infinity();
    add("activation_sparsity_scale",
        c.gate_cutoffs.empty() ? std::vector<float>(as_size(c.layers), never) : c.gate_cutoffs, bool(c.altup));
    for (const char* key : {"attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa"})
      add(key, c.local_head_dim, c.local_head_dim > 0);
    int shared = 0;
    for (int i = 0; i < c.layers; ++i)
      shared += c.kv_layer_of(i) != i ? 1 : 0;
    // llama.cpp looks for the K and V of others in the last layer that has its own, and if they have a window, in the
    // one before. In Gemma 3n it counts on as many layers as published models have.
    const int own = c.layers - shared;
    for (int i = own; !c.altup && i < c.layers; ++i)
      if (c.kv_layer_of(i) != own - (c.slides(i) ? 2 : 1))
        refuse("GGUF cannot say that layer " + std::to_string(i) + " reads K and V of layer " +
               std::to_string(c.kv_layer_of(i)));
    add("attention.shared_kv_layers", shared);
    add("embedding_length_per_layer_input", c.layer_inputs);
  }

  /// What else differs from a llama, under the keys that the readers of such architectures look for.
  void write_differences() const {
    const auto& c = config_;
    const int window = *std::ranges::max_element(c.windows);
    if (!std::ranges::all_of(c.windows, [&](int w) { return w == 0 || w == window; }))
      refuse("GGUF cannot say that sliding windows are of several lengths");
    const bool implied = c.experts.early;        // of SmallThinker layers with a window are always the same,
    if (implied && window > 0 && window != 4096) // and so long, whatever the key says
      refuse("llama.cpp takes every window of this architecture for 4096 tokens, here it has " +
             std::to_string(window));
    // Encoders count the positions of both sides.
    add("attention.sliding_window", c.encoder ? 2 * (window - 1) : window, window > 0);
    const bool some = std::ranges::find(c.windows, 0) != c.windows.end();
    if (const int every = c.encoder ? period() : 0; window > 0 && every > 0)
      add("attention.sliding_window_pattern", every);
    else if (window > 0 && !implied && (some || c.layer_inputs > 0 || c.layer_scales))
      add_flags("attention.sliding_window_pattern", [&](int i) { return c.slides(i); });
    if (c.local_rope)
      add("rope.freq_base_swa", c.local_rope->theta);
    add("attn_logit_softcapping", c.attention_cap, c.attention_cap > 0);
    // Gemma 4's llama.cpp caps at 30 if it is not told.
    add("final_logit_softcapping", c.logit_cap, c.logit_cap > 0 || c.layer_scales);
    const bool multiplies = is(gguf_architecture::multiplies);
    for (const auto& [key, value, usual, reversed] : families::multipliers())
      add(key, reversed ? 1 / (c.*value) : c.*value, multiplies);
    add("logit_scale", c.logit_scale, !multiplies && c.logit_scale != 1);
    add("use_parallel_residual", c.parallel, is(gguf_architecture::says_parallel));
    const bool grows = c.growth && !c.growth.unrotated; // as Llama 4's
    add("attention.temperature_scale", c.growth.rate, grows);
    add("rope.scaling.yarn_log_multiplier", 1.0f, grows && !c.latent && c.rope.type == rope_type::yarn);
  }

  gguf_writer& to_;
  const model_config& config_;
  const std::string& name_;
  std::string architecture_;
  gguf_architecture form_;
};

} // namespace

void describe_model(gguf_writer& to, const model_config& config, const std::string& name) {
  key_writer(to, config, name).write();
}

} // namespace troupe
