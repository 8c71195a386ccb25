#include "runtime/model/decoder/decoder_grams.hpp"

#include "runtime/model/decoder/decoder_tensors.hpp"
#include "runtime/model/gram_layers.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

} // namespace

decoder_grams::decoder_grams(decoder_step& step)
  : step_(step),
    backend_(step.backend),
    grams_(dynamic_cast<kernels::gram_ops&>(step.backend)),
    found_(step.allocate(step.bytes.grams_found)),
    narrow_(step.allocate(step.bytes.grams_narrow)),
    keys_(step.allocate(step.bytes.grams_streams)),
    queries_(step.allocate(step.bytes.grams_streams)),
    values_(step.allocate(step.bytes.grams_values)),
    taken_(step.allocate(step.bytes.grams_streams)) {}

void decoder_grams::begin(kernels::state_cache& states) {
  require_in_decoder(tokens_.size() == step_.rows(), "n-grams of rows whose tokens are not known");
  states_ = &states;
  before_.resize(tokens_.size() * as_size(step_.config().grams.size - 1));
  grams_.recall_tokens(before_.data(), tokens_.data(), tokens_.size(), states, 0);
}

tensor decoder_grams::look_up(int i) {
  const auto& grams = step_.config().grams;
  const auto rows = step_.rows(), back = as_size(grams.size - 1), each = as_size(grams.lookups()),
             dim = as_size(grams.dim);
  const auto part_rows = grams.part_rows(i);
  std::vector<std::int64_t> wanted(rows * each);
  for (std::size_t r = 0; r < rows; ++r)
    gram_rows(grams, i, tokens_[r], std::span(before_).subspan(r * back, back), &wanted[r * each]);
  // Part by part of the table, then in the order of the rows.
  std::vector<std::int32_t> order(wanted.size()), places(wanted.size()), in_part;
  for (std::size_t n = 0; n < order.size(); ++n)
    order[n] = static_cast<std::int32_t>(n);
  std::ranges::stable_sort(order, {}, [&](std::int32_t n) { return wanted[as_size(n)] / part_rows; });
  const auto sorted = buffer_rows(found_, dtype::f32, wanted.size(), dim);
  for (std::size_t first = 0, end = 0; first < order.size(); first = end) {
    const auto part = wanted[as_size(order[first])] / part_rows;
    in_part.clear();
    for (; end < order.size() && wanted[as_size(order[end])] / part_rows == part; ++end) {
      in_part.push_back(static_cast<std::int32_t>(wanted[as_size(order[end])] % part_rows));
      places[as_size(order[end])] = static_cast<std::int32_t>(end);
    }
    backend_.embed({static_cast<float*>(sorted.data) + first * dim, dtype::f32, end - first, dim, dim},
                   *step_.layer(i).grams->tables[static_cast<std::size_t>(part)], in_part.data());
  }
  const tensor found{static_cast<float*>(found_.get()) + as_size(step_.max_rows()) * each * dim, dtype::f32,
                     wanted.size(), dim, dim};
  backend_.gather_rows(found, sorted, places.data());
  return {found.data, dtype::f32, rows, each * dim, each * dim};
}

void decoder_grams::add(int i, const tensor& streams) {
  const auto& config = step_.config();
  const auto& w = *step_.layer(i).grams;
  const auto rows = step_.rows(), hidden = as_size(config.hidden), width = streams.cols;
  const auto found = look_up(i);
  const auto in = buffer_rows(narrow_, step_.weights->compute, rows, found.cols);
  const auto keys = buffer_rows(keys_, dtype::f32, rows, width),
             queries = buffer_rows(queries_, dtype::f32, rows, width),
             taken = buffer_rows(taken_, dtype::f32, rows, width),
             values = buffer_rows(values_, dtype::f32, rows, hidden);
  backend_.gather_rows(in, found);
  backend_.linear(keys, in, *w.key);
  backend_.linear(values, in, *w.value);
  const auto normalise = [&](const tensor& to, const tensor& from, const kernels::buffer& weight, std::size_t at) {
    backend_.rms_norm(column_part(to, at, hidden), column_part(from, at, hidden), float_data(weight) + at,
                      config.norm_eps);
  };
  const float scale = 1 / std::sqrt(static_cast<float>(config.hidden));
  for (std::size_t at = 0; at < width; at += hidden) {
    normalise(keys, keys, w.key_norm, at);
    normalise(queries, streams, w.stream_norm, at);
    grams_.take_agreed(column_part(taken, at, hidden), column_part(keys, at, hidden), column_part(queries, at, hidden),
                       values, scale);
    normalise(queries, taken, w.value_norm, at);
  }
  int index = 1; // behind the tokens
  for (int before = config.part().first; before < i; ++before)
    index += config.grams.at(before) ? 1 : 0;
  grams_.convolve_spread(keys, queries, {float_data(w.convolution), nullptr, true}, *states_, index);
  backend_.add_rows(streams, taken, 1);
  backend_.add_rows(streams, keys, 1);
}

} // namespace troupe
