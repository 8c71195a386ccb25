// Groups of weights quantised to int8 and int4.
#include "kernels/formats/quantise_groups.hpp"
#include "tests/kernels/support.hpp"

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

TEST_CASE("int8 keeps every weight to half a step, with a scale in f16") {
  generator random;
  for (const float size : {1e-6f, 1e-3f, 1.0f, 1e4f}) {
    const auto x = random.normal(group_inputs, size);
    float back[group_inputs], largest = 0;
    dequantise(quantise_int8(x.data()), back);
    for (const float v : x)
      largest = std::max(largest, std::abs(v));
    // The f16 scale is off by at most 2^-11, or half its smallest step; at the end of the range that counts 127 times.
    const float step = largest / 127, rounding = std::max(step * 0x1p-11f, 0x1p-25f);
    for (std::size_t i = 0; i < group_inputs; ++i)
      CHECK(std::abs(back[i] - x[i]) <= step / 2 + 127.5f * rounding);
  }
  float bad[group_inputs] = {1, std::nanf("")}, back[group_inputs];
  dequantise(quantise_int8(bad), back);
  CHECK(std::isnan(back[0]));
}

TEST_CASE("int4 has less squared error than codes spread over the range, and is exact for weights on a line") {
  generator random;
  double searched = 0, spread = 0;
  for (int n = 0; n < 200; ++n) {
    const auto x = random.normal(group_inputs, 0.02f);
    float back[group_inputs];
    dequantise(quantise_int4(x.data()), back);
    const auto [low, high] = std::minmax_element(x.begin(), x.end());
    const double step = (*high - *low) / 15.0;
    for (std::size_t i = 0; i < group_inputs; ++i) {
      searched += std::pow(back[i] - x[i], 2);
      spread += std::pow(*low + step * std::nearbyint((x[i] - *low) / step) - x[i], 2);
    }
  }
  CHECK(searched < 0.92 * spread);
  float line[group_inputs], back[group_inputs];
  for (int i = 0; i < 32; ++i)
    line[i] = static_cast<float>(i * 7 % 16) * 0.25f - 2;
  dequantise(quantise_int4(line), back);
  for (int i = 0; i < 32; ++i)
    CHECK(back[i] == line[i]);
  std::fill(std::begin(line), std::end(line), 0.5f);
  dequantise(quantise_int4(line), back);
  CHECK(back[7] == 0.5f);
}

TEST_CASE("int4 gives a group the same bits alone and among others, also if it is not finite") {
  generator random;
  const std::size_t groups = 21;
  auto x = random.normal(groups * group_inputs, 0.02f);
  std::fill_n(&x[3 * group_inputs], group_inputs, 0.5f);
  std::fill_n(&x[9 * group_inputs], group_inputs, 0.0f);
  x[10 * group_inputs + 5] = 1e30f;
  x[11 * group_inputs + 7] = std::nanf("");
  x[12 * group_inputs + 31] = INFINITY;
  std::vector<weight_group> together(groups);
  quantise_int4(x.data(), groups, together.data());
  for (std::size_t g = 0; g < groups; ++g) {
    const auto alone = quantise_int4(&x[g * group_inputs]);
    CHECK(std::equal(std::begin(alone.codes), std::end(alone.codes), together[g].codes));
    CHECK(alone.d == together[g].d);
    CHECK(alone.m == together[g].m);
    CHECK(alone.minima[0] == together[g].minima[0]);
    float back[group_inputs];
    dequantise(together[g], back);
    CHECK(std::isnan(back[0]) == (g == 11 || g == 12));
  }
}
