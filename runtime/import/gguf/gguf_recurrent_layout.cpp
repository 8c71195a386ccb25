#include "runtime/import/gguf/gguf_recurrent_layout.hpp"

#include "runtime/model/recurrent_layers.hpp"
#include "runtime/support/types.hpp"

#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <string>

namespace troupe {

namespace {

using part = laid_out_tensor::part;

row_order range(std::size_t first, std::size_t count) {
  auto rows = std::make_shared<std::vector<std::uint32_t>>(count);
  std::iota(rows->begin(), rows->end(), static_cast<std::uint32_t>(first));
  return rows;
}

/// Rows of heads of values, `width` each, behind `before` others: in turns, as Qwen 3.5's files have them.
row_order in_turns(const recurrent_config& r, std::size_t width, std::size_t before = 0) {
  const auto heads = as_size(r.heads), keys = as_size(r.key_heads), each = heads / keys;
  auto rows = std::make_shared<std::vector<std::uint32_t>>(before + heads * width);
  std::iota(rows->begin(), rows->begin() + static_cast<std::ptrdiff_t>(before), 0U);
  for (std::size_t i = 0; i < heads; ++i)
    for (std::size_t w = 0; w < width; ++w)
      (*rows)[before + i * width + w] = static_cast<std::uint32_t>(before + (i % keys * each + i / keys) * width + w);
  return rows;
}

class recurrent_placing {
public:
  recurrent_placing(const model_config& model, const std::string& block, const wanted_tensor& wanted, bool turned)
    : model_(model), r_(model.recurrent), block_(block), wanted_(wanted), turned_(turned) {}

  std::vector<placed_part> place(const std::string& name) const {
    if (name == "decay")
      return one("ssm_a", whole({.negated_exponential = r_.log_decay}, 1), column(wanted_.shape[0]));
    if (name == "dt_bias")
      return one("ssm_dt.bias", whole({}, 1));
    if (name == "skip")
      return one("ssm_d", whole({}), column(wanted_.shape[0]));
    if (name == "norm.weight")
      return one("ssm_norm.weight", whole({}), norm_shape());
    switch (r_.type) {
      case recurrent_type::short_convolution: return one("shortconv." + name, whole({}));
      case recurrent_type::ssd: return of_ssd(name);
      case recurrent_type::channel_delta: return of_channel_delta(name);
      default: return of_delta(name);
    }
  }

private:
  std::vector<placed_part> one(const std::string& name, part what, std::vector<std::size_t> shape = {}) const {
    if (what.factor == 1 && shape.empty() && !what.rows)
      shape = wanted_.shape;
    return {{block_ + name, std::move(shape), std::move(what)}};
  }

  /// `width`: rows of a head of values, if these are rows of heads, behind `before` others.
  part whole(part how, std::size_t width = 0, std::size_t before = 0) const {
    how.name = wanted_.name;
    if (turned_ && width > 0)
      how.rows = in_turns(r_, width, before);
    return how;
  }

  std::vector<std::size_t> column(std::size_t rows) const {
    if (r_.type == recurrent_type::ssd)
      return {rows, 1};
    if (r_.type == recurrent_type::channel_delta)
      return {1, 1, rows, 1};
    return {rows};
  }

  std::vector<std::size_t> norm_shape() const {
    if (r_.type != recurrent_type::ssd)
      return wanted_.shape;
    return {as_size(r_.key_heads), as_size(r_.inner() / r_.key_heads)};
  }

  std::vector<placed_part> of_ssd(const std::string& name) const {
    const auto inner = as_size(r_.inner()), keys = as_size(r_.keys());
    const auto in = [&](row_order rows, float factor) {
      return placed_part{
        block_ + "ssm_in.weight", {}, {.name = wanted_.name, .rows = std::move(rows), .factor = factor}};
    };
    if (name == "gate_proj.weight")
      return {in(nullptr, r_.gate_scale)};
    if (name == "conv_proj.weight")
      return {in(range(0, inner), r_.x_scale), in(range(inner, keys), r_.b_scale),
              in(range(inner + keys, keys), r_.c_scale)};
    if (name == "rate_proj.weight")
      return {in(nullptr, r_.rate_scale)};
    if (name == "out_proj.weight")
      return one("ssm_out.weight", {.name = wanted_.name, .factor = r_.out_scale}, wanted_.shape);
    return one(name == "conv.bias" ? "ssm_conv1d.bias" : "ssm_conv1d.weight", whole({}));
  }

  std::vector<placed_part> of_channel_delta(const std::string& name) const {
    static const std::map<std::string, std::string> names{
      {"q_proj.weight", "attn_q.weight"},       {"k_proj.weight", "attn_k.weight"},
      {"v_proj.weight", "attn_v.weight"},       {"out_proj.weight", "attn_output.weight"},
      {"beta_proj.weight", "ssm_beta.weight"},  {"rate_down.weight", "ssm_f_a.weight"},
      {"rate_up.weight", "ssm_f_b.weight"},     {"gate_down.weight", "ssm_g_a.weight"},
      {"gate_up.weight", "ssm_g_b.weight"},     {"q_conv.weight", "ssm_conv1d_q.weight"},
      {"k_conv.weight", "ssm_conv1d_k.weight"}, {"v_conv.weight", "ssm_conv1d_v.weight"}};
    auto shape = wanted_.shape;
    if (name.ends_with("_conv.weight"))
      shape = {1, shape[0], 1, shape[1]};
    return one(names.at(name), whole({}), std::move(shape));
  }

  std::vector<placed_part> of_delta(const std::string& name) const {
    const auto keys = 2 * as_size(r_.keys()), width = as_size(r_.value_dim);
    if (name == "conv_proj.weight")
      return one("attn_qkv.weight", whole({}, width, keys), wanted_.shape);
    if (name == "conv.weight")
      return one("ssm_conv1d.weight", whole({}, width, keys), wanted_.shape);
    if (name == "gate_proj.weight")
      return one("attn_gate.weight", whole({}, width), wanted_.shape);
    if (name == "out_proj.weight") {
      auto what = whole({});
      if (turned_)
        what.columns = in_turns(r_, width);
      return one("ssm_out.weight", std::move(what), wanted_.shape);
    }
    const bool beta = name == "beta_proj.weight";
    if (model_.family != "qwen3_next")
      return one(beta ? "ssm_beta.weight" : "ssm_alpha.weight", whole({}, 1), wanted_.shape);
    return {}; // with the other (place_recurrent)
  }

  const model_config& model_;
  const recurrent_config& r_;
  const std::string& block_;
  const wanted_tensor& wanted_;
  bool turned_; // heads of values change places
};

/// What belongs to each head, or each head of keys, of two tensors in turn: `each` rows of one, then of the other.
std::vector<placed_part> alternating(const std::string& name, const std::string& one, const std::string& other,
                                     std::size_t rows, std::size_t each, const row_order& order) {
  std::vector<placed_part> parts;
  for (std::size_t first = 0; first < rows; first += each) {
    auto own = std::make_shared<std::vector<std::uint32_t>>(*range(first, each));
    if (order)
      for (auto& row : *own)
        row = (*order)[row];
    parts.push_back({name, {}, {.name = one, .rows = own}});
    parts.push_back({name, {}, {.name = other, .rows = range(first, each)}});
  }
  return parts;
}

} // namespace

std::optional<std::vector<placed_part>> place_recurrent(const model_config& model, const std::string& block,
                                                        const std::string& rest, const wanted_tensor& wanted,
                                                        const row_order& order, bool of_gguf) {
  const auto& r = model.recurrent;
  const auto prefix = wanted.name.substr(0, wanted.name.size() - rest.size());
  constexpr std::string_view recurrent = "recurrent.";
  if (rest.starts_with(recurrent)) {
    const auto name = rest.substr(recurrent.size());
    if (model.family == "qwen3_next" && (name == "beta_proj.weight" || name == "rate_proj.weight")) {
      if (name == "rate_proj.weight")
        return std::vector<placed_part>(); // placed with the other
      return alternating(block + "ssm_ba.weight", wanted.name, prefix + "recurrent.rate_proj.weight", as_size(r.heads),
                         as_size(r.heads / r.key_heads), nullptr);
    }
    const bool turned = model.family.starts_with("qwen3_5") && r.heads != r.key_heads && !of_gguf && !r.in_turns;
    return recurrent_placing(model, block, wanted, turned).place(name);
  }
  if (model.attention_gate && rest == "self_attn.q_proj.weight")
    return alternating(block + "attn_q.weight", wanted.name, prefix + "self_attn.attn_gate.weight", wanted.shape[0],
                       as_size(model.head_dim), order);
  if (model.attention_gate && rest == "self_attn.attn_gate.weight")
    return std::vector<placed_part>();
  // Falcon H1's multipliers become part of the weights; those of scores, of the keys.
  const float dim = std::sqrt(static_cast<float>(model.head_dim));
  if (model.family == "falcon_h1" && !of_gguf && rest == "self_attn.k_proj.weight" && model.attention_scale != 0)
    return std::vector<placed_part>{{block + "attn_k.weight",
                                     wanted.shape,
                                     {.name = wanted.name, .rows = order, .factor = model.attention_scale * dim}}};
  if (model.family == "falcon_h1" && !of_gguf && rest == "self_attn.o_proj.weight")
    return std::vector<placed_part>{
      {block + "attn_output.weight", wanted.shape, {.name = wanted.name, .factor = r.attention_scale}}};
  const int layer = std::stoi(block.substr(block.find('.') + 1)); // "blk.7."
  if (rest == "post_attention_layernorm.weight" && model.family == "nemotron_h" && !model.parts_of(layer).mixes())
    return std::vector<placed_part>{{block + "attn_norm.weight", wanted.shape, {.name = wanted.name}}};
  if (rest == "post_attention_layernorm.weight" && model.family == "falcon_h1") // as llama.cpp calls it
    return std::vector<placed_part>{{block + "ffn_norm", wanted.shape, {.name = wanted.name}}};
  return std::nullopt;
}

void describe_recurrence(gguf_writer& to, const std::function<std::string(std::string_view)>& key,
                         const model_config& config) {
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
  if (config.family == "granitemoehybrid" || config.family == "bamba")
    to.add(key("rope.scaling.finetuned"), config.unrotated.empty());
  if (config.family.starts_with("qwen3_5"))
    to.add(key("rope.dimension_sections"), std::vector<std::int32_t>{11, 11, 10, 0});
}

} // namespace troupe
