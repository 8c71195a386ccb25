// Weights in fp8 on a CPU: every code is multiplied exactly, and takes its 8 bits.
#include "kernels/cpu/dispatch.hpp"
#include "kernels/formats/e4m3.hpp"
#include "tests/kernels/support.hpp"

#include <cmath>
#include <cstring>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

/// Rows as checkpoints store them: a scale, then codes.
struct fp8_rows {
  std::size_t outputs, inputs;
  std::vector<std::uint8_t> bytes;

  fp8_rows(std::size_t outputs, std::size_t inputs)
    : outputs(outputs), inputs(inputs), bytes(outputs * row_bytes(weight_format::fp8, inputs)) {}

  void set_scale(std::size_t output, float scale) {
    std::memcpy(&bytes[output * row_bytes(weight_format::fp8, inputs)], &scale, sizeof scale);
  }
  std::uint8_t& code(std::size_t output, std::size_t input) {
    return bytes[output * row_bytes(weight_format::fp8, inputs) + sizeof(float) + input];
  }
  stored_matrix view() const { return {bytes.data(), weight_format::fp8, outputs, inputs}; }
};

/// What quantising makes of rows of floats.
fp8_rows quantised_rows(const numbers& weights, std::size_t outputs, std::size_t inputs) {
  fp8_rows to(outputs, inputs);
  for (std::size_t o = 0; o < outputs; ++o) {
    std::vector<float> row(inputs);
    for (std::size_t i = 0; i < inputs; ++i)
      row[i] = static_cast<float>(weights[o * inputs + i]);
    const float scale = fp8_scale(row.data(), inputs);
    to.set_scale(o, scale);
    for (std::size_t i = 0; i < inputs; ++i)
      to.code(o, i) = to_fp8(row[i], scale);
  }
  return to;
}

} // namespace

TEST_CASE("products with codes of fp8 are exact: each code alone gives its number, times the scale") {
  constexpr std::size_t outputs = 254, inputs = 5;
  fp8_rows rows(outputs, inputs);
  std::vector<std::uint8_t> codes;
  for (int code = 0; code < 256; ++code)
    if ((code & 0x7f) != 0x7f)
      codes.push_back(static_cast<std::uint8_t>(code));
  REQUIRE(codes.size() == outputs);
  generator random;
  const auto scales = random.normal(outputs); // negative ones, too
  for (std::size_t o = 0; o < outputs; ++o) {
    rows.set_scale(o, scales[o]);
    rows.code(o, o % inputs) = codes[o];
  }
  const auto view = rows.view();
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    for (const dtype compute : compute_types)
      for (const std::size_t count : {1, 9, 40}) {
        CAPTURE(to_string(target));
        CAPTURE(to_string(compute));
        const auto packed = device->pack({&view, 1}, compute);
        numbers in(compute, std::vector<float>(count * inputs, -2.0f)), out(dtype::f32, count * outputs);
        device->linear(out.rows(count), in.rows(count), *packed);
        bool same = true;
        for (std::size_t i = 0; i < count * outputs; ++i)
          same = same && out.wide[i] == -2 * from_e4m3(codes[i % outputs]) * scales[i % outputs];
        CHECK(same);
      }
  }
}

TEST_CASE("codes of NaN, and floats that are not finite, make NaN of their output alone") {
  constexpr std::size_t outputs = 70, inputs = 33;
  fp8_rows rows(outputs, inputs);
  std::vector<float> floats(outputs * inputs, 1.0f);
  for (std::size_t o = 0; o < outputs; ++o) {
    rows.set_scale(o, 0.5f);
    for (std::size_t i = 0; i < inputs; ++i)
      rows.code(o, i) = 0x38; // 1
  }
  rows.code(3, 32) = 0xff;
  rows.code(66, 0) = 0x7f;
  floats[3 * inputs + 32] = std::nanf("");
  floats[66 * inputs] = -INFINITY;
  const stored_matrix codes = rows.view(), wide{floats.data(), dtype::f32, outputs, inputs};
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target, 1);
    for (const dtype compute : compute_types)
      for (const bool stored : {false, true})
        for (const float x : {0.0f, 1.0f}) { // also where all weights could be skipped
          CAPTURE(to_string(target));
          const auto packed = device->pack({stored ? &codes : &wide, 1}, compute, quantization::fp8);
          numbers in(compute, std::vector<float>(inputs, x)), out(dtype::f32, outputs);
          device->linear(out.rows(1), in.rows(1), *packed);
          for (std::size_t o = 0; o < outputs; ++o)
            if (o == 3 || o == 66)
              CHECK(std::isnan(out[o]));
            else
              CHECK(std::abs(out[o] - x * (stored ? 0.5 : 1.0) * inputs) < 1e-4);
        }
  }
}

TEST_CASE("weights take 8 bits in fp8, and their sums are those of the codes that a checkpoint would store") {
  constexpr std::size_t outputs = 100, inputs = 71;
  generator random(11);
  auto values = random.normal(outputs * inputs, 0.05f);
  std::fill_n(values.begin(), inputs, 0.0f); // an output without weights
  values[3 * inputs + 5] = 40;               // and one whose largest is far from the others
  for (const auto stored : {dtype::f32, dtype::bf16, dtype::f16}) {
    const numbers weights(stored, values);
    const auto rows = quantised_rows(weights, outputs, inputs);
    const stored_matrix from(weights.data(), stored, outputs, inputs), codes = rows.view();
    for (const isa target : tested_isas())
      for (const auto compute : compute_types) {
        CAPTURE(to_string(target));
        CAPTURE(to_string(compute));
        const auto device = make_backend(target, 1);
        const auto quantised = device->pack({&from, 1}, compute, quantization::fp8),
                   kept = device->pack({&codes, 1}, compute);
        const bool pairs = compute == dtype::bf16 && find_target(target).code_pairs;
        CHECK(quantised->bytes == 2 * 64 * (sizeof(float) + (pairs ? inputs + 1 : inputs)));
        CHECK(quantised->bytes == device->packed_bytes({&from, 1}, compute, quantization::fp8, false));
        numbers in(compute, random.normal(2 * inputs)), got(dtype::f32, 2 * outputs), want(dtype::f32, 2 * outputs);
        device->linear(got.rows(2), in.rows(2), *quantised);
        device->linear(want.rows(2), in.rows(2), *kept);
        CHECK(got == want);
        for (const auto how : {quantization::fp8, quantization::bf16}) // change nothing of codes
          CHECK(device->packed_bytes({&codes, 1}, compute, how, false) == kept->bytes);
      }
  }
}

TEST_CASE("gate and up of which one is in fp8 are multiplied as floats, beside a stack that keeps its codes") {
  constexpr std::size_t outputs = 40, inputs = 64;
  generator random(5);
  const numbers weights(dtype::bf16, random.normal(outputs * inputs, 0.1f));
  const auto rows = quantised_rows(weights, outputs, inputs);
  std::vector<float> expanded(outputs * inputs);
  for (std::size_t o = 0; o < outputs; ++o)
    expand(weight_format::fp8, rows.view().row(o), 0, inputs, &expanded[o * inputs]);
  const numbers wide(dtype::f32, expanded);
  const stored_matrix codes = rows.view(), floats{weights.data(), dtype::bf16, outputs, inputs},
                      plain{wide.data(), dtype::f32, outputs, inputs};
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target, 1);
    for (const auto compute : compute_types) {
      CAPTURE(to_string(target));
      numbers in(compute, random.normal(3 * inputs)), got(compute, 3 * outputs), want(compute, 3 * outputs);
      const auto mixed = device->pack_gate_up(codes, floats, compute),
                 same = device->pack_gate_up(plain, floats, compute);
      device->linear_silu_gate(got.rows(3), in.rows(3), *mixed);
      device->linear_silu_gate(want.rows(3), in.rows(3), *same);
      CHECK(got == want);

      const stored_matrix stacked[] = {floats, codes, codes};
      const auto stack = device->pack(stacked, compute), alone = device->pack({&codes, 1}, compute);
      numbers all(dtype::f32, 3 * 3 * outputs), one(dtype::f32, 3 * outputs);
      device->linear(all.rows(3), in.rows(3), *stack);
      device->linear(one.rows(3), in.rows(3), *alone);
      for (std::size_t r = 0; r < 3; ++r)
        for (const std::size_t part : {1, 2})
          CHECK(all.slice((3 * r + part) * outputs, outputs) == one.slice(r * outputs, outputs));
    }
  }
}
