#include "runtime/model/decoder/decoder_hyper.hpp"

#include "kernels/recurrent.hpp"
#include "runtime/model/decoder/decoder_tensors.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {

namespace {

using kernels::dtype;
using kernels::tensor;

float sigmoid_of(float x) { return 1 / (1 + std::exp(-x)); }

/// Divides rows, or columns, of a square matrix by their sums.
void divide_by_sums(std::vector<float>& matrix, std::size_t n, bool rows, float eps) {
  const std::size_t step = rows ? 1 : n, next = rows ? n : 1;
  for (std::size_t line = 0; line < n; ++line) {
    float sum = 0;
    for (std::size_t i = 0; i < n; ++i)
      sum += matrix[line * next + i * step];
    for (std::size_t i = 0; i < n; ++i)
      matrix[line * next + i * step] /= sum + eps;
  }
}

} // namespace

stream_mix mix_streams(const hyper_config& config, std::span<const float> product, const hyper_weights& w) {
  const auto n = as_size(config.streams);
  const auto at = [&](std::size_t i, std::size_t of) { return product[i] * w.scale[of] + w.base[i]; };
  stream_mix mix;
  for (std::size_t i = 0; i < n; ++i)
    mix.read.push_back(sigmoid_of(at(i, 0)) + config.eps);
  if (product.size() == n)
    return mix;
  for (std::size_t i = n; i < 2 * n; ++i)
    mix.write.push_back(config.magnitude * sigmoid_of(at(i, 1)) + (config.mixes() ? 0 : config.eps));
  if (!config.mixes())
    return mix;
  for (std::size_t j = 0; j < n; ++j) {
    float top = at((2 + j) * n, 2), sum = 0;
    for (std::size_t k = 1; k < n; ++k)
      top = std::max(top, at((2 + j) * n + k, 2));
    for (std::size_t k = 0; k < n; ++k)
      sum += mix.keep.emplace_back(std::exp(at((2 + j) * n + k, 2) - top));
    for (std::size_t k = 0; k < n; ++k)
      mix.keep[j * n + k] = mix.keep[j * n + k] / sum + config.eps;
  }
  divide_by_sums(mix.keep, n, false, config.eps);
  for (int pass = 1; pass < config.passes; ++pass) {
    divide_by_sums(mix.keep, n, true, config.eps);
    divide_by_sums(mix.keep, n, false, config.eps);
  }
  return mix;
}

decoder_hyper::decoder_hyper(decoder_step& step)
  : step_(step),
    backend_(step.backend),
    gates_(dynamic_cast<kernels::recurrent_ops*>(&step.backend)),
    normed_(step.allocate(step.bytes.hyper_normed)),
    mix_(step.allocate(step.bytes.hyper_mix)) {
  const auto& config = step.config();
  streams_ = step.allocate(step.bytes.hyper_streams / (config.hyper.mixes() ? 2 : 1));
  if (config.hyper.mixes())
    next_ = step.allocate(step.bytes.hyper_streams / 2);
  if (config.hyper.rank == 0)
    ones_ = backend_.upload(std::vector<float>(as_size(config.residual_width()), 1.0f));
}

tensor decoder_hyper::streams() const {
  return buffer_rows(streams_, dtype::f32, step_.rows(), as_size(step_.config().residual_width()));
}

tensor decoder_hyper::stream(const tensor& of, int index) const {
  const auto hidden = as_size(step_.config().hidden);
  return column_part(of, as_size(index) * hidden, hidden);
}

void decoder_hyper::spread() {
  for (int k = 0; k < step_.config().hyper.streams; ++k)
    backend_.gather_rows(stream(streams(), k), step_.residual());
}

void decoder_hyper::clear() { backend_.scale(step_.residual(), 0); }

std::vector<float> decoder_hyper::download(const tensor& product) {
  std::vector<float> values(product.rows * product.cols);
  backend_.download(values.data(), product);
  return values;
}

void decoder_hyper::sum(const tensor& of, const float* factors) {
  clear();
  for (int k = 0; k < step_.config().hyper.streams; ++k)
    backend_.add_rows(step_.residual(), stream(of, k), 1, nullptr,
                      factors != nullptr ? factors + as_size(k) * step_.rows() : nullptr);
}

void decoder_hyper::read(const hyper_weights& w) {
  const auto& config = step_.config();
  if (config.hyper.rank > 0)
    return read_ranked(w);
  const auto rows = step_.rows(), n = as_size(config.hyper.streams);
  const auto all = streams(), normed = buffer_rows(normed_, step_.weights->compute, rows, all.cols),
             product = buffer_rows(mix_, dtype::f32, rows, w.mix->outputs);
  backend_.rms_norm(normed, all, float_data(ones_), config.norm_eps);
  backend_.linear(product, normed, *w.mix);
  const auto values = download(product);
  std::vector<float> read(n * rows);
  write_.resize(n * rows);
  keep_.resize(n * n * rows);
  for (std::size_t r = 0; r < rows; ++r) {
    const auto mix = mix_streams(config.hyper, std::span(values).subspan(r * product.cols, product.cols), w);
    for (std::size_t k = 0; k < n; ++k)
      read[k * rows + r] = mix.read[k];
    for (std::size_t k = 0; k < mix.write.size(); ++k)
      write_[k * rows + r] = mix.write[k];
    for (std::size_t i = 0; i < mix.keep.size(); ++i) {
      const auto from = i / n, to = i % n;
      keep_[((to + n - from) % n * rows + r) * n + from] = mix.keep[i];
    }
  }
  sum(all, read.data());
}

void decoder_hyper::read_ranked(const hyper_weights& w) {
  const auto& config = step_.config();
  const auto rows = step_.rows(), n = as_size(config.hyper.streams), rank = as_size(config.hyper.rank),
             hidden = as_size(config.hidden);
  const float share = 1 / static_cast<float>(n);
  const auto all = streams();
  auto* memory = static_cast<float*>(normed_.get());
  const tensor normed{memory, dtype::f32, rows, all.cols, all.cols},
    weights{memory + rows * all.cols, dtype::f32, rows, all.cols, all.cols},
    in{memory + 2 * rows * all.cols, step_.weights->compute, rows, all.cols, all.cols};
  auto* small = static_cast<float*>(mix_.get());
  const tensor down{small, dtype::f32, rows, rank, rank}, written{small + rows * rank, dtype::f32, rows, n, n},
    low{small + rows * (rank + n), step_.weights->compute, rows, rank, rank};
  for (std::size_t k = 0; k < n; ++k)
    backend_.rms_norm(column_part(normed, k * hidden, hidden), column_part(all, k * hidden, hidden),
                      float_data(w.norm) + k * hidden, config.norm_eps);
  backend_.gather_rows(in, normed);
  backend_.linear(down, in, *w.down);
  backend_.scale(down, share);
  gates_->gate(low, down, down, {.sigmoid = true});
  backend_.linear(weights, low, *w.up);
  gates_->gate(normed, normed, weights, {.sigmoid = true});
  sum(normed, nullptr);
  backend_.scale(step_.residual(), share);
  if (!w.mix)
    return;
  backend_.linear(written, in, *w.mix);
  const auto values = download(written);
  write_.resize(n * rows);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t k = 0; k < n; ++k)
      write_[k * rows + r] = config.hyper.magnitude * sigmoid_of(values[r * n + k] * share);
}

void decoder_hyper::write() {
  if (step_.config().hyper.mixes())
    write_mixed();
  for (int k = 0; k < step_.config().hyper.streams; ++k)
    backend_.add_rows(stream(streams(), k), step_.residual(), 1, nullptr, write_.data() + as_size(k) * step_.rows());
}

void decoder_hyper::write_mixed() {
  const auto n = as_size(step_.config().hyper.streams), hidden = as_size(step_.config().hidden),
             rows = step_.rows() * n; // each stream of a row is one here
  const auto from = buffer_rows(streams_, dtype::f32, rows, hidden), to = buffer_rows(next_, dtype::f32, rows, hidden);
  backend_.scale(to, 0);
  std::vector<std::int32_t> into(rows);
  for (std::size_t shift = 0; shift < n; ++shift) {
    for (std::size_t i = 0; i < rows; ++i)
      into[i] = static_cast<std::int32_t>(i - i % n + (i + shift) % n);
    backend_.add_rows(to, from, 1, into.data(), keep_.data() + shift * rows);
  }
  std::swap(streams_, next_);
}

void decoder_hyper::merge() { read(*step_.weights->hyper_head); }

void decoder_hyper::show(const layer_hook& hook, int passed) {
  const int n = step_.config().hyper.streams;
  const auto residual = step_.residual(), before = step_.branch();
  sum(streams(), nullptr);
  backend_.scale(residual, 1 / static_cast<float>(n));
  backend_.gather_rows(before, residual);
  hook(passed, residual);
  backend_.add_rows(residual, before, -1);
  for (int k = 0; k < n; ++k)
    backend_.add_rows(stream(streams(), k), residual, 1);
}

} // namespace troupe
