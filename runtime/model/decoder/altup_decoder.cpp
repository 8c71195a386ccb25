// The part of class decoder for layers with alternating updates (https://arxiv.org/abs/2301.13310), which Gemma 3n has.
// There are several streams; each layer predicts all of them, computes one, and corrects the others by the difference.
#include "kernels/gaussian_gates.hpp"
#include "runtime/model/decoder/decoder.hpp"
#include "runtime/model/decoder/decoder_tensors.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

constexpr float least_mean_square = 1e-5f; // of a stream that is brought to the length of another

} // namespace

tensor decoder::stream(const kernels::buffer& of, int index) const {
  const auto hidden = as_size(weights_->config.hidden);
  return {static_cast<float*>(of.get()) + as_size(index) * as_size(max_rows_) * hidden, dtype::f32, rows_, hidden,
          hidden};
}

std::vector<float> decoder::lengths_to(const tensor& from, const tensor& to) {
  std::vector<float> have(rows_), want(rows_);
  gaussian_->mean_squares(have.data(), from);
  gaussian_->mean_squares(want.data(), to);
  for (std::size_t r = 0; r < rows_; ++r)
    have[r] = std::sqrt(want[r]) / std::sqrt(std::max(have[r], least_mean_square));
  return have;
}

void decoder::spread_streams() {
  const auto& config = weights_->config;
  const auto first = residual();
  const auto normed = buffer_rows(normed_, weights_->compute, rows_, first.cols),
             made = buffer_rows(branch_, dtype::f32, rows_, first.cols);
  backend_.gather_rows(normed, first);
  backend_.gather_rows(stream(streams_, 0), first);
  for (int i = 1; i < config.altup.streams; ++i) {
    const auto to = stream(streams_, i);
    backend_.linear(made, normed, *weights_->altup_in[as_size(i - 1)]);
    const auto factors = lengths_to(made, first);
    backend_.scale(to, 0);
    backend_.add_rows(to, made, 1, nullptr, factors.data());
  }
}

void decoder::merge_streams() {
  const auto& config = weights_->config;
  const auto sum = residual(), made = buffer_rows(branch_, dtype::f32, rows_, sum.cols),
             normed = buffer_rows(normed_, weights_->compute, rows_, sum.cols);
  const auto first = stream(streams_, 0);
  backend_.gather_rows(sum, first);
  for (int i = 1; i < config.altup.streams; ++i) {
    backend_.gather_rows(normed, stream(streams_, i));
    backend_.linear(made, normed, *weights_->altup_out[as_size(i - 1)]);
    const auto factors = lengths_to(made, first);
    backend_.add_rows(sum, made, 1, nullptr, factors.data());
  }
  backend_.scale(sum, 1 / static_cast<float>(config.altup.streams));
}

/// The coefficients of all rows, for each of `outputs` coefficients in turn.
std::vector<float> decoder::stream_coefficients(const altup_weights& w, const tensor& of, const std::vector<float>& by,
                                                std::size_t outputs) {
  const auto& config = weights_->config;
  const auto streams = as_size(config.altup.streams);
  const auto normed = buffer_rows(normed_, weights_->compute, rows_, of.cols),
             routed = buffer_rows(routed_, dtype::f32, rows_, streams);
  normalise(normed, of, w.router_norm);
  backend_.linear(routed, normed, *w.router);
  backend_.scale(routed, 1 / static_cast<float>(config.hidden), 1); // and the tanh of that
  std::vector<float> modes(rows_ * streams), result(outputs * rows_);
  backend_.download(modes.data(), routed);
  for (std::size_t o = 0; o < outputs; ++o)
    for (std::size_t r = 0; r < rows_; ++r) {
      float sum = 0;
      for (std::size_t m = 0; m < streams; ++m)
        sum += by[o * streams + m] * modes[r * streams + m];
      result[o * rows_ + r] = sum;
    }
  return result;
}

void decoder::predict_streams(const altup_weights& w) {
  const auto& altup = weights_->config.altup;
  const auto streams = as_size(altup.streams);
  const auto by = stream_coefficients(w, stream(streams_, altup.active), w.predict, streams * streams);
  for (int i = 0; i < altup.streams; ++i) {
    const auto to = stream(predictions_, i);
    backend_.gather_rows(to, stream(streams_, i));
    for (int from = 0; from < altup.streams; ++from)
      backend_.add_rows(to, stream(streams_, from), 1, nullptr, &by[(as_size(i) * streams + as_size(from)) * rows_]);
  }
}

void decoder::correct_streams(const altup_weights& w) {
  const auto& altup = weights_->config.altup;
  const auto computed = residual(), news = buffer_rows(branch_, dtype::f32, rows_, computed.cols);
  auto by = stream_coefficients(w, computed, w.correct, as_size(altup.streams));
  for (float& factor : by)
    factor += 1;
  backend_.gather_rows(news, computed);
  backend_.add_rows(news, stream(predictions_, altup.active), -1);
  for (int i = 0; i < altup.streams; ++i)
    backend_.add_rows(stream(predictions_, i), news, 1, nullptr, &by[as_size(i) * rows_]);
  std::swap(streams_, predictions_);
}

void decoder::add_laurel(const layer_weights& layer, const tensor& residual, const tensor& normed) {
  const auto rank = as_size(weights_->config.altup.laurel);
  const auto down = buffer_rows(laurel_down_, dtype::f32, rows_, rank),
             low = buffer_rows(laurel_low_, weights_->compute, rows_, rank),
             laurel = buffer_rows(laurel_, dtype::f32, rows_, residual.cols);
  backend_.linear(down, normed, *layer.altup->laurel_down);
  backend_.gather_rows(low, down);
  backend_.linear(laurel, low, *layer.altup->laurel_up);
  normalise(laurel, laurel, layer.altup->laurel_norm);
  const auto read = buffer_rows(branch_, dtype::f32, rows_, residual.cols);
  normalise(read, residual, layer.input_norm);
  backend_.add_rows(laurel, read, 1);
}

void decoder::add_stream_inputs(int i, const tensor& normed) {
  const auto& config = weights_->config;
  const auto& layer = weights_->layer(i);
  const auto width = as_size(config.layer_inputs), all = as_size(config.layers) * width;
  const auto gate = buffer_rows(ffn_, weights_->compute, rows_, width),
             made = buffer_rows(branch_, dtype::f32, rows_, normed.cols),
             inputs = buffer_rows(inputs_, dtype::f32, rows_, all);
  backend_.gather_rows(made, stream(streams_, config.altup.active));
  if (config.altup.scaled)
    backend_.multiply_rows(made, {layer.altup->output_scale.get(), dtype::f32, rows_, normed.cols, 0});
  backend_.gather_rows(normed, made);
  backend_.linear_activated(gate, normed, *layer.input_gate, config.act, false);
  backend_.multiply_rows(gate, {static_cast<float*>(inputs.data) + as_size(i) * width, dtype::f32, rows_, width, all});
  backend_.linear(made, gate, *layer.input_projection);
  normalise(made, made, layer.input_projection_norm);
  for (int k = 1; k < config.altup.streams; ++k)
    backend_.add_rows(stream(streams_, k), made, 1);
}

void decoder::gate_gaussian(int i, const tensor& out, const tensor& normed) {
  const auto& config = weights_->config;
  const auto& mlp = weights_->layer(i).mlp;
  const auto ffn = out.cols;
  const auto both = buffer_rows(gates_, dtype::f32, rows_, 2 * ffn);
  multiply(i, product_site::gate_up, both, normed, *mlp.gate_up, mlp.gate_up_bias, kernels::store::set);
  const tensor gate{both.data, dtype::f32, rows_, ffn, 2 * ffn};
  const tensor up{static_cast<float*>(both.data) + ffn, dtype::f32, rows_, ffn, 2 * ffn};
  gaussian_->gate_gaussian(out, gate, up, config.gate_cutoffs[as_size(i)]);
}

void decoder::run_streams(const kernels::batch& who, kernels::kv_cache& cache, const layer_hook& hook) {
  const auto& config = weights_->config;
  const auto active = config.altup.active;
  const auto residual = this->residual();
  const auto normed = buffer_rows(normed_, weights_->compute, rows_, residual.cols),
             laurel = buffer_rows(laurel_, dtype::f32, rows_, residual.cols);
  walk_.enter(0);
  spread_streams();
  if (hook)
    hook(0, stream(streams_, active));
  for (int i = 0; i < config.layers; ++i) {
    const auto& layer = weights_->layer(i);
    walk_.enter(as_size(i));
    predict_streams(*layer.altup);
    backend_.gather_rows(residual, stream(predictions_, active));
    normalise(normed, residual, layer.input_norm);
    add_laurel(layer, residual, normed);
    add_attention(i, residual, normed, cache, who);
    backend_.add_rows(residual, laurel, 1);
    backend_.scale(residual, 1 / std::sqrt(2.0f));
    normalise(normed, residual, layer.post_norm);
    add_mlp(i, residual, normed);
    correct_streams(*layer.altup);
    add_stream_inputs(i, normed);
    if (hook)
      hook(i + 1, stream(streams_, active));
  }
  merge_streams();
}

} // namespace troupe
