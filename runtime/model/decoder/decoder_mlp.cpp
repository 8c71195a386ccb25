// The part of class decoder that computes MLPs, and mixtures of experts in their place.
#include "kernels/activation_sparsity.hpp"
#include "kernels/low_rank.hpp"
#include "runtime/model/decoder/decoder.hpp"
#include "runtime/model/decoder/decoder_tensors.hpp"

#include <cmath>
#include <numeric>
#include <vector>

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

} // namespace

void decoder::add_mlp(int i, const tensor& residual, const tensor& normed) {
  const auto& config = weights_->config;
  const auto& layer = weights_->layer(i);
  if (layer.mixture) {
    const auto branch = buffer_rows(branch_, dtype::f32, residual.rows, residual.cols);
    mix(branch, normed, *layer.mixture, layer, residual);
    return add_changed(residual, branch, layer.mlp_norm);
  }
  const auto ffn = buffer_rows(ffn_, weights_->compute, normed.rows, as_size(config.ffn_of(i)));
  const auto& first = *layer.mlp.gate_up;
  drop_smallest(normed, weights_->sparsity.up, first);
  const auto* bias = float_data(layer.mlp.gate_up_bias);
  if (config.cuts_gates(i))
    gate_gaussian(i, ffn, normed);
  else if (const auto added = added_at(i, product_site::gate_up); !added.empty())
    low_rank_->linear_activated_plus(ffn, normed, first, layer.act, config.gated, bias, added);
  else
    backend_.linear_activated(ffn, normed, first, layer.act, config.gated, bias);
  drop_smallest(ffn, weights_->sparsity.down, *layer.mlp.down);
  add_branch(i, product_site::down, residual, ffn, *layer.mlp.down, layer.mlp.down_bias, layer.mlp_norm);
}

void decoder::drop_smallest(const tensor& in, float share, const kernels::matrix& w) {
  if (share > 0)
    dynamic_cast<kernels::activation_sparsity&>(backend_).drop_smallest(in, share, w);
}

void decoder::score_experts(const tensor& in, const mixture_weights& mixture) {
  const auto logits = buffer_rows(router_, dtype::f32, in.rows, as_size(weights_->config.experts.count));
  backend_.linear(logits, in, *mixture.router, float_data(mixture.router_bias));
}

std::vector<expert_rows> decoder::route(const tensor& normed, const mixture_weights& mixture) {
  const auto& experts = weights_->config.experts;
  if (!experts.early)
    score_experts(normed, mixture);
  const auto logits = buffer_rows(router_, dtype::f32, normed.rows, as_size(experts.count));
  std::vector<float> choice(logits.rows * logits.cols);
  backend_.download(choice.data(), logits);
  auto chosen = group_by_expert(experts, choice, mixture.correction);
  if (walk_) {
    std::vector<int> numbers;
    for (const auto& group : chosen)
      numbers.push_back(group.expert);
    walk_.choose(numbers);
  }
  if (!mixture.scales.empty())
    for (auto& [expert, rows, weights] : chosen)
      for (float& weight : weights)
        weight *= mixture.scales[as_size(expert)];
  return chosen;
}

void decoder::add_chosen(const tensor& to, const tensor& normed, const mixture_weights& mixture,
                         std::span<const expert_rows> chosen) {
  std::vector<kernels::row_group> up, down;
  for (const auto& [expert, rows, weights] : chosen) {
    const auto& mlp = mixture.experts[as_size(expert)];
    up.push_back({mlp.gate_up.get(), float_data(mlp.gate_up_bias), rows});
    down.push_back({mlp.down.get(), float_data(mlp.down_bias), rows, weights});
  }
  add_experts(to, normed, up, down, mixture.act, kernels::store::set);
}

void decoder::add_shared(const tensor& to, const tensor& normed, const mixture_weights& mixture, kernels::store how) {
  std::vector<std::int32_t> all(normed.rows);
  std::iota(all.begin(), all.end(), 0);
  std::vector<float> factors(normed.rows, 1);
  if (mixture.shared_gate) {
    const auto gate = buffer_rows(router_, dtype::f32, normed.rows, 1);
    backend_.linear(gate, normed, *mixture.shared_gate);
    backend_.download(factors.data(), gate);
    for (float& f : factors)
      f = 1 / (1 + std::exp(-f));
  }
  const auto& mlp = mixture.shared;
  const kernels::row_group shared_up{mlp.gate_up.get(), float_data(mlp.gate_up_bias), all};
  const kernels::row_group shared_down{mlp.down.get(), float_data(mlp.down_bias), all, factors};
  add_experts(to, normed, {&shared_up, 1}, {&shared_down, 1}, mixture.shared_act, how);
}

void decoder::mix(const tensor& to, const tensor& normed, const mixture_weights& mixture, const layer_weights& layer,
                  const tensor& residual) {
  const auto& experts = weights_->config.experts;
  if (experts.apart)
    return mix_apart(to, normed, mixture, residual);
  const auto chosen = route(normed, mixture);
  if (experts.weigh_inputs)
    add_weighed(to, layer, residual, chosen);
  else
    add_chosen(to, normed, mixture, chosen);
  if (mixture.shared.down)
    add_shared(to, normed, mixture, kernels::store::add);
}

void decoder::mix_apart(const tensor& to, const tensor& normed, const mixture_weights& mixture,
                        const tensor& residual) {
  const auto others = buffer_rows(weighed_, dtype::f32, residual.rows, residual.cols);
  add_shared(to, normed, mixture, kernels::store::set);
  normalise(to, to, mixture.shared_norm);
  normalise(normed, residual, mixture.router_norm);
  const auto chosen = route(normed, mixture);
  normalise(normed, residual, mixture.input_norm);
  add_chosen(others, normed, mixture, chosen);
  normalise(others, others, mixture.result_norm);
  backend_.add_rows(to, others, 1);
}

void decoder::add_weighed(const tensor& to, const layer_weights& layer, const tensor& residual,
                          std::span<const expert_rows> chosen) {
  const auto& config = weights_->config;
  const auto rows = residual.rows, hidden = residual.cols, each = as_size(config.experts.chosen);
  auto* memory = static_cast<float*>(weighed_.get());
  const tensor wide{memory, dtype::f32, rows, hidden, hidden};
  const tensor weighed{memory + as_size(max_rows_) * hidden, dtype::f32, each * rows, hidden, hidden};
  const tensor inputs{memory + as_size(max_rows_) * hidden * (1 + each), weights_->compute, each * rows, hidden,
                      hidden};
  normalise(wide, residual, layer.post_norm);
  // A row's k-th expert reads row k * rows + row.
  std::vector<std::size_t> seen(rows);
  std::vector<float> factors(each * rows);
  std::vector<std::vector<std::int32_t>> places;
  for (const auto& group : chosen) {
    auto& own = places.emplace_back();
    for (std::size_t i = 0; i < group.rows.size(); ++i) {
      const auto row = as_size(group.rows[i]), place = seen[row]++ * rows + row;
      own.push_back(static_cast<std::int32_t>(place));
      factors[place] = group.weights[i];
    }
  }
  backend_.scale(weighed, 0);
  for (std::size_t k = 0; k < each; ++k)
    backend_.add_rows({static_cast<float*>(weighed.data) + k * rows * hidden, dtype::f32, rows, hidden, hidden}, wide,
                      1, nullptr, &factors[k * rows]);
  backend_.gather_rows(inputs, weighed);
  const std::vector<float> ones(rows, 1);
  std::vector<kernels::row_group> up, down;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    const auto& mlp = layer.mixture->experts[as_size(chosen[i].expert)];
    up.push_back({mlp.gate_up.get(), float_data(mlp.gate_up_bias), places[i]});
    down.push_back(
      {mlp.down.get(), float_data(mlp.down_bias), chosen[i].rows, std::span(ones).first(chosen[i].rows.size())});
  }
  add_experts(to, inputs, up, down, layer.mixture->act, kernels::store::set);
}

void decoder::add_experts(const tensor& to, const tensor& normed, std::span<const kernels::row_group> up,
                          std::span<const kernels::row_group> down, const kernels::activation& act,
                          kernels::store how) {
  const auto& config = weights_->config;
  std::size_t rows = 0;
  for (const auto& group : up)
    rows += group.rows.size();
  const auto ffn = buffer_rows(ffn_, weights_->compute, rows, down.front().w->inputs);
  backend_.grouped_activated(ffn, normed, up, act, config.gated);
  backend_.grouped_sum(to, ffn, down, how);
}

} // namespace troupe
