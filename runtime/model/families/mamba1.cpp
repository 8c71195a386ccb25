// Mamba 1 alone (mamba, falcon_mamba), and with attention and experts (jamba).
#include "runtime/model/config_limits.hpp"
#include "runtime/model/families/gguf_reading.hpp"
#include "runtime/model/families/recurrent_reading.hpp"
#include "runtime/support/types.hpp"

namespace troupe::families {

using namespace config_limits;

namespace {

/// Names of keys.
struct scan_keys {
  const char *state, *taps, *expand, *rank, *conv_bias, *bias;
};

void read_scan(const reader& config, model_config& model, const scan_keys& keys, std::optional<int> inner = {}) {
  auto& r = model.recurrent;
  r.type = recurrent_type::selective;
  r.key_dim = config.integer(keys.state, 1, max_state_dim, 16);
  r.taps = config.integer(keys.taps, 1, max_taps, 4);
  const auto expanded = std::int64_t{config.integer(keys.expand, 1, 64, 2)} * model.hidden;
  const bool automatic = !config.has(keys.rank) || config.find(keys.rank)->is_string();
  r.rank = automatic ? (model.hidden + 15) / 16 : config.integer(keys.rank, 1, max_hidden, 1);
  r.conv_bias = config.boolean(keys.conv_bias, true);
  r.projection_bias = config.boolean(keys.bias, false);
  divide_values(r, inner ? *inner : static_cast<int>(std::min<std::int64_t>(expanded, 1 << 30)));
  bound_recurrence(config.source(), model);
}

void read_mamba1(const reader& config, model_config& model) {
  read_mixers_alone(config, model, true);
  std::optional<int> inner;
  if (config.has("intermediate_size")) // which counts, whatever `expand` is
    inner = config.size("intermediate_size", max_ffn);
  read_scan(config, model, {"state_size", "conv_kernel", "expand", "time_step_rank", "use_conv_bias", "use_bias"},
            inner);
}

void read_falcon_mamba(const reader& config, model_config& model) {
  read_mamba1(config, model);
  auto& r = model.recurrent;
  r.parts_norm = r.parts_norm_plain = true;
  r.norm_eps = static_cast<float>(config.number("mixer_rms_eps", 0, 1).value_or(1e-6));
}

/// Which of `period` layers it is, by default the `offset`th.
std::vector<bool> every(const reader& config, int layers, const char* period_key, int period, const char* offset_key,
                        int offset) {
  period = config.integer(period_key, 1, max_layers, period);
  offset = config.integer(offset_key, 0, max_layers, offset);
  if (offset >= period)
    throw failure(errc::bad_file,
                  config.label(offset_key) + " is " + std::to_string(offset) + ", expected less than `" + period_key +
                    "`, " + std::to_string(period));
  std::vector<bool> result;
  for (int i = 0; i < layers; ++i)
    result.push_back(i % period == offset);
  return result;
}

void read_jamba(const reader& config, model_config& model) {
  read_activation(config, model, "hidden_act", "silu", true);
  read_sizes(config, model, {.default_kv_heads = 8});
  model.unrotated.assign(as_size(model.layers), true);
  model.max_context = config.integer("max_position_embeddings", 1, max_positions, 262144);
  read_scan(config, model,
            {"mamba_d_state", "mamba_d_conv", "mamba_expand", "mamba_dt_rank", "mamba_conv_bias", "mamba_proj_bias"});
  model.recurrent.parts_norm = true;
  for (const bool attends : every(config, model.layers, "attn_layer_period", 8, "attn_layer_offset", 4))
    model.parts.push_back({.attention = attends, .recurrence = !attends});
  if (config.integer("num_experts", 1, max_experts, 16) == 1)
    return;
  read_expert_counts(config, model, {"num_experts"}, 16, 2);
  model.experts.ffn = model.ffn;
  model.sparse = every(config, model.layers, "expert_layer_period", 2, "expert_layer_offset", 1);
}

/// Presents the tensors of Mamba 1: `stem` is "mamba." or "mixer.".
void arrange_scan(const model_config& model, tensor_arranger& tensors, int layer, const std::string& stem) {
  const auto& r = model.recurrent;
  const auto inner = as_size(r.inner());
  const auto part = [&](const std::string& name, const std::string& from) {
    tensors.take(layer, "recurrent." + name, stem + from);
  };
  part("conv.weight", "conv1d.weight");
  part("conv.bias", "conv1d.bias");
  part("parts.weight", "x_proj.weight");
  part("rate_up.weight", "dt_proj.weight");
  part("dt_bias", "dt_proj.bias");
  part("decay", "A_log");
  part("skip", "D");
  tensors.rename(layer,
                 {{"recurrent.out_proj", (stem + "out_proj").c_str()},
                  {"recurrent.dt_norm", (stem + "dt_layernorm").c_str()},
                  {"recurrent.b_norm", (stem + "b_layernorm").c_str()},
                  {"recurrent.c_norm", (stem + "c_layernorm").c_str()}});
  for (const std::string kind : {".weight", ".bias"}) {
    if (kind == ".bias" && !r.projection_bias)
      continue;
    for (const auto& [name, first] : {std::pair("conv_proj", std::size_t{0}), std::pair("gate_proj", inner)})
      tensors.take(layer, std::string("recurrent.") + name + kind, stem + "in_proj" + kind, tensors.rows(first, inner),
                   2 * inner);
  }
}

void arrange_mamba1(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to, "backbone.layers.");
  rename_backbone(model, tensors, to);
  for (int layer = 0; layer < model.layers; ++layer)
    arrange_scan(model, tensors, layer, "mixer.");
}

void arrange_jamba(const model_config& model, const checkpoint&, arrangement& to) {
  tensor_arranger tensors(model, to);
  to.names["model.final_layernorm.weight"] = "model.norm.weight";
  for (int layer = 0; layer < model.layers; ++layer) {
    tensors.rename(layer, "post_attention_layernorm", "pre_ff_layernorm");
    if (model.parts_of(layer).recurrence)
      arrange_scan(model, tensors, layer, "mamba.");
    const int experts = model.is_sparse(layer) ? model.experts.count : 0;
    if (experts > 0)
      tensors.rename(layer, "mlp.gate", "feed_forward.router");
    for (int e = 0; e < std::max(experts, 1); ++e)
      for (const std::string name : {"gate_proj", "up_proj", "down_proj"}) {
        const auto one = (experts > 0 ? "experts." + std::to_string(e) + "." : "") + name;
        tensors.rename(layer, "mlp." + one, "feed_forward." + one);
      }
  }
}

void describe_scan(const architecture_keys& keys, model_config& model) {
  auto& r = model.recurrent;
  describe_recurrence(keys, model, recurrent_type::selective);
  bound_recurrence(keys.file().name(), model);
  describe_parts(keys, model, "ssm_in.weight");
  r.conv_bias = has_of_first(keys, model, "ssm_conv1d.bias");
  r.projection_bias = has_of_first(keys, model, "ssm_in.bias");
  r.parts_norm_plain = keys.boolean("ssm.dt_b_c_rms").value_or(false);
  r.parts_norm = r.parts_norm_plain || has_of_first(keys, model, "ssm_dt_norm.weight");
  r.norm_eps = static_cast<float>(keys.number("ssm.dt_b_c_rms_epsilon", 0, 1).value_or(0));
}

void describe_jamba(const architecture_keys& keys, model_config& model) {
  describe_scan(keys, model);
  model.unrotated.assign(as_size(model.layers), true);
  if (has_experts(keys))
    describe_experts(keys, model);
}

} // namespace

const family falcon_mamba_family{
  "falcon_mamba", read_falcon_mamba, arrange_mamba1, {{"mamba", without_attention | only_written}}};
const family jamba_family{"jamba", read_jamba, arrange_jamba, {{"jamba", 0, describe_jamba}}};
const family mamba_family{"mamba", read_mamba1, arrange_mamba1, {{"mamba", without_attention, describe_scan}}};

} // namespace troupe::families
