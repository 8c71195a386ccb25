// Weights in fp8 of which 128 or 32 inputs share a scale: kept as they are, and multiplied exactly.
#include "kernels/activation_sparsity.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/formats/e4m3.hpp"
#include "kernels/formats/weight_groups.hpp"
#include "tests/kernels/support.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

constexpr std::array block_formats{weight_format::fp8_128, weight_format::fp8_32};

/// Rows as checkpoints present them, with random codes and scales.
struct block_rows {
  weight_format format;
  std::size_t outputs, inputs;
  std::vector<std::uint8_t> bytes;

  block_rows(weight_format format, std::size_t outputs, std::size_t inputs, generator& random, float scale = 0.01f)
    : format(format), outputs(outputs), inputs(inputs), bytes(outputs * row_bytes(format, inputs)) {
    for (std::size_t o = 0; o < outputs; ++o)
      for (std::size_t i = 0; i < inputs; ++i) {
        if (i % traits_of(format).scale_inputs == 0)
          set_scale(o, i, scale * static_cast<float>(1 + random.below(100)) * (random.below(2) == 0 ? 1.0f : -1.0f));
        do
          code(o, i) = static_cast<std::uint8_t>(random.below(256));
        while ((code(o, i) & 0x7f) == 0x7f); // NaN
      }
  }

  void set_scale(std::size_t output, std::size_t input, float scale) {
    std::memcpy(&bytes[output * row_bytes(format, inputs) + fp8_scale_offset(format, input)], &scale, sizeof scale);
  }
  std::uint8_t& code(std::size_t output, std::size_t input) {
    return bytes[output * row_bytes(format, inputs) + fp8_offset(format, input)];
  }
  stored_matrix view() const { return {bytes.data(), format, outputs, inputs}; }

  /// The publishers' formula.
  std::vector<float> expanded() const {
    std::vector<float> all(outputs * inputs);
    for (std::size_t o = 0; o < outputs; ++o)
      expand(format, view().row(o), 0, inputs, &all[o * inputs]);
    return all;
  }
};

} // namespace

TEST_CASE("fp8 in blocks: each block of a row has its scale before its codes, and the last may be short") {
  generator random;
  for (const auto format : block_formats) {
    const std::size_t shared = traits_of(format).scale_inputs, inputs = 2 * shared + 5;
    CHECK(row_bytes(format, inputs) == inputs + 3 * sizeof(float));
    block_rows rows(format, 2, inputs, random);
    for (std::size_t b = 0; b < 3; ++b)
      rows.set_scale(1, b * shared, static_cast<float>(b + 1));
    for (std::size_t i = 0; i < inputs; ++i)
      rows.code(1, i) = to_e4m3(static_cast<float>(i % 13) - 6);
    for (const std::size_t first : {std::size_t(0), shared - 1, shared, 2 * shared - 3}) {
      std::vector<float> some(inputs - first);
      expand(format, rows.view().row(1), first, some.size(), some.data());
      for (std::size_t i = 0; i < some.size(); ++i)
        CHECK(some[i] == static_cast<float>((first + i) / shared + 1) * (static_cast<float>((first + i) % 13) - 6));
    }
  }
}

TEST_CASE("products with fp8 in blocks are those of the published formula, the same bits in any number of rows") {
  constexpr std::size_t outputs = 70, most = 40;
  generator random(3);
  for (const auto format : block_formats)
    for (const std::size_t inputs : {5, 32, 128, 131, 200, 384, 989}) {
      const block_rows rows(format, outputs, inputs, random);
      const auto view = rows.view();
      const auto weights = rows.expanded();
      const auto bias = random.normal(outputs);
      const double shared = static_cast<double>(std::min(inputs, traits_of(format).scale_inputs)),
                   blocks = std::ceil(static_cast<double>(inputs) / shared);
      for (const isa target : tested_isas())
        for (const dtype compute : compute_types) {
          CAPTURE(to_string(target));
          CAPTURE(to_string(compute));
          CAPTURE(to_string(format));
          CAPTURE(inputs);
          const auto device = make_backend(target);
          const auto packed = device->pack({&view, 1}, compute);
          numbers in(compute, random.normal(most * inputs)), all(dtype::f32, most * outputs);
          device->linear(all.rows(most), in.rows(most), *packed, bias.data());
          std::vector<double> want, tolerance;
          for (std::size_t r = 0; r < most; ++r)
            for (std::size_t o = 0; o < outputs; ++o) {
              double sum = bias[o], size = std::abs(bias[o]);
              for (std::size_t i = 0; i < inputs; ++i) {
                const double product = in[r * inputs + i] * weights[o * inputs + i];
                sum += product;
                size += std::abs(product);
              }
              want.push_back(sum);
              // Roundings of the sum of a block, of its scaling, of the sum of blocks, of the bias, of `weights`.
              tolerance.push_back((shared + blocks + 4) * unit(dtype::f32) * size);
            }
          check_close(all.values(), want, tolerance, "products");
          for (const std::size_t count : {1, 2, 3, 5, 7, 9, 12, 13, 17, 33}) {
            const auto few = make_backend(target, count % 3 + 1, count % 2 == 0 ? 1 << 17 : 0);
            const auto same = few->pack({&view, 1}, compute);
            auto some = in.slice(0, count * inputs);
            numbers out(dtype::f32, count * outputs);
            few->linear(out.rows(count), some.rows(count), *same, bias.data());
            CHECK_MESSAGE(out == all.slice(0, count * outputs), count, " rows");
          }
        }
    }
}

TEST_CASE("fp8 in blocks takes a byte a weight and four a block, whatever it is said to be quantised to") {
  constexpr std::size_t outputs = 128, inputs = 512;
  generator random;
  for (const auto format : block_formats)
    for (const isa target : tested_isas())
      for (const dtype compute : compute_types) {
        const block_rows rows(format, outputs, inputs, random);
        const auto view = rows.view();
        const stored_matrix planned(nullptr, format, outputs, inputs);
        const auto device = make_backend(target, 1);
        const auto bytes = device->pack({&view, 1}, compute)->bytes;
        CHECK(bytes == outputs * (inputs + inputs / traits_of(format).scale_inputs * sizeof(float)));
        for (const auto how : {quantization::none, quantization::fp8, quantization::bf16})
          CHECK(device->packed_bytes({&planned, 1}, compute, how, false) == bytes);
      }
}

TEST_CASE("fp8 in blocks is quantised to int8 and int4 as its floats are") {
  constexpr std::size_t outputs = 40, inputs = 160;
  generator random;
  for (const auto format : block_formats)
    for (const isa target : tested_isas())
      for (const auto how : {quantization::int8, quantization::int4}) {
        const block_rows rows(format, outputs, inputs, random);
        const numbers wide(dtype::f32, rows.expanded());
        const stored_matrix codes = rows.view(), floats{wide.data(), dtype::f32, outputs, inputs};
        const auto device = make_backend(target, 1);
        numbers in(dtype::f32, random.normal(3 * inputs)), got(dtype::f32, 3 * outputs), want(dtype::f32, 3 * outputs);
        device->linear(got.rows(3), in.rows(3), *device->pack({&codes, 1}, dtype::f32, how));
        device->linear(want.rows(3), in.rows(3), *device->pack({&floats, 1}, dtype::f32, how));
        CHECK(got == want);
      }
}

TEST_CASE("fp8 in blocks skips weights of zeros, with the bits of a crowd that skips nothing") {
  constexpr std::size_t inputs = 989, outputs = 130, crowd = 40, few = 6;
  generator random(8);
  for (const auto format : block_formats) {
    block_rows rows(format, outputs, inputs, random, 1e-4f);
    rows.set_scale(0, inputs - 1, 0); // a block without weights
    const auto view = rows.view();
    for (const isa target : tested_isas())
      for (const dtype compute : compute_types)
        for (const double zeros : {0.9, 0.98, 1.0}) {
          CAPTURE(to_string(target));
          CAPTURE(to_string(compute));
          CAPTURE(to_string(format));
          CAPTURE(zeros);
          const auto device = make_backend(target);
          const auto packed = device->pack({&view, 1}, compute);
          auto values = random.normal(crowd * inputs);
          for (std::size_t i = 0; i < few * inputs; ++i)
            if (random.below(1000) < 1000 * zeros)
              values[i] = i % 3 == 0 ? -0.0f : 0.0f;
          numbers in(compute, values), all(dtype::f32, crowd * outputs);
          device->linear(all.rows(crowd), in.rows(crowd), *packed);
          const auto& sparsity = dynamic_cast<activation_sparsity&>(*device);
          CHECK(sparsity.skipped_bytes() == 0);
          for (std::size_t count = 1; count <= few; ++count) {
            auto some = in.slice(0, count * inputs);
            numbers out(dtype::f32, count * outputs);
            device->linear(out.rows(count), some.rows(count), *packed);
            CHECK_MESSAGE(out == all.slice(0, count * outputs), count, " rows");
          }
          CHECK(sparsity.skipped_bytes() > 0);
        }
  }
}

TEST_CASE("a code of NaN or a scale that is not finite makes NaN of its output alone, even times zeros") {
  constexpr std::size_t outputs = 70, inputs = 400;
  for (const auto format : block_formats) {
    generator random;
    block_rows rows(format, outputs, inputs, random);
    rows.code(3, 399) = 0xff;
    rows.code(66, 0) = 0x7f;
    rows.set_scale(65, 200, INFINITY);
    const auto view = rows.view();
    for (const isa target : tested_isas())
      for (const dtype compute : compute_types)
        for (const float x : {0.0f, 1.0f}) {
          CAPTURE(to_string(target));
          const auto device = make_backend(target, 1);
          const auto packed = device->pack({&view, 1}, compute);
          numbers in(compute, std::vector<float>(inputs, x)), out(dtype::f32, outputs);
          device->linear(out.rows(1), in.rows(1), *packed);
          for (const std::size_t o : {3, 66})
            CHECK(std::isnan(out[o]));
          CHECK(!std::isfinite(out[65]));
          for (const std::size_t o : {0, 2, 4, 64, 67, 69})
            CHECK(std::isfinite(out[o]));
        }
  }
}

TEST_CASE("matrices of fp8 with other blocks share a stack, each with the bits that it has alone, or gate each other") {
  constexpr std::size_t outputs = 40, inputs = 300;
  generator random(5);
  const block_rows wide(weight_format::fp8_128, outputs, inputs, random),
    narrow(weight_format::fp8_32, outputs, inputs, random);
  std::vector<std::uint8_t> whole(outputs * row_bytes(weight_format::fp8, inputs));
  for (std::size_t o = 0; o < outputs; ++o) {
    const float scale = 0.25f * static_cast<float>(o + 1);
    auto* row = &whole[o * row_bytes(weight_format::fp8, inputs)];
    std::memcpy(row, &scale, sizeof scale);
    for (std::size_t i = 0; i < inputs; ++i)
      row[sizeof scale + i] = to_e4m3(static_cast<float>(random.below(16)) - 8);
  }
  const stored_matrix one{whole.data(), weight_format::fp8, outputs, inputs};
  const std::array stacked{wide.view(), one, narrow.view(), wide.view()};
  for (const isa target : tested_isas())
    for (const dtype compute : compute_types) {
      CAPTURE(to_string(target));
      CAPTURE(to_string(compute));
      const auto device = make_backend(target, 1);
      numbers in(compute, random.normal(9 * inputs)), all(dtype::f32, 9 * 4 * outputs), part(dtype::f32, 9 * outputs);
      device->linear(all.rows(9), in.rows(9), *device->pack(stacked, compute));
      for (std::size_t m = 0; m < stacked.size(); ++m) {
        device->linear(part.rows(9), in.rows(9), *device->pack({&stacked[m], 1}, compute));
        for (std::size_t r = 0; r < 9; ++r)
          CHECK(all.slice((4 * r + m) * outputs, outputs) == part.slice(r * outputs, outputs));
      }
      // A scale that is repeated for each block gives what it gives once, but for roundings.
      numbers gated(compute, 9 * outputs), gate(dtype::f32, 9 * outputs), up(dtype::f32, 9 * outputs);
      for (const auto& other : {one, narrow.view(), wide.view()}) {
        device->linear_silu_gate(gated.rows(9), in.rows(9), *device->pack_gate_up(wide.view(), other, compute));
        device->linear(gate.rows(9), in.rows(9), *device->pack({&stacked[0], 1}, compute));
        device->linear(up.rows(9), in.rows(9), *device->pack({&other, 1}, compute));
        std::vector<double> want, tolerance;
        double most_gate = 1, most_up = 1; // about what roundings of a sum are a share of, which may cancel out
        for (std::size_t i = 0; i < 9 * outputs; ++i) {
          most_gate = std::max(most_gate, std::abs(double(gate[i])));
          most_up = std::max(most_up, std::abs(double(up[i])));
        }
        for (std::size_t i = 0; i < 9 * outputs; ++i) {
          const double g = std::abs(double(gate[i])), u = std::abs(double(up[i]));
          want.push_back(gate[i] / (1 + std::exp(-gate[i])) * up[i]);
          tolerance.push_back((compute == dtype::bf16 ? 0x1p-7 : 0) * (g * u + 1) +
                              1e-5 * (g * most_up + most_gate * u + 1));
        }
        check_close(gated.values(), want, tolerance, "gated");
      }
    }
}

TEST_CASE("experts of fp8 with other blocks are summed with the bits of one after another, whichever is first") {
  constexpr std::size_t outputs = 200, inputs = 300, rows = 3;
  generator random(6);
  const block_rows wide(weight_format::fp8_128, outputs, inputs, random),
    narrow(weight_format::fp8_32, outputs, inputs, random);
  const std::vector<std::int32_t> who{0, 1, 2};
  const std::vector<float> factors{0.5f, -1, 2};
  for (const isa target : tested_isas())
    for (const dtype compute : compute_types) {
      CAPTURE(to_string(target));
      CAPTURE(to_string(compute));
      const auto device = make_backend(target, 2);
      const auto pack = [&](const stored_matrix& m) { return device->pack({&m, 1}, compute); };
      const auto one = pack(wide.view()), other = pack(narrow.view());
      numbers in(compute, random.normal(2 * rows * inputs));
      for (const std::array order : {std::array{one.get(), other.get()}, std::array{other.get(), one.get()}}) {
        std::vector<row_group> groups;
        numbers together(dtype::f32, rows * outputs), apart(dtype::f32, std::vector<float>(rows * outputs, 0)),
          given(dtype::f32, rows * outputs);
        for (std::size_t g = 0; g < order.size(); ++g) {
          groups.push_back({order[g], nullptr, who, factors});
          auto part = in.rows(2 * rows);
          part.data = static_cast<char*>(part.data) + g * rows * inputs * size_of(compute);
          part.rows = rows;
          device->linear(given.rows(rows), part, *order[g]);
          device->add_rows(apart.rows(rows), given.rows(rows), 1, who.data(), factors.data());
        }
        device->grouped_sum(together.rows(rows), in.rows(2 * rows), groups);
        CHECK(together.values() == apart.values());
      }
    }
}
