#include "kernels/cuda/device/linear/linear.hpp"

#include "kernels/cuda/device/activations.hpp"
#include "kernels/cuda/device/elements.hpp"
#include "kernels/cuda/device/launch.hpp"

namespace troupe::kernels::cuda {

namespace {

/// A warp has one output (gated: gate and up) and four rows; its lanes process inputs in turn.
struct plain_linear_kernel {
  static constexpr const char* name = "linear_plain";
  static constexpr unsigned threads = 128;
  static constexpr int warp_rows = 4;
  linear_params p;
  dtype type;

  TROUPE_DEVICE void operator()() const {
    const std::size_t output = std::size_t(simt::block_x()) * (threads / warp_lanes) + simt::warp();
    if (output >= p.outputs)
      return;
    const std::size_t weight_row = p.gated ? output / 8 * 16 + output % 8 : output;
    for (int r = 0; r < warp_rows; ++r) {
      const std::size_t row = std::size_t(simt::block_y()) * warp_rows + r;
      if (row >= p.rows)
        return;
      const float* bias = p.bias != nullptr ? p.bias + row * p.bias_stride + output : nullptr;
      float sum = dot(row, weight_row) + (bias != nullptr ? bias[0] : 0);
      if (p.gated) {
        const float up = dot(row, weight_row + 8) + (bias != nullptr ? bias[p.bias_up] : 0);
        sum = gated(p.act, sum, up);
      } else if (p.activated) {
        sum = activated(p.act, sum);
      }
      float& to = static_cast<float*>(p.out)[row * p.out_stride + output];
      if (simt::lane() == 0)
        to = p.add ? to + sum : sum;
    }
  }

  TROUPE_DEVICE float dot(std::size_t row, std::size_t weight_row) const {
    const float* x = static_cast<const float*>(p.in) + row * p.in_stride;
    float sum = 0;
    for (std::size_t k = simt::lane(); k < p.inputs; k += warp_lanes)
      sum = simt::fused(x[k], load_float(p.codes, type, weight_row * p.stride + k), sum);
    return simt::warp_sum(sum);
  }
};

} // namespace

void linear_plain(const stream& on, const weight_part& part, const linear_params& params) {
  using kernel = plain_linear_kernel;
  const auto blocks = ceil_div(params.outputs, std::size_t(kernel::threads / warp_lanes));
  const auto rows = ceil_div(params.rows, std::size_t(kernel::warp_rows));
  launch(on, {static_cast<unsigned>(blocks), static_cast<unsigned>(rows)}, 0,
         kernel{params, static_cast<dtype>(part.kind)});
}

} // namespace troupe::kernels::cuda
