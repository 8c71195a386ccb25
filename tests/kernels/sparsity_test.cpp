// Activations that are zero: products skip weights without changing a bit, and small ones can be made zero.
#include "kernels/activation_sparsity.hpp"
#include "kernels/cpu/dispatch.hpp"
#include "kernels/formats/bf16.hpp"
#include "kernels/gaussian_gates.hpp"
#include "tests/kernels/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

constexpr std::size_t crowd = 40; // more rows than any tile has, which skip nothing

activation_sparsity& sparsity_of(backend& device) { return dynamic_cast<activation_sparsity&>(device); }

/// Whether products in `compute` add two inputs at a time.
bool in_pairs(isa target, dtype compute, dtype stored = dtype::bf16) {
  return compute == dtype::bf16 && stored != dtype::f16 && find_target(target).pairs;
}

/// Rows of normally distributed inputs; in the first `sparse` rows some are zeros, of both signs.
std::vector<float> rows_with_zeros(generator& random, std::size_t inputs, std::size_t sparse, double zeros) {
  auto values = random.normal(crowd * inputs);
  for (std::size_t i = 0; i < sparse * inputs; ++i)
    if (random.below(1000) < 1000 * zeros)
      values[i] = i % 3 == 0 ? -0.0f : 0.0f;
  return values;
}

/// Checks that the first rows have the same bits alone, together in small numbers, and in a crowd. Returns the bytes
/// that were skipped.
std::size_t check_rows(backend& device, const matrix& packed, numbers& in, const float* bias, std::size_t most) {
  const std::size_t outputs = packed.outputs;
  const auto run = [&](std::size_t first, std::size_t rows) {
    numbers out(dtype::f32, std::vector<float>(rows * outputs, 0.25f));
    tensor some = in.rows(crowd);
    some.data = static_cast<char*>(some.data) + first * some.stride * size_of(some.type);
    some.rows = rows;
    device.linear(out.rows(rows), some, packed, bias, bias != nullptr ? store::add : store::set);
    return out;
  };
  const auto& sparsity = sparsity_of(device);
  const auto before = sparsity.skipped_bytes();
  const auto all = run(0, crowd);
  CHECK(sparsity.skipped_bytes() == before);
  for (std::size_t rows = 1; rows <= most; ++rows)
    CHECK_MESSAGE(run(0, rows) == all.slice(0, rows * outputs), rows, " rows");
  for (std::size_t r = 0; r < most; ++r)
    CHECK_MESSAGE(run(r, 1) == all.slice(r * outputs, outputs), "row ", r);
  return sparsity.skipped_bytes() - before;
}

} // namespace

TEST_CASE("rows of zeros skip weights, and have the bits that they have in a crowd that skips nothing") {
  constexpr std::size_t inputs = 989, outputs = 130;
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target, 2);
    for (const auto& stored : storages)
      for (const dtype compute : compute_types)
        for (const double zeros : {0.5, 0.9, 0.97, 1.0}) {
          CAPTURE(std::string(to_string(target)));
          CAPTURE(stored.name());
          CAPTURE(std::string(to_string(compute)));
          CAPTURE(zeros);
          generator random;
          const numbers values(stored.type, random.normal(outputs * inputs, 0.03f));
          const stored_matrix view{values.data(), stored.type, outputs, inputs};
          const auto packed = device->pack({&view, 1}, compute, stored.how);
          const auto bias = random.normal(outputs);
          numbers in(compute, rows_with_zeros(random, inputs, 6, zeros));
          const auto skipped = check_rows(*device, *packed, in, zeros == 0.9 ? bias.data() : nullptr, 8);
          CHECK((skipped > 0) == (zeros > 0.5)); // with half of the inputs, whole matrices are read as fast
        }
  }
}

TEST_CASE("gated products skip weights, too") {
  constexpr std::size_t inputs = 300, ffn = 70;
  for (const isa target : tested_isas())
    for (const dtype compute : compute_types) {
      CAPTURE(std::string(to_string(target)));
      const auto device = make_backend(target, 2);
      generator random;
      const numbers gate(dtype::bf16, random.normal(ffn * inputs)), up(dtype::bf16, random.normal(ffn * inputs));
      const auto packed = device->pack_gate_up({gate.data(), dtype::bf16, ffn, inputs},
                                               {up.data(), dtype::bf16, ffn, inputs}, compute);
      numbers in(compute, rows_with_zeros(random, inputs, 1, 0.95));
      numbers all(compute, crowd * ffn), one(compute, ffn);
      device->linear_silu_gate(all.rows(crowd), in.rows(crowd), *packed);
      CHECK(sparsity_of(*device).skipped_bytes() == 0);
      auto row = in.slice(0, inputs);
      device->linear_silu_gate(one.rows(1), row.rows(1), *packed);
      CHECK(sparsity_of(*device).skipped_bytes() > packed->bytes / 2);
      CHECK(one == all.slice(0, ffn));
    }
}

TEST_CASE("products that underflow have the same bits with and without the zeros between them") {
  // Sums that are subnormal, or 0 of either sign, wherever the few numbers that are not zero stand.
  constexpr std::size_t inputs = 100, outputs = 64;
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target, 1);
    for (const storage& stored : {storage(dtype::f32), storage(dtype::bf16), storage(dtype::f32, quantization::fp8)})
      for (const dtype compute : compute_types)
        for (const float size : {1e-19f, 3e-20f, 1e-22f, 1e-30f}) {
          CAPTURE(std::string(to_string(target)));
          CAPTURE(size);
          generator random;
          const numbers values(stored.type, random.normal(outputs * inputs, size));
          const stored_matrix view{values.data(), stored.type, outputs, inputs};
          const auto packed = device->pack({&view, 1}, compute, stored.how);
          auto x = rows_with_zeros(random, inputs, 12, 0.97);
          for (float& v : x)
            v *= 1e-19f;
          numbers in(compute, x);
          CHECK(check_rows(*device, *packed, in, nullptr, 12) > 0);
        }
  }
}

TEST_CASE("where a weight is not finite nothing is skipped: times 0 it is NaN") {
  constexpr std::size_t inputs = 200, outputs = 70;
  for (const isa target : tested_isas())
    for (const dtype stored : {dtype::f32, dtype::f16, dtype::bf16})
      for (const dtype compute : compute_types)
        for (const float odd : {INFINITY, -INFINITY, std::nanf("")}) {
          const auto device = make_backend(target, 1);
          std::vector<float> values(outputs * inputs, 0.5f), x(inputs);
          values[65 * inputs + 100] = odd;
          x[7] = 1;
          const numbers weights(stored, values);
          const stored_matrix view{weights.data(), stored, outputs, inputs};
          const auto packed = device->pack({&view, 1}, compute);
          numbers in(compute, x), out(dtype::f32, outputs);
          device->linear(out.rows(1), in.rows(1), *packed);
          CHECK(std::isnan(out[65]));
          CHECK(out[64] == 0.5);
          CHECK(sparsity_of(*device).skipped_bytes() == 0);
        }
}

TEST_CASE("weights that only zeros would multiply are not read") {
  constexpr std::size_t inputs = 320, outputs = 70;
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    for (const dtype compute : compute_types) {
      CAPTURE(std::string(to_string(target)));
      const numbers stored(dtype::f32, std::vector<float>(outputs * inputs, 0.5f));
      const stored_matrix view{stored.data(), stored.type, outputs, inputs};
      const auto packed = device->pack({&view, 1}, compute);
      std::vector<float> x(inputs);
      for (std::size_t i = 0; i < inputs; ++i)
        x[i] = i % 10 < 2; // whole words of either size
      numbers in(compute, x), out(dtype::f32, outputs);
      const auto before = sparsity_of(*device).skipped_bytes();
      device->linear(out.rows(1), in.rows(1), *packed); // which finds that all weights are finite
      CHECK(sparsity_of(*device).skipped_bytes() - before == packed->bytes / 10 * 8);

      // NaN where nothing is to be read: [panels][words][64 outputs].
      const auto bytes = device->storable()->bytes_of(*packed).front();
      auto* memory = const_cast<std::byte*>(bytes.data());
      const std::size_t in_word = in_pairs(target, compute) ? 2 : 1, words = inputs / in_word, panels = 2,
                        word = bytes.size() / panels / words;
      for (std::size_t i = 0; i < panels * words; ++i)
        if (i % words * in_word % 10 >= 2)
          std::memset(memory + i * word, 0xff, word);
      device->linear(out.rows(1), in.rows(1), *packed);
      for (const double found : out.values())
        CHECK(found == 0.5 * inputs / 5);
    }
  }
}

namespace {

/// What drop_smallest should make of a row, by sorting.
std::vector<float> without_smallest(const numbers& row, float share, std::size_t in_word) {
  const std::size_t words = (row.size() + in_word - 1) / in_word;
  std::vector<std::uint32_t> magnitudes(words); // of each word, as bf16
  std::vector<float> values(row.size());
  for (std::size_t i = 0; i < row.size(); ++i) {
    values[i] = static_cast<float>(row[i]);
    std::uint32_t bits;
    std::memcpy(&bits, &values[i], 4);
    auto& magnitude = magnitudes[i / in_word];
    magnitude = std::max(magnitude, (bits & 0x7fffffff) >> 16);
  }
  auto sorted = magnitudes;
  std::ranges::sort(sorted);
  const auto least = sorted[static_cast<std::size_t>(share * double(words))];
  for (std::size_t i = 0; i < row.size(); ++i)
    if (magnitudes[i / in_word] < least)
      values[i] = 0;
  return values;
}

} // namespace

TEST_CASE("the smallest activations of a row become zero, by words that a product can skip") {
  constexpr std::size_t rows = 9, outputs = 3;
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target, 3);
    for (const dtype compute : compute_types)
      for (const std::size_t inputs : {std::size_t(1), std::size_t(7), std::size_t(64), std::size_t(601)}) {
        const numbers stored(dtype::f32, std::vector<float>(outputs * inputs, 1.0f));
        const stored_matrix view{stored.data(), stored.type, outputs, inputs};
        const auto packed = device->pack({&view, 1}, compute);
        for (const float share : {0.0f, 0.3f, 0.5f, 0.9f, 0.99f}) {
          CAPTURE(std::string(to_string(target)));
          CAPTURE(inputs);
          CAPTURE(share);
          generator random;
          auto values = random.normal(rows * inputs);
          for (std::size_t i = 0; i < inputs; ++i) {
            values[i] = float(random.below(5)) - 2;                         // many equal ones
            values[inputs + i] = 0;                                         // nothing to drop
            values[2 * inputs + i] *= random.below(3) == 0 ? 0.0f : 1e-38f; // subnormal
          }
          values[3 * inputs] = std::nanf(""); // larger than all
          values[4 * inputs - 1] = -INFINITY;
          const numbers before(compute, values);
          auto after = before;
          sparsity_of(*device).drop_smallest(after.rows(rows), share, *packed);
          for (std::size_t r = 0; r < rows; ++r) {
            const auto row = before.slice(r * inputs, inputs);
            const numbers want(compute, without_smallest(row, share, in_pairs(target, compute) ? 2 : 1));
            CHECK_MESSAGE(after.slice(r * inputs, inputs) == want, "row ", r);
            auto alone = row;
            sparsity_of(*device).drop_smallest(alone.rows(1), share, *packed);
            CHECK(alone == want);
          }
        }
      }
  }
}

TEST_CASE("activations are not dropped in front of weights that skip nothing, nor by other shares") {
  const auto device = make_backend(available_isas().back());
  const numbers stored(dtype::f32, std::vector<float>(64 * 64, 1.0f));
  const stored_matrix view{stored.data(), stored.type, 64, 64};
  const auto grouped = device->pack({&view, 1}, dtype::f32, quantization::int8);
  const auto floats = device->pack({&view, 1}, dtype::f32);
  numbers x(dtype::f32, std::vector<float>(64, 1.0f));
  auto& sparsity = sparsity_of(*device);
  CHECK(sparsity.skips_zeros(*floats));
  CHECK(!sparsity.skips_zeros(*grouped));
  CHECK_THROWS_AS(sparsity.drop_smallest(x.rows(1), 0.5f, *grouped), std::invalid_argument);
  for (const float share : {-0.1f, 1.0f, std::nanf("")})
    CHECK_THROWS_AS(sparsity.drop_smallest(x.rows(1), share, *floats), std::invalid_argument);
}

TEST_CASE("gates above a row's mean by so many deviations count, whatever rows are beside them") {
  const auto device = make_cpu_backend({.threads = 2});
  auto& gates = dynamic_cast<gaussian_gates&>(*device);
  generator random(5);
  for (const std::size_t cols : {1u, 7u, 8u, 111u, 989u})
    for (const float deviations : {-0.5f, 0.0f, 1.6448536f}) {
      constexpr std::size_t rows = 5;
      auto both = random.normal(rows * 2 * cols);
      std::vector<float> out(rows * cols), squares(rows);
      const tensor gate{both.data(), dtype::f32, rows, cols, 2 * cols},
        up{both.data() + cols, dtype::f32, rows, cols, 2 * cols}, to{out.data(), dtype::f32, rows, cols, cols};
      gates.mean_squares(squares.data(), gate);
      gates.gate_gaussian(to, gate, up, deviations);
      std::size_t counted = 0;
      for (std::size_t r = 0; r < rows; ++r) {
        const float* g = &both[r * 2 * cols];
        double mean = 0, square = 0, variance = 0;
        for (std::size_t i = 0; i < cols; ++i) {
          mean += g[i] / double(cols);
          square += double(g[i]) * g[i] / double(cols);
        }
        for (std::size_t i = 0; i < cols; ++i)
          variance += (g[i] - mean) * (g[i] - mean) / double(cols);
        CHECK(std::abs(squares[r] - square) < 1e-5 * (1 + square));
        for (std::size_t i = 0; i < cols; ++i) {
          const double x = std::max(g[i] - mean - deviations * std::sqrt(variance), 0.0),
                       gelu = x / 2 * (1 + std::tanh(0.7978845608 * (x + 0.044715 * x * x * x)));
          counted += x > 0;
          CHECK(std::abs(out[r * cols + i] - gelu * g[cols + i]) < 1e-5);
        }
        // Alone, and in bf16.
        std::vector<float> alone(cols), copy(g, g + 2 * cols);
        gates.gate_gaussian({alone.data(), dtype::f32, 1, cols, cols}, {copy.data(), dtype::f32, 1, cols, cols},
                            {copy.data() + cols, dtype::f32, 1, cols, cols}, deviations);
        CHECK(std::memcmp(alone.data(), &out[r * cols], cols * sizeof(float)) == 0);
        std::vector<std::uint16_t> narrow(cols);
        gates.gate_gaussian({narrow.data(), dtype::bf16, 1, cols, cols}, {copy.data(), dtype::f32, 1, cols, cols},
                            {copy.data() + cols, dtype::f32, 1, cols, cols}, deviations);
        for (std::size_t i = 0; i < cols; ++i)
          CHECK(narrow[i] == to_bf16(alone[i]));
      }
      if (cols == 989)
        CHECK(std::abs(double(counted) / double(rows * cols) - std::erfc(deviations / std::sqrt(2.0)) / 2) < 0.03);
    }
}
