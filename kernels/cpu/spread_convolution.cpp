#include "kernels/cpu/spread_convolution.hpp"

#include "kernels/cpu/tensor_rows.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace troupe::kernels {

namespace {

/// Channels of one task. Changes no result.
constexpr std::size_t spread_channels_per_task = 512;

constexpr float least_agreement = 1e-6f;

float spread_sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

/// What one run of a step sees of some channels of a spread convolution: the rows before it, then its own.
class spread_run {
public:
  /// `in`: the first of the step's rows, of these channels.
  spread_run(const cpu_state_cache& states, int index, const state_cache::run& run, std::size_t first,
             std::size_t channels, const float* in, std::size_t in_stride)
    : run_(run), channels_(channels) {
    const auto& own = states.shape.spread[static_cast<std::size_t>(index)];
    stride_ = static_cast<std::size_t>(own.channels);
    tail_ = states.spread_tail(run.slot, index) + first;
    log_ = states.shape.pending > 0 && run.slot < states.shape.running ? states.spread_log(run.slot, index) + first
                                                                       : nullptr;
    tail_rows_ = own.rows();
    for (std::size_t t = 0; t < tail_rows_; ++t) {
      if (run.fresh)
        std::fill_n(tail_ + t * stride_, channels, 0.0f);
      rows_.push_back(tail_ + t * stride_);
    }
    for (auto left = run.replayed; left != 0; left &= left - 1)
      rows_.push_back(log_ + std::size_t(std::countr_zero(left)) * stride_);
    before_ = rows_.size();
    for (std::int32_t r = 0; r < run.rows; ++r)
      rows_.push_back(in + std::size_t(run.first_row + r) * in_stride);
    for (const auto& save : run.saves)
      saves_.push_back(states.spread_tail(save.slot, index) + first);
  }

  /// Row `r` of the run, or the one `back` rows before it.
  const float* row(std::int32_t r, std::size_t back) const { return rows_[before_ + std::size_t(r) - back]; }

  /// Stores what the state becomes, behind all that reads it.
  void keep() {
    for (std::size_t i = 0; i < saves_.size(); ++i)
      copy_tail(saves_[i], std::size_t(run_.saves[i].rows));
    const auto kept = std::size_t(run_.rows - run_.pending);
    if (!run_.branch) {
      std::vector<float> next(tail_rows_ * channels_);
      for (std::size_t t = 0; t < tail_rows_; ++t)
        std::copy_n(rows_[before_ + kept - tail_rows_ + t], channels_, &next[t * channels_]);
      for (std::size_t t = 0; t < tail_rows_; ++t)
        std::copy_n(&next[t * channels_], channels_, tail_ + t * stride_);
    }
    for (std::size_t i = 0; i < std::size_t(run_.pending); ++i)
      std::copy_n(rows_[before_ + kept + i], channels_, log_ + (std::size_t(run_.logged) + i) * stride_);
  }

private:
  void copy_tail(float* to, std::size_t behind) const {
    for (std::size_t t = 0; t < tail_rows_; ++t)
      std::copy_n(rows_[before_ + behind - tail_rows_ + t], channels_, to + t * stride_);
  }

  const state_cache::run& run_;
  std::size_t channels_, stride_ = 0, tail_rows_ = 0, before_ = 0;
  float *tail_ = nullptr, *log_ = nullptr;
  std::vector<const float*> rows_;
  std::vector<float*> saves_;
};

/// Calls f(run, first channel, channels) for all runs, those of one slot in order.
template <class F>
void for_spread_runs(const cpu_state_cache& states, std::size_t channels, thread_pool& pool, const F& f) {
  const auto parts = ceil_div(channels, spread_channels_per_task);
  const auto& runs = states.runs();
  const auto& first_runs = states.first_runs();
  pool.parallel_for(first_runs.size() * parts, [&](std::size_t task, int) {
    const auto first = task % parts * spread_channels_per_task;
    for (auto r = first_runs[task / parts]; r >= 0; r = runs[static_cast<std::size_t>(r)].next)
      f(runs[static_cast<std::size_t>(r)], first, std::min(spread_channels_per_task, channels - first));
  });
}

} // namespace

void recall_tokens(std::int32_t* to, const std::int32_t* tokens, std::size_t rows, const cpu_state_cache& states,
                   int index, thread_pool& pool) {
  const auto& own = states.shape.spread[static_cast<std::size_t>(index)];
  expect(own.channels == 1 && own.spacing == 1, "recall_tokens: the state must have one token of each row");
  const auto back = own.rows();
  std::vector<float> in(rows); // 0 is no token, which a state begins with
  for (std::size_t r = 0; r < rows; ++r)
    in[r] = static_cast<float>(tokens[r] + 1);
  for_spread_runs(states, 1, pool, [&](const state_cache::run& run, std::size_t, std::size_t) {
    spread_run of(states, index, run, 0, 1, in.data(), 1);
    for (std::int32_t r = 0; r < run.rows; ++r)
      for (std::size_t k = 0; k < back; ++k)
        to[std::size_t(run.first_row + r) * back + k] = static_cast<std::int32_t>(*of.row(r, k + 1)) - 1;
    of.keep();
  });
}

void convolve_spread(const tensor& out, const tensor& in, const convolution& how, const cpu_state_cache& states,
                     int index, thread_pool& pool) {
  const auto& own = states.shape.spread[static_cast<std::size_t>(index)];
  const auto channels = static_cast<std::size_t>(own.channels), spacing = static_cast<std::size_t>(own.spacing);
  expect(in.type == dtype::f32 && out.type == dtype::f32 && in.cols == channels && out.cols == channels,
         "convolve_spread: both must be f32 with the state's channels");
  for_spread_runs(states, channels, pool, [&](const state_cache::run& run, std::size_t first, std::size_t count) {
    spread_run of(states, index, run, first, count, row_of<float>(in, 0) + first, in.stride);
    for (std::int32_t r = 0; r < run.rows; ++r) {
      auto* y = row_of<float>(out, std::size_t(run.first_row + r)) + first;
      for (std::size_t c = 0; c < count; ++c)
        y[c] = how.bias != nullptr ? how.bias[first + c] : 0;
      for (int t = 0; t < own.taps; ++t) {
        const auto* x = of.row(r, static_cast<std::size_t>(own.taps - 1 - t) * spacing);
        const auto* weight = how.weight + static_cast<std::size_t>(t) * channels + first;
        for (std::size_t c = 0; c < count; ++c)
          y[c] += x[c] * weight[c];
      }
      for (std::size_t c = 0; how.silu && c < count; ++c)
        y[c] *= spread_sigmoid(y[c]);
    }
    of.keep();
  });
}

void take_agreed(const tensor& out, const tensor& a, const tensor& b, const tensor& value, float scale,
                 thread_pool& pool) {
  for (const auto* t : {&out, &a, &b, &value})
    expect(t->type == dtype::f32 && t->rows == out.rows && t->cols == out.cols,
           "take_agreed: all must be f32 of one shape");
  for_rows(pool, out.rows, [&](std::size_t r) {
    const auto *x = row_of<float>(a, r), *y = row_of<float>(b, r), *from = row_of<float>(value, r);
    double sum = 0;
    for (std::size_t c = 0; c < out.cols; ++c)
      sum += double(x[c]) * y[c];
    const float agreed = static_cast<float>(sum) * scale, size = std::sqrt(std::max(std::abs(agreed), least_agreement));
    const float share = spread_sigmoid(agreed > 0 ? size : agreed < 0 ? -size : 0);
    auto* to = row_of<float>(out, r);
    for (std::size_t c = 0; c < out.cols; ++c)
      to[c] = share * from[c];
  });
}

} // namespace troupe::kernels
