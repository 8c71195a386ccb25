#include "runtime/checkpoint/quantised/fit_blocks.hpp"

#include "kernels/formats/f16.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace troupe {

namespace {

using kernels::from_f16;
using kernels::group_inputs;
using kernels::to_f16;
using kernels::weight_format;
using kernels::weight_group;

constexpr std::size_t most_inputs = 256, most_scales = 16; // of a block; a part has scales of its own

/// To nearest, for values of moderate size, in a form that compilers vectorise.
inline float rounded(float x) { return (x + 12582912.0f) - 12582912.0f; }

/// Evenly spaced levels: the weights are a scale times an integer.
struct even_levels {
  float low = 0, high = 0; // the extreme levels

  float nearest(float x) const { return std::min(high, std::max(low, rounded(x))); }
};

/// The levels of iq4_nl and iq4_xs.
struct table_levels {
  float low = -127, high = 113;

  float nearest(float x) const {
    float level = low;
    for (int i = 0; i < 15; ++i) {
      const float a = float(kernels::iq4_table[i]) - 128, b = float(kernels::iq4_table[i + 1]) - 128;
      level += x > (a + b) / 2 ? b - a : 0.0f;
    }
    return level;
  }
};

/// Sums over `n` inputs with their levels q, each times its importance.
struct level_sums {
  float ones = 0, x = 0, q = 0, qq = 0, qx = 0;
};

template <class Levels>
level_sums sums_of(const Levels& levels, const float* x, const float* w, std::size_t n, float inverse, float offset) {
  level_sums s;
  float q[group_inputs];
  for (std::size_t i = 0; i < n; ++i)
    q[i] = levels.nearest((x[i] - offset) * inverse);
  for (std::size_t i = 0; i < n; ++i) {
    const float wq = w[i] * q[i];
    s.ones += w[i];
    s.x += w[i] * x[i];
    s.q += wq;
    s.qq += wq * q[i];
    s.qx += wq * x[i];
  }
  return s;
}

/// The error of weights scale * q + offset with the nearest levels.
template <class Levels>
float error_of(const Levels& levels, const float* x, const float* w, std::size_t n, float scale, float offset) {
  const float inverse = scale != 0 ? 1 / scale : 0;
  float errors[group_inputs];
  for (std::size_t i = 0; i < n; ++i) {
    const float e = scale * levels.nearest((x[i] - offset) * inverse) + offset - x[i];
    errors[i] = w[i] * e * e;
  }
  float sum = 0;
  for (std::size_t i = 0; i < n; ++i)
    sum += errors[i];
  return sum;
}

/// The scale with the least error. Candidates put the weight of the largest magnitude on or about the lowest or the
/// highest level; each is replaced by the best scale for the levels that it gives.
template <class Levels>
float fit_scale(const Levels& levels, const float* x, const float* w, std::size_t n) {
  const float extreme = *std::max_element(x, x + n, [](float a, float b) { return std::abs(a) < std::abs(b); });
  if (!(std::abs(extreme) > 1e-30f))
    return 0;
  // With few levels it pays to clip the largest weights, or to leave levels unused; many are best used up.
  const float width = levels.high - levels.low > 40 ? 0.06f : 0.25f;
  float best = 0, most = 0; // what the best scale takes off the error
  for (const float end : {levels.low, levels.high})
    for (int step = -6; step <= 6; ++step) {
      const auto s = sums_of(levels, x, w, n, end * (1 + width * float(step) / 6) / extreme, 0);
      if (s.qq > 0 && s.qx * s.qx > most * s.qq) {
        most = s.qx * s.qx / s.qq;
        best = s.qx / s.qq;
      }
    }
  for (int round = 0; round < 2 && best != 0; ++round)
    if (const auto s = sums_of(levels, x, w, n, 1 / best, 0); s.qq > 0 && s.qx * s.qx > most * s.qq) {
      most = s.qx * s.qx / s.qq;
      best = s.qx / s.qq;
    }
  return best;
}

struct scale_and_offset {
  float scale = 0, offset = 0;
};

/// Fits with an offset, at most 0 if `below`.
scale_and_offset fit_offset(const even_levels& levels, const float* x, const float* w, std::size_t n, bool below) {
  float low = *std::min_element(x, x + n);
  const float high = *std::max_element(x, x + n);
  if (below)
    low = std::min(low, 0.0f);
  if (!(high - low > 1e-30f))
    return {0, low};
  scale_and_offset best{(high - low) / levels.high, low};
  float least = error_of(levels, x, w, n, best.scale, best.offset);
  const auto refine = [&](float inverse, float offset) {
    const auto s = sums_of(levels, x, w, n, inverse, offset);
    const float determinant = s.ones * s.qq - s.q * s.q;
    if (!(determinant > 0))
      return;
    scale_and_offset fit{(s.ones * s.qx - s.x * s.q) / determinant, (s.qq * s.x - s.q * s.qx) / determinant};
    if (below && fit.offset > 0)
      fit = {s.qx / s.qq, 0};
    if (const float error = error_of(levels, x, w, n, fit.scale, fit.offset); error < least) {
      least = error;
      best = fit;
    }
  };
  // Ranges around that of the weights: wider ones clip nothing and waste levels, narrower ones clip.
  const float steps = levels.high < 4 ? 0.5f : levels.high < 16 ? 1.0f : 1.5f;
  for (int step = -9; step <= 9; ++step)
    refine((levels.high + steps * float(step) / 9) / (high - low), low);
  for (int round = 0; round < 2; ++round)
    refine(1 / best.scale, best.offset);
  return best;
}

bool all_finite(const float* x, std::size_t n) {
  return std::all_of(x, x + n, [](float v) { return std::isfinite(v); });
}

/// A format's blocks: how parts of a block share factors.
struct block_shape {
  std::size_t part = group_inputs; // inputs of a scale
  int most_scale = 1;              // scales are integers of at most this; 1: there are no scales below the block's
  int least_scale = 0;
  int most_minimum = 0; // 0: symmetric
};

void set_codes(weight_group* groups, std::size_t input, std::size_t n, const float* levels) {
  for (std::size_t i = 0; i < n; ++i) {
    auto& group = groups[(input + i) / group_inputs];
    group.codes[(input + i) % group_inputs] = static_cast<std::uint8_t>(levels[i] + float(group.zero));
  }
}

/// Levels of one part, as codes.
template <class Levels>
void choose_codes(const Levels& levels, const float* x, std::size_t first, std::size_t n, float scale, float offset,
                  weight_group* groups) {
  const float inverse = scale != 0 ? 1 / scale : 0;
  float q[group_inputs];
  for (std::size_t i = 0; i < n; ++i)
    q[i] = scale != 0 ? levels.nearest((x[i] - offset) * inverse) : levels.nearest(0);
  set_codes(groups, first, n, q);
}

/// One factor over integer scales: d * l_j close to the parts' own scales s_j, by weight. The scale that matters most
/// becomes about `end`.
float fit_factor(const float* s, const float* weight, std::size_t parts, float low, float high) {
  return fit_scale(even_levels{low, high}, s, weight, parts);
}

/// Blocks without minima: each part is d * l_j * level. Integer scales from least to most.
template <class Levels>
void fit_symmetric(const Levels& levels, const block_shape& shape, const float* x, const float* w,
                   weight_group* groups) {
  const std::size_t parts = most_inputs / shape.part;
  float s[most_scales] = {}, weight[most_scales] = {}, l[most_scales] = {};
  for (std::size_t j = 0; j < parts; ++j) {
    const float *xj = x + j * shape.part, *wj = w + j * shape.part;
    s[j] = fit_scale(levels, xj, wj, shape.part);
    weight[j] = s[j] != 0 ? sums_of(levels, xj, wj, shape.part, 1 / s[j], 0).qq : 0;
    weight[j] = std::max(weight[j], 1e-30f);
  }
  const auto low = static_cast<float>(shape.least_scale), high = static_cast<float>(shape.most_scale);
  float d = fit_factor(s, weight, parts, low, high);
  std::uint16_t best_d = 0;
  float best_l[most_scales] = {};
  float least = std::numeric_limits<float>::infinity();
  for (int round = 0; round < 3; ++round) {
    const auto half = to_f16(d);
    d = from_f16(half);
    float total = 0;
    double qq = 0, qx = 0;
    for (std::size_t j = 0; j < parts; ++j) {
      const float *xj = x + j * shape.part, *wj = w + j * shape.part;
      const float centre = round == 0 ? (d != 0 ? std::clamp(rounded(s[j] / d), low, high) : 0) : l[j];
      float part_least = std::numeric_limits<float>::infinity();
      for (float candidate = std::max(low, centre - 1); candidate <= std::min(high, centre + 1); ++candidate)
        if (const float e = error_of(levels, xj, wj, shape.part, d * candidate, 0); e < part_least) {
          part_least = e;
          l[j] = candidate;
        }
      total += part_least;
      if (const float scale = d * l[j]; scale != 0) {
        const auto sums = sums_of(levels, xj, wj, shape.part, 1 / scale, 0);
        qq += double(l[j]) * l[j] * sums.qq;
        qx += double(l[j]) * sums.qx;
      }
    }
    if (total < least) {
      least = total;
      best_d = half;
      std::copy_n(l, parts, best_l);
    }
    if (qq > 0)
      d = static_cast<float>(qx / qq);
  }
  for (std::size_t g = 0; g < most_inputs / group_inputs; ++g)
    groups[g].d = best_d;
  for (std::size_t j = 0; j < parts; ++j) {
    const auto scale = static_cast<std::int8_t>(best_l[j]);
    auto& group = groups[j * shape.part / group_inputs];
    if (shape.part == group_inputs)
      group.scales[0] = group.scales[1] = scale;
    else
      group.scales[j % 2] = scale;
    choose_codes(levels, x + j * shape.part, j * shape.part, shape.part, from_f16(best_d) * best_l[j], 0, groups);
  }
}

/// Blocks with minima: each part is d * l_j * level - m * k_j.
void fit_with_minima(const even_levels& levels, const block_shape& shape, const float* x, const float* w,
                     weight_group* groups) {
  const std::size_t parts = most_inputs / shape.part;
  float s[most_scales] = {}, o[most_scales] = {}, scale_weight[most_scales] = {}, offset_weight[most_scales] = {};
  for (std::size_t j = 0; j < parts; ++j) {
    const float *xj = x + j * shape.part, *wj = w + j * shape.part;
    const auto fit = fit_offset(levels, xj, wj, shape.part, true);
    s[j] = fit.scale;
    o[j] = -fit.offset;
    const auto sums = sums_of(levels, xj, wj, shape.part, fit.scale != 0 ? 1 / fit.scale : 0, fit.offset);
    scale_weight[j] = std::max(sums.qq, 1e-30f);
    offset_weight[j] = std::max(sums.ones, 1e-30f);
  }
  const auto most_l = static_cast<float>(shape.most_scale), most_k = static_cast<float>(shape.most_minimum);
  float d = fit_factor(s, scale_weight, parts, 0, most_l), m = fit_factor(o, offset_weight, parts, 0, most_k);
  float l[most_scales] = {}, k[most_scales] = {}, best_l[most_scales] = {}, best_k[most_scales] = {};
  std::uint16_t best_d = 0, best_m = 0;
  float least = std::numeric_limits<float>::infinity();
  for (int round = 0; round < 3; ++round) {
    const auto half_d = to_f16(std::max(0.0f, d)), half_m = to_f16(std::max(0.0f, m));
    d = from_f16(half_d);
    m = from_f16(half_m);
    float total = 0;
    double aa = 0, ab = 0, bb = 0, ax = 0, bx = 0; // of a = l * q and b = -k
    for (std::size_t j = 0; j < parts; ++j) {
      const float *xj = x + j * shape.part, *wj = w + j * shape.part;
      const float l0 = round == 0 ? (d != 0 ? std::clamp(rounded(s[j] / d), 0.0f, most_l) : 0) : l[j];
      const float k0 = round == 0 ? (m != 0 ? std::clamp(rounded(o[j] / m), 0.0f, most_k) : 0) : k[j];
      float part_least = std::numeric_limits<float>::infinity();
      for (float kc = std::max(0.0f, k0 - 1); kc <= std::min(most_k, k0 + 1); ++kc)
        for (float lc = std::max(0.0f, l0 - 1); lc <= std::min(most_l, l0 + 1); ++lc)
          if (const float e = error_of(levels, xj, wj, shape.part, d * lc, -(m * kc)); e < part_least) {
            part_least = e;
            l[j] = lc;
            k[j] = kc;
          }
      total += part_least;
      const float scale = d * l[j];
      const auto sums = sums_of(levels, xj, wj, shape.part, scale != 0 ? 1 / scale : 0, -(m * k[j]));
      aa += double(l[j]) * l[j] * sums.qq;
      ab -= double(l[j]) * k[j] * sums.q;
      bb += double(k[j]) * k[j] * sums.ones;
      ax += double(l[j]) * sums.qx;
      bx -= double(k[j]) * sums.x;
    }
    if (total < least) {
      least = total;
      best_d = half_d;
      best_m = half_m;
      std::copy_n(l, parts, best_l);
      std::copy_n(k, parts, best_k);
    }
    if (const double determinant = aa * bb - ab * ab; determinant > 1e-9 * aa * bb) {
      d = static_cast<float>((bb * ax - ab * bx) / determinant);
      m = static_cast<float>((aa * bx - ab * ax) / determinant);
    } else if (aa > 0) {
      d = static_cast<float>(ax / aa);
    }
  }
  for (std::size_t g = 0; g < most_inputs / group_inputs; ++g) {
    groups[g].d = best_d;
    groups[g].m = best_m;
  }
  for (std::size_t j = 0; j < parts; ++j) {
    auto& group = groups[j * shape.part / group_inputs];
    const auto scale = static_cast<std::int8_t>(best_l[j]), minimum = static_cast<std::int8_t>(-best_k[j]);
    for (std::size_t half = 0; half < 2; ++half)
      if (shape.part == group_inputs || half == j % 2) {
        group.scales[half] = scale;
        group.minima[half] = minimum;
      }
    choose_codes(levels, x + j * shape.part, j * shape.part, shape.part, from_f16(best_d) * best_l[j],
                 -(from_f16(best_m) * best_k[j]), groups);
  }
}

/// Blocks of 32 with one scale.
template <class Levels>
void fit_plain(const Levels& levels, const float* x, const float* w, weight_group& group) {
  group.d = to_f16(fit_scale(levels, x, w, group_inputs));
  choose_codes(levels, x, 0, group_inputs, from_f16(group.d), 0, &group);
}

/// Blocks of 32 with a scale and a minimum.
void fit_plain_offset(const even_levels& levels, const float* x, const float* w, weight_group& group) {
  const auto fit = fit_offset(levels, x, w, group_inputs, false);
  group.d = to_f16(fit.scale);
  group.m = to_f16(fit.offset);
  group.minima[0] = group.minima[1] = 1;
  choose_codes(levels, x, 0, group_inputs, from_f16(group.d), from_f16(group.m), &group);
}

int zero_of(weight_format format) {
  switch (format) {
    case weight_format::q4_0: return 8;
    case weight_format::q5_0: return 16;
    case weight_format::q6_k: return 32;
    case weight_format::q3_k: return 4;
    case weight_format::q8_0:
    case weight_format::iq4_nl:
    case weight_format::iq4_xs: return 128;
    default: return 0;
  }
}

int most_code(weight_format format) {
  switch (format) {
    case weight_format::q2_k: return 3;
    case weight_format::q3_k: return 7;
    case weight_format::q5_0:
    case weight_format::q5_1:
    case weight_format::q5_k: return 31;
    case weight_format::q6_k: return 63;
    case weight_format::q8_0: return 255;
    default: return 15;
  }
}

bool has_table(weight_format format) { return format == weight_format::iq4_nl || format == weight_format::iq4_xs; }

} // namespace

void fit_block(weight_format format, const float* x, const float* w, weight_group* groups) {
  const auto inputs = block_inputs(format);
  for (std::size_t g = 0; g < inputs / group_inputs; ++g) {
    groups[g] = weight_group{};
    groups[g].zero = zero_of(format);
    // Level 0: the codes of a block whose scale is 0, or not a number.
    std::fill_n(groups[g].codes, group_inputs, has_table(format) ? kernels::iq4_table[8] : groups[g].zero);
  }
  if (!all_finite(x, inputs)) {
    for (std::size_t g = 0; g < inputs / group_inputs; ++g)
      groups[g].d = 0x7e00;
    return;
  }
  switch (format) {
    case weight_format::q4_0: return fit_plain(even_levels{-8, 7}, x, w, *groups);
    case weight_format::q5_0: return fit_plain(even_levels{-16, 15}, x, w, *groups);
    case weight_format::q8_0: return fit_plain(even_levels{-127, 127}, x, w, *groups);
    case weight_format::iq4_nl: return fit_plain(table_levels{}, x, w, *groups);
    case weight_format::q4_1: return fit_plain_offset({0, 15}, x, w, *groups);
    case weight_format::q5_1: return fit_plain_offset({0, 31}, x, w, *groups);
    case weight_format::q2_k: return fit_with_minima({0, 3}, {16, 15, 0, 15}, x, w, groups);
    case weight_format::q4_k: return fit_with_minima({0, 15}, {32, 63, 0, 63}, x, w, groups);
    case weight_format::q5_k: return fit_with_minima({0, 31}, {32, 63, 0, 63}, x, w, groups);
    case weight_format::q3_k: return fit_symmetric(even_levels{-4, 3}, {16, 31, -32}, x, w, groups);
    case weight_format::q6_k: return fit_symmetric(even_levels{-32, 31}, {16, 127, -128}, x, w, groups);
    case weight_format::iq4_xs: return fit_symmetric(table_levels{}, {32, 31, -32}, x, w, groups);
    default: return; // the others have no such blocks
  }
}

std::uint8_t nearest_code(weight_format format, const weight_group& group, std::size_t input, float weight) {
  const auto half = input % group_inputs / 16;
  const float scale = scale_of(group) * group.scales[half];
  const float offset = group.minima[half] == 0 ? 0.0f : from_f16(group.m) * group.minima[half];
  const float level = scale != 0 ? (weight - offset) / scale : 0;
  const float found = has_table(format)
    ? table_levels{}.nearest(level)
    : even_levels{float(-group.zero), float(most_code(format) - group.zero)}.nearest(level);
  return static_cast<std::uint8_t>(found + float(group.zero));
}

float weight_of(const weight_group& group, std::size_t input) {
  const auto half = input % group_inputs / 16;
  const float offset = group.minima[half] == 0 ? 0.0f : from_f16(group.m) * group.minima[half];
  return scale_of(group) * group.scales[half] * static_cast<float>(group.codes[input] - group.zero) + offset;
}

} // namespace troupe
