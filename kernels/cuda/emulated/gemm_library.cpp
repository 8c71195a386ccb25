#include "kernels/cuda/gemm_library.hpp"

#include <bit>

namespace troupe::kernels::cuda {

namespace {

float wide(const void* data, std::size_t index) {
  return std::bit_cast<float>(std::uint32_t(static_cast<const std::uint16_t*>(data)[index]) << 16);
}

class plain_loops : public gemm_library {
public:
  bool multiply(const stream&, const product& p) override {
    for (std::size_t r = 0; r < p.rows; ++r)
      for (std::size_t o = 0; o < p.outputs; ++o) {
        float sum = 0;
        for (std::size_t k = 0; k < p.inputs; ++k)
          sum += wide(p.in, r * p.in_stride + k) * wide(p.weights, o * p.weight_stride + k);
        float& to = p.out[r * p.out_stride + o];
        to = p.add ? to + sum : sum;
      }
    return true;
  }
};

} // namespace

std::unique_ptr<gemm_library> open_gemm_library() { return std::make_unique<plain_loops>(); }

} // namespace troupe::kernels::cuda
