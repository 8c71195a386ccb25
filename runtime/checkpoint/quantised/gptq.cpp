#include "runtime/checkpoint/quantised/gptq.hpp"

#include "kernels/formats/f16.hpp"
#include "kernels/formats/store_groups.hpp"
#include "runtime/checkpoint/quantised/fit_blocks.hpp"
#include "runtime/checkpoint/quantised/pruned_tensors.hpp"
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace troupe {

namespace {

constexpr double damping = 0.01;        // of the mean of the diagonal, added to all of it
constexpr std::size_t span_inputs = 64; // of a factorisation's steps; columns of a task

double lane_dot(const double* a, const double* b, std::size_t n) {
  constexpr std::size_t lanes = 8; // sums of their own, so that compilers vectorise
  double sums[lanes] = {};
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (std::size_t l = 0; l < lanes; ++l)
      sums[l] += a[i + l] * b[i + l];
  double sum = 0;
  for (const double s : sums)
    sum += s;
  for (; i < n; ++i)
    sum += a[i] * b[i];
  return sum;
}

/// Replaces the lower half of a symmetric positive matrix by its Cholesky factor L, L Lᵀ = a.
void factorise(std::vector<double>& a, std::size_t n, kernels::thread_pool& pool) {
  const auto finish = [&](std::size_t i, std::size_t first, std::size_t last) {
    for (std::size_t k = first; k < last; ++k)
      a[i * n + k] = (a[i * n + k] - lane_dot(&a[i * n], &a[k * n], k)) / a[k * n + k];
  };
  for (std::size_t first = 0; first < n; first += span_inputs) {
    const auto last = std::min(n, first + span_inputs);
    for (std::size_t i = first; i < last; ++i) {
      finish(i, first, i);
      const double left = a[i * n + i] - lane_dot(&a[i * n], &a[i * n], i);
      a[i * n + i] = std::sqrt(std::max(left, 1e-12));
    }
    pool.parallel_for(n - last, [&](std::size_t row, int) { finish(last + row, first, last); });
  }
}

/// The inverse of the lower factor, in its place; the upper half is not read.
std::vector<double> inverted_factor(const std::vector<double>& lower, std::size_t n, kernels::thread_pool& pool) {
  std::vector<double> inverse(n * n);
  pool.parallel_for((n + span_inputs - 1) / span_inputs, [&](std::size_t task, int) {
    const auto first = task * span_inputs, last = std::min(n, first + span_inputs);
    for (std::size_t i = first; i < n; ++i) {
      double* row = &inverse[i * n];
      if (i < last)
        row[i] = 1;
      for (std::size_t k = first; k < i; ++k) {
        const double factor = lower[i * n + k];
        const double* other = &inverse[k * n];
        for (std::size_t c = first; c < last; ++c)
          row[c] -= factor * other[c];
      }
      const double scale = 1 / lower[i * n + i];
      for (std::size_t c = first; c < last; ++c)
        row[c] *= scale;
    }
  });
  return inverse;
}

/// Quantises rows in spans of inputs: `choose(row, position, weight)` gives the value that stands for a weight, and
/// `begin(row, first, weights)` is called ahead of each span of `span` inputs with what they have become by then.
template <class Begin, class Choose>
void feed_back(std::span<float> rows, const error_feedback& feedback, std::size_t span, const Begin& begin,
               const Choose& choose) {
  const auto n = feedback.inputs, count = rows.size() / n;
  std::vector<float> errors(count * span);
  for (std::size_t first = 0; first < n; first += span) {
    const auto last = std::min(n, first + span);
    for (std::size_t r = 0; r < count; ++r) {
      float* row = &rows[r * n];
      begin(r, first, std::span<const float>(row + first, last - first));
      for (std::size_t i = first; i < last; ++i) {
        const float* factor = &feedback.factor[i * n];
        const float error = (row[i] - choose(r, i, row[i])) / factor[i];
        errors[r * span + i - first] = error;
        for (std::size_t j = i + 1; j < last; ++j)
          row[j] -= error * factor[j];
      }
    }
    for (std::size_t i = first; i < last; ++i) {
      const float* factor = &feedback.factor[i * n];
      for (std::size_t r = 0; r < count; ++r) {
        const float error = errors[r * span + i - first];
        float* row = &rows[r * n];
        for (std::size_t j = last; j < n; ++j)
          row[j] -= error * factor[j];
      }
    }
  }
}

struct grid {
  float scale = 1;
  int zero = 0;
  int most = 15;

  std::uint8_t code(float weight) const {
    const float steps = std::nearbyint(weight / scale) + float(zero);
    return static_cast<std::uint8_t>(std::clamp(steps, 0.0f, float(most)));
  }
  float value(std::uint8_t code) const { return scale * float(int(code) - zero); }
};

/// The grid with the least error of those that cover the weights, or all but the outermost.
grid fit_grid(const gptq_format& format, std::span<const float> x, const float* w) {
  const int most = (1 << format.bits) - 1, middle = 1 << (format.bits - 1);
  float low = 0, high = 0;
  for (const float v : x) {
    low = std::min(low, v);
    high = std::max(high, v);
  }
  grid best{1, format.symmetric ? middle : 1, most};
  if (!(high - low > 0) || !std::isfinite(high - low))
    return best;
  float least = std::numeric_limits<float>::infinity();
  for (int step = 0; step <= 24; ++step) {
    const float share = 1 - 0.03f * float(step) / float(format.bits == 8 ? 6 : 1) * (format.bits == 2 ? 1.0f : 0.8f);
    const float span = format.symmetric ? 2 * std::max(-low, high) : high - low;
    grid tried{kernels::from_f16(kernels::to_f16(span * share / float(most))), middle, most};
    if (!(tried.scale > 0))
      continue;
    // Zero is never code 0: checkpoints of the first format store one less.
    const int down = static_cast<int>(std::nearbyint(std::clamp(-low * share / tried.scale, 1.0f, float(most))));
    for (int zero = format.symmetric ? middle : std::max(1, down - 1);
         zero <= (format.symmetric ? middle : std::min(most, down + 1)); ++zero) {
      tried.zero = zero;
      float error = 0;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const float e = tried.value(tried.code(x[i])) - x[i];
        error += w[i] * e * e;
      }
      if (error < least) {
        least = error;
        best = tried;
      }
    }
  }
  return best;
}

} // namespace

error_feedback make_error_feedback(std::vector<double> hessian, std::size_t inputs, bool by_importance,
                                   kernels::thread_pool& pool) {
  const auto n = inputs;
  error_feedback result;
  result.inputs = n;
  result.order.resize(n);
  std::iota(result.order.begin(), result.order.end(), 0u);
  double sum = 0;
  for (std::size_t i = 0; i < n; ++i) {
    result.importance.push_back(static_cast<float>(hessian[i * n + i]));
    sum += hessian[i * n + i];
  }
  if (!std::isfinite(sum))
    throw failure(errc::bad_request, "what a matrix was multiplied with on the calibration text is not finite");
  const double mean = sum > 0 ? sum / double(n) : 1;
  if (by_importance)
    std::ranges::stable_sort(result.order, std::ranges::greater(),
                             [&](std::uint32_t i) { return result.importance[i]; });
  // The matrix is reversed: the inverse of its lower factor, reversed again, is then the upper factor of the inverse.
  std::vector<double> reversed(n * n);
  pool.parallel_for(n, [&](std::size_t i, int) {
    const auto from = result.order[n - 1 - i];
    for (std::size_t j = 0; j < n; ++j)
      reversed[i * n + j] = hessian[from * n + result.order[n - 1 - j]];
    reversed[i * n + i] = reversed[i * n + i] > 0 ? reversed[i * n + i] + damping * mean : mean;
  });
  std::vector<double>().swap(hessian);
  factorise(reversed, n, pool);
  const auto inverse = inverted_factor(reversed, n, pool);
  result.factor.resize(n * n);
  pool.parallel_for(n, [&](std::size_t i, int) {
    for (std::size_t j = i; j < n; ++j)
      result.factor[i * n + j] = static_cast<float>(inverse[(n - 1 - i) * n + n - 1 - j]);
  });
  const float least = static_cast<float>(mean * 1e-4);
  for (float& importance : result.importance)
    importance = std::max(importance, least);
  return result;
}

void quantise_with_feedback(kernels::weight_format format, std::span<float> rows, const error_feedback& feedback,
                            void* to) {
  const auto block = block_inputs(format), groups = block / kernels::group_inputs;
  std::vector<kernels::weight_group> fitted(rows.size() / feedback.inputs * groups);
  auto* bytes = static_cast<std::uint8_t*>(to);
  const auto row_size = row_bytes(format, feedback.inputs);
  const auto place = [&](std::size_t row, std::size_t first) {
    return bytes + row * row_size + row_bytes(format, first);
  };
  feed_back(
    rows, feedback, block,
    [&](std::size_t row, std::size_t first, std::span<const float> weights) {
      fit_block(format, weights.data(), &feedback.importance[first], &fitted[row * groups]);
    },
    [&](std::size_t row, std::size_t position, float weight) {
      auto& group = fitted[row * groups + position % block / kernels::group_inputs];
      const auto in_group = position % kernels::group_inputs;
      group.codes[in_group] = nearest_code(format, group, in_group, weight);
      if (position % block == block - 1)
        store_groups(format, &fitted[row * groups], place(row, position - (block - 1)));
      const float value = weight_of(group, in_group);
      return std::isfinite(value) ? value : weight;
    });
}

void quantise_with_feedback(const gptq_format& format, std::span<float> rows, const error_feedback& feedback,
                            std::span<const gptq_row> to) {
  const auto n = feedback.inputs, group = format.group == 0 ? n : format.group;
  std::vector<float> ordered(n), importance(n);
  for (std::size_t i = 0; i < n; ++i)
    importance[i] = feedback.importance[feedback.order[i]];
  for (std::size_t r = 0; r < to.size(); ++r) {
    for (std::size_t i = 0; i < n; ++i)
      ordered[i] = rows[r * n + feedback.order[i]];
    std::ranges::copy(ordered, rows.begin() + static_cast<std::ptrdiff_t>(r * n));
  }
  std::vector<grid> grids(to.size());
  feed_back(
    rows, feedback, std::gcd(group, std::max<std::size_t>(group < 128 ? group : 128, 1)),
    [&](std::size_t row, std::size_t first, std::span<const float>) {
      if (first % group != 0)
        return;
      const auto weights = std::span<const float>(rows).subspan(row * n + first, group);
      grids[row] = fit_grid(format, weights, &importance[first]);
      to[row].scales[first / group] = kernels::to_f16(grids[row].scale);
      to[row].zeros[first / group] = static_cast<std::uint8_t>(grids[row].zero);
    },
    [&](std::size_t row, std::size_t position, float weight) {
      const auto code = std::isfinite(weight) ? grids[row].code(weight) : std::uint8_t{0};
      to[row].codes[feedback.order[position]] = code;
      return grids[row].value(code);
    });
}

void prune_with_feedback(kernels::weight_format stored, std::span<float> rows, const error_feedback& feedback) {
  constexpr std::size_t span = 128;
  const auto n = feedback.inputs;
  std::vector<float> left(rows.size());
  std::vector<unsigned> kept(rows.size() / n);
  feed_back(
    rows, feedback, span, [](std::size_t, std::size_t, std::span<const float>) {},
    [&](std::size_t r, std::size_t i, float weight) {
      if (i % 4 == 0) {
        float scores[4];
        for (std::size_t k = 0; k < 4; ++k)
          scores[k] = std::abs(rows[r * n + i + k] / feedback.factor[(i + k) * n + i + k]);
        kept[r] = kept_of_four(scores);
      }
      return left[r * n + i] = (kept[r] >> i % 4 & 1) != 0 ? rounded_to(stored, weight) : 0.0f;
    });
  std::ranges::copy(left, rows.begin());
}

} // namespace troupe
