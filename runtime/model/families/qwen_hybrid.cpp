// Qwen 3 Next and Qwen 3.5 (their text): gated DeltaNets, and attention with an output gate in every fourth layer.
#include "runtime/model/config_limits.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/recurrent_reading.hpp"
#include "runtime/support/types.hpp"

namespace troupe::families {

using namespace config_limits;

namespace {

/// What folders and files do not say.
void describe_hybrid(model_config& model, const std::string& source) {
  auto& r = model.recurrent;
  r.norm = kernels::gate_norm::before;
  r.norm_group = r.value_dim;
  r.head_norm = true;
  bound_recurrence(source, model);
  model.qk_norm = model.attention_gate = true;
}

} // namespace

void read_qwen_hybrid(const reader& config, model_config& model, const hybrid_rules& rules) {
  read_activation(config, model, "hidden_act", "silu", true);
  read_sizes(config, model, {.ffn = rules.ffn, .default_kv_heads = rules.default_kv_heads, .default_head_dim = 256});
  require(config, "attention_bias", false);
  read_positions(config, model, {.default_context = 32768, .partial = true, .default_partial = rules.default_partial});
  auto& r = model.recurrent;
  r.type = recurrent_type::delta;
  r.taps = config.integer("linear_conv_kernel_dim", 1, max_taps, 4);
  r.key_heads = config.integer("linear_num_key_heads", 1, max_heads, 16);
  r.heads = config.integer("linear_num_value_heads", 1, max_heads, 32);
  r.key_dim = config.integer("linear_key_head_dim", 1, max_state_dim, 128);
  r.value_dim = config.integer("linear_value_head_dim", 1, max_state_dim, 128);
  describe_hybrid(model, config.source());
  auto words = read_layer_words(config, "layer_types");
  if (!words) {
    const int interval = config.integer("full_attention_interval", 1, max_layers, 4);
    words.emplace();
    for (int i = 0; i < model.layers; ++i)
      words->push_back((i + 1) % interval != 0 ? "linear_attention" : "full_attention");
  }
  for (auto& word : *words)
    if (rules.indexed && (word == "indexed_attention" || word == "qwen_sparse_attention"))
      word = "full_attention";
  set_layer_parts(config, model, "layer_types", *words);
}

void read_qwen_hybrid_experts(const reader& config, model_config& model, int default_count, int default_chosen) {
  read_expert_counts(config, model, {"num_experts", "num_local_experts"}, default_count, default_chosen);
  model.experts.ffn = config.integer("moe_intermediate_size", 1, max_ffn, 512);
  model.experts.shared_ffn = config.integer("shared_expert_intermediate_size", 1, max_ffn, 512);
  model.experts.shared_gate = true;
}

namespace {

/// `count` rows from `first` on of each of `groups` groups of rows.
row_order grouped_rows(std::size_t groups, std::size_t group_rows, std::size_t first, std::size_t count) {
  std::vector<std::uint32_t> rows;
  for (std::size_t g = 0; g < groups; ++g)
    for (std::size_t i = 0; i < count; ++i)
      rows.push_back(static_cast<std::uint32_t>(g * group_rows + first + i));
  return std::make_shared<const std::vector<std::uint32_t>>(std::move(rows));
}

/// Attention's matrix has each head's query, then its gate.
void split_attention_gate(const model_config& model, tensor_arranger& tensors, int layer) {
  const auto dim = as_size(model.head_dim), heads = as_size(model.heads);
  for (const auto& [name, half] : {std::pair("q_proj", 0), std::pair("attn_gate", 1)})
    tensors.take(layer, std::string("self_attn.") + name + ".weight", "self_attn.q_proj.weight",
                 grouped_rows(heads, 2 * dim, as_size(half) * dim, dim), 2 * heads * dim);
}

/// Qwen 3 Next has all that belongs to a head of keys together: q, k, v, z, and b, a.
void split_grouped_heads(const model_config& model, tensor_arranger& tensors, int layer) {
  const auto& r = model.recurrent;
  const auto groups = as_size(r.key_heads), keys = as_size(r.key_dim), per_group = as_size(r.heads) / groups,
             values = per_group * as_size(r.value_dim);
  const auto rows_of = [&](std::size_t group_rows, std::size_t first, std::size_t count) {
    return *grouped_rows(groups, group_rows, first, count);
  };
  const auto add = [&](const char* name, const char* from, std::vector<std::uint32_t> rows, std::size_t of_rows) {
    tensors.take(layer, std::string("recurrent.") + name, std::string("linear_attn.") + from,
                 std::make_shared<const std::vector<std::uint32_t>>(std::move(rows)), of_rows);
  };
  const auto all = 2 * keys + 2 * values;
  auto mixed = rows_of(all, 0, keys);
  for (const auto& more : {rows_of(all, keys, keys), rows_of(all, 2 * keys, values)})
    mixed.insert(mixed.end(), more.begin(), more.end());
  add("conv_proj.weight", "in_proj_qkvz.weight", std::move(mixed), groups * all);
  add("gate_proj.weight", "in_proj_qkvz.weight", rows_of(all, 2 * keys + values, values), groups * all);
  add("beta_proj.weight", "in_proj_ba.weight", rows_of(2 * per_group, 0, per_group), groups * 2 * per_group);
  add("rate_proj.weight", "in_proj_ba.weight", rows_of(2 * per_group, per_group, per_group), groups * 2 * per_group);
}

} // namespace

void read_qwen3_next(const reader& config, model_config& model) {
  read_qwen_hybrid(config, model, {.default_kv_heads = 2});
  read_qwen_hybrid_experts(config, model, 512, 10);
  read_sparse_layers(config, model);
  model.experts.renormalise = config.boolean("norm_topk_prob", true);
}

void read_qwen3_5(const reader& config, model_config& model) { read_qwen_hybrid(config, model, {}); }

void read_qwen3_5_moe(const reader& config, model_config& model) {
  read_qwen_hybrid(config, model, {.ffn = nullptr, .default_kv_heads = 2});
  read_qwen_hybrid_experts(config, model, 256, 8);
  model.ffn = model.experts.ffn;
  require(config, "norm_topk_prob", true);
  model.experts.renormalise = true;
}

void arrange_qwen_hybrid(const model_config& model, const checkpoint& stored, arrangement& to) {
  if (model.experts.count > 0)
    arrange_qwen3_moe(model, stored, to);
  tensor_arranger tensors(model, to);
  for (int layer = 0; layer < model.layers; ++layer) {
    if (model.parts_of(layer).attention) {
      split_attention_gate(model, tensors, layer);
      continue;
    }
    arrange_recurrence(model, tensors, layer, "linear_attn.");
    if (stored.find(tensors.stored(layer, "linear_attn.in_proj_qkvz.weight")))
      split_grouped_heads(model, tensors, layer);
    else
      tensors.rename(layer,
                     {{"recurrent.gate_proj", "linear_attn.in_proj_z"},
                      {"recurrent.conv_proj", "linear_attn.in_proj_qkv"},
                      {"recurrent.beta_proj", "linear_attn.in_proj_b"},
                      {"recurrent.rate_proj", "linear_attn.in_proj_a"}});
  }
  tensors.shift_norms(1);
}

namespace {

void describe_qwen3_next(const architecture_keys& keys, model_config& model) {
  describe_recurrence(keys, model, recurrent_type::delta);
  describe_hybrid(model, keys.file().name());
  describe_parts(keys, model, "ssm_conv1d.weight");
  model.experts.shared_gate = model.experts.count > 0;
}

/// Values' heads are stored in turns: first those of each head of keys, then the second of each.
void describe_qwen3_5(const architecture_keys& keys, model_config& model) {
  describe_qwen3_next(keys, model);
  model.recurrent.in_turns = model.recurrent.heads != model.recurrent.key_heads;
}

} // namespace

const family qwen3_5_moe_text_family{
  "qwen3_5_moe_text",
  read_qwen3_5_moe,
  arrange_qwen_hybrid,
  {{"qwen35moe", partial | named_by_place | says_axes | values_in_turns | routed, describe_qwen3_5}},
  shifted_predict | chained_predict};
const family qwen3_5_text_family{"qwen3_5_text",
                                 read_qwen3_5,
                                 arrange_qwen_hybrid,
                                 {{"qwen35", partial | named_by_place | says_axes | values_in_turns, describe_qwen3_5}},
                                 shifted_predict | chained_predict};
const family qwen3_next_family{"qwen3_next",
                               read_qwen3_next,
                               arrange_qwen_hybrid,
                               {{"qwen3next", partial | named_by_place | fused_rates | routed, describe_qwen3_next}},
                               shifted_predict | chained_predict};

} // namespace troupe::families
