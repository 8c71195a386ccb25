#include "runtime/model/pooled_head.hpp"

#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/error.hpp"

#include <cmath>
#include <numbers>

namespace troupe {

namespace {

float activated(pooled_layer::activation act, double x) {
  switch (act) {
    case pooled_layer::activation::none: break;
    case pooled_layer::activation::tanh: return static_cast<float>(std::tanh(x));
    case pooled_layer::activation::gelu: return static_cast<float>(x / 2 * std::erfc(-x / std::numbers::sqrt2));
    case pooled_layer::activation::silu: return static_cast<float>(x / (1 + std::exp(-x)));
    case pooled_layer::activation::relu: return static_cast<float>(std::max(x, 0.0));
  }
  return static_cast<float>(x);
}

void normalise(const pooled_layer& layer, std::vector<float>& values) {
  double mean = 0, squares = 0;
  for (const double v : values)
    mean += v / static_cast<double>(values.size());
  for (const double v : values)
    squares += (v - mean) * (v - mean) / static_cast<double>(values.size());
  const double factor = 1 / std::sqrt(squares + static_cast<double>(layer.norm_eps));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>((values[i] - mean) * factor * layer.norm[i]) +
      (layer.norm_bias.empty() ? 0 : layer.norm_bias[i]);
}

std::vector<float> read_floats(const checkpoint& tensors, const std::string& name, std::vector<std::size_t> shape) {
  const auto& info = require_tensor(tensors, {name, std::move(shape)});
  if (has_blocks(info.type))
    throw failure(errc::unsupported,
                  tensors.where(name) + ": tensor " + shown(name) +
                    " is quantised, which heads of "
                    "pooled states are not");
  std::size_t count = 1;
  for (const auto size : info.shape)
    count *= size;
  std::vector<float> values(count);
  to_floats(*weight_format_of(info.type), tensors.read(name).get(), count, values.data());
  return values;
}

} // namespace

std::vector<float> pooled_head::operator()(std::span<const float> pooled) const {
  std::vector<float> values(pooled.begin(), pooled.end());
  for (const auto& layer : layers_) {
    if (values.size() != layer.inputs)
      throw failure(errc::internal,
                    "a pooled state of " + std::to_string(values.size()) + " values, expected " +
                      std::to_string(layer.inputs));
    std::vector<float> next(layer.outputs);
    for (std::size_t o = 0; o < layer.outputs; ++o) {
      double sum = layer.bias.empty() ? 0 : layer.bias[o];
      for (std::size_t i = 0; i < layer.inputs; ++i)
        sum += static_cast<double>(layer.weight[o * layer.inputs + i]) * values[i];
      next[o] = activated(layer.act, sum);
    }
    if (!layer.norm.empty())
      normalise(layer, next);
    values = std::move(next);
  }
  if (scale_ == score_scale::sigmoid && values.size() == 1)
    values.front() = static_cast<float>(1 / (1 + std::exp(-static_cast<double>(values.front()))));
  return values;
}

pooled_layer read_pooled_layer(const checkpoint& tensors, const std::string& stem, std::size_t outputs,
                               std::size_t inputs) {
  pooled_layer layer;
  const auto name = stem + ".weight";
  if (const auto* info = tensors.find(name); info && outputs == 0 && info->shape.size() == 2)
    outputs = info->shape[0];
  layer.weight = read_floats(tensors, name, {outputs, inputs});
  layer.outputs = outputs;
  layer.inputs = inputs;
  if (tensors.find(stem + ".bias"))
    layer.bias = read_floats(tensors, stem + ".bias", {outputs});
  return layer;
}

void read_pooled_norm(const checkpoint& tensors, const std::string& stem, float eps, pooled_layer& to) {
  to.norm = read_floats(tensors, stem + ".weight", {to.outputs});
  if (tensors.find(stem + ".bias"))
    to.norm_bias = read_floats(tensors, stem + ".bias", {to.outputs});
  to.norm_eps = eps;
}

} // namespace troupe
