// Linear layers with quantised weights, against exact arithmetic on the dequantised weights and equally quantised
// activations.
#include "kernels/formats/quantise_groups.hpp"
#include "tests/kernels/support.hpp"
#include "tests/sanitized.hpp"

#include <array>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

/// A matrix of random blocks, or of floats to quantise at packing.
struct quantised_weights {
  weight_format format;
  quantization how;
  std::size_t rows, cols;
  std::vector<std::uint8_t> blocks;
  std::vector<float> floats;

  quantised_weights(generator& random, weight_format format, quantization how, std::size_t rows, std::size_t cols)
    : format(format), how(how), rows(rows), cols(cols) {
    if (is_float(format)) {
      floats = random.normal(rows * cols, 0.1f);
      return;
    }
    blocks.resize(rows * row_bytes(format, cols));
    for (auto& byte : blocks)
      byte = static_cast<std::uint8_t>(random.below(256));
    // Realistic scales: 2^-8 to 2^-6 with a random mantissa and sign.
    const auto scale = [&](std::uint8_t* at) {
      const int bits = random.below(2048) + (7 << 10) + random.below(2) * 0x8000;
      at[0] = static_cast<std::uint8_t>(bits);
      at[1] = static_cast<std::uint8_t>(bits >> 8);
    };
    for (std::size_t at = 0; at < blocks.size(); at += block_bytes(format)) {
      set_exponent(format, &blocks[at]);
      for (const std::size_t offset : f16_offsets(format))
        scale(&blocks[at + offset]);
    }
  }

  weight_group group(std::size_t row, std::size_t index) const {
    if (!is_float(format))
      return stored_group(format, view().row(row), index);
    float x[group_inputs] = {};
    const std::size_t k = index * group_inputs;
    std::copy_n(&floats[row * cols + k], std::min(group_inputs, cols - k), x);
    return how == quantization::int8 ? quantise_int8(x) : quantise_int4(x);
  }

  stored_matrix view() const {
    return {is_float(format) ? static_cast<const void*>(floats.data()) : blocks.data(), format, rows, cols};
  }

  /// The exact weights: scale times code, plus the minimum. `magnitudes`: the sum of both magnitudes.
  std::vector<double> values(bool magnitudes = false) const {
    std::vector<double> all(rows * cols);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t first = 0; first < cols; first += group_inputs) {
        const auto g = group(r, first / group_inputs);
        const double m = reference::value(&g.m, dtype::f16, 0);
        for (std::size_t i = 0; i < group_inputs && first + i < cols; ++i) {
          const double product = double(scale_of(g, i / 16)) * g.scales[i / 16] * (g.codes[i] - g.zero),
                       minimum = m * g.minima[i / 16];
          all[r * cols + first + i] = magnitudes ? std::abs(product) + std::abs(minimum) : product + minimum;
        }
      }
    return all;
  }

  std::string name() const {
    return std::string(to_string(format)) +
      (how == quantization::int8     ? " to int8"
         : how == quantization::int4 ? " to int4"
                                     : "");
  }
};

struct kind {
  weight_format format;
  quantization how;
};
const std::vector<kind> kinds = [] {
  std::vector<kind> all{{weight_format::f32, quantization::int8}, {weight_format::f32, quantization::int4}};
  for (const auto& traits : weight_formats)
    if (has_groups(traits.format))
      all.push_back({traits.format, quantization::none});
  return all;
}();

/// Inputs that share a scale: a group, or half of one where the weights have scales for halves.
std::size_t inputs_of_scale(weight_format format) {
  switch (format) {
    case weight_format::q2_k:
    case weight_format::q3_k:
    case weight_format::q6_k:
    case weight_format::nvfp4:
    case weight_format::iq1_s: // as iq1_m
    case weight_format::iq1_m:
    case weight_format::iq2_xs:
    case weight_format::iq2_s: return group_inputs / 2;
    default: return group_inputs;
  }
}

/// Rounded to int8 with one f32 scale for `together` inputs, as the backends do.
std::vector<double> quantised_activations(const numbers& in, std::size_t rows, std::size_t together) {
  const std::size_t cols = in.size() / rows;
  auto x = in.values();
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t k = 0; k < cols; k += together) {
      const std::size_t n = std::min(together, cols - k);
      float largest = 0;
      for (std::size_t i = 0; i < n; ++i)
        largest = std::max(largest, static_cast<float>(std::abs(x[r * cols + k + i])));
      const float inverse = largest > 0 ? 127 / largest : 0;
      for (std::size_t i = 0; i < n; ++i) {
        double& v = x[r * cols + k + i];
        v = std::nearbyint(static_cast<float>(v) * inverse) * double(largest / 127);
      }
    }
  return x;
}

/// Tolerance relative to the sum of magnitudes: a group adds at most five roundings, the bias one.
double tolerance_factor(std::size_t cols) { return (5 * double(cols / group_inputs + 1) + 1) * 0x1p-24; }

struct exact_linear {
  std::vector<double> sums, magnitudes;
};
exact_linear multiply(const std::vector<double>& x, const quantised_weights& weights, std::size_t rows,
                      const float* bias) {
  const auto w = weights.values(), sizes = weights.values(true);
  const std::size_t cols = weights.cols, outputs = weights.rows;
  exact_linear to;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t o = 0; o < outputs; ++o) {
      double sum = bias[o], magnitude = std::abs(bias[o]) + 1e-30;
      for (std::size_t k = 0; k < cols; ++k) {
        sum += x[r * cols + k] * w[o * cols + k];
        magnitude += std::abs(x[r * cols + k]) * sizes[o * cols + k];
      }
      to.sums.push_back(sum);
      to.magnitudes.push_back(magnitude);
    }
  return to;
}

std::string what(isa target, const quantised_weights& w, dtype compute, std::size_t rows) {
  return std::string(to_string(target)) + " " + w.name() + " with " + to_string(compute) + " " + std::to_string(rows) +
    " x " + std::to_string(w.rows) + " x " + std::to_string(w.cols);
}

std::size_t fitting(const kind& k, std::size_t cols) {
  const std::size_t block = block_inputs(k.format);
  return (cols + block - 1) / block * block;
}

} // namespace

TEST_CASE("a quantised linear layer agrees with exact arithmetic for every target, format and odd size") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    for (const auto& k : kinds)
      for (const dtype compute : compute_types)
        for (const auto& [rows, outputs, inputs] :
             {std::array<std::size_t, 3>{1, 1, 32}, {1, 47, 600}, {7, 130, 989}, {40, 33, 1100}, {13, 64, 5}}) {
          generator random;
          const quantised_weights w(random, k.format, k.how, outputs, fitting(k, inputs));
          const auto bias = random.normal(outputs);
          const auto view = w.view();
          const auto packed = device->pack({&view, 1}, compute, k.how);
          CHECK(packed->outputs == outputs);
          numbers in(compute, random.normal(rows * w.cols)), out(dtype::f32, rows * outputs);
          auto want = multiply(quantised_activations(in, rows, inputs_of_scale(w.format)), w, rows, bias.data());
          std::vector<double> tolerance;
          for (const double m : want.magnitudes)
            tolerance.push_back(m * tolerance_factor(w.cols));

          device->linear(out.rows(rows), in.rows(rows), *packed, bias.data());
          check_close(out.values(), want.sums, tolerance, what(target, w, compute, rows));
          device->linear(out.rows(rows), in.rows(rows), *packed, bias.data(), store::add);
          for (std::size_t i = 0; i < tolerance.size(); ++i) {
            want.sums[i] *= 2;
            tolerance[i] *= 2;
          }
          check_close(out.values(), want.sums, tolerance, what(target, w, compute, rows) + ", added");
        }
  }
}

TEST_CASE("rounding activations in a quantised layer adds at most half a step each") {
  const auto device = make_cpu_backend();
  const std::size_t rows = 5, outputs = 70, inputs = 1024;
  for (const auto& k : kinds) {
    generator random;
    const quantised_weights w(random, k.format, k.how, outputs, inputs);
    const auto view = w.view();
    const auto packed = device->pack({&view, 1}, dtype::f32, k.how);
    numbers in(dtype::f32, random.normal(rows * inputs)), out(dtype::f32, rows * outputs);
    device->linear(out.rows(rows), in.rows(rows), *packed);
    const auto x = in.values(), values = w.values();
    const auto want = multiply(x, w, rows, std::vector<float>(outputs).data());
    std::vector<double> bound;
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t o = 0; o < outputs; ++o) {
        double sum = want.magnitudes[r * outputs + o] * tolerance_factor(inputs);
        const auto together = inputs_of_scale(k.format);
        for (std::size_t g = 0; g < inputs; g += together) {
          double largest = 0, weights = 0;
          for (std::size_t i = g; i < g + together; ++i) {
            largest = std::max(largest, std::abs(x[r * inputs + i]));
            weights += std::abs(values[o * inputs + i]);
          }
          sum += largest / 127 / 2 * weights * 1.0001;
        }
        bound.push_back(sum);
      }
    check_close(out.values(), want.sums, bound, w.name());
    // Errors of many inputs mostly cancel: the typical error is far below the bound.
    double squares = 0, bounds = 0;
    for (std::size_t i = 0; i < bound.size(); ++i) {
      squares += (out[i] - want.sums[i]) * (out[i] - want.sums[i]);
      bounds += bound[i] * bound[i];
    }
    CHECK(squares < bounds / 100);
  }
}

TEST_CASE("a gated quantised layer agrees with exact arithmetic") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    for (const auto& k : kinds)
      for (const dtype compute : compute_types)
        for (const auto& [rows, ffn, inputs] : {std::array<std::size_t, 3>{1, 7, 111}, {29, 111, 989}}) {
          generator random;
          const std::size_t cols = fitting(k, inputs);
          const quantised_weights gate(random, k.format, k.how, ffn, cols), up(random, k.format, k.how, ffn, cols);
          const auto bias = random.normal(2 * ffn);
          const auto packed = device->pack_gate_up(gate.view(), up.view(), compute, k.how);
          numbers in(compute, random.normal(rows * cols)), out(compute, rows * ffn);
          device->linear_silu_gate(out.rows(rows), in.rows(rows), *packed, bias.data());
          const auto x = quantised_activations(in, rows, inputs_of_scale(k.format));
          const auto g = multiply(x, gate, rows, bias.data());
          const auto u = multiply(x, up, rows, bias.data() + ffn);
          std::vector<double> want, tolerance;
          for (std::size_t i = 0; i < g.sums.size(); ++i) {
            const double factor = tolerance_factor(cols);
            want.push_back(reference::silu_gate(g.sums[i], u.sums[i]));
            tolerance.push_back(1.1 * factor * g.magnitudes[i] * std::abs(u.sums[i]) +
                                std::abs(g.sums[i]) * factor * u.magnitudes[i] +
                                std::abs(want[i]) * (unit(compute) + 8 * unit(dtype::f32)) + 1e-30);
          }
          check_close(out.values(), want, tolerance, "gated " + what(target, gate, compute, rows));
        }
  }
}

TEST_CASE("a row's bits with quantised weights do not depend on the other rows, their number, or the threads") {
  const bool slow = troupe::testing::sanitized(); // a hundred times slower without vectors
  const std::size_t outputs = slow ? 66 : 130, most = slow ? 20 : 40;
  for (const isa target : tested_isas())
    for (const auto& k : kinds)
      for (const bool gated : {false, true}) {
        generator random;
        const std::size_t inputs = fitting(k, 1100);
        const quantised_weights w(random, k.format, k.how, outputs, inputs);
        const quantised_weights up(random, k.format, k.how, outputs, inputs);
        const auto view = w.view();
        numbers in(dtype::f32, random.normal(most * inputs));
        std::vector<numbers> one_by_one; // rows
        for (const int threads : {1, 2, 3}) {
          const auto device = make_backend(target, threads);
          const auto packed = gated ? device->pack_gate_up(view, up.view(), dtype::f32, k.how)
                                    : device->pack({&view, 1}, dtype::f32, k.how);
          const auto run = [&](numbers x, std::size_t rows) {
            numbers out(dtype::f32, rows * outputs);
            if (gated)
              device->linear_silu_gate(out.rows(rows), x.rows(rows), *packed);
            else
              device->linear(out.rows(rows), x.rows(rows), *packed);
            return out;
          };
          if (threads == 1)
            for (std::size_t r = 0; r < most; ++r)
              one_by_one.push_back(run(in.slice(r * inputs, inputs), 1));
          for (std::size_t rows = threads; rows <= most; rows += threads) {
            const std::size_t first = random.below(static_cast<int>(most - rows + 1));
            const auto out = run(in.slice(first * inputs, rows * inputs), rows);
            bool same = true;
            for (std::size_t r = 0; r < rows; ++r)
              same = same && out.slice(r * outputs, outputs) == one_by_one[first + r];
            CHECK_MESSAGE(same, what(target, w, dtype::f32, rows), (gated ? " gated" : ""), ": rows from ", first, ", ",
                          threads, " threads");
          }
        }
      }
}

TEST_CASE("many rows with quantised weights, in several tasks, give the bits of one row with any cache size") {
  const std::size_t outputs = 70, rows = 989;
  for (const isa target : tested_isas())
    for (const auto& k : kinds) {
      generator random;
      const std::size_t inputs = fitting(k, 600);
      const quantised_weights w(random, k.format, k.how, outputs, inputs);
      const auto view = w.view();
      const auto device = make_backend(target);
      const auto packed = device->pack({&view, 1}, dtype::bf16, k.how);
      numbers in(dtype::bf16, random.normal(rows * inputs)), out(dtype::f32, rows * outputs), small = out;
      device->linear(out.rows(rows), in.rows(rows), *packed);
      make_backend(target, 2, 128 << 10)->linear(small.rows(rows), in.rows(rows), *packed);
      CHECK_MESSAGE(small == out, to_string(target), " ", w.name(), ", a small cache");
      for (const std::size_t r : {0, 1, 5, 6, 240, 493, 494, 495, 988}) {
        auto row = in.slice(r * inputs, inputs);
        numbers alone(dtype::f32, outputs);
        device->linear(alone.rows(1), row.rows(1), *packed);
        CHECK_MESSAGE(out.slice(r * outputs, outputs) == alone, to_string(target), " ", w.name(), ", row ", r);
      }
    }
}

TEST_CASE("activations that are zero, huge, tiny or not finite affect only their row and group") {
  const std::size_t inputs = 96, outputs = 20;
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    generator random;
    const quantised_weights w(random, weight_format::q8_0, quantization::none, outputs, inputs);
    const auto view = w.view();
    const auto packed = device->pack({&view, 1}, dtype::f32);
    std::vector<float> x(4 * inputs);
    x[inputs] = 1e36f;
    x[2 * inputs] = 1e-38f;
    x[3 * inputs + 40] = std::nanf("");
    numbers in(dtype::f32, x), out(dtype::f32, 4 * outputs);
    device->linear(out.rows(4), in.rows(4), *packed);
    const auto values = w.values();
    for (std::size_t o = 0; o < outputs; ++o) {
      CHECK(out[o] == 0);
      CHECK(out[outputs + o] == doctest::Approx(1e36 * values[o * inputs]).epsilon(1e-6));
      CHECK(std::abs(out[2 * outputs + o]) < 1e-36);
      CHECK(std::isnan(out[3 * outputs + o]));
    }
  }
}

TEST_CASE("stacked matrices of different formats give the same results as alone") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    generator random;
    const std::size_t inputs = 512, rows = 5;
    const quantised_weights q(random, weight_format::q4_k, quantization::none, 30, inputs),
      k(random, weight_format::q4_k, quantization::none, 10, inputs),
      v(random, weight_format::q6_k, quantization::none, 65, inputs),
      plain(random, weight_format::f32, quantization::none, 7, inputs);
    const stored_matrix parts[] = {q.view(), k.view(), v.view(), plain.view()};
    const auto packed = device->pack(parts, dtype::f32);
    CHECK(packed->outputs == 112);
    CHECK(packed->inputs == inputs);
    const auto bias = random.normal(112);
    numbers in(dtype::f32, random.normal(rows * inputs)), out(dtype::f32, rows * 112);
    device->linear(out.rows(rows), in.rows(rows), *packed, bias.data());
    std::size_t column = 0;
    for (const auto& part : parts) {
      const auto one = device->pack({&part, 1}, dtype::f32);
      numbers alone(dtype::f32, rows * part.rows);
      device->linear(alone.rows(rows), in.rows(rows), *one, bias.data() + column);
      for (std::size_t r = 0; r < rows; ++r)
        CHECK(out.slice(r * 112 + column, part.rows) == alone.slice(r * part.rows, part.rows));
      column += part.rows;
    }
  }
}

TEST_CASE("gate and up of different formats are multiplied as floats") {
  const auto device = make_cpu_backend();
  generator random;
  const std::size_t inputs = 256, ffn = 40, rows = 3;
  const quantised_weights gate(random, weight_format::q8_0, quantization::none, ffn, inputs),
    up(random, weight_format::q6_k, quantization::none, ffn, inputs);
  const auto packed = device->pack_gate_up(gate.view(), up.view(), dtype::f32);
  numbers in(dtype::f32, random.normal(rows * inputs)), out(dtype::f32, rows * ffn);
  device->linear_silu_gate(out.rows(rows), in.rows(rows), *packed);
  const std::vector<float> none(ffn);
  const auto g = multiply(in.values(), gate, rows, none.data()), u = multiply(in.values(), up, rows, none.data());
  std::vector<double> want, tolerance;
  const double factor = 4 * std::sqrt(double(inputs)) * 0x1p-24;
  for (std::size_t i = 0; i < g.sums.size(); ++i) {
    want.push_back(reference::silu_gate(g.sums[i], u.sums[i]));
    tolerance.push_back(factor * (1.1 * g.magnitudes[i] * std::abs(u.sums[i]) + std::abs(g.sums[i]) * u.magnitudes[i]) +
                        std::abs(want[i]) * 8 * 0x1p-24);
  }
  check_close(out.values(), want, tolerance, "gate in q8_0, up in q6_k");
}

TEST_CASE("a table in blocks is dequantised row by row") {
  const auto device = make_cpu_backend();
  generator random;
  const quantised_weights w(random, weight_format::q8_0, quantization::none, 9, 64);
  const auto table = device->load_table(w.view());
  CHECK(table->bytes == 9 * 68);
  const std::int32_t tokens[] = {3, 8, 0};
  numbers out(dtype::f32, 3 * 64);
  device->embed(out.rows(3), *table, tokens);
  const auto values = w.values();
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t k = 0; k < 64; ++k)
      CHECK(out[i * 64 + k] == values[tokens[i] * 64 + k]);
}

TEST_CASE("packing rejects rows that are not whole blocks") {
  const auto device = make_cpu_backend();
  const std::vector<std::uint8_t> memory(4096);
  const stored_matrix ragged{memory.data(), weight_format::q8_0, 2, 48}, q8{memory.data(), weight_format::q8_0, 2, 64};
  CHECK_THROWS_AS(device->pack({&ragged, 1}, dtype::f32), std::invalid_argument);
  CHECK_THROWS_AS(device->load_table(ragged), std::invalid_argument);
  CHECK_THROWS_AS(device->pack({&q8, 1}, dtype::f16), std::invalid_argument);
}
