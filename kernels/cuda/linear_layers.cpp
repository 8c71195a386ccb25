#include "kernels/cuda/linear_layers.hpp"

#include "kernels/cuda/device/linear/linear.hpp"
#include "kernels/cuda/expect.hpp"

#include <algorithm>
#include <limits>

namespace troupe::kernels::cuda {

linear_layers::linear_layers(stream& on, const cuda_options& options, const device_info& device)
  : stream_(on), l2_bytes_(device.l2_bytes) {
  if (auto library = options.deterministic ? nullptr : open_gemm_library())
    products_.emplace(on, std::move(library), device, options.expanded_memory);
}

void linear_layers::run(const tensor& out, const tensor& in, const device_matrix& weights, const float* bias, store how,
                        const activation* act, std::size_t bias_stride) {
  expect(in.type == weights.compute && in.cols == weights.inputs,
         "linear: in must be of the type and columns that the weights were packed for");
  expect(out.cols == weights.outputs && out.rows == in.rows, "linear: out must be [rows of in, outputs]");
  for (const auto& part : weights.parts) {
    auto p = params_of(part);
    p.out = static_cast<char*>(out.data) + part.first * size_of(out.type);
    p.out_stride = out.stride;
    p.in = in.data;
    p.in_stride = in.stride;
    p.rows = in.rows;
    p.bias = bias != nullptr ? bias + part.first : nullptr;
    p.bias_stride = bias_stride;
    p.add = how == store::add;
    p.activated = act != nullptr && !part.gated;
    if (act != nullptr)
      p.act = *act;
    if (weights.compute == dtype::f32)
      linear_plain(stream_, part, p);
    else if (!wants_library(part, p) || !products_->multiply(part, p))
      linear_flat(stream_, part, p);
  }
}

bool linear_layers::wants_library(const weight_part& part, const linear_params& params) {
  if (!products_ || params.rows == 0)
    return false;
  const auto measure = [&](linear_method method) {
    auto p = params;
    // Into scratch memory, because real products may be added to their output.
    p.out_stride = part.outputs;
    p.out = trial_.reserve(p.rows * p.out_stride * sizeof(float));
    // Together at least twice as large as the L2, if the model has so many, so that each is read from memory.
    const auto parts = rotation_.like(part, 2 * l2_bytes_);
    const int runs = std::max(5, static_cast<int>(parts.size()));
    for (int i = -1; i < runs; ++i) {
      if (i == 0)
        stream_.start_timer();
      const auto& turn = parts[static_cast<std::size_t>(i + runs) % parts.size()];
      p.codes = turn.codes.get();
      p.scales = turn.scales.get();
      if (method == linear_method::flat)
        linear_flat(stream_, turn, p);
      else if (!products_->multiply(turn, p))
        return std::numeric_limits<float>::infinity();
    }
    return stream_.stop_timer() / static_cast<float>(runs);
  };
  return chooser_.choose(shape_of(part), params.rows, measure) == linear_method::library;
}

} // namespace troupe::kernels::cuda
