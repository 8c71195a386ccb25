// Shared by the tests of the CUDA backend: a device, and tensors in its memory. Random data and comparisons come from
// the other kernel tests.
#pragma once

#include "kernels/cuda/cuda_backend.hpp"
#include "tests/kernels/support.hpp"
#include "tests/sanitized.hpp"

#include <numeric>

namespace troupe::kernels::cuda::testing {

using namespace troupe::kernels::testing;

/// Whether the tests run in the emulation (tests/emulation/cuda), which is slow and whose library has gaps of its own.
inline bool is_emulated() {
  static const bool result = device_count() > 0 && select_device(0).name == "emulated GPU";
  return result;
}

/// AddressSanitizer makes emulated threads so slow that tests run fewer cases.
inline const bool is_sanitized = troupe::testing::address_sanitized();

inline std::unique_ptr<cuda_backend> make_device(bool deterministic = false,
                                                 std::optional<float> unified_maximum = {}) {
  return make_cuda_backend({.device = 0, .deterministic = deterministic, .unified_maximum = unified_maximum});
}

/// A copy of values in device memory, as rows.
struct device_tensor {
  buffer memory;
  tensor view;

  device_tensor(const backend& device, const numbers& from, std::size_t rows) : device_(as_cuda(device)) {
    const std::size_t cols = rows == 0 ? 0 : from.size() / rows;
    memory = cuda::allocate(from.size() * size_of(from.type));
    copy_to_device(device_.queue(), memory.get(), from.data(), from.size() * size_of(from.type));
    device_.queue().synchronise();
    view = {memory.get(), from.type, rows, cols, cols};
  }
  /// Filled with NaN.
  device_tensor(const backend& device, dtype type, std::size_t rows, std::size_t cols)
    : device_tensor(device, numbers(type, rows * cols), rows) {
    view.cols = view.stride = cols;
  }

  numbers read() const {
    numbers to(view.type, view.rows * view.cols);
    copy_to_host(device_.queue(), to.data(), memory.get(), to.size() * size_of(view.type));
    device_.queue().synchronise();
    return to;
  }

  const float* floats() const { return static_cast<const float*>(memory.get()); }

private:
  static const cuda_backend& as_cuda(const backend& device) { return dynamic_cast<const cuda_backend&>(device); }
  const cuda_backend& device_;
};

inline numbers wide(std::vector<float> values) { return {dtype::f32, values}; }

} // namespace troupe::kernels::cuda::testing
