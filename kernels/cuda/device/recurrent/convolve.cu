// The causal convolution of recurrent layers. A thread computes one channel of a sequence, row by row, with the last
// inputs in registers.
#include "kernels/cuda/device/launch.hpp"
#include "kernels/cuda/device/recurrent/recurrent.hpp"

namespace troupe::kernels::cuda {

namespace {

/// Inputs that are read before the first of them is used.
constexpr int rows_ahead = 8;

struct convolve_kernel {
  static constexpr const char* name = "convolve";
  static constexpr unsigned threads = 128;
  convolve_params p;

  TROUPE_DEVICE void operator()() const {
    const std::size_t channel = std::size_t(simt::block_y()) * threads + simt::thread();
    std::int32_t i = static_cast<std::int32_t>(simt::block_x());
    if (channel >= static_cast<std::size_t>(p.states.channels) || p.runs.runs[i].begins == 0)
      return;
    for (; i >= 0; i = p.runs.runs[i].next)
      run(p.runs.runs[i], channel);
  }

  /// The last inputs of a channel, the newest behind the others; those before `first` are not of the convolution.
  struct window {
    float inputs[most_convolution_taps] = {};

    TROUPE_DEVICE void add(float input) {
#pragma unroll
      for (int t = 0; t + 1 < most_convolution_taps; ++t)
        inputs[t] = inputs[t + 1];
      inputs[most_convolution_taps - 1] = input;
    }
  };

  TROUPE_DEVICE void run(const state_run& r, std::size_t channel) const {
    const auto stride = static_cast<std::size_t>(p.states.channels);
    const int first = most_convolution_taps - p.states.taps;
    float weights[most_convolution_taps];
    window last;
#pragma unroll
    for (int t = 0; t < most_convolution_taps; ++t)
      weights[t] = t >= first ? p.how.weight[static_cast<std::size_t>(t - first) * stride + channel] : 0;
    const float bias = p.how.bias != nullptr ? p.how.bias[channel] : 0;
    if (r.fresh == 0) {
      const float* tail = p.states.states + static_cast<std::size_t>(r.slot) * p.states.slot_stride + channel;
#pragma unroll
      for (int t = 1; t < most_convolution_taps; ++t)
        if (t > first)
          last.inputs[t] = tail[static_cast<std::size_t>(t - first - 1) * stride];
    }
    float* log = p.states.logs + static_cast<std::size_t>(r.slot) * p.states.log_stride + channel;
    for (std::uint64_t left = r.replayed; left != 0; left &= left - 1)
      last.add(log[lowest_row(left) * stride]);
    const std::int32_t kept = r.rows - r.pending;
    if (kept == 0 && r.branch == 0)
      store(last, r.slot, channel);
    const auto* saves = reinterpret_cast<const std::int32_t*>(p.runs.runs + p.runs.count) + 2 * r.first_save;
    std::int32_t save = 0;
    const float* in = p.in + static_cast<std::size_t>(r.first_row) * p.in_stride + channel;
    float* out = p.out + static_cast<std::size_t>(r.first_row) * p.out_stride + channel;
    for (std::int32_t begin = 0; begin < r.rows; begin += rows_ahead) {
      float inputs[rows_ahead];
#pragma unroll
      for (std::int32_t a = 0; a < rows_ahead; ++a)
        inputs[a] = begin + a < r.rows ? in[static_cast<std::size_t>(begin + a) * p.in_stride] : 0;
#pragma unroll
      for (std::int32_t a = 0; a < rows_ahead; ++a) {
        const std::int32_t row = begin + a;
        if (row >= r.rows)
          break;
        last.add(inputs[a]);
        float y = bias;
#pragma unroll
        for (int t = 0; t < most_convolution_taps; ++t)
          if (t >= first)
            y = simt::fused(last.inputs[t], weights[t], y);
        out[static_cast<std::size_t>(row) * p.out_stride] = p.how.silu ? y / (1 + simt::exp(-y)) : y;
        if (row >= kept)
          log[static_cast<std::size_t>(r.logged + row - kept) * stride] = inputs[a];
        if (row + 1 == kept)
          store(last, r.slot, channel);
        for (; save < r.saves && saves[2 * save] == row + 1; ++save)
          store(last, saves[2 * save + 1], channel);
      }
    }
  }

  TROUPE_DEVICE void store(const window& last, std::int32_t slot, std::size_t channel) const {
    const int first = most_convolution_taps - p.states.taps;
    float* tail = p.states.states + static_cast<std::size_t>(slot) * p.states.slot_stride + channel;
#pragma unroll
    for (int t = 1; t < most_convolution_taps; ++t)
      if (t > first)
        tail[static_cast<std::size_t>(t - first - 1) * static_cast<std::size_t>(p.states.channels)] = last.inputs[t];
  }
};

} // namespace

void convolve(const stream& on, const convolve_params& params) {
  const auto parts = ceil_div(static_cast<unsigned>(params.states.channels), convolve_kernel::threads);
  launch(on, {static_cast<unsigned>(params.runs.count), parts}, 0, convolve_kernel{params});
}

} // namespace troupe::kernels::cuda
