#include "kernels/cuda/device/linear/fp8.hpp"

#include "kernels/cuda/device/code_pairs.hpp"
#include "kernels/cuda/device/launch.hpp"
#include "kernels/formats/e4m3.hpp"

namespace troupe::kernels::cuda {

namespace {

/// A block per row.
struct quantise_rows_kernel {
  static constexpr const char* name = "quantise_rows";
  static constexpr unsigned threads = 256;
  quantise_rows_params p;

  TROUPE_DEVICE void operator()() const {
    const std::size_t row = simt::block_x();
    const std::uint16_t* x = p.in + row * p.in_stride;
    float largest = 0, wild = 0; // wild: 1 if an element is not finite
    for (std::size_t k = simt::thread(); k < p.cols; k += threads) {
      const float v = simt::bf16_to_float(x[k]), magnitude = simt::larger(v, -v);
      largest = simt::larger(largest, magnitude);
      wild = magnitude < simt::infinity() ? wild : 1; // NaN compares false
    }
    auto* scratch = reinterpret_cast<float*>(simt::shared());
    largest = simt::block_max(largest, scratch);
    wild = simt::block_max(wild, scratch);
    const bool nothing = wild > 0 || largest < 0x1p-100f; // smaller ones have no finite inverse
    const float inverse = nothing ? 0 : simt::divide(largest_e4m3, largest);
    if (simt::thread() == 0)
      p.scales[row] = wild > 0 ? simt::infinity() * 0 : nothing ? 0 : simt::divide(largest, largest_e4m3);
    std::uint8_t* codes = p.codes + row * p.stride;
    for (std::size_t k = 4 * simt::thread(); k < p.stride; k += 4 * threads) {
      std::uint32_t word = 0;
      for (std::size_t i = 0; i < 4; ++i)
        if (k + i < p.cols && !nothing)
          word |= std::uint32_t(to_e4m3(simt::bf16_to_float(x[k + i]) * inverse)) << 8 * fp8_place(i);
      *reinterpret_cast<std::uint32_t*>(codes + k) = word;
    }
  }
};

struct scale_products_kernel {
  static constexpr const char* name = "scale_products";
  static constexpr unsigned threads = 256;
  scale_products_params p;

  TROUPE_DEVICE void operator()() const {
    const std::size_t row = simt::block_y(), o = std::size_t(simt::block_x()) * threads + simt::thread();
    if (o >= p.outputs)
      return;
    const float x = p.x[row * p.x_stride + o] * p.row_scales[row] * p.output_scales[o];
    float& to = p.out[row * p.out_stride + o];
    to = p.add ? to + x : x;
  }
};

/// A block per row.
struct dequantise_fp8_kernel {
  static constexpr const char* name = "dequantise_fp8";
  static constexpr unsigned threads = 256;
  const std::uint8_t* codes;
  const float* scales;
  std::size_t inputs, codes_stride;
  std::uint16_t* to;
  std::size_t to_stride;

  TROUPE_DEVICE void operator()() const {
    const std::size_t row = simt::block_x();
    const float scale = scales[row];
    const auto weight = [&](std::uint32_t code) { return scale * simt::bits_to_float(code); };
    for (std::size_t k = 4 * simt::thread(); k < inputs; k += 4 * threads) {
      const auto word = *reinterpret_cast<const std::uint32_t*>(codes + row * codes_stride + k);
      const std::uint32_t first = fp8_pair(word, 0), second = fp8_pair(word, 1); // at fp8_place
      *reinterpret_cast<words2*>(to + row * to_stride +
                                 k) = {simt::float_to_bf16_pair(weight(first << 16), weight(first & 0xffff0000u)),
                                       simt::float_to_bf16_pair(weight(second << 16), weight(second & 0xffff0000u))};
    }
  }
};

} // namespace

void quantise_rows(const stream& on, const quantise_rows_params& params) {
  using kernel = quantise_rows_kernel;
  launch(on, {static_cast<unsigned>(params.rows)}, kernel::threads / warp_lanes * sizeof(float), kernel{params});
}

void scale_products(const stream& on, const scale_products_params& params) {
  using kernel = scale_products_kernel;
  const auto blocks = ceil_div(params.outputs, std::size_t(kernel::threads));
  launch(on, {static_cast<unsigned>(blocks), static_cast<unsigned>(params.rows)}, 0, kernel{params});
}

void dequantise_fp8(const stream& on, const weight_part& part, std::uint16_t* to, std::size_t stride) {
  launch(on, {static_cast<unsigned>(part.tiles * tile_outputs)}, 0,
         dequantise_fp8_kernel{static_cast<const std::uint8_t*>(part.codes.get()),
                               static_cast<const float*>(part.scales.get()), part.inputs, part.stride, to, stride});
}

} // namespace troupe::kernels::cuda
