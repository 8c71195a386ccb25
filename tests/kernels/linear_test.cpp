#include "tests/kernels/support.hpp"

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

const dtype stored_types[] = {dtype::f32, dtype::f16, dtype::bf16};
const dtype compute_types[] = {dtype::f32, dtype::bf16};

struct weights {
  std::size_t rows, cols;
  numbers stored;
  weights(generator& random, dtype type, std::size_t rows, std::size_t cols)
    : rows(rows), cols(cols), stored(type, random.normal(rows * cols, 1 / std::sqrt(float(cols)))) {}
  stored_matrix view() const { return {stored.data(), stored.type, rows, cols}; }

  /// As they take part in a product of type `compute`.
  numbers rounded(dtype compute) const {
    if (compute == dtype::f32)
      return stored;
    std::vector<float> x(stored.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(stored[i]);
    return {compute, x};
  }
};

/// A bound of the error of a sum over k in f32, per output: (k + 2) u times the sum of the products' magnitudes.
std::vector<double> sum_tolerance(const numbers& in, std::size_t rows, const numbers& w, std::size_t outputs) {
  const std::size_t k = in.size() / rows;
  std::vector<double> tolerance(rows * outputs);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t o = 0; o < outputs; ++o) {
      double magnitude = 1e-30;
      for (std::size_t i = 0; i < k; ++i)
        magnitude += std::abs(in[r * k + i] * w[o * k + i]);
      // The worst case grows with k; rounding errors that do not conspire with its root.
      tolerance[r * outputs + o] = 4 * std::sqrt(double(k + 2)) * unit(dtype::f32) * (magnitude + 1);
    }
  return tolerance;
}

std::string name(isa target, dtype stored, dtype compute, std::size_t rows, std::size_t outputs, std::size_t inputs) {
  return std::string(to_string(target)) + " " + to_string(stored) + " as " + to_string(compute) + " " +
         std::to_string(rows) + " x " + std::to_string(outputs) + " x " + std::to_string(inputs);
}

} // namespace

TEST_CASE("linear agrees with the reference for every target, type and odd size") {
  struct shape {
    std::size_t rows, outputs, inputs;
  };
  const shape shapes[] = {{1, 1, 1}, {1, 7, 111}, {7, 111, 7}, {13, 64, 64}, {3, 130, 989}, {40, 33, 600}, {111, 16, 1}};
  for (const isa target : available_isas()) {
    const auto device = make_backend(target);
    for (const dtype stored : stored_types)
      for (const dtype compute : compute_types)
        for (const auto& [rows, outputs, inputs] : shapes) {
          generator random;
          const weights w(random, stored, outputs, inputs);
          const auto used = w.rounded(compute);
          const auto bias = random.normal(outputs);
          const stored_matrix view = w.view();
          const auto packed = device->pack({&view, 1}, compute);
          numbers in(compute, random.normal(rows * inputs));
          auto want = reference::linear(in.values(), rows, {used.data(), used.type, outputs, inputs}, bias.data());
          const auto tolerance = sum_tolerance(in, rows, used, outputs);
          const auto what = name(target, stored, compute, rows, outputs, inputs);

          numbers out(dtype::f32, rows * outputs);
          device->linear(out.rows(rows), in.rows(rows), *packed, bias.data());
          check_close(out.values(), want, tolerance, what);

          device->linear(out.rows(rows), in.rows(rows), *packed, bias.data(), store::add);
          for (double& x : want)
            x *= 2;
          check_close(out.values(), want, tolerance, what + ", added");
        }
  }
}
