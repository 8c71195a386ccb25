// DeepSeek V2 and V3 (and R1): multi-head latent attention, and experts that are chosen within groups.
#include "runtime/model/families/config_reading.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/lineages.hpp"
#include "runtime/model/families/mixture_reading.hpp"

#include "runtime/model/config_limits.hpp"
#include "runtime/support/types.hpp"

#include <algorithm>
#include <cmath>

namespace troupe::families {

using namespace config_limits;

namespace {

int even(const reader& config, const char* key, int fallback) {
  const int found = config.integer(key, 2, max_latent_dim, fallback);
  if (found % 2 != 0)
    throw failure(errc::unsupported,
                  config.label(key) + " is " + std::to_string(found) + ", supported are even numbers");
  return found;
}

} // namespace

void read_latent_attention(const reader& config, model_config& model, const latent_defaults& defaults) {
  auto& latent = model.latent;
  require(config, "attention_bias", false);
  if (const auto kv_heads = config.integer("num_key_value_heads", 1, max_heads);
      kv_heads && *kv_heads != model.heads && !defaults.any_kv_heads)
    throw failure(errc::bad_file,
                  config.label("num_key_value_heads") + " must be `num_attention_heads`, " +
                    std::to_string(model.heads) + ", as all heads share one latent; found " +
                    std::to_string(*kv_heads));
  if (!config.contains("q_lora_rank") || config.has("q_lora_rank"))
    latent.q_rank = config.integer("q_lora_rank", 1, max_hidden, defaults.q_rank);
  latent.kv_rank = even(config, "kv_lora_rank", defaults.kv_rank);
  latent.rotated = even(config, "qk_rope_head_dim", defaults.rotated);
  latent.plain = config.integer("qk_nope_head_dim", 1, max_hidden, defaults.plain);
  latent.value = config.integer("v_head_dim", 1, max_hidden, defaults.value);
  model.kv_heads = 1;
  model.head_dim = latent.kv_rank + latent.rotated;
  bound_latent_attention(model, config.label());
  if (model.head_dim > max_latent_dim)
    throw failure(errc::unsupported,
                  config.label("kv_lora_rank") + " and `qk_rope_head_dim` make keys of " +
                    std::to_string(model.head_dim) + " dimensions, supported are " + std::to_string(max_latent_dim));
  const int positions = config.integer("max_position_embeddings", 1, max_positions, defaults.positions);
  auto given = config.object("rope_scaling");
  if (!given)
    given = config.object("rope_parameters");
  model.rope = read_rope(config, given, latent.rotated, positions, {.interleaved = true, .whole = true});
  model.rope.interleaved = config.boolean("rope_interleave", true);
  set_context(model, positions);
  double scale = 1 / std::sqrt(double(latent.plain + latent.rotated));
  if (model.rope.type != rope_type::plain && model.rope.factor > 1) {
    const double grown = 0.1 * given->number("mscale_all_dim", 0, 1e6).value_or(0) * std::log(model.rope.factor) + 1;
    scale *= grown * grown;
  }
  model.attention_scale = static_cast<float>(scale);
  if (model.rope.dims == 0)
    model.rope.dims = latent.rotated; // of the cached key
}

void read_experts_of_groups(const reader& config, model_config& model, int default_count, int default_chosen,
                            int default_ffn, int default_shared, int default_dense, const mixture_keys& keys) {
  auto& experts = model.experts;
  read_expert_counts(config, model, {"n_routed_experts", "num_local_experts", "num_experts"}, default_count,
                     default_chosen);
  experts.ffn = config.integer("moe_intermediate_size", 1, max_ffn, default_ffn);
  const int shared = config.integer(keys.shared, 0, max_experts, default_shared);
  if (std::int64_t{shared} * experts.ffn > max_ffn)
    throw failure(errc::unsupported,
                  config.label(keys.shared) + " is " + std::to_string(shared) +
                    ", which times `moe_intermediate_size` is more than the supported " + std::to_string(max_ffn));
  experts.shared_ffn = shared * experts.ffn;
  require_number(config, "moe_layer_freq", 1);
  const int dense = config.integer(keys.dense, 0, max_layers, default_dense);
  for (int i = 0; i < model.layers; ++i)
    model.sparse[as_size(i)] = i >= dense;
  if (const auto types = read_mlp_types(config, model.layers))
    model.sparse = *types;
  experts.scale = static_cast<float>(config.number(keys.scale, 0, 1e6).value_or(experts.scale));
}

void read_groups(const reader& config, model_config& model, int default_groups, int default_chosen) {
  auto& experts = model.experts;
  experts.groups = config.integer("n_group", 1, max_experts, default_groups);
  experts.chosen_groups = config.integer("topk_group", 1, max_experts, default_chosen);
  if (experts.count % experts.groups != 0 || experts.chosen_groups > experts.groups ||
      experts.chosen > experts.chosen_groups * (experts.count / experts.groups))
    throw failure(errc::bad_file,
                  config.label("n_group") + " is " + std::to_string(experts.groups) + " and `topk_group` is " +
                    std::to_string(experts.chosen_groups) + ", which does not fit " + std::to_string(experts.count) +
                    " experts of which " + std::to_string(experts.chosen) + " are chosen");
}

void bound_latent_attention(const model_config& model, const std::string& file) {
  const auto& latent = model.latent;
  const std::int64_t rows = std::max(latent.plain + latent.rotated, latent.plain + latent.value);
  if (std::int64_t{model.heads} * model.layers > max_layer_experts || model.heads * rows > max_ffn)
    throw failure(errc::unsupported,
                  file + ": latent attention with " + std::to_string(model.heads) + " heads of up to " +
                    std::to_string(rows) + " rows in " + std::to_string(model.layers) +
                    " layers is not supported, only " + std::to_string(max_layer_experts) + " heads and " +
                    std::to_string(max_ffn) + " rows of a layer");
}

void read_corrected_router(const reader& config, model_config& model, bool renormalise,
                           std::initializer_list<std::string_view> scores) {
  require_word(config, "scoring_func", scores);
  require_word(config, "topk_method", {"noaux_tc"});
  auto& experts = model.experts;
  experts.group_by_two = experts.correction = true;
  experts.scores = router_scores::sigmoid;
  experts.renormalise = config.boolean("norm_topk_prob", renormalise);
}

void read_deepseek_v2(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.kv_heads = nullptr, .default_head_dim = 2});
  require(config, "mlp_bias", false);
  read_latent_attention(config, model, {.positions = 2048});
  config.size("num_experts_per_tok", max_experts);
  read_experts_of_groups(config, model, 64, 1, 1407, 2, 0);
  require_word(config, "scoring_func", {"softmax"});
  require(config, "norm_topk_prob", false);
  const auto method = config.string("topk_method").value_or("greedy");
  if (method == "group_limited_greedy")
    read_groups(config, model, 1, 1);
  else if (method != "greedy")
    throw failure(errc::unsupported,
                  config.label("topk_method") + " is `" + method +
                    "`, supported are greedy and group_limited_greedy for this model_type");
}

void read_deepseek_v3(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.kv_heads = nullptr, .default_head_dim = 2});
  read_latent_attention(config, model, {});
  model.experts.scale = 2.5f;
  read_experts_of_groups(config, model, 256, 8, 2048, 1, 3);
  read_groups(config, model, 8, 4);
  read_corrected_router(config, model, true);
}

/// Its attention is latent, its scores grow with positions, and its router is a softmax without a correction.
void read_mistral4(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.kv_heads = nullptr, .default_head_dim = 2});
  read_latent_attention(config, model, {.q_rank = 1024, .kv_rank = 256, .plain = 64, .positions = 1048576});
  model.growth = read_growth(config);
  read_experts_of_groups(config, model, 128, 4, 2048, 1, 0);
  read_groups(config, model, 1, 1);
  require_word(config, "scoring_func", {"softmax"});
  model.experts.group_by_two = true;
  model.experts.renormalise = config.boolean("norm_topk_prob", true);
}

/// GLM 4.5 and later: V3's experts on attention with heads of their own.
void read_glm4_moe(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 8, .default_norm_eps = 1e-5});
  model.qkv_bias = config.boolean("attention_bias", false);
  model.qk_norm = config.boolean("use_qk_norm", false);
  read_positions(config, model, {.default_context = 131072, .partial = true, .default_partial = 0.5});
  read_experts_of_groups(config, model, 128, 8, 1408, 1, 1);
  read_groups(config, model, 1, 1);
  read_corrected_router(config, model, true);
}

void read_dots1(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu");
  read_sizes(config, model, {.default_kv_heads = 32});
  model.qkv_bias = model.o_bias = config.boolean("attention_bias", false);
  model.qk_norm = true;
  const int window = config.contains("sliding_window") && !config.has("sliding_window")
    ? 0
    : config.integer("sliding_window", 1, max_positions, 4096);
  const int first = config.integer("max_window_layers", 0, max_layers, 62);
  const auto types = read_layer_types(config, model.layers);
  for (int i = 0; i < model.layers; ++i)
    model.windows[as_size(i)] = (types ? (*types)[as_size(i)] : i >= first) ? window : 0;
  read_positions(config, model);
  read_experts_of_groups(config, model, 1, 1, 1408, 0, 0);
  read_groups(config, model, 1, 1);
  read_corrected_router(config, model, false, {"sigmoid", "noaux_tc"}); // published files name the method there
}

row_order rotated_last(std::size_t heads, std::size_t plain, std::size_t rotated, bool interleaved) {
  std::vector<std::uint32_t> rows;
  for (std::size_t head = 0; head < heads; ++head) {
    const auto first = head * (plain + rotated);
    for (std::size_t i = 0; i < plain + rotated; ++i) {
      const auto r = i - plain;
      const auto from = i < plain || !interleaved ? i : plain + (r < rotated / 2 ? 2 * r : 2 * r - rotated + 1);
      rows.push_back(static_cast<std::uint32_t>(first + from));
    }
  }
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(rows));
}

void arrange_latent_attention(const model_config& model, arrangement& to) {
  tensor_arranger tensors(model, to);
  const auto& latent = model.latent;
  const auto heads = as_size(model.heads), plain = as_size(latent.plain), value = as_size(latent.value);
  const bool pairs = model.rope.interleaved;
  const auto queries = rotated_last(heads, plain, as_size(latent.rotated), pairs);
  const auto down = rotated_last(1, as_size(latent.kv_rank), as_size(latent.rotated), pairs);
  for (int layer = 0; layer < model.layers; ++layer) {
    const auto reorder = [&](const std::string& name, const row_order& rows) { tensors.take(layer, name, name, rows); };
    reorder(latent.q_rank > 0 ? "self_attn.q_b_proj.weight" : "self_attn.q_proj.weight", queries);
    reorder("self_attn.kv_a_proj_with_mqa.weight", down);
    for (std::size_t h = 0; h < heads; ++h) { // of kv_b: for each head, rows that make keys, then values
      stored_part part;
      part.name = tensors.stored(layer, "self_attn.kv_b_proj.weight");
      part.of_rows = heads * (plain + value);
      auto key = part;
      key.turned_first = h * (plain + value);
      key.turned_rows = plain;
      tensors.add(layer, "self_attn.latent_key." + std::to_string(h) + ".weight", key);
      part.rows = tensors.rows(h * (plain + value) + plain, value);
      tensors.add(layer, "self_attn.latent_value." + std::to_string(h) + ".weight", part);
    }
  }
}

void arrange_shared_experts(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer)
    if (model.is_sparse(layer) && model.experts.shared_ffn > 0)
      tensors.rename_shared_experts(layer);
}

void arrange_deepseek(const model_config& model, const checkpoint& stored, arrangement& to) {
  arrange_latent_attention(model, to);
  arrange_qwen3_moe(model, stored, to); // experts in one tensor, if they are
  arrange_shared_experts(model, stored, to);
}

namespace {

/// Also V2's, and Kimi K2's.
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
  if (!has_experts(keys))
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
    experts.correction = has(keys, i, "exp_probs_b.bias");
  const auto gating = gating_of(keys); // which older files do not say
  if (gating == gguf_gating::sigmoid || (gating == gguf_gating::unsaid && experts.correction))
    experts.scores = router_scores::sigmoid;
  else
    model.family = "deepseek_v2";
  describe_choice(keys, experts, false);
}

void describe_mistral4(const architecture_keys& keys, model_config& model) {
  describe_deepseek2(keys, model);
  describe_growth(keys, model);
  model.family = "mistral4";
  model.experts.group_by_two = model.experts.groups > 1;
}

} // namespace

const family deepseek_v2_family{"deepseek_v2", read_deepseek_v2, arrange_deepseek, {{"deepseek2", only_written}}};
const family deepseek_v3_family{
  "deepseek_v3", read_deepseek_v3, arrange_deepseek, {{"deepseek2", latent | pairs, describe_deepseek2}}};
const family dots1_family{"dots1", read_dots1, arrange_shared_experts, {{"dots1", may_norm_heads | routed}}, sigmoid};
const family glm4_moe_family{"glm4_moe",
                             read_glm4_moe,
                             arrange_shared_experts,
                             {{"glm4moe", partial | named_by_place | may_norm_heads | routed}},
                             sigmoid};
const family mistral4_family{
  "mistral4", read_mistral4, arrange_deepseek, {{"mistral4", latent | pairs, describe_mistral4}}};

} // namespace troupe::families
