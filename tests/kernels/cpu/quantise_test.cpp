// Activations in int8: the records of all targets have the same bits.
#include "kernels/cpu/dispatch.hpp"
#include "tests/kernels/support.hpp"

#include <bit>
#include <cmath>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

namespace {

constexpr std::uint32_t untouched = 0x55555555;
constexpr std::size_t record_stride = activation_record + 5;

/// With `untouched` between records and behind the last.
std::vector<std::uint32_t> quantised_records(isa target, weight_kind kind, const std::vector<float>& values) {
  const std::size_t groups = values.size() / group_inputs;
  std::vector<std::uint32_t> to((groups + 1) * record_stride, untouched);
  find_target(target).quantise(kind, to.data(), record_stride, values.data(), groups);
  return to;
}

/// A finite group's record by definition (target.hpp).
std::vector<std::uint32_t> defined_record(weight_kind kind, const float* x) {
  const auto layout = layout_of(kind);
  std::vector<std::uint32_t> to(activation_record);
  float scales[2];
  int sums[2] = {};
  for (int half = 0; half < 2; ++half) {
    float largest = 0;
    for (int i = 0; i < 32; ++i)
      if (layout.parts == 1 || i / 16 == half)
        largest = std::max(largest, std::abs(x[i]));
    if (largest < 1e-30f)
      largest = 0;
    scales[half] = largest / 127;
    for (int i = half * 16; i < half * 16 + 16; ++i) {
      const int code = largest > 0 ? static_cast<int>(std::nearbyint(x[i] * (127 / largest))) : 0;
      sums[half] += code;
      to[static_cast<std::size_t>(i) / 4] |= static_cast<std::uint32_t>(code & 0xff) << i % 4 * 8;
    }
  }
  const auto bits = [](float value) { return std::bit_cast<std::uint32_t>(value); };
  const auto start = [&](int sum) { return 0x4b400000 - static_cast<std::uint32_t>(layout.zero * sum); };
  const int both = sums[0] + sums[1];
  to[8] = bits(scales[0]);
  if (layout.parts == 1) {
    to[9] = to[10] = start(both);
    to[11] = bits(scales[0] * static_cast<float>(both));
    return to;
  }
  for (std::size_t half = 0; half < 2; ++half)
    to[9 + half] = layout.minimum ? bits(scales[half] * static_cast<float>(sums[half])) : start(sums[half]);
  to[11] = bits(scales[1]);
  return to;
}

/// With one scale, one and a minimum, two, two and minima.
constexpr weight_kind scaled_kinds[] = {weight_kind::q4, weight_kind::q4_k, weight_kind::q6_k, weight_kind::q2_k};

} // namespace

TEST_CASE("activations become the codes, scales and sums of their definition, any number of groups") {
  generator random;
  for (std::size_t groups = 0; groups < 20; ++groups) {
    auto values = random.normal(groups * group_inputs, 3);
    for (std::size_t i = 0; groups > 3 && i < group_inputs; ++i) { // ties, zeros in both halves or one, tiny numbers
      values[i] = i % 16 == 15 ? 127 : (static_cast<float>(i) - 8) * 7 + 0.5f;
      values[group_inputs + i] = i % 2 == 0 ? 0.0f : -0.0f;
      values[2 * group_inputs + i] = i < 16 ? 0.0f : -127.5f + static_cast<float>(i);
      values[3 * group_inputs + i] *= i < 16 ? 1e-38f : 1e30f;
    }
    for (const auto kind : scaled_kinds) {
      std::vector<std::uint32_t> expected((groups + 1) * record_stride, untouched);
      for (std::size_t group = 0; group < groups; ++group) {
        const auto one = defined_record(kind, &values[group * group_inputs]);
        std::copy(one.begin(), one.end(), expected.begin() + static_cast<std::ptrdiff_t>(group * record_stride));
      }
      for (const isa target : tested_isas())
        CHECK_MESSAGE(quantised_records(target, kind, values) == expected, to_string(target), ", ", groups, " groups");
    }
  }
}

TEST_CASE("activations that are not finite have the same codes and scales with all targets") {
  generator random;
  auto values = random.normal(40 * group_inputs);
  const float odd[] = {std::nanf(""), INFINITY, -INFINITY, 3.4e38f, -3.4e38f};
  for (std::size_t i = 0; i < 40; ++i)
    values[group_inputs * i + 11 * i % group_inputs] = odd[i % std::size(odd)];
  for (const auto kind : scaled_kinds) {
    const auto expected = quantised_records(isa::portable, kind, values);
    for (const isa target : available_isas())
      CHECK_MESSAGE(quantised_records(target, kind, values) == expected, to_string(target));
  }
}
