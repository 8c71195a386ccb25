#include "tests/kernels/support.hpp"

#include <algorithm>
#include <array>
#include <random>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

struct weights {
  quantization how;
  std::size_t rows, cols;
  numbers stored;
  weights(generator& random, const storage& as, std::size_t rows, std::size_t cols)
    : how(as.how), rows(rows), cols(cols), stored(as.type, random.normal(rows * cols, 1 / std::sqrt(float(cols)))) {}
  stored_matrix view() const { return {stored.data(), stored.type, rows, cols}; }

  /// The values that a product of type `compute` multiplies.
  numbers rounded(dtype compute) const {
    if (how == quantization::none && (compute == dtype::f32 || stored.type == dtype::f16))
      return stored;
    std::vector<float> x(stored.size());
    for (std::size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(stored[i]);
    if (how == quantization::none)
      return {compute, x};
    for (std::size_t first = 0; first < x.size(); first += cols) {
      const float scale = fp8_scale(&x[first], cols);
      for (std::size_t i = first; i < first + cols; ++i)
        x[i] = scale * static_cast<float>(reference::to_e4m3(scale > 0 ? x[i] / scale : 0));
    }
    return {dtype::f32, x};
  }
};

/// Error bound per output of an f32 sum over k: (k + 2) u times the sum of the products' magnitudes.
std::vector<double> sum_tolerance(const numbers& in, std::size_t rows, const numbers& w, std::size_t outputs) {
  const std::size_t k = in.size() / rows;
  std::vector<double> tolerance(rows * outputs);
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t o = 0; o < outputs; ++o) {
      double magnitude = 1e-30;
      for (std::size_t i = 0; i < k; ++i)
        magnitude += std::abs(in[r * k + i] * w[o * k + i]);
      // The worst case grows with k, independent rounding errors with its root.
      tolerance[r * outputs + o] = 4 * std::sqrt(double(k + 2)) * unit(dtype::f32) * (magnitude + 1);
    }
  return tolerance;
}

std::string name(isa target, const storage& stored, dtype compute, std::size_t rows, std::size_t outputs,
                 std::size_t inputs) {
  return std::string(to_string(target)) + " " + stored.name() + " as " + to_string(compute) + " " +
    std::to_string(rows) + " x " + std::to_string(outputs) + " x " + std::to_string(inputs);
}

} // namespace

TEST_CASE("targets that this machine cannot run, and this program does not test, are listed") {
  const auto available = available_isas();
  CHECK(available.front() == isa::portable);
  const auto later = [](isa a, isa b) { return a >= b; };
  const auto swapped = std::ranges::adjacent_find(available, later); // once, and once only where pairs of bf16 are slow
  CHECK((swapped == available.end() ||
         (swapped[0] == isa::avx512_bf16 && swapped[1] == isa::avx512_vnni &&
          std::ranges::adjacent_find(swapped + 1, available.end(), later) == available.end())));
  for (int i = 0; i <= static_cast<int>(isa::avx512_amx); ++i)
    if (const auto target = static_cast<isa>(i);
        std::find(available.begin(), available.end(), target) == available.end())
      MESSAGE("not tested on this machine: ", to_string(target));
}

TEST_CASE("linear agrees with the reference for every target, type and odd size") {
  struct shape {
    std::size_t rows, outputs, inputs;
  };
  const shape shapes[] = {{1, 1, 1},     {1, 7, 111},   {7, 111, 7}, {13, 64, 64},
                          {3, 130, 989}, {40, 33, 600}, {111, 16, 1}};
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    for (const auto& stored : storages)
      for (const dtype compute : compute_types)
        for (const auto& [rows, outputs, inputs] : shapes) {
          generator random;
          const weights w(random, stored, outputs, inputs);
          const auto used = w.rounded(compute);
          const auto bias = random.normal(outputs);
          const stored_matrix view = w.view();
          const auto packed = device->pack({&view, 1}, compute, w.how);
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

TEST_CASE("a gated linear layer agrees with the reference") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    for (const auto& stored : storages)
      for (const dtype compute : compute_types)
        for (const auto& [rows, ffn, inputs] : {std::array<std::size_t, 3>{1, 7, 111}, {5, 64, 64}, {29, 111, 989}}) {
          generator random;
          const weights gate(random, stored, ffn, inputs), up(random, stored, ffn, inputs);
          const auto used_gate = gate.rounded(compute), used_up = up.rounded(compute);
          const auto bias = random.normal(2 * ffn);
          const auto packed = device->pack_gate_up(gate.view(), up.view(), compute, gate.how);
          numbers in(compute, random.normal(rows * inputs)), out(compute, rows * ffn);
          device->linear_silu_gate(out.rows(rows), in.rows(rows), *packed, bias.data());

          const auto x = in.values();
          const auto g = reference::linear(x, rows, {used_gate.data(), used_gate.type, ffn, inputs}, bias.data());
          const auto u = reference::linear(x, rows, {used_up.data(), used_up.type, ffn, inputs}, bias.data() + ffn);
          const auto g_error = sum_tolerance(in, rows, used_gate, ffn), u_error = sum_tolerance(in, rows, used_up, ffn);
          std::vector<double> want(rows * ffn), tolerance(rows * ffn);
          for (std::size_t i = 0; i < want.size(); ++i) {
            want[i] = reference::silu_gate(g[i], u[i]);
            // silu' is at most 1.1; the result is rounded once to `compute`, after a few f32 operations.
            tolerance[i] = 1.1 * g_error[i] * std::abs(u[i]) + std::abs(g[i]) * u_error[i] +
              std::abs(want[i]) * (unit(compute) + 8 * unit(dtype::f32)) + 1e-30;
          }
          check_close(out.values(), want, tolerance, "gated " + name(target, stored, compute, rows, ffn, inputs));
        }
  }
}

TEST_CASE("stacked matrices, also of different types, give the same results as alone") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    for (const dtype compute : compute_types) {
      generator random;
      const std::size_t inputs = 77, rows = 5;
      const weights q(random, dtype::f32, 30, inputs), k(random, dtype::f16, 10, inputs),
        v(random, dtype::bf16, 65, inputs);
      const stored_matrix parts[] = {q.view(), k.view(), v.view()};
      const auto packed = device->pack(parts, compute);
      CHECK(packed->outputs == 105);
      numbers in(compute, random.normal(rows * inputs)), out(dtype::f32, rows * 105);
      device->linear(out.rows(rows), in.rows(rows), *packed);
      std::size_t column = 0;
      for (const auto& part : parts) {
        const auto one = device->pack({&part, 1}, compute);
        numbers alone(dtype::f32, rows * part.rows);
        device->linear(alone.rows(rows), in.rows(rows), *one);
        for (std::size_t r = 0; r < rows; ++r)
          CHECK(out.slice(r * 105 + column, part.rows) == alone.slice(r * part.rows, part.rows));
        column += part.rows;
      }
    }
  }
}

TEST_CASE("a row's bits do not depend on the other rows, their number, or the threads") {
  const std::size_t inputs = 601, outputs = 130;
  for (const isa target : tested_isas())
    for (const auto& stored : storages)
      for (const dtype compute : compute_types)
        for (const bool gated : {false, true}) {
          generator random;
          const weights w(random, stored, outputs, inputs), up(random, stored, outputs, inputs);
          const stored_matrix view = w.view();
          const std::size_t most = 40;
          numbers in(compute, random.normal(most * inputs));
          const dtype out_type = gated ? compute : dtype::f32;
          const auto what = name(target, stored, compute, most, outputs, inputs) + (gated ? " gated" : "");

          std::vector<numbers> one_by_one; // rows
          for (const int threads : {1, 2, 3}) {
            const auto device = make_backend(target, threads);
            const auto packed = gated ? device->pack_gate_up(view, up.view(), compute, w.how)
                                      : device->pack({&view, 1}, compute, w.how);
            const auto run = [&](numbers& x, std::size_t rows) {
              numbers out(out_type, rows * outputs);
              if (gated)
                device->linear_silu_gate(out.rows(rows), x.rows(rows), *packed);
              else
                device->linear(out.rows(rows), x.rows(rows), *packed);
              return out;
            };
            if (threads == 1)
              for (std::size_t r = 0; r < most; ++r) {
                auto row = in.slice(r * inputs, inputs);
                one_by_one.push_back(run(row, 1));
              }
            for (std::size_t rows = threads; rows <= most; rows += threads) {
              const std::size_t first = random.below(static_cast<int>(most - rows + 1));
              auto some = in.slice(first * inputs, rows * inputs);
              const auto out = run(some, rows);
              bool same = true;
              for (std::size_t r = 0; r < rows; ++r)
                same = same && out.slice(r * outputs, outputs) == one_by_one[first + r];
              CHECK_MESSAGE(same, what, ": ", rows, " rows from ", first, ", ", threads, " threads");
            }
          }
        }
}

TEST_CASE("many rows, in several tasks and blocks of K, give the bits of one row with any cache size") {
  const std::size_t inputs = 1300, outputs = 70;
  for (const isa target : tested_isas())
    for (const auto& stored : storages)
      for (const dtype compute : compute_types) {
        const std::size_t rows = stored.type == dtype::bf16
          ? 989
          : 130; // 989 rows take several tasks even with a large cache
        generator random;
        const weights w(random, stored, outputs, inputs);
        const stored_matrix view = w.view();
        const auto device = make_backend(target);
        const auto packed = device->pack({&view, 1}, compute, w.how);
        numbers in(compute, random.normal(rows * inputs)), out(dtype::f32, rows * outputs), small = out;
        device->linear(out.rows(rows), in.rows(rows), *packed);
        make_backend(target, 2, 128 << 10)->linear(small.rows(rows), in.rows(rows), *packed);
        const auto what = name(target, stored, compute, rows, outputs, inputs);
        CHECK_MESSAGE(small == out, what, ", a small cache");
        for (const std::size_t r : {0, 1, 11, 12, 61, 129, 239, 240, 241, 500, 988}) {
          if (r >= rows)
            break;
          auto row = in.slice(r * inputs, inputs);
          numbers alone(dtype::f32, outputs);
          device->linear(alone.rows(1), row.rows(1), *packed);
          CHECK_MESSAGE(out.slice(r * outputs, outputs) == alone, what, ", row ", r);
        }
      }
}

TEST_CASE("a row of infinities and NaN does not affect its neighbours") {
  const std::size_t inputs = 70, outputs = 65, rows = 17;
  for (const isa target : tested_isas())
    for (const dtype compute : compute_types) {
      generator random;
      const weights w(random, dtype::bf16, outputs, inputs);
      const stored_matrix view = w.view();
      const auto device = make_backend(target);
      const auto packed = device->pack({&view, 1}, compute);
      auto values = random.normal(rows * inputs);
      for (std::size_t i = 0; i < inputs; ++i)
        values[3 * inputs + i] = i % 2 == 0 ? std::nanf("") : INFINITY;
      numbers in(compute, values), out(dtype::f32, rows * outputs);
      device->linear(out.rows(rows), in.rows(rows), *packed);
      for (std::size_t r = 0; r < rows; ++r) {
        auto row = in.slice(r * inputs, inputs);
        numbers alone(dtype::f32, outputs);
        device->linear(alone.rows(1), row.rows(1), *packed);
        if (r == 3)
          CHECK(std::isnan(out[r * outputs]));
        else
          CHECK_MESSAGE(out.slice(r * outputs, outputs) == alone, to_string(target), ", row ", r);
      }
    }
}

TEST_CASE("a linear layer reads and writes rows with gaps between them") {
  const std::size_t inputs = 30, outputs = 20, rows = 4;
  const auto device = make_cpu_backend();
  for (const dtype compute : compute_types) {
    generator random;
    const weights w(random, dtype::f32, outputs, inputs);
    const stored_matrix view = w.view();
    const auto packed = device->pack({&view, 1}, compute);
    numbers in(compute, random.normal(rows * 50)), out(dtype::f32, std::vector<float>(rows * 33, 42));
    device->linear({out.data(), dtype::f32, rows, outputs, 33}, {in.data(), compute, rows, inputs, 50}, *packed);
    for (std::size_t r = 0; r < rows; ++r) {
      auto row = in.slice(r * 50, inputs);
      numbers alone(dtype::f32, outputs);
      device->linear(alone.rows(1), row.rows(1), *packed);
      CHECK(out.slice(r * 33, outputs) == alone);
      CHECK(out.slice(r * 33 + outputs, 13) == numbers(dtype::f32, std::vector<float>(13, 42)));
    }
  }
}

TEST_CASE("packing rejects matrices that it cannot multiply") {
  const auto device = make_cpu_backend();
  const std::vector<float> memory(64);
  const stored_matrix a{memory.data(), dtype::f32, 4, 8}, b{memory.data(), dtype::f32, 4, 4},
    c{memory.data(), dtype::f32, 2, 8};
  const stored_matrix both[] = {a, b};
  CHECK_THROWS_AS(device->pack(both, dtype::f32), std::invalid_argument);
  CHECK_THROWS_AS(device->pack({&a, 1}, dtype::f16), std::invalid_argument);
  CHECK_THROWS_AS(device->pack_gate_up(a, c, dtype::f32), std::invalid_argument);
  const auto packed = device->pack({&a, 1}, dtype::f32);
  numbers in(dtype::bf16, 8), out(dtype::f32, 4);
  CHECK_THROWS_AS(device->linear(out.rows(1), in.rows(1), *packed), std::invalid_argument);
}
