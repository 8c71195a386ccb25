#include "runtime/techniques/dola/dola_rows.hpp"

#include "runtime/scheduling/step.hpp"
#include "runtime/support/types.hpp"
#include "runtime/techniques/dola/technique.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace troupe {

namespace {

/// States that one product with the head takes, so that one reading of its weights serves them all.
constexpr std::size_t most_at_once = 32;

std::size_t row_bytes(const model_config& config) { return as_size(config.vocab) * sizeof(float); }

/// Grows a buffer that holds nothing of use.
void provide(kernels::buffer& memory, std::size_t& size, std::size_t bytes, kernels::backend& backend) {
  if (size >= bytes)
    return;
  memory = nullptr;
  size = 0;
  memory = backend.allocate(bytes);
  size = bytes;
}

} // namespace

std::vector<layered_logits> layered_logits_of(const step_plan& plan) {
  std::vector<layered_logits> result;
  for (const auto& each : plan.featured)
    if (const auto* layers = layers_of(each.features->used.find(dola_technique)); layers && each.sampled_rows > 0)
      result.push_back({each.logit_row, each.sampled_rows, *layers});
  return result;
}

std::size_t dola_rows::memory(const step_sizes& sizes, const model_config& config, kernels::dtype compute) {
  const auto rows = as_size(std::min(sizes.logit_rows(), sizes.rows));
  const auto layers = std::min(most_dola_layers, as_size(config.layers));
  const auto states = rows * layers * as_size(config.hidden) * size_of(compute);
  return config.part().heads ? (rows + std::min(most_at_once, as_size(sizes.rows))) * row_bytes(config) + states
                             : 2 * states;
}

layer_hook dola_rows::keep(const step_plan& plan, const void* before) {
  candidates_.clear();
  judged_.clear();
  const auto layered = layered_logits_of(plan);
  if (layered.empty())
    return {};
  for (const auto& wanted : layered)
    for (auto i = wanted.logit_row; i < wanted.logit_row + wanted.rows; ++i) {
      for (const int layer : wanted.layers)
        candidates_.push_back({layer, plan.logit_rows[as_size(i)], judged_.size()});
      judged_.push_back({i, wanted.layers.size()});
    }
  std::ranges::stable_sort(candidates_, {}, &candidate::layer);
  provide(states_, states_bytes_, candidates_.size() * state_bytes(), backend_);
  if (const auto kept = kept_before(decoder_.weights().config.part().first); before && kept > 0)
    std::memcpy(states_.get(), before, kept * state_bytes());
  return [this](int passed, const kernels::tensor& residual) { keep_layer(passed, residual); };
}

std::size_t dola_rows::state_bytes() const {
  const auto& weights = decoder_.weights();
  return as_size(weights.config.hidden) * size_of(weights.compute);
}

// A span's first layer reads what is behind the layer before it, which an earlier stage has kept.
std::size_t dola_rows::kept_before(int first_layer) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(candidates_, first_layer, {}, &candidate::layer) -
                                  candidates_.begin());
}

std::shared_ptr<const void> dola_rows::pass_on() {
  if (candidates_.empty())
    return nullptr;
  const auto kept = kept_before(decoder_.weights().config.part().end);
  const auto memory = passed_.lend(std::max<std::size_t>(kept, 1) * state_bytes(),
                                   [this](std::size_t bytes) { return backend_.allocate(bytes); });
  if (kept > 0)
    std::memcpy(memory.get(), states_.get(), kept * state_bytes());
  return memory;
}

kernels::tensor dola_rows::states(std::size_t first, std::size_t count) const {
  const auto& weights = decoder_.weights();
  const auto width = as_size(weights.config.hidden);
  return {static_cast<char*>(states_.get()) + first * width * size_of(weights.compute), weights.compute, count, width,
          width};
}

void dola_rows::keep_layer(int layer, const kernels::tensor& residual) {
  const auto of_layer = std::ranges::equal_range(candidates_, layer, {}, &candidate::layer);
  if (of_layer.empty())
    return;
  rows_.clear();
  for (const auto& c : of_layer)
    rows_.push_back(c.row);
  backend_.gather_rows(states(static_cast<std::size_t>(of_layer.begin() - candidates_.begin()), rows_.size()), residual,
                       rows_.data());
}

void dola_rows::contrast(const step_plan&, const kernels::tensor& logits, contrast_rows& to) {
  if (judged_.empty())
    return;
  const auto vocab = logits.cols;
  const auto bytes = row_bytes(decoder_.weights().config);
  const auto most = std::min(most_at_once, as_size(decoder_.max_rows()));
  provide(some_, some_bytes_, most * bytes, backend_);
  const auto memory = std::static_pointer_cast<float>(
    chosen_.lend(judged_.size() * bytes, [this](std::size_t size) { return backend_.allocate(size); }));
  for (std::size_t first = 0; first < candidates_.size(); first += most) {
    const auto count = std::min(most, candidates_.size() - first);
    decoder_.project({some_.get(), kernels::dtype::f32, count, vocab, vocab}, states(first, count));
    for (std::size_t i = 0; i < count; ++i) {
      const auto& c = candidates_[first + i];
      consider(c, {static_cast<const float*>(some_.get()) + i * vocab, vocab}, logits, memory.get() + c.of * vocab);
    }
  }
  for (std::size_t i = 0; i < judged_.size(); ++i)
    to.of[as_size(judged_[i].logit_row)].push_back({memory.get() + i * vocab, vocab});
  to.memory.push_back(memory);
}

// A row's candidates come by ascending layer, whatever other rows there are; of equally far ones the first is kept.
void dola_rows::consider(const candidate& c, std::span<const float> inner, const kernels::tensor& logits,
                         float* chosen) {
  auto& row = judged_[c.of];
  if (row.candidates > 1) {
    if (!row.last)
      row.last.emplace(
        std::span(static_cast<const float*>(logits.data) + as_size(row.logit_row) * logits.stride, logits.cols));
    const double distance = layer_divergence(*row.last, normalised_row(inner));
    if (row.found && !(distance > row.farthest))
      return;
    row.farthest = std::isnan(distance) ? -std::numeric_limits<double>::infinity() : distance;
  }
  row.found = true;
  std::ranges::copy(inner, chosen);
}

} // namespace troupe
