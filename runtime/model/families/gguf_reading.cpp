#include "runtime/model/families/gguf_reading.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/model/families/recurrent_reading.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::families {

using namespace config_limits;

namespace {

constexpr gguf_multiplier known_multipliers[] = {{"embedding_scale", &model_config::embedding_scale, 1},
                                                 {"residual_scale", &model_config::residual_scale, 1},
                                                 {"logit_scale", &model_config::logit_scale, 1, true},
                                                 {"attention.scale", &model_config::attention_scale, 0}};

std::string block(int layer) { return "blk." + std::to_string(layer) + "."; }

} // namespace

void describe_gguf(const gguf_architecture& architecture, const architecture_keys& keys, model_config& model) {
  using form = gguf_architecture::form;
  const auto is = [&](form what) { return architecture.is(what); };
  const auto any_of = [&](std::string_view tensor) { return keys.tensor(tensor) != nullptr; };
  using act = kernels::activation_type;
  model.act = {is(form::gelu)             ? act::gelu
                 : is(form::gelu_tanh)    ? act::gelu_tanh
                 : is(form::relu)         ? act::relu
                 : is(form::relu_squared) ? act::relu_squared
                                          : act::silu};
  const bool sums = model.norms == norm_place::sum;
  if (sums) {
    describe_encoder(keys, model);
    model.norm_bias = true;
    model.final_norm = false;
  }
  if (!model.gated || sums)
    model.mlp_bias = any_of("blk.0.ffn_up.bias");
  model.parallel = model.parallel || is(form::parallel);
  if (is(form::two_norms))
    model.shared_norm = !any_of("blk.0.attn_norm_2.weight");
  if (is(form::says_parallel))
    model.parallel = keys.boolean("use_parallel_residual").value_or(true);
  if (is(form::may_norm_heads))
    model.qk_norm = any_of("blk.0.attn_q_norm.weight");
  if (is(form::learned_positions)) {
    model.positions = position_type::learned;
    model.position_rows = rows_of(keys, "position_embd.weight");
    model.max_context = static_cast<int>(std::min<std::size_t>(as_size(model.max_context), model.position_rows));
  }
  if (is(form::scaled_embedding))
    model.embedding_scale = std::sqrt(static_cast<float>(model.hidden));
  for (const auto& [key, value, usual, reversed] : multipliers())
    if (is(form::multiplies))
      model.*value = reversed ? 1 / number(keys, key, usual) : number(keys, key, usual);
  if (is(form::routed))
    describe_routed_experts(keys, model, true);
  else if (is(form::experts))
    describe_experts(keys, model);
  if (architecture.describe)
    architecture.describe(keys, model);
}

std::span<const gguf_multiplier> multipliers() { return known_multipliers; }

float number(const architecture_keys& keys, std::string_view key, float fallback) {
  return static_cast<float>(keys.number(key, 1e-9, 1e9).value_or(fallback));
}

std::size_t rows_of(const architecture_keys& keys, const char* name) {
  const auto* table = keys.tensor(name);
  if (!table || table->info.shape.size() != 2)
    throw failure(errc::bad_file, keys.file().name() + ": tensor `" + name + "` is missing or not a matrix");
  return table->info.shape[0];
}

bool has(const architecture_keys& keys, int layer, std::string_view name) {
  return keys.tensor(block(layer) + std::string(name)) != nullptr;
}

void slide(const architecture_keys& keys, model_config& model, int window, int period, bool last) {
  constexpr std::string_view key = "attention.sliding_window_pattern";
  const auto listed = keys.booleans(key);
  if (listed && listed->size() != as_size(model.layers))
    throw failure(errc::bad_file,
                  keys.label(key) + " has " + std::to_string(listed->size()) + " elements, expected one for each of " +
                    std::to_string(model.layers) + " layers");
  if (!listed)
    period = keys.integer(key, 1, max_layers).value_or(period);
  for (int i = 0; i < model.layers; ++i)
    model.windows[as_size(i)] = (listed ? (*listed)[as_size(i)] : (i + (last ? 1 : 0)) % period != 0) ? window : 0;
}

void describe_growth(const architecture_keys& keys, model_config& model) {
  const auto rate = keys.number("attention.temperature_scale", 0, 1e6).value_or(0);
  if (rate == 0)
    return;
  const double fallback = model.rope.original_context > 0 ? model.rope.original_context : model.max_context;
  model.growth = {static_cast<float>(rate),
                  keys.integer("attention.temperature_length", 1, max_positions).value_or(static_cast<int>(fallback))};
}

void share_keys(const architecture_keys& keys, model_config& model, int usual) {
  const int layers = model.layers, shared = keys.integer("attention.shared_kv_layers", 0, layers).value_or(usual),
            first = layers - shared;
  for (int i = 0; shared > 0 && i < layers; ++i) {
    int from = std::min(i, first - 1);
    while (i >= first && from >= 0 && model.slides(from) != model.slides(i))
      --from;
    if (from < 0)
      throw failure(errc::bad_file,
                    keys.label("attention.shared_kv_layers") + " leaves no layer whose K and V layer " +
                      std::to_string(i) + " could read");
    model.kv_layers.push_back(i < first ? i : from);
  }
}

void read_widths(const architecture_keys& keys, model_config& model) {
  for (int i = 0; i < model.layers; ++i) {
    const auto* up = keys.tensor("blk." + std::to_string(i) + ".ffn_up.weight");
    model.ffns.push_back(up && up->info.shape.size() == 2
                           ? static_cast<int>(std::min<std::size_t>(up->info.shape[0], max_ffn))
                           : model.ffn);
  }
  model.ffn = std::ranges::max(model.ffns);
  if (std::ranges::min(model.ffns) == model.ffn)
    model.ffns.clear();
}

rope_config rope_of_windows(const architecture_keys& keys) {
  rope_config rope;
  rope.theta = keys.number("rope.freq_base_swa", 1.000001, 1e30).value_or(10000);
  return rope;
}

void rotate_by_kind(const architecture_keys& keys, model_config& model) {
  model.local_rope = rope_of_windows(keys);
  if (!keys.number("rope.freq_base", 1.000001, 1e30))
    model.rope.theta = 1000000;
}

void describe_encoder(const architecture_keys& keys, model_config& model) {
  model.encoder = model.embedding_norm = model.tied = true;
  if (keys.tensor("token_types.weight"))
    model.token_types = static_cast<int>(std::min<std::size_t>(rows_of(keys, "token_types.weight"), 1 << 10));
}

// -- experts ----------------------------------------------------------------------------------------------------------

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

bool has_experts(const architecture_keys& keys) { return keys.integer("expert_count", 0, max_experts).value_or(0) > 0; }

gguf_gating gating_of(const architecture_keys& keys) {
  const int gating = keys.integer("expert_gating_func", 0, 1 << 16).value_or(0);
  if (gating > static_cast<int>(gguf_gating::sigmoid))
    throw failure(errc::unsupported,
                  keys.label("expert_gating_func") + " is " + std::to_string(gating) +
                    ", supported are 1 (softmax) and 2 (sigmoid)");
  return static_cast<gguf_gating>(gating);
}

void describe_choice(const architecture_keys& keys, expert_config& experts, bool renormalise) {
  experts.renormalise = keys.boolean("expert_weights_norm").value_or(renormalise);
  if (const auto given = keys.number("expert_weights_scale", 0, 1e6); given && *given > 0)
    experts.scale = static_cast<float>(*given);
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

void describe_routed_experts(const architecture_keys& keys, model_config& model, bool renormalise) {
  describe_experts(keys, model);
  auto& experts = model.experts;
  const int shared = keys.integer("expert_shared_count", 0, max_experts).value_or(0);
  for (int i = 0; i < model.layers; ++i) {
    experts.correction = experts.correction || has(keys, i, "exp_probs_b.bias");
    if (const auto* up = keys.tensor(block(i) + "ffn_up_shexp.weight"); up && experts.shared_ffn == 0)
      experts.shared_ffn = static_cast<int>(up->info.shape[0]);
  }
  if (experts.shared_ffn > 0 && shared > 1 && experts.shared_ffn % shared != 0)
    throw failure(errc::bad_file,
                  keys.label("expert_shared_count") + " is " + std::to_string(shared) +
                    ", which does not divide the shared expert's " + std::to_string(experts.shared_ffn) + " outputs");
  if (const auto gating = gating_of(keys); gating != gguf_gating::unsaid)
    experts.scores = gating == gguf_gating::sigmoid ? router_scores::sigmoid : router_scores::softmax;
  describe_choice(keys, experts, renormalise);
}

// -- recurrences ------------------------------------------------------------------------------------------------------

namespace {

constexpr unsigned of(std::initializer_list<recurrent_type> types) {
  unsigned bits = 0;
  for (const auto type : types)
    bits |= 1U << static_cast<unsigned>(type);
  return bits;
}

using recurrence = recurrent_config;
using enum recurrent_type;

constexpr recurrent_size sizes[] = {
  {"shortconv.l_cache", &recurrence::taps, max_taps, of({short_convolution})},
  {"ssm.conv_kernel", &recurrence::taps, max_taps, of({delta, channel_delta, ssd, selective})},
  {"kda.head_dim", &recurrence::key_dim, max_state_dim, of({channel_delta})},
  {"ssm.state_size", &recurrence::key_dim, max_state_dim, of({delta, ssd, selective})},
  {"ssm.group_count", &recurrence::key_heads, max_heads, of({delta})},
  {"ssm.group_count", &recurrence::key_heads, max_heads, of({ssd}), 1},
  {"ssm.time_step_rank", &recurrence::heads, max_heads, of({delta, ssd})},
  {"ssm.time_step_rank", &recurrence::rank, max_ffn, of({selective})},
};

} // namespace

std::span<const recurrent_size> recurrent_sizes() { return sizes; }

void describe_recurrence(const architecture_keys& keys, model_config& model, recurrent_type type) {
  auto& r = model.recurrent;
  r.type = type;
  for (const auto& size : sizes)
    if (size.is_of(type))
      r.*size.value = size.usual > 0 ? keys.integer(size.key, 1, size.most).value_or(size.usual)
                                     : keys.size(size.key, size.most);
  if (type == delta || type == ssd)
    r.value_dim = keys.size("ssm.inner_size", max_ffn) / r.heads;
  if (type == selective)
    divide_values(r, keys.size("ssm.inner_size", max_ffn));
  r.log_decay = false;
}

void describe_parts(const architecture_keys& keys, model_config& model, std::string_view recurrent, bool beside) {
  model.parts.clear();
  for (int i = 0; i < model.layers; ++i) {
    layer_parts parts{.attention = has(keys, i, "attn_q.weight"), .recurrence = has(keys, i, recurrent)};
    parts.attention = parts.attention && (beside || !parts.recurrence);
    parts.mlp = has(keys, i, "ffn_up.weight") || has(keys, i, "ffn_gate_inp.weight");
    model.parts.push_back(parts);
  }
}

bool has_of_first(const architecture_keys& keys, const model_config& model, std::string_view name) {
  const auto first = std::ranges::find(model.parts, true, &layer_parts::recurrence) - model.parts.begin();
  return has(keys, static_cast<int>(first), name);
}

void describe_mamba(const architecture_keys& keys, model_config& model, bool beside) {
  auto& r = model.recurrent;
  describe_recurrence(keys, model, ssd);
  const int inner = keys.size("ssm.inner_size", max_ffn);
  r.least_dt = static_cast<float>(keys.number("ssm.time_step_min", 0, 1e6).value_or(0));
  bound_recurrence(keys.file().name(), model);
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

} // namespace troupe::families
