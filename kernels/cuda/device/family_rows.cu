#include "kernels/cuda/device/family_rows.hpp"

#include "kernels/cuda/device/activations.hpp"
#include "kernels/cuda/device/elements.hpp"
#include "kernels/cuda/device/launch.hpp"

namespace troupe::kernels::cuda {

namespace {

struct layer_norm_kernel {
  static constexpr const char* name = "layer_norm";
  static constexpr unsigned threads = 256;
  layer_norm_params p;

  TROUPE_DEVICE void operator()() const {
    const std::size_t row = simt::block_x();
    const float* x = p.x + (p.gather != nullptr ? static_cast<std::size_t>(p.gather[row]) : row) * p.x_stride;
    auto* scratch = reinterpret_cast<float*>(simt::shared());
    const auto n = static_cast<float>(p.cols);
    float sum = 0;
    for (std::size_t c = simt::thread(); c < p.cols; c += threads)
      sum += x[c];
    const float mean = simt::block_sum(sum, scratch) / n;
    float squares = 0;
    for (std::size_t c = simt::thread(); c < p.cols; c += threads)
      squares = simt::fused(x[c] - mean, x[c] - mean, squares);
    const float scale = simt::inverse_sqrt(simt::block_sum(squares, scratch) / n + p.eps);
    for (std::size_t c = simt::thread(); c < p.cols; c += threads) {
      const float y = (x[c] - mean) * scale * p.weight[c];
      store_float(p.out, p.out_type, row * p.out_stride + c, p.bias != nullptr ? y + p.bias[c] : y);
    }
  }
};

struct mean_squares_kernel {
  static constexpr const char* name = "mean_squares";
  static constexpr unsigned threads = 256;
  float* to;
  const float* x;
  std::size_t stride, cols;

  TROUPE_DEVICE void operator()() const {
    const float* row = x + std::size_t(simt::block_x()) * stride;
    float squares = 0;
    for (std::size_t c = simt::thread(); c < cols; c += threads)
      squares = simt::fused(row[c], row[c], squares);
    squares = simt::block_sum(squares, reinterpret_cast<float*>(simt::shared()));
    if (simt::thread() == 0)
      to[simt::block_x()] = squares / static_cast<float>(cols);
  }
};

struct gate_gaussian_kernel {
  static constexpr const char* name = "gate_gaussian";
  static constexpr unsigned threads = 256;
  void* out;
  dtype out_type;
  std::size_t out_stride;
  const float* gate;
  std::size_t gate_stride;
  const float* up;
  std::size_t up_stride;
  std::size_t cols;
  float deviations;

  TROUPE_DEVICE void operator()() const {
    const std::size_t row = simt::block_x();
    const float *g = gate + row * gate_stride, *u = up + row * up_stride;
    auto* scratch = reinterpret_cast<float*>(simt::shared());
    const auto n = static_cast<float>(cols);
    float sum = 0;
    for (std::size_t c = simt::thread(); c < cols; c += threads)
      sum += g[c];
    const float mean = simt::block_sum(sum, scratch) / n;
    float squares = 0;
    for (std::size_t c = simt::thread(); c < cols; c += threads)
      squares = simt::fused(g[c] - mean, g[c] - mean, squares);
    const float variance = simt::block_sum(squares, scratch) / n;
    const float least = mean + (variance > 0 ? deviations * variance * simt::inverse_sqrt(variance) : 0);
    for (std::size_t c = simt::thread(); c < cols; c += threads)
      store_float(out, out_type, row * out_stride + c, gelu_tanh(relu(g[c] - least)) * u[c]);
  }
};

/// Elements of rows: a block has a row and some of its columns. `Op` has the parameters, and operator()(row, column).
template <class Op>
struct row_kernel {
  static constexpr const char* name = Op::name;
  static constexpr unsigned threads = 256;
  static constexpr std::size_t block_cols = 4 * threads;
  Op op;
  std::size_t cols;

  TROUPE_DEVICE void operator()() const {
    const std::size_t first = simt::block_y() * block_cols, end = first + block_cols < cols ? first + block_cols : cols;
    for (std::size_t c = first + simt::thread(); c < end; c += threads)
      op(simt::block_x(), c);
  }
};

template <class Op>
void launch_rows(const stream& on, const Op& op, std::size_t rows, std::size_t cols) {
  using kernel = row_kernel<Op>;
  launch(on, {static_cast<unsigned>(rows), static_cast<unsigned>(ceil_div(cols, kernel::block_cols))}, 0,
         kernel{op, cols});
}

struct scale_op {
  static constexpr const char* name = "scale";
  float* x;
  std::size_t stride;
  float factor, cap;

  TROUPE_DEVICE void operator()(std::size_t row, std::size_t c) const {
    float& at = x[row * stride + c];
    const float scaled = factor == 0 ? 0 : at * factor;
    at = cap == 0 ? scaled : cap * tanh_of(scaled / cap);
  }
};

struct clamp_op {
  static constexpr const char* name = "clamp";
  float* x;
  std::size_t stride;
  float limit;

  TROUPE_DEVICE void operator()(std::size_t row, std::size_t c) const {
    float& at = x[row * stride + c];
    at = at < -limit ? -limit : at > limit ? limit : at;
  }
};

struct add_rows_op {
  static constexpr const char* name = "add_rows";
  float* to;
  std::size_t to_stride;
  const float* x;
  std::size_t x_stride;
  float factor;
  const std::int32_t* indices;
  const float* factors;

  TROUPE_DEVICE void operator()(std::size_t row, std::size_t c) const {
    const std::size_t r = indices != nullptr ? static_cast<std::size_t>(indices[row]) : row;
    const float by = factors != nullptr ? factor * factors[row] : factor;
    to[r * to_stride + c] += x[row * x_stride + c] * by;
  }
};

struct multiply_rows_op {
  static constexpr const char* name = "multiply_rows";
  void* to;
  dtype type;
  std::size_t to_stride;
  const float* x;
  std::size_t x_stride;

  TROUPE_DEVICE void operator()(std::size_t row, std::size_t c) const {
    const std::size_t at = row * to_stride + c;
    store_float(to, type, at, load_float(to, type, at) * x[row * x_stride + c]);
  }
};

/// Copies elements as they are if both types are equal: conversion to f32 and back is exact, but for the payloads of
/// NaN.
struct gather_rows_op {
  static constexpr const char* name = "gather_rows";
  void* to;
  dtype to_type;
  std::size_t to_stride;
  const void* from;
  dtype from_type;
  std::size_t from_stride;
  const std::int32_t* indices;

  TROUPE_DEVICE void operator()(std::size_t row, std::size_t c) const {
    const std::size_t r = indices != nullptr ? static_cast<std::size_t>(indices[row]) : row;
    store_float(to, to_type, row * to_stride + c, load_float(from, from_type, r * from_stride + c));
  }
};

} // namespace

void layer_norm(const stream& on, const layer_norm_params& params) {
  launch(on, {static_cast<unsigned>(params.rows)}, layer_norm_kernel::threads / warp_lanes * sizeof(float),
         layer_norm_kernel{params});
}

void mean_squares(const stream& on, float* to, const tensor& x) {
  using kernel = mean_squares_kernel;
  launch(on, {static_cast<unsigned>(x.rows)}, kernel::threads / warp_lanes * sizeof(float),
         kernel{to, static_cast<const float*>(x.data), x.stride, x.cols});
}

void gate_gaussian(const stream& on, const tensor& out, const tensor& gate, const tensor& up, float deviations) {
  using kernel = gate_gaussian_kernel;
  launch(on, {static_cast<unsigned>(out.rows)}, kernel::threads / warp_lanes * sizeof(float),
         kernel{out.data, out.type, out.stride, static_cast<const float*>(gate.data), gate.stride,
                static_cast<const float*>(up.data), up.stride, out.cols, deviations});
}

void scale_rows(const stream& on, const tensor& x, float factor, float cap) {
  launch_rows(on, scale_op{static_cast<float*>(x.data), x.stride, factor, cap}, x.rows, x.cols);
}

void clamp_rows(const stream& on, const tensor& x, float limit) {
  launch_rows(on, clamp_op{static_cast<float*>(x.data), x.stride, limit}, x.rows, x.cols);
}

void add_rows(const stream& on, const tensor& to, const tensor& x, float factor, const std::int32_t* indices,
              const float* factors) {
  launch_rows(on,
              add_rows_op{static_cast<float*>(to.data), to.stride, static_cast<const float*>(x.data), x.stride, factor,
                          indices, factors},
              x.rows, x.cols);
}

void multiply_rows(const stream& on, const tensor& to, const tensor& x) {
  launch_rows(on, multiply_rows_op{to.data, to.type, to.stride, static_cast<const float*>(x.data), x.stride}, x.rows,
              x.cols);
}

void gather_rows(const stream& on, const tensor& to, const tensor& from, const std::int32_t* indices) {
  launch_rows(on, gather_rows_op{to.data, to.type, to.stride, from.data, from.type, from.stride, indices}, to.rows,
              to.cols);
}

} // namespace troupe::kernels::cuda
