#include "runtime/model/recurrent_layers.hpp"

#include "runtime/model/branch_convolutions.hpp"
#include "runtime/support/types.hpp"

#include <utility>

namespace troupe {

recurrent_tensors::recurrent_tensors(const model_config& config, int layer) : config_(config), layer_(layer) {}

wanted_tensor recurrent_tensors::named(const char* name, std::vector<std::size_t> shape) const {
  return {"model.layers." + std::to_string(layer_) + ".recurrent." + name, std::move(shape)};
}

std::vector<wanted_tensor> recurrent_tensors::in() const {
  const auto& r = config_.recurrent;
  const auto hidden = as_size(config_.hidden), heads = as_size(r.heads), inner = as_size(r.inner()),
             keys = as_size(r.keys()), rank = as_size(r.rank);
  const auto channels = as_size(recurrent_channels(config_));
  const auto of = [&](const char* name, std::size_t rows) { return named(name, {rows, hidden}); };
  switch (r.type) {
    using enum recurrent_type;
    case short_convolution: return {of("in_proj.weight", 3 * hidden)};
    case delta:
      if (r.apart)
        return {of("gate_proj.weight", inner), of("q_proj.weight", keys),     of("k_proj.weight", keys),
                of("v_proj.weight", inner),    of("beta_proj.weight", heads), of("rate_proj.weight", heads)};
      return {of("gate_proj.weight", inner), of("conv_proj.weight", channels), of("beta_proj.weight", heads),
              of("rate_proj.weight", heads)};
    case channel_delta:
      if (rank == 0)
        return {of("q_proj.weight", keys),     of("k_proj.weight", keys),    of("v_proj.weight", inner),
                of("beta_proj.weight", heads), of("rate_proj.weight", keys), of("gate_proj.weight", inner)};
      return {of("q_proj.weight", keys),     of("k_proj.weight", keys),    of("v_proj.weight", inner),
              of("beta_proj.weight", heads), of("rate_down.weight", rank), of("gate_down.weight", rank)};
    case ssd: return {of("gate_proj.weight", inner), of("conv_proj.weight", channels), of("rate_proj.weight", heads)};
    case selective: return {of("conv_proj.weight", inner), of("gate_proj.weight", inner)};
    case branches:
    case none: break;
  }
  return {};
}

wanted_tensor recurrent_tensors::rate_up() const {
  const auto& r = config_.recurrent;
  const auto rates = r.type == recurrent_type::selective ? r.inner() : r.heads * r.key_dim;
  return named("rate_up.weight", {as_size(rates), as_size(r.rank)});
}

wanted_tensor recurrent_tensors::parts() const {
  const auto& r = config_.recurrent;
  return named("parts.weight", {as_size(r.rank + 2 * r.key_dim), as_size(r.inner())});
}

std::vector<wanted_tensor> recurrent_tensors::part_norms() const {
  const auto& r = config_.recurrent;
  if (!r.parts_norm || r.parts_norm_plain)
    return {};
  return {named("dt_norm.weight", {as_size(r.rank)}), named("b_norm.weight", {as_size(r.key_dim)}),
          named("c_norm.weight", {as_size(r.key_dim)})};
}

wanted_tensor recurrent_tensors::gate_up() const {
  return named("gate_up.weight", {as_size(config_.recurrent.inner()), as_size(config_.recurrent.rank)});
}

wanted_tensor recurrent_tensors::out() const {
  return named("out_proj.weight", {as_size(config_.hidden), as_size(recurrent_inner(config_))});
}

std::vector<wanted_tensor> recurrent_tensors::convolution() const {
  const auto& r = config_.recurrent;
  const auto taps = as_size(r.taps), keys = as_size(r.keys()), inner = as_size(r.inner());
  if (r.type == recurrent_type::channel_delta || r.apart)
    return {named("q_conv.weight", {keys, taps}), named("k_conv.weight", {keys, taps}),
            named("v_conv.weight", {inner, taps})};
  return {named("conv.weight", {as_size(recurrent_channels(config_)), taps})};
}

std::vector<wanted_tensor> recurrent_tensors::convolution_bias() const {
  return config_.recurrent.conv_bias ? tensor_names::biases(convolution()) : std::vector<wanted_tensor>();
}

std::vector<wanted_tensor> recurrent_tensors::in_bias() const {
  return config_.recurrent.projection_bias ? tensor_names::biases(in()) : std::vector<wanted_tensor>();
}

std::vector<wanted_tensor> recurrent_tensors::out_bias() const {
  return config_.recurrent.projection_bias ? tensor_names::biases({out()}) : std::vector<wanted_tensor>();
}

wanted_tensor recurrent_tensors::decay() const {
  const auto& r = config_.recurrent;
  if (r.type == recurrent_type::selective)
    return named("decay", {as_size(r.inner()), as_size(r.key_dim)});
  return named("decay", {as_size(r.heads)});
}

wanted_tensor recurrent_tensors::dt_bias() const {
  const auto& r = config_.recurrent;
  const int each = r.type == recurrent_type::channel_delta ? r.key_dim
    : r.type == recurrent_type::selective                  ? r.value_dim
                                                           : 1;
  return named("dt_bias", {as_size(r.heads) * as_size(each)});
}

wanted_tensor recurrent_tensors::skip() const {
  const auto& r = config_.recurrent;
  return named("skip", {as_size(r.type == recurrent_type::selective ? r.inner() : r.heads)});
}

wanted_tensor recurrent_tensors::norm() const {
  const auto& r = config_.recurrent;
  return named("norm.weight", {as_size(r.head_norm ? r.value_dim : r.inner())});
}

std::vector<wanted_tensor> recurrent_tensors::all() const {
  const auto& r = config_.recurrent;
  auto result = in();
  const auto add = [&](const std::vector<wanted_tensor>& more) {
    result.insert(result.end(), more.begin(), more.end());
  };
  if (has_rate_up())
    add({rate_up()});
  if (has_gate_up())
    add({gate_up()});
  if (r.type == recurrent_type::selective)
    add({parts()});
  add(part_norms());
  add({out()});
  add(convolution());
  add(convolution_bias());
  add(in_bias());
  add(out_bias());
  if (has_heads())
    add({decay(), dt_bias()});
  if (has_skip())
    add({skip()});
  if (r.norm != kernels::gate_norm::none)
    add({norm()});
  return result;
}

int recurrent_channels(const model_config& config) {
  const auto& r = config.recurrent;
  return r.type == recurrent_type::short_convolution ? config.hidden : r.inner() + 2 * r.keys();
}

int recurrent_inner(const model_config& config) {
  return config.recurrent.type == recurrent_type::short_convolution ? config.hidden : config.recurrent.inner();
}

kernels::state_shape state_shape_of(const model_config& config, int running, int snapshots, int pending) {
  const auto& r = config.recurrent;
  std::vector<kernels::spread_shape> spread; // the tokens before, then the convolution of each layer with n-grams
  for (int i = config.part().first; r.type == recurrent_type::branches && i < config.part().end; ++i)
    for (const auto site : branch_sites) // see branch_state
      spread.push_back({.channels = branch_channels(config, i, site), .taps = r.taps});
  for (int i = config.part().first; i < config.part().end; ++i) {
    if (!config.grams.at(i))
      continue;
    if (spread.empty())
      spread.push_back({.channels = 1, .taps = config.grams.size});
    spread.push_back({.channels = config.residual_width(), .taps = config.grams.taps, .spacing = config.grams.size});
  }
  return {.layers = config.state_layers(),
          .slots = running + snapshots,
          .running = running,
          .pending = pending,
          .channels = recurrent_channels(config),
          .taps = r.taps,
          .heads = r.heads,
          .key_dim = r.key_dim,
          .value_dim = r.value_dim,
          .decays = r.type == recurrent_type::channel_delta,
          .rates = r.type == recurrent_type::selective,
          .spread = std::move(spread)};
}

std::vector<float> tap_major(const std::vector<float>& weights, std::size_t channels, std::size_t taps) {
  std::vector<float> turned(weights.size());
  for (std::size_t c = 0; c < channels; ++c)
    for (std::size_t t = 0; t < taps; ++t)
      turned[t * channels + c] = weights[c * taps + t];
  return turned;
}

} // namespace troupe
