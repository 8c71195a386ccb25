// Quantised weights that are kept by inputs: products without those that only zeros would multiply have the bits of whole
// ones, which have those of weights that are kept as usual.
#include "kernels/activation_sparsity.hpp"
#include "kernels/cpu/skip_cost.hpp"
#include "tests/kernels/support.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

constexpr std::size_t bi_crowd = 70; // more rows than skip anything

activation_sparsity& skips_of(backend& device) { return dynamic_cast<activation_sparsity&>(device); }

/// Random blocks with moderate scales.
std::vector<std::uint8_t> random_blocks(generator& random, weight_format format, std::size_t rows, std::size_t cols) {
  std::vector<std::uint8_t> bytes(rows * row_bytes(format, cols));
  for (auto& b : bytes)
    b = static_cast<std::uint8_t>(random.below(256));
  for (std::size_t at = 0; at < bytes.size(); at += block_bytes(format))
    for (const std::size_t offset : f16_offsets(format)) {
      const auto scale = static_cast<std::uint16_t>(0x1c00 + random.below(1024));
      std::memcpy(&bytes[at + offset], &scale, 2);
    }
  return bytes;
}

std::vector<float> mostly_zeros(generator& random, std::size_t rows, std::size_t cols, double zeros) {
  auto values = random.normal(rows * cols);
  for (auto& v : values)
    if (random.below(1000) < 1000 * zeros)
      v = random.below(2) == 0 ? 0.0f : -0.0f;
  return values;
}

} // namespace

TEST_CASE("weights that are kept by inputs give the bits of others, whatever is skipped and in any batch") {
  for (const isa target : tested_isas())
    for (const auto format :
         {weight_format::q8_0, weight_format::q4_0, weight_format::q4_1, weight_format::q4_k, weight_format::q6_k})
      for (const auto& [outputs, inputs] : {std::pair<std::size_t, std::size_t>{150, 768}, {1100, 256}}) {
        CAPTURE(std::string(to_string(target)));
        CAPTURE(std::string(to_string(format)));
        CAPTURE(outputs);
        const auto device = make_backend(target, 2);
        generator random;
        const auto blocks = random_blocks(random, format, outputs, inputs);
        stored_matrix usual{blocks.data(), format, outputs, inputs}, often_zero = usual;
        often_zero.zeros = true;
        const auto plain = device->pack({&usual, 1}, dtype::bf16), kept = device->pack({&often_zero, 1}, dtype::bf16);
        { // what has not been measured is assumed to pay
          numbers few(dtype::bf16, mostly_zeros(random, 1, inputs, 0.97)), a(dtype::f32, outputs),
            b(dtype::f32, outputs);
          device->linear(a.rows(1), few.rows(1), *kept);
          device->linear(b.rows(1), few.rows(1), *plain);
          CHECK(a == b);
          CHECK((skips_of(*device).skipped_bytes() > kept->bytes / 2) == (target != isa::avx512_amx));
        }
        CHECK(kept->bytes == device->packed_bytes({&often_zero, 1}, dtype::bf16, quantization::none, false));
        const auto bias = random.normal(outputs);
        for (const double zeros : {0.0, 0.5, 0.9, 0.99, 1.0}) {
          CAPTURE(zeros);
          auto values = mostly_zeros(random, bi_crowd, inputs, zeros);
          values[3] = 1e-38f; // rounds to the code 0, or is all that a group has
          numbers in(dtype::bf16, values);
          const auto run = [&](const matrix& w, std::size_t first, std::size_t rows) {
            numbers out(dtype::f32, std::vector<float>(rows * outputs, 0.25f));
            auto some = in.slice(first * inputs, rows * inputs);
            device->linear(out.rows(rows), some.rows(rows), w, bias.data(), store::add);
            return out;
          };
          const auto all = run(*plain, 0, bi_crowd);
          CHECK(run(*kept, 0, bi_crowd) == all);
          const auto before = skips_of(*device).skipped_bytes();
          for (const std::size_t rows : {1, 2, 3, 5, 8, 13})
            for (int again = 0; again < 2; ++again)
              CHECK_MESSAGE(run(*kept, 0, rows) == all.slice(0, rows * outputs), rows, " rows");
          CHECK(run(*kept, 69, 1) == all.slice(69 * outputs, outputs));
          if (target == isa::avx512_amx) // elsewhere skipping is tried now and then
            CHECK(skips_of(*device).skipped_bytes() == before);
        }
      }
}

TEST_CASE("a row that is not finite skips nothing, and gives what it gives elsewhere; so do scales") {
  const auto format = weight_format::q8_0;
  constexpr std::size_t outputs = 64, inputs = 256;
  for (const isa target : tested_isas())
    for (const bool in_weights : {false, true})
      for (const float odd : {INFINITY, std::nanf("")}) {
        CAPTURE(std::string(to_string(target)));
        const auto device = make_backend(target, 1);
        generator random;
        auto blocks = random_blocks(random, format, outputs, inputs);
        if (in_weights)
          blocks[5 * row_bytes(format, inputs) + block_bytes(format) + 1] = std::isnan(odd) ? 0x7e : 0x7c;
        stored_matrix usual{blocks.data(), format, outputs, inputs}, often_zero = usual;
        often_zero.zeros = true;
        const auto plain = device->pack({&usual, 1}, dtype::f32), kept = device->pack({&often_zero, 1}, dtype::f32);
        std::vector<float> values(inputs);
        values[7] = 1;
        if (!in_weights)
          values[40] = odd;
        numbers in(dtype::f32, values), a(dtype::f32, outputs), b(dtype::f32, outputs);
        device->linear(a.rows(1), in.rows(1), *plain);
        device->linear(b.rows(1), in.rows(1), *kept);
        CHECK(std::isnan(a[5]));
        for (std::size_t i = 0; i < outputs; ++i)
          CHECK((a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i]))));
      }
}

TEST_CASE("the zeros of a batch are counted beside those of its rows") {
  const isa target = tested_isas().front();
  const auto device = make_backend(target, 1);
  generator random;
  constexpr std::size_t outputs = 64, inputs = 2048;
  const auto blocks = random_blocks(random, weight_format::q8_0, outputs, inputs);
  stored_matrix w{blocks.data(), weight_format::q8_0, outputs, inputs};
  w.zeros = true;
  const auto packed = device->pack({&w, 1}, dtype::f32);
  numbers in(dtype::f32, mostly_zeros(random, 4, inputs, 0.9)), out(dtype::f32, 4 * outputs);
  device->linear(out.rows(4), in.rows(4), *packed);
  const auto seen = skips_of(*device).zeros();
  REQUIRE(seen.size() == 1);
  CHECK(seen.at(4).products == 1);
  CHECK(std::abs(seen.at(4).of_row - 0.9) < 0.02);
  CHECK(std::abs(seen.at(4).of_all - std::pow(0.9, 4)) < 0.04);
}

TEST_CASE("whether skipping pays is learnt from what products took, for each size of batch") {
  skip_cost cost;
  CHECK(cost.skips(1, 0.2)); // assumed
  CHECK(!cost.skips(1, 0.7));
  const auto teach = [&](std::size_t rows, double whole, double of_what_is_left) {
    for (int i = 0; i < 60; ++i) {
      cost.measured(rows, 1, false, whole);
      cost.measured(rows, 0.25, true, 0.25 * of_what_is_left);
    }
  };
  teach(1, 1e-10, 1.25e-10);
  teach(8, 1e-10, 5e-10);
  CHECK(cost.limit(1) == doctest::Approx(0.8));
  CHECK(cost.limit(8) == doctest::Approx(0.2));
  CHECK(cost.skips(1, 0.7));
  CHECK(!cost.skips(8, 0.3));
  CHECK(!cost.skips(7, 0.3)); // of the same size
  int whole = 0, skipped = 0;
  for (int i = 0; i < 2000; ++i) {
    whole += !cost.skips(1, 0.7);
    skipped += cost.skips(8, 0.9); // never: far worse
  }
  CHECK(whole >= 7); // the other way is tried now and then
  CHECK(whole <= 8);
  CHECK(skipped == 0);
  cost.measured(1, 1, false, 1); // an interruption
  CHECK(cost.limit(1) < 1.1);
  teach(1, 3e-10, 1.25e-10);
  CHECK(cost.limit(1) > 1.5);
}
