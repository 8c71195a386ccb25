// Gated norms and products of recurrent layers.
#include "kernels/cuda/device/elements.hpp"
#include "kernels/cuda/device/launch.hpp"
#include "kernels/cuda/device/recurrent/recurrent.hpp"

namespace troupe::kernels::cuda {

namespace {

/// A block has a group of a row's columns. Threads write only what they alone have read, so that `out` may be `x`.
struct gate_kernel {
  static constexpr const char* name = "gate";
  static constexpr unsigned threads = 128;
  gate_params p;
  std::size_t group;

  TROUPE_DEVICE void operator()() const {
    const std::size_t row = simt::block_x(), first = simt::block_y() * group,
                      end = first + group < p.cols ? first + group : p.cols;
    float scale = 1;
    if (p.how.norm != gate_norm::none) {
      float squares = 0;
      for (std::size_t c = first + simt::thread(); c < end; c += threads) {
        const float x = normed(row, c);
        squares = simt::fused(x, x, squares);
      }
      squares = simt::block_sum(squares, reinterpret_cast<float*>(simt::shared()));
      scale = simt::inverse_sqrt(squares / static_cast<float>(end - first) + p.how.eps);
    }
    for (std::size_t c = first + simt::thread(); c < end; c += threads) {
      float y = normed(row, c);
      if (p.how.norm != gate_norm::none)
        y = y * scale * p.how.weight[c];
      if (p.how.norm == gate_norm::before)
        y *= open(row, c);
      store_float(p.out, p.out_type, row * p.out_stride + c, y);
    }
  }

  /// What is normed.
  TROUPE_DEVICE float normed(std::size_t row, std::size_t c) const {
    const float x = load_float(p.x, p.x_type, row * p.x_stride + c);
    return p.how.norm == gate_norm::before ? x : x * open(row, c);
  }

  TROUPE_DEVICE float open(std::size_t row, std::size_t c) const {
    const float gate = p.gate[row * p.gate_stride + c];
    if (p.how.softplus)
      return gate > 20 ? gate : simt::log1p(simt::exp(gate));
    return (p.how.sigmoid ? 1 : gate) / (1 + simt::exp(-gate));
  }
};

struct multiply_kernel {
  static constexpr const char* name = "multiply";
  static constexpr unsigned threads = 256;
  multiply_params p;

  TROUPE_DEVICE void operator()() const {
    const std::size_t row = simt::block_x();
    for (std::size_t c = simt::thread(); c < p.cols; c += threads)
      store_float(p.out, p.out_type, row * p.out_stride + c, p.a[row * p.a_stride + c] * p.b[row * p.b_stride + c]);
  }
};

} // namespace

void gate(const stream& on, const gate_params& params) {
  constexpr std::size_t of_products = 1024; // columns of a block where nothing is normed
  const auto group = params.how.norm != gate_norm::none ? params.how.group : of_products;
  launch(on, {static_cast<unsigned>(params.rows), static_cast<unsigned>(ceil_div(params.cols, group))},
         gate_kernel::threads / warp_lanes * sizeof(float), gate_kernel{params, group});
}

void multiply(const stream& on, const multiply_params& params) {
  launch(on, {static_cast<unsigned>(params.rows)}, 0, multiply_kernel{params});
}

} // namespace troupe::kernels::cuda
