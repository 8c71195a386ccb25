#include "kernels/cuda/gemm_library.hpp"

#include "kernels/formats/e4m3.hpp"
#include "tests/emulation/cuda/queues.hpp"

#include <bit>

namespace troupe::kernels::cuda {

namespace {

float element(const product& p, const void* data, std::size_t index) {
  if (p.fp8)
    return from_e4m3(static_cast<const std::uint8_t*>(data)[index]);
  return std::bit_cast<float>(std::uint32_t(static_cast<const std::uint16_t*>(data)[index]) << 16);
}

class plain_loops : public gemm_library {
public:
  bool multiply(const stream& on, const product& p) override {
    // Some shapes lack fp8, others fp8 with scales, so that tests cover callers on GPUs without these.
    if (p.fp8 && (p.rows % 4 == 3 || (p.rows % 2 == 1 && p.row_scales != nullptr)))
      return false;
    emulated::enqueue(on, [p] { multiply(p); });
    return true;
  }

  std::string description() const override { return "plain loops"; }

private:
  static void multiply(const product& p) {
    for (std::size_t r = 0; r < p.rows; ++r)
      for (std::size_t o = 0; o < p.outputs; ++o) {
        float sum = 0;
        for (std::size_t k = 0; k < p.inputs; ++k)
          sum += element(p, p.in, r * p.in_stride + k) * element(p, p.weights, o * p.weight_stride + k);
        if (p.row_scales != nullptr)
          sum *= p.row_scales[r] * p.output_scales[o];
        float& to = p.out[r * p.out_stride + o];
        to = p.add ? to + sum : sum;
      }
  }
};

} // namespace

std::unique_ptr<gemm_library> open_gemm_library(std::string*) { return std::make_unique<plain_loops>(); }

} // namespace troupe::kernels::cuda
