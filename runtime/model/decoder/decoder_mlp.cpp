#include "runtime/model/decoder/decoder_mlp.hpp"

#include "kernels/activation_sparsity.hpp"
#include "kernels/gaussian_gates.hpp"
#include "runtime/model/decoder/decoder_tensors.hpp"

#include <cmath>
#include <numeric>
#include <vector>

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

} // namespace

decoder_mlps::decoder_mlps(decoder_step& step)
  : step_(step),
    backend_(step.backend),
    router_(step.allocate(step.bytes.router)),
    weighed_(step.allocate(step.bytes.weighed)),
    gates_(step.allocate(step.bytes.gates)),
    shortcut_(step.allocate(step.bytes.shortcut)) {
  if (step.bytes.gates > 0)
    gaussian_ = &dynamic_cast<kernels::gaussian_gates&>(backend_);
  if (const auto& sparsity = step.weights->sparsity; sparsity.up > 0 || sparsity.down > 0)
    sparsity_ = &dynamic_cast<kernels::activation_sparsity&>(backend_);
}

void decoder_mlps::add(int i, const tensor& normed) {
  const auto& config = step_.config();
  const auto& layer = step_.layer(i);
  const auto kept = buffer_rows(shortcut_, dtype::f32, config.experts.shortcut ? step_.rows() : 0,
                                as_size(config.hidden));
  if (layer.mixture && config.experts.shortcut) {
    mix(kept, normed, layer);
  } else if (layer.mixture) {
    const auto branch = step_.branch();
    mix(branch, normed, layer);
    return step_.add_changed(branch, layer.mlp_norm);
  }
  const auto ffn = step_.ffn(normed.rows, as_size(config.ffn_of(i)));
  drop_smallest(normed, step_.weights->sparsity.up, *layer.mlp.gate_up);
  if (config.cuts_gates(i))
    gate_gaussian(i, ffn, normed);
  else
    step_.activate(i, ffn, normed);
  drop_smallest(ffn, step_.weights->sparsity.down, *layer.mlp.down);
  step_.add_branch(i, product_site::down, ffn, *layer.mlp.down, layer.mlp.down_bias, layer.mlp_norm);
  if (config.experts.shortcut && i > config.part().first && config.is_sparse(i - 1))
    step_.add_changed(kept, {});
}

void decoder_mlps::drop_smallest(const tensor& in, float share, const kernels::matrix& w) {
  if (share > 0)
    sparsity_->drop_smallest(in, share, w);
}

void decoder_mlps::score_experts(const tensor& in, const mixture_weights& mixture) {
  const auto logits = buffer_rows(router_, dtype::f32, in.rows, as_size(step_.config().experts.count));
  backend_.linear(logits, in, *mixture.router, float_data(mixture.router_bias));
}

std::vector<expert_rows> decoder_mlps::route(const tensor& normed, const mixture_weights& mixture) {
  const auto& experts = step_.config().experts;
  if (!experts.early)
    score_experts(normed, mixture);
  const auto logits = buffer_rows(router_, dtype::f32, normed.rows, as_size(experts.count));
  std::vector<float> choice(logits.rows * logits.cols);
  backend_.download(choice.data(), logits);
  std::vector<int> given;
  if (!mixture.table.empty())
    for (const token_id t : step_.tokens) {
      const auto first = mixture.table.begin() + std::ptrdiff_t{t} * experts.chosen;
      given.insert(given.end(), first, first + experts.chosen);
    }
  auto chosen = group_by_expert(experts, choice, mixture.correction, given);
  if (step_.walk) {
    std::vector<int> numbers;
    for (const auto& group : chosen)
      if (group.expert < experts.count - experts.nulls) // the others have no weights
        numbers.push_back(group.expert);
    step_.walk.choose(numbers);
  }
  if (!mixture.scales.empty())
    for (auto& [expert, rows, weights] : chosen)
      for (float& weight : weights)
        weight *= mixture.scales[as_size(expert)];
  return chosen;
}

void decoder_mlps::add_chosen(const tensor& to, const tensor& normed, const mixture_weights& mixture,
                              std::span<const expert_rows> chosen) {
  std::vector<kernels::row_group> up, down;
  for (const auto& [expert, rows, weights] : chosen) {
    const auto& mlp = mixture.experts[as_size(expert)];
    up.push_back({mlp.gate_up.get(), float_data(mlp.gate_up_bias), rows});
    down.push_back({mlp.down.get(), float_data(mlp.down_bias), rows, weights});
  }
  if (up.empty())
    backend_.scale(to, 0);
  else
    add_experts(to, normed, up, down, mixture.act, kernels::store::set);
}

void decoder_mlps::add_nulls(const tensor& to, std::span<const float> weights, const layer_weights& layer) {
  const auto residual = step_.residual();
  const auto read = buffer_rows(weighed_, dtype::f32, residual.rows, residual.cols);
  step_.normalise(read, residual, layer.post_norm);
  backend_.add_rows(to, read, 1, nullptr, weights.data());
}

void decoder_mlps::add_shared(const tensor& to, const tensor& normed, const mixture_weights& mixture,
                              kernels::store how) {
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

void decoder_mlps::mix(const tensor& to, const tensor& normed, const layer_weights& layer) {
  const auto& experts = step_.config().experts;
  const auto& mixture = *layer.mixture;
  if (experts.apart)
    return mix_apart(to, normed, mixture);
  auto chosen = route(normed, mixture);
  std::vector<float> of_nulls(experts.nulls > 0 ? normed.rows : 0);
  while (experts.nulls > 0 && !chosen.empty() && chosen.back().expert >= experts.count - experts.nulls) {
    for (std::size_t r = 0; r < chosen.back().rows.size(); ++r)
      of_nulls[as_size(chosen.back().rows[r])] += chosen.back().weights[r];
    chosen.pop_back();
  }
  if (experts.weigh_inputs)
    add_weighed(to, layer, chosen);
  else
    add_chosen(to, normed, mixture, chosen);
  if (experts.nulls > 0)
    add_nulls(to, of_nulls, layer);
  if (mixture.shared.down)
    add_shared(to, normed, mixture, kernels::store::add);
}

void decoder_mlps::mix_apart(const tensor& to, const tensor& normed, const mixture_weights& mixture) {
  const auto residual = step_.residual();
  const auto others = buffer_rows(weighed_, dtype::f32, residual.rows, residual.cols);
  add_shared(to, normed, mixture, kernels::store::set);
  step_.normalise(to, to, mixture.shared_norm);
  step_.normalise(normed, residual, mixture.router_norm);
  const auto chosen = route(normed, mixture);
  step_.normalise(normed, residual, mixture.input_norm);
  add_chosen(others, normed, mixture, chosen);
  step_.normalise(others, others, mixture.result_norm);
  backend_.add_rows(to, others, 1);
}

void decoder_mlps::add_weighed(const tensor& to, const layer_weights& layer, std::span<const expert_rows> chosen) {
  const auto residual = step_.residual();
  const auto& config = step_.config();
  const auto rows = residual.rows, hidden = residual.cols, each = as_size(config.experts.chosen);
  auto* memory = static_cast<float*>(weighed_.get());
  const tensor wide{memory, dtype::f32, rows, hidden, hidden};
  const tensor weighed{memory + as_size(step_.max_rows()) * hidden, dtype::f32, each * rows, hidden, hidden};
  const tensor inputs{memory + as_size(step_.max_rows()) * hidden * (1 + each), step_.weights->compute, each * rows,
                      hidden, hidden};
  step_.normalise(wide, residual, layer.post_norm);
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

void decoder_mlps::add_experts(const tensor& to, const tensor& normed, std::span<const kernels::row_group> up,
                               std::span<const kernels::row_group> down, const kernels::activation& act,
                               kernels::store how) {
  const auto& config = step_.config();
  std::size_t rows = 0;
  for (const auto& group : up)
    rows += group.rows.size();
  const auto ffn = step_.ffn(rows, down.front().w->inputs);
  backend_.grouped_activated(ffn, normed, up, act, config.gated);
  backend_.grouped_sum(to, ffn, down, how);
}

void decoder_mlps::gate_gaussian(int i, const tensor& out, const tensor& normed) {
  const auto& config = step_.config();
  const auto& mlp = step_.layer(i).mlp;
  const auto ffn = out.cols;
  const auto both = buffer_rows(gates_, dtype::f32, step_.rows(), 2 * ffn);
  step_.multiply(i, product_site::gate_up, both, normed, *mlp.gate_up, mlp.gate_up_bias, kernels::store::set);
  gaussian_->gate_gaussian(out, column_part(both, 0, ffn), column_part(both, ffn, ffn),
                           config.gate_cutoffs[as_size(i)]);
}

} // namespace troupe
