#include "tests/kernels/cuda/support.hpp"

#include <array>

using namespace troupe::kernels;
using namespace troupe::kernels::cuda::testing;

namespace {

/// All but floats.
const std::vector<weight_format> block_formats = [] {
  std::vector<weight_format> all;
  for (const auto& traits : weight_formats)
    if (!is_float(traits.format) && !is_pruned(traits.format))
      all.push_back(traits.format);
  return all;
}();

/// A random matrix in any format.
struct random_weights {
  weight_format format;
  quantization how;
  std::size_t rows, cols;
  std::vector<std::uint8_t> blocks;
  numbers floats;

  random_weights(generator& random, weight_format format, quantization how, std::size_t rows, std::size_t cols)
    : format(format), how(how), rows(rows), cols(cols) {
    if (is_float(format)) {
      floats = numbers(dtype_of(format), random.normal(rows * cols, 0.1f));
      return;
    }
    blocks.resize(rows * row_bytes(format, cols));
    for (auto& byte : blocks)
      byte = static_cast<std::uint8_t>(random.below(256));
    if (is_fp8(format)) {
      for (auto& byte : blocks)
        byte = (byte & 0x7f) == 0x7f ? 0 : byte; // NaN
      const std::size_t shared = has_scale_blocks(format) ? traits_of(format).scale_inputs : cols;
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t i = 0; i < cols; i += shared) {
          const float scale = std::exp2(static_cast<float>(random.below(8)) - 16) * 1.3f;
          std::memcpy(&blocks[r * row_bytes(format, cols) + fp8_scale_offset(format, i)], &scale, sizeof scale);
        }
      return;
    }
    const auto scale = [&](std::uint8_t* at) { // 2^-8 to 2^-6 with a random mantissa and sign
      const int bits = random.below(2048) + (7 << 10) + random.below(2) * 0x8000;
      at[0] = static_cast<std::uint8_t>(bits);
      at[1] = static_cast<std::uint8_t>(bits >> 8);
    };
    for (std::size_t at = 0; at < blocks.size(); at += block_bytes(format)) {
      troupe::kernels::testing::set_exponent(format, &blocks[at]);
      for (const std::size_t offset : troupe::kernels::testing::f16_offsets(format))
        scale(&blocks[at + offset]);
    }
  }

  stored_matrix view() const {
    return {is_float(format) ? floats.data() : static_cast<const void*>(blocks.data()), format, rows, cols};
  }

  /// The weights in f32, or with `magnitudes` the sum of the magnitudes of the code's and the minimum's part.
  std::vector<double> values(dtype compute, bool magnitudes = false) const {
    std::vector<double> all(rows * cols);
    const bool whole = is_float(format) && (how == quantization::none || compute == dtype::f32);
    if (is_fp8(format) || (how == quantization::fp8 && !whole)) {
      const bool rounds = compute == dtype::bf16 && has_scale_blocks(format); // expanded
      for (std::size_t r = 0; r < rows; ++r) {
        std::vector<float> row(cols);
        if (is_fp8(format)) {
          expand(format, view().row(r), 0, cols, row.data());
          for (float& x : row)
            x = rounds ? static_cast<float>(numbers(dtype::bf16, std::vector<float>{x})[0]) : x;
        } else {
          for (std::size_t k = 0; k < cols; ++k)
            row[k] = static_cast<float>(floats[r * cols + k]);
          const float scale = fp8_scale(row.data(), cols);
          for (float& x : row)
            x = static_cast<float>(reference::to_e4m3(x / scale)) * scale;
        }
        for (std::size_t k = 0; k < cols; ++k)
          all[r * cols + k] = magnitudes ? std::abs(row[k]) : row[k];
      }
      return all;
    }
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t first = 0; first < cols; first += group_inputs) {
        const std::size_t n = std::min(group_inputs, cols - first);
        if (whole) {
          for (std::size_t i = 0; i < n; ++i) {
            const double x = floats[r * cols + first + i];
            all[r * cols + first + i] = magnitudes ? std::abs(x)
              : compute == dtype::bf16             ? numbers(dtype::bf16, std::vector<float>{float(x)})[0]
                                                   : x;
          }
          continue;
        }
        float wide[group_inputs] = {};
        for (std::size_t i = 0; i < n && is_float(format); ++i)
          wide[i] = static_cast<float>(floats[r * cols + first + i]);
        const auto g = !is_float(format) ? stored_group(format, view().row(r), first / group_inputs)
          : how == quantization::int8    ? quantise_int8(wide)
                                         : quantise_int4(wide);
        const double m = reference::value(&g.m, dtype::f16, 0);
        const bool rounds = compute == dtype::bf16 && !is_float(format) &&
          traits_of(format).on_gpu == weight_kind::bf16;
        for (std::size_t i = 0; i < n; ++i) {
          const double product = double(scale_of(g, i / 16)) * g.scales[i / 16] * (g.codes[i] - g.zero),
                       minimum = m * g.minima[i / 16];
          const double sum = product + minimum;
          all[r * cols + first + i] = magnitudes ? std::abs(product) + std::abs(minimum)
            : rounds                             ? numbers(dtype::bf16, std::vector<float>{static_cast<float>(sum)})[0]
                                                 : sum;
        }
      }
    return all;
  }

  std::string name() const {
    return std::string(to_string(format)) + (how == quantization::none ? "" : std::string(" to ") + to_string(how));
  }
};

struct kind {
  weight_format format;
  quantization how;
};
const std::vector<kind> kinds = [] {
  std::vector<kind> all{{weight_format::f32, quantization::none},  {weight_format::f16, quantization::none},
                        {weight_format::bf16, quantization::none}, {weight_format::f32, quantization::int8},
                        {weight_format::bf16, quantization::int4}, {weight_format::bf16, quantization::fp8}};
  for (const auto format : block_formats)
    all.push_back({format, quantization::none});
  return all;
}();

std::size_t fitting(const kind& k, std::size_t cols) {
  const std::size_t block = block_inputs(k.format);
  return (cols + block - 1) / block * block;
}

struct exact_linear {
  std::vector<double> sums, tolerance;
};

/// The exact product and its tolerance. Tensor cores may drop bits below 2^-22 of the largest addend in each addition.
/// If the library may be chosen, quantised weights may have been rounded to bf16, or, with weights in fp8, activations
/// to fp8.
exact_linear multiply(const numbers& in, const random_weights& w, std::size_t rows, const std::vector<float>& bias,
                      bool deterministic) {
  const auto values = w.values(in.type), sizes = w.values(in.type, true);
  const bool quantised = in.type == dtype::bf16 && (!is_float(w.format) || w.how != quantization::none);
  const bool fp8 = w.format == weight_format::fp8 || w.how == quantization::fp8;
  const double rounding = !quantised || deterministic || rows <= 8 ? 0 : fp8 ? 0x1p-4 : unit(dtype::bf16);
  exact_linear to;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t o = 0; o < w.rows; ++o) {
      double sum = bias[o], magnitude = std::abs(bias[o]) + 1e-30, expanded = 0;
      for (std::size_t k = 0; k < w.cols; ++k) {
        const double x = in[r * w.cols + k];
        sum += x * values[o * w.cols + k];
        magnitude += std::abs(x) * sizes[o * w.cols + k];
        expanded += std::abs(x * values[o * w.cols + k]);
      }
      to.sums.push_back(sum);
      to.tolerance.push_back(magnitude * (double(w.cols) / 8 + 16) * 0x1p-22 + expanded * rounding);
    }
  return to;
}

std::string what(const random_weights& w, dtype compute, std::size_t rows) {
  return w.name() + " with " + to_string(compute) + " " + std::to_string(rows) + " x " + std::to_string(w.rows) +
    " x " + std::to_string(w.cols);
}

} // namespace

TEST_SUITE_BEGIN("cuda");

TEST_CASE("CUDA: a linear layer agrees with exact arithmetic for every format, type and odd size") {
  for (const bool deterministic : {false, true}) {
    const auto device = make_device(deterministic);
    for (const auto& k : kinds)
      for (const dtype compute : {dtype::f32, dtype::bf16})
        for (const auto& [rows, outputs, inputs] : {std::array<std::size_t, 3>{1, 1, 32},
                                                    {1, 47, 600},
                                                    {7, 130, 989},
                                                    {2, 17, 2600},
                                                    {13, 64, 5},
                                                    {40, 33, 300}}) {
          const bool chosen = compute == dtype::bf16 && rows > 8; // between two methods, except in deterministic mode
          if (is_emulated() && (deterministic ? !chosen : compute == dtype::f32 && rows > 7))
            continue; // the same kernels, slowly
          if (is_sanitized && (compute == dtype::f32 || inputs < 1024))
            continue; // several chunks per warp
          generator random;
          const random_weights w(random, k.format, k.how, outputs, fitting(k, inputs));
          const auto bias = random.normal(outputs);
          const device_tensor bias_memory(*device, wide(bias), 1);
          const auto view = w.view();
          const auto packed = device->pack({&view, 1}, compute, k.how);
          CHECK(packed->outputs == outputs);
          const numbers in(compute, random.normal(rows * w.cols));
          const device_tensor x(*device, in, rows), out(*device, dtype::f32, rows, outputs);
          auto want = multiply(in, w, rows, bias, deterministic);
          device->linear(out.view, x.view, *packed, bias_memory.floats());
          check_close(out.read().values(), want.sums, want.tolerance, what(w, compute, rows));
          device->linear(out.view, x.view, *packed, bias_memory.floats(), store::add);
          for (std::size_t i = 0; i < want.sums.size(); ++i) {
            want.sums[i] *= 2;
            want.tolerance[i] *= 2;
          }
          check_close(out.read().values(), want.sums, want.tolerance, what(w, compute, rows) + ", added");
        }
  }
}

TEST_CASE("CUDA: a gated layer is the product of its two halves, for every format and partly filled tiles") {
  const auto device = make_device();
  for (const auto& k : kinds)
    for (const dtype compute : {dtype::f32, dtype::bf16})
      for (const auto& [rows, outputs, inputs] :
           {std::array<std::size_t, 3>{1, 24, 64}, {3, 21, 160}, {9, 5, 40}, {520, 11, 32}}) {
        if (is_emulated() && compute == dtype::f32 && rows > 9)
          continue; // slow
        generator random;
        const random_weights gate(random, k.format, k.how, outputs, fitting(k, inputs));
        const random_weights up(random, k.format, k.how, outputs, fitting(k, inputs));
        const auto bias = random.normal(2 * outputs);
        const std::vector<float> gate_bias(bias.begin(), bias.begin() + outputs),
          up_bias(bias.begin() + outputs, bias.end());
        const device_tensor bias_memory(*device, wide(bias), 1);
        const auto packed = device->pack_gate_up(gate.view(), up.view(), compute, k.how);
        CHECK(packed->outputs == outputs);
        const numbers in(compute, random.normal(rows * gate.cols));
        const device_tensor x(*device, in, rows), out(*device, compute, rows, outputs);
        device->linear_silu_gate(out.view, x.view, *packed, bias_memory.floats());
        const auto g = multiply(in, gate, rows, gate_bias, false), u = multiply(in, up, rows, up_bias, false);
        std::vector<double> want, tolerance;
        for (std::size_t i = 0; i < g.sums.size(); ++i) {
          want.push_back(reference::silu_gate(g.sums[i], u.sums[i]));
          // The slope of silu is at most 1.1, its value at most its argument.
          tolerance.push_back(std::abs(want.back()) * (unit(compute) + 10 * unit(dtype::f32)) +
                              1.2 * g.tolerance[i] * (std::abs(u.sums[i]) + u.tolerance[i]) +
                              u.tolerance[i] * std::abs(g.sums[i]));
        }
        check_close(out.read().values(), want, tolerance, "gated " + what(gate, compute, rows));
      }
}

TEST_CASE("CUDA: many rows times fp8 weights are products of codes, whether or not the library applies scales") {
  const auto device = make_device();
  const std::size_t outputs = 21, inputs = 150;
  for (const std::size_t rows : {std::size_t(514), std::size_t(1025), std::size_t(515)}) {
    generator random;
    const random_weights w(random, weight_format::fp8, quantization::none, outputs, inputs),
      up(random, weight_format::bf16, quantization::fp8, outputs, inputs);
    numbers in(dtype::bf16, random.normal(rows * inputs));
    for (std::size_t k = 0; k < inputs; ++k)
      in.narrow[k] = 0; // a row of zeros
    // Activations rounded as in the backend: not at all if the emulated library has no fp8 (rows % 4 == 3).
    const bool coded = !is_emulated() || rows % 4 != 3;
    std::vector<double> rounded = in.values();
    for (std::size_t r = 1; r < rows && coded; ++r) {
      double largest = 0;
      for (std::size_t k = 0; k < inputs; ++k)
        largest = std::max(largest, std::abs(rounded[r * inputs + k]));
      for (std::size_t k = 0; k < inputs; ++k) {
        double& x = rounded[r * inputs + k];
        x = reference::to_e4m3(static_cast<float>(x) * (448 / static_cast<float>(largest))) * largest / 448;
      }
    }
    const auto bias = random.normal(2 * outputs);
    const device_tensor bias_memory(*device, wide(bias), 1), x(*device, in, rows);
    const auto product = [&](const random_weights& w, std::size_t first_bias, std::vector<double>& tolerance) {
      const auto values = w.values(dtype::bf16);
      std::vector<double> sums;
      for (std::size_t r = 0; r < rows; ++r)
        for (std::size_t o = 0; o < outputs; ++o) {
          double sum = bias[first_bias + o], magnitude = std::abs(sum);
          for (std::size_t k = 0; k < inputs; ++k) {
            const double part = rounded[r * inputs + k] * values[o * inputs + k];
            sum += part;
            magnitude += std::abs(part);
          }
          sums.push_back(sum);
          // Hopper's tensor cores keep 14 bits of an addend of fp8; weights may have been rounded to bf16.
          tolerance.push_back(magnitude * (!coded ? unit(dtype::bf16) : is_emulated() ? 1e-5 : 0x1p-10) + 1e-6);
        }
      return sums;
    };
    std::vector<double> tolerance, up_tolerance;
    const auto want = product(w, 0, tolerance), want_up = product(up, outputs, up_tolerance);
    const auto view = w.view();
    const auto packed = device->pack({&view, 1}, dtype::bf16);
    const device_tensor out(*device, dtype::f32, rows, outputs);
    device->linear(out.view, x.view, *packed, bias_memory.floats());
    check_close(out.read().values(), want, tolerance, what(w, dtype::bf16, rows));
    device->linear(out.view, x.view, *packed, bias_memory.floats(), store::add);
    auto twice = want;
    for (std::size_t i = 0; i < twice.size(); ++i)
      twice[i] *= 2, tolerance[i] *= 2;
    check_close(out.read().values(), twice, tolerance, what(w, dtype::bf16, rows) + ", added");

    const auto both = device->pack_gate_up(w.view(), up.view(), dtype::bf16, quantization::fp8);
    const device_tensor gated(*device, dtype::bf16, rows, outputs);
    device->linear_silu_gate(gated.view, x.view, *both, bias_memory.floats());
    std::vector<double> want_gated, gated_tolerance;
    for (std::size_t i = 0; i < want.size(); ++i) {
      want_gated.push_back(reference::silu_gate(want[i], want_up[i]));
      gated_tolerance.push_back(std::abs(want_gated.back()) * 1.1 * unit(dtype::bf16) +
                                1.2 * tolerance[i] * (std::abs(want_up[i]) + up_tolerance[i]) +
                                up_tolerance[i] * std::abs(want[i]));
    }
    check_close(gated.read().values(), want_gated, gated_tolerance, "gated, " + std::to_string(rows) + " rows");
  }
}

TEST_CASE("CUDA: NaN and all-zero fp8 weights give NaN and zero products") {
  for (const std::size_t rows : {1, 514}) {
    const auto device = make_device();
    const std::size_t inputs = 40;
    std::vector<float> weights(3 * inputs, 0.5f);
    weights[3] = NAN;
    std::fill_n(weights.begin() + 2 * inputs, inputs, 0.0f);
    const stored_matrix view{weights.data(), dtype::f32, 3, inputs};
    const auto packed = device->pack({&view, 1}, dtype::bf16, quantization::fp8);
    const device_tensor x(*device, numbers(dtype::bf16, std::vector<float>(rows * inputs, 1.0f)), rows),
      out(*device, dtype::f32, rows, 3);
    device->linear(out.view, x.view, *packed);
    const auto got = out.read();
    CHECK(std::isnan(got[0]));
    CHECK(got[1] == doctest::Approx(20));
    CHECK(got[2] == 0);
  }
}

TEST_CASE("CUDA: stacked matrices keep their formats") {
  const auto device = make_device();
  generator random;
  const std::size_t cols = 256, rows = 3;
  const random_weights q(random, weight_format::q4_k, quantization::none, 40, cols),
    k(random, weight_format::q4_k, quantization::none, 9, cols),
    v(random, weight_format::q6_k, quantization::none, 23, cols);
  const stored_matrix views[] = {q.view(), k.view(), v.view()};
  const auto packed = device->pack(views, dtype::bf16);
  CHECK(packed->outputs == 72);
  const numbers in(dtype::bf16, random.normal(rows * cols));
  const auto bias = random.normal(72);
  const device_tensor x(*device, in, rows), out(*device, dtype::f32, rows, 72), bias_memory(*device, wide(bias), 1);
  device->linear(out.view, x.view, *packed, bias_memory.floats());
  const auto got = out.read();
  std::size_t first = 0;
  for (const auto* w : {&q, &k, &v}) {
    const auto want = multiply(in, *w, rows, {bias.begin() + first, bias.begin() + first + w->rows}, false);
    std::vector<double> mine;
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t o = 0; o < w->rows; ++o)
        mine.push_back(got[r * 72 + first + o]);
    check_close(mine, want.sums, want.tolerance, w->name());
    first += w->rows;
  }
  const random_weights other(random, weight_format::f32, quantization::none, 8, 64);
  const stored_matrix unlike[] = {q.view(), other.view()};
  CHECK_THROWS_AS(device->pack(unlike, dtype::bf16), std::invalid_argument);
  CHECK_THROWS_AS(device->pack({}, dtype::bf16), std::invalid_argument);
}

TEST_CASE("CUDA: packed_bytes predicts the size of packed matrices in every format") {
  const auto device = make_device();
  for (const auto& k : kinds)
    for (const dtype compute : {dtype::f32, dtype::bf16})
      for (const auto& [outputs, inputs] : {std::array<std::size_t, 2>{1, 32}, {47, 600}, {130, 989}, {16, 128}}) {
        generator random;
        const random_weights a(random, k.format, k.how, outputs, fitting(k, inputs)),
          b(random, k.format, k.how, outputs, a.cols), other(random, weight_format::f16, k.how, 7, a.cols);
        const stored_matrix views[] = {a.view(), b.view(), other.view()};
        const auto described = [&](std::size_t count) { // without data
          std::vector<stored_matrix> shapes;
          for (const auto& m : std::span(views).first(count))
            shapes.push_back({nullptr, m.format, m.rows, m.cols});
          return shapes;
        };
        for (const std::size_t count : {std::size_t(1), std::size_t(3)})
          CHECK_MESSAGE(device->packed_bytes(described(count), compute, k.how, false) ==
                          device->pack(std::span(views).first(count), compute, k.how)->bytes,
                        what(a, compute, count));
        CHECK_MESSAGE(device->packed_bytes(described(2), compute, k.how, true) ==
                        device->pack_gate_up(views[0], views[1], compute, k.how)->bytes,
                      "gated ", what(a, compute, 2));
      }
  // The size follows from the layout: tiles of 16 outputs, chunks of 128 inputs, codes at their width, and for each
  // output and chunk 8 bytes of f16 scales, 16 with minima, 12 of factors and 8-bit scales.
  const auto bytes = [&](weight_format format, std::size_t inputs) {
    return device->packed_bytes(std::vector<stored_matrix>{{nullptr, format, 17, inputs}}, dtype::bf16,
                                quantization::none, false);
  };
  CHECK(bytes(weight_format::q8_0, 160) == 2 * 2 * (16 * 128 + 16 * 8));
  CHECK(bytes(weight_format::q5_0, 160) == 2 * 2 * (16 * 80 + 16 * 8));
  CHECK(bytes(weight_format::q5_1, 160) == 2 * 2 * (16 * 80 + 16 * 16));
  CHECK(bytes(weight_format::q5_k, 256) == 2 * 2 * (16 * 80 + 16 * 12));
  CHECK(bytes(weight_format::q6_k, 256) == 2 * 2 * (16 * 96 + 16 * 12));
  CHECK(bytes(weight_format::iq4_xs, 256) == 2 * 2 * (16 * 128 + 16 * 12));
  CHECK(device->packed_bytes(std::vector<stored_matrix>{{nullptr, weight_format::bf16, 17, 100}}, dtype::bf16,
                             quantization::none, false) == 32 * 128 * 2);
}

TEST_CASE("CUDA, deterministic: a row's bits do not depend on the other rows, for every format") {
  const auto device = make_device(true);
  const std::size_t outputs = 50, inputs = 512, most = 40;
  for (const auto& k : kinds) {
    generator random;
    const random_weights w(random, k.format, k.how, outputs, inputs);
    const auto view = w.view();
    const auto packed = device->pack({&view, 1}, dtype::bf16, k.how);
    const numbers in(dtype::bf16, random.normal(most * inputs));
    const auto run = [&](std::size_t first, std::size_t rows) {
      const device_tensor x(*device, in.slice(first * inputs, rows * inputs), rows),
        out(*device, dtype::f32, rows, outputs);
      device->linear(out.view, x.view, *packed);
      return out.read();
    };
    const auto all = run(0, most);
    for (const auto& [first, rows] : {std::array<std::size_t, 2>{0, 1}, {39, 1}, {3, 8}, {11, 15}, {2, 31}})
      CHECK_MESSAGE(run(first, rows) == all.slice(first * outputs, rows * outputs), w.name(), ", ", rows, " rows");
  }
}

TEST_SUITE_END();
