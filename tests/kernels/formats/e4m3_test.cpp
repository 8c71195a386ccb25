#include "kernels/formats/e4m3.hpp"
#include "kernels/formats/quantise_groups.hpp"
#include "kernels/formats/weight_format.hpp"
#include "tests/kernels/support.hpp"

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

TEST_CASE("E4M3: every code has the value of the format's definition, and that value has this code") {
  for (int code = 0; code < 256; ++code) {
    const int exponent = code >> 3 & 15, mantissa = code & 7;
    const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    const double want = code & 0x80 ? -magnitude : magnitude;
    const float got = from_e4m3(static_cast<std::uint8_t>(code));
    if ((code & 0x7f) == 0x7f) {
      CHECK(std::isnan(got));
      continue;
    }
    CHECK(got == want);
    CHECK(std::signbit(got) == (code >= 128));
    CHECK(to_e4m3(got) == code);
    CHECK(reference::to_e4m3(want) == want);
  }
}

TEST_CASE("E4M3: numbers are rounded to nearest even, and too large ones become the largest") {
  const auto rounded = [](float x) { return from_e4m3(to_e4m3(x)); };
  for (int code = 0; code < 0x7e; ++code) { // the middle between two neighbours, and just beside it
    const float low = from_e4m3(static_cast<std::uint8_t>(code)), high = from_e4m3(static_cast<std::uint8_t>(code + 1));
    const float middle = (low + high) / 2;
    CHECK(rounded(middle) == (code % 2 == 0 ? low : high));
    CHECK(rounded(std::nextafter(middle, 0.0f)) == low);
    CHECK(rounded(std::nextafter(middle, 1e9f)) == high);
    CHECK(rounded(-middle) == -rounded(middle));
  }
  generator random;
  for (const float deviation : {1e-3f, 1.0f, 300.0f})
    for (const float x : random.normal(10'000, deviation))
      CHECK(rounded(x) == reference::to_e4m3(x));
  CHECK(rounded(449) == 448);
  CHECK(rounded(1e30f) == 448);
  CHECK(rounded(-INFINITY) == -448);
  CHECK(rounded(1e-40f) == 0);
  CHECK(std::abs(rounded(NAN)) == 448);
}

TEST_CASE("fp8 rows: weights are within half a step of the output's scale, from any first input") {
  generator random;
  const std::size_t cols = 77;
  const auto weights = random.normal(cols, 0.02f);
  const float scale = fp8_scale(weights.data(), cols);
  std::vector<std::uint8_t> row(row_bytes(weight_format::fp8, cols));
  CHECK(row.size() == cols + 4);
  std::memcpy(row.data(), &scale, 4);
  for (std::size_t i = 0; i < cols; ++i)
    row[4 + i] = to_fp8(weights[i], scale);
  std::vector<float> all(cols), part(20);
  expand(weight_format::fp8, row.data(), 0, cols, all.data());
  expand(weight_format::fp8, row.data(), 31, 20, part.data());
  float largest = 0, largest_back = 0;
  for (std::size_t i = 0; i < cols; ++i) {
    CHECK(std::abs(all[i] - weights[i]) <= std::abs(weights[i]) * 0x1p-4f + scale * 0x1p-10f);
    largest = std::max(largest, std::abs(weights[i]));
    largest_back = std::max(largest_back, std::abs(all[i]));
  }
  CHECK(largest_back == doctest::Approx(largest).epsilon(1e-6));
  for (std::size_t i = 0; i < 20; ++i)
    CHECK(part[i] == all[31 + i]);
  const std::vector<float> zeros(5), wild{1, INFINITY};
  CHECK(fp8_scale(zeros.data(), 5) == 0);
  CHECK(to_fp8(0, 0) == 0);
  CHECK(std::isnan(fp8_scale(wild.data(), 2)));
}
