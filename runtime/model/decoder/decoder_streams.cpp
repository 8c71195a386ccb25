#include "runtime/model/decoder/decoder_streams.hpp"

#include "kernels/gaussian_gates.hpp"
#include "runtime/model/decoder/decoder_tensors.hpp"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

constexpr float least_mean_square = 1e-5f; // of a stream that is brought to the length of another

} // namespace

decoder_streams::decoder_streams(decoder_step& step)
  : step_(step),
    backend_(step.backend),
    gaussian_(dynamic_cast<kernels::gaussian_gates&>(step.backend)),
    streams_(step.allocate(step.bytes.streams)),
    predictions_(step.allocate(step.bytes.streams)),
    routed_(step.allocate(step.bytes.routed)),
    laurel_(step.allocate(step.bytes.laurel)),
    laurel_down_(step.allocate(step.bytes.laurel_down)),
    laurel_low_(step.allocate(step.bytes.laurel_low)) {}

tensor decoder_streams::stream(const kernels::buffer& of, int index) const {
  const auto hidden = as_size(step_.config().hidden);
  return {static_cast<float*>(of.get()) + as_size(index) * as_size(step_.max_rows()) * hidden, dtype::f32, step_.rows(),
          hidden, hidden};
}

std::vector<float> decoder_streams::lengths_to(const tensor& from, const tensor& to) {
  std::vector<float> have(step_.rows()), want(step_.rows());
  gaussian_.mean_squares(have.data(), from);
  gaussian_.mean_squares(want.data(), to);
  for (std::size_t r = 0; r < step_.rows(); ++r)
    have[r] = std::sqrt(want[r]) / std::sqrt(std::max(have[r], least_mean_square));
  return have;
}

void decoder_streams::spread() {
  const auto& config = step_.config();
  const auto first = step_.residual();
  const auto normed = step_.normed(), made = step_.branch();
  backend_.gather_rows(normed, first);
  backend_.gather_rows(stream(streams_, 0), first);
  for (int i = 1; i < config.altup.streams; ++i) {
    const auto to = stream(streams_, i);
    backend_.linear(made, normed, *step_.weights->altup_in[as_size(i - 1)]);
    const auto factors = lengths_to(made, first);
    backend_.scale(to, 0);
    backend_.add_rows(to, made, 1, nullptr, factors.data());
  }
}

void decoder_streams::merge() {
  const auto& config = step_.config();
  const auto sum = step_.residual(), made = step_.branch(), normed = step_.normed();
  const auto first = stream(streams_, 0);
  backend_.gather_rows(sum, first);
  for (int i = 1; i < config.altup.streams; ++i) {
    backend_.gather_rows(normed, stream(streams_, i));
    backend_.linear(made, normed, *step_.weights->altup_out[as_size(i - 1)]);
    const auto factors = lengths_to(made, first);
    backend_.add_rows(sum, made, 1, nullptr, factors.data());
  }
  backend_.scale(sum, 1 / static_cast<float>(config.altup.streams));
}

std::vector<float> decoder_streams::coefficients(const altup_weights& w, const tensor& of, const std::vector<float>& by,
                                                 std::size_t outputs) {
  const auto& config = step_.config();
  const auto streams = as_size(config.altup.streams);
  const auto normed = step_.normed(), routed = buffer_rows(routed_, dtype::f32, step_.rows(), streams);
  step_.normalise(normed, of, w.router_norm);
  backend_.linear(routed, normed, *w.router);
  backend_.scale(routed, 1 / static_cast<float>(config.hidden), 1); // and the tanh of that
  std::vector<float> modes(step_.rows() * streams), result(outputs * step_.rows());
  backend_.download(modes.data(), routed);
  for (std::size_t o = 0; o < outputs; ++o)
    for (std::size_t r = 0; r < step_.rows(); ++r) {
      float sum = 0;
      for (std::size_t m = 0; m < streams; ++m)
        sum += by[o * streams + m] * modes[r * streams + m];
      result[o * step_.rows() + r] = sum;
    }
  return result;
}

void decoder_streams::predict(const altup_weights& w) {
  const auto& altup = step_.config().altup;
  const auto streams = as_size(altup.streams);
  const auto by = coefficients(w, stream(streams_, altup.active), w.predict, streams * streams);
  for (int i = 0; i < altup.streams; ++i) {
    const auto to = stream(predictions_, i);
    backend_.gather_rows(to, stream(streams_, i));
    for (int from = 0; from < altup.streams; ++from)
      backend_.add_rows(to, stream(streams_, from), 1, nullptr,
                        &by[(as_size(i) * streams + as_size(from)) * step_.rows()]);
  }
}

void decoder_streams::correct(const altup_weights& w) {
  const auto& altup = step_.config().altup;
  const auto computed = step_.residual(), news = step_.branch();
  auto by = coefficients(w, computed, w.correct, as_size(altup.streams));
  for (float& factor : by)
    factor += 1;
  backend_.gather_rows(news, computed);
  backend_.add_rows(news, stream(predictions_, altup.active), -1);
  for (int i = 0; i < altup.streams; ++i)
    backend_.add_rows(stream(predictions_, i), news, 1, nullptr, &by[as_size(i) * step_.rows()]);
  std::swap(streams_, predictions_);
}

void decoder_streams::make_laurel(const layer_weights& layer, const tensor& normed) {
  const auto residual = step_.residual();
  const auto rank = as_size(step_.config().altup.laurel);
  const auto down = buffer_rows(laurel_down_, dtype::f32, step_.rows(), rank),
             low = buffer_rows(laurel_low_, step_.weights->compute, step_.rows(), rank),
             laurel = buffer_rows(laurel_, dtype::f32, step_.rows(), residual.cols);
  backend_.linear(down, normed, *layer.altup->laurel_down);
  backend_.gather_rows(low, down);
  backend_.linear(laurel, low, *layer.altup->laurel_up);
  step_.normalise(laurel, laurel, layer.altup->laurel_norm);
  const auto read = step_.branch();
  step_.normalise(read, residual, layer.input_norm);
  backend_.add_rows(laurel, read, 1);
}

void decoder_streams::add_inputs(int i, const tensor& normed, decoder_inputs& inputs) {
  const auto& altup = step_.config().altup;
  const auto& layer = step_.layer(i);
  const auto made = step_.branch();
  backend_.gather_rows(made, stream(streams_, altup.active));
  if (altup.scaled)
    backend_.multiply_rows(made, {layer.altup->output_scale.get(), dtype::f32, step_.rows(), normed.cols, 0});
  backend_.gather_rows(normed, made);
  inputs.gate(i, made, normed);
  step_.normalise(made, made, layer.input_projection_norm);
  for (int k = 1; k < altup.streams; ++k)
    backend_.add_rows(stream(streams_, k), made, 1);
}

void decoder_streams::run(const kernels::batch& who, kernels::kv_cache& cache, const layer_hook& hook,
                          decoder_inputs& inputs, decoder_attention& attention, decoder_mlps& mlps) {
  const auto& config = step_.config();
  const auto active = config.altup.active;
  const auto residual = step_.residual();
  const auto normed = step_.normed(), laurel = buffer_rows(laurel_, dtype::f32, step_.rows(), residual.cols);
  step_.walk.enter(0);
  spread();
  if (hook)
    hook(0, stream(streams_, active));
  for (int i = 0; i < config.layers; ++i) {
    const auto& layer = step_.layer(i);
    step_.walk.enter(as_size(i));
    predict(*layer.altup);
    backend_.gather_rows(residual, stream(predictions_, active));
    step_.normalise(normed, residual, layer.input_norm);
    make_laurel(layer, normed);
    attention.add(i, normed, cache, who);
    backend_.add_rows(residual, laurel, 1);
    backend_.scale(residual, 1 / std::sqrt(2.0f));
    step_.normalise(normed, residual, layer.post_norm);
    mlps.add(i, normed);
    correct(*layer.altup);
    add_inputs(i, normed, inputs);
    if (hook)
      hook(i + 1, stream(streams_, active));
  }
  merge();
}

} // namespace troupe
