#include "kernels/formats/quantise_groups.hpp"

#include "kernels/formats/e4m3.hpp"
#include "kernels/formats/f16.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe::kernels {

namespace {

/// To the nearest integer, ties to even; for small numbers.
float round_even(float x) { return x + 0x1.8p23f - 0x1.8p23f; }

// Several groups are quantised at a time, one per lane. Sums keep their order within a lane, so a group gets the same
// bits as alone.

constexpr std::size_t group_lanes = 8;
typedef float lane_floats __attribute__((vector_size(4 * group_lanes)));

/// The groups of a batch and the state of their search: weight i of lane l is weights[i][l].
struct int4_batch {
  lane_floats weights[group_inputs];
  lane_floats codes[group_inputs]; // of the current fit
  lane_floats scale, minimum;      // the next fit to try: weight = scale * code + minimum
};

/// Rounds the fits to f16, as they are stored, and chooses the nearest codes. `error`: their squared error.
[[gnu::always_inline]] inline void choose_codes(int4_batch& batch, std::uint16_t (&d)[group_lanes],
                                                std::uint16_t (&m)[group_lanes], lane_floats& error) {
  lane_floats scale, minimum, inverse;
  for (std::size_t l = 0; l < group_lanes; ++l) {
    scale[l] = from_f16(d[l] = to_f16(batch.scale[l]));
    minimum[l] = from_f16(m[l] = to_f16(batch.minimum[l]));
    inverse[l] = scale[l] != 0 ? 1 / scale[l] : 0;
  }
  const lane_floats none = {}, most = none + 15, magic = none + 0x1.8p23f;
  error = none;
  for (std::size_t i = 0; i < group_inputs; ++i) {
    lane_floats code = (batch.weights[i] - minimum) * inverse;
    code = code > most ? most : code;
    code = (code < none ? none : code) + magic - magic; // to nearest, ties to even
    const lane_floats difference = code * scale + minimum - batch.weights[i];
    error += difference * difference;
    batch.codes[i] = code;
  }
}

/// Fits scale and minimum to the codes by least squares. Lanes with all codes equal keep their fit.
[[gnu::always_inline]] inline void fit_lines(int4_batch& batch) {
  lane_floats codes_sum = {}, squares = {}, sum = {}, products = {};
  for (std::size_t i = 0; i < group_inputs; ++i) {
    codes_sum += batch.codes[i];
    squares += batch.codes[i] * batch.codes[i];
    sum += batch.weights[i];
    products += batch.codes[i] * batch.weights[i];
  }
  constexpr auto n = static_cast<float>(group_inputs);
  const lane_floats determinant = n * squares - codes_sum * codes_sum;
  const lane_floats scale = (n * products - codes_sum * sum) / determinant;
  const lane_floats minimum = (squares * sum - codes_sum * products) / determinant;
  const auto found = !(determinant <= lane_floats{});
  batch.scale = found ? scale : batch.scale;
  batch.minimum = found ? minimum : batch.minimum;
}

/// At most group_lanes groups.
[[gnu::always_inline]] inline void quantise_batch(const float* weights, std::size_t groups, weight_group* to) {
  int4_batch batch = {};
  float low[group_lanes], high[group_lanes];
  lane_floats least;
  for (std::size_t l = 0; l < group_lanes; ++l) {
    const float* group = weights + (l < groups ? l : 0) * group_inputs;
    for (std::size_t i = 0; i < group_inputs; ++i)
      batch.weights[i][l] = group[i];
    const auto [lowest, highest] = std::minmax_element(group, group + group_inputs);
    low[l] = *lowest;
    high[l] = *highest;
    least[l] = std::numeric_limits<float>::infinity();
  }
  for (std::size_t l = 0; l < groups; ++l)
    to[l] = {};
  for (const float steps : {15.0f, 14.5f, 14.0f, 15.5f, 16.0f, 13.0f}) { // between the lowest and the highest weight
    for (std::size_t l = 0; l < group_lanes; ++l) {
      batch.scale[l] = (high[l] - low[l]) / steps;
      batch.minimum[l] = low[l] + (high[l] - low[l] - 15 * batch.scale[l]) / 2;
    }
    for (int round = 0; round < 3; ++round) {
      std::uint16_t d[group_lanes], m[group_lanes];
      lane_floats error;
      choose_codes(batch, d, m, error);
      for (std::size_t l = 0; l < groups; ++l)
        if (error[l] < least[l]) {
          least[l] = error[l];
          to[l].minima[0] = to[l].minima[1] = 1;
          to[l].d = d[l];
          to[l].m = m[l];
          for (std::size_t i = 0; i < group_inputs; ++i)
            to[l].codes[i] = static_cast<std::uint8_t>(batch.codes[i][l]);
        }
      fit_lines(batch);
    }
  }
  for (std::size_t l = 0; l < groups; ++l) {
    const float* group = weights + l * group_inputs;
    if (!std::all_of(group, group + group_inputs, [](float x) { return std::isfinite(x); })) {
      to[l] = {};
      to[l].d = 0x7e00; // it stays NaN
    }
  }
}

void quantise_batch_anywhere(const float* weights, std::size_t groups, weight_group* to) {
  quantise_batch(weights, groups, to);
}

#if defined(__x86_64__)
[[gnu::target("avx2")]] void quantise_batch_avx2(const float* weights, std::size_t groups, weight_group* to) {
  quantise_batch(weights, groups, to);
}
#endif

} // namespace

weight_group quantise_int8(const float* weights) {
  float largest = 0;
  bool finite = true;
  for (std::size_t i = 0; i < group_inputs; ++i) {
    largest = std::max(largest, std::abs(weights[i]));
    finite = finite && std::isfinite(weights[i]);
  }
  weight_group to;
  to.zero = 128;
  to.d = finite ? to_f16(largest / 127) : 0x7e00; // a group that is not finite stays NaN
  const float scale = from_f16(to.d);
  for (std::size_t i = 0; i < group_inputs; ++i) {
    const float code = scale > 0 ? std::clamp(weights[i] / scale, -127.0f, 127.0f) : 0;
    to.codes[i] = static_cast<std::uint8_t>(128 + static_cast<int>(round_even(code)));
  }
  return to;
}

void quantise_int4(const float* weights, std::size_t groups, weight_group* to) {
  auto batch = quantise_batch_anywhere;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2"))
    batch = quantise_batch_avx2;
#endif
  for (std::size_t first = 0; first < groups; first += group_lanes)
    batch(weights + first * group_inputs, std::min(group_lanes, groups - first), to + first);
}

weight_group quantise_int4(const float* weights) {
  weight_group group;
  quantise_int4(weights, 1, &group);
  return group;
}

float fp8_scale(const float* weights, std::size_t count) {
  float largest = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isfinite(weights[i]))
      return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::abs(weights[i]));
  }
  return largest / largest_e4m3;
}

std::uint8_t to_fp8(float weight, float scale) { return scale > 0 ? to_e4m3(weight / scale) : 0; }

} // namespace troupe::kernels
