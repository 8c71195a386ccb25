#include "runtime/model/decoder/decoder_convolutions.hpp"

#include "runtime/model/decoder/decoder_tensors.hpp"

namespace troupe {

namespace {

using kernels::tensor;

} // namespace

decoder_convolutions::decoder_convolutions(decoder_step& step)
  : step_(step), ops_(dynamic_cast<kernels::gram_ops&>(step.backend)), convolved_(step.allocate(step.bytes.branches)) {
  step.change = this;
}

tensor decoder_convolutions::convolve(int i, branch_site site, const tensor& in) {
  const auto out = buffer_rows(convolved_, kernels::dtype::f32, in.rows, in.cols);
  const auto& weights = step_.layer(i).branches->convolutions[static_cast<std::size_t>(site)];
  ops_.convolve_spread(out, in, {float_data(weights)}, *states_, branch_state(step_.config(), i, site));
  return out;
}

void decoder_convolutions::change_cached(int i, const tensor& keys, const tensor& values) {
  step_.backend.gather_rows(keys, convolve(i, branch_site::keys, keys));
  step_.backend.gather_rows(values, convolve(i, branch_site::values, values));
}

void decoder_convolutions::enter(int i, branch_site site) {
  layer_ = i;
  site_ = site;
}

tensor decoder_convolutions::changed(const tensor& branch) { return convolve(layer_, site_, branch); }

} // namespace troupe
