// What layers with tables of n-grams need (kernels/gram_ops.hpp). Never run on a GPU.
#include "kernels/cuda/device/launch.hpp"
#include "kernels/cuda/device/recurrent/recurrent.hpp"

namespace troupe::kernels::cuda {

namespace {

/// A channel of one run of a step: the inputs before it, then its own, [from](row).
template <class Inputs>
struct spread_channel {
  const layer_states& states;
  const state_run& run;
  std::size_t channel;
  const Inputs& own;

  /// Input of row `r` of the run; below 0: of those before it.
  TROUPE_DEVICE float input(int r) const {
    if (r >= 0)
      return own(r);
    const int replayed = count_rows(run.replayed), back = r + replayed;
    if (back >= 0)
      return *log(static_cast<int>(row_at(run.replayed, back)));
    return run.fresh != 0 ? 0 : *tail(run.slot, back + tail_rows());
  }

  /// Stores what the state becomes, behind all that reads it.
  TROUPE_DEVICE void keep(const state_runs& of) const {
    const auto* saves = reinterpret_cast<const std::int32_t*>(of.runs + of.count) + 2 * run.first_save;
    for (int i = 0; i < run.saves; ++i)
      store(saves[2 * i + 1], saves[2 * i]);
    const int kept = run.rows - run.pending;
    if (run.branch == 0)
      store(run.slot, kept);
    for (int i = 0; i < run.pending; ++i)
      *log(run.logged + i) = own(kept + i);
  }

  /// The tail behind the first `rows` rows. From the oldest on, as a slot may move what it has.
  TROUPE_DEVICE void store(int slot, int rows) const {
    for (int t = 0; t < tail_rows(); ++t)
      *tail(slot, t) = input(rows - tail_rows() + t);
  }

  TROUPE_DEVICE int tail_rows() const {
    return static_cast<int>(states.tail / static_cast<std::size_t>(states.channels));
  }
  TROUPE_DEVICE float* tail(int slot, int row) const {
    return states.states + std::size_t(slot) * states.slot_stride + std::size_t(row) * states.channels + channel;
  }
  TROUPE_DEVICE float* log(int row) const {
    return states.logs + std::size_t(run.slot) * states.log_stride + std::size_t(row) * states.channels + channel;
  }

  TROUPE_DEVICE static int count_rows(std::uint64_t rows) {
    int count = 0;
    for (; rows != 0; rows &= rows - 1)
      ++count;
    return count;
  }
  TROUPE_DEVICE static std::size_t row_at(std::uint64_t rows, int place) {
    for (; place > 0; --place)
      rows &= rows - 1;
    return lowest_row(rows);
  }
};

/// A thread has a channel of the runs of a sequence.
struct spread_kernel {
  static constexpr const char* name = "convolve_spread";
  static constexpr unsigned threads = 128;
  spread_params p;

  TROUPE_DEVICE void operator()() const {
    const std::size_t channel = std::size_t(simt::block_y()) * threads + simt::thread();
    std::int32_t i = static_cast<std::int32_t>(simt::block_x());
    if (channel >= static_cast<std::size_t>(p.states.channels) || p.runs.runs[i].begins == 0)
      return;
    for (; i >= 0; i = p.runs.runs[i].next)
      compute(p.runs.runs[i], channel);
  }

  TROUPE_DEVICE void compute(const state_run& run, std::size_t channel) const {
    const float* in = p.in + static_cast<std::size_t>(run.first_row) * p.in_stride + channel;
    float* out = p.out + static_cast<std::size_t>(run.first_row) * p.out_stride + channel;
    const auto own = [&](int r) { return in[std::size_t(r) * p.in_stride]; };
    const spread_channel<decltype(own)> of{p.states, run, channel, own};
    for (int r = 0; r < run.rows; ++r) {
      float y = p.how.bias != nullptr ? p.how.bias[channel] : 0;
      for (int t = 0; t < p.states.taps; ++t)
        y = simt::fused(of.input(r - (p.states.taps - 1 - t) * p.spacing),
                        p.how.weight[std::size_t(t) * p.states.channels + channel], y);
      out[std::size_t(r) * p.out_stride] = p.how.silu ? y / (1 + simt::exp(-y)) : y;
    }
    of.keep(p.runs);
  }
};

/// A thread has the runs of a sequence.
struct recall_kernel {
  static constexpr const char* name = "recall_tokens";
  static constexpr unsigned threads = 32;
  recall_params p;

  TROUPE_DEVICE void operator()() const {
    std::int32_t i = static_cast<std::int32_t>(simt::block_x());
    if (simt::thread() > 0 || p.runs.runs[i].begins == 0)
      return;
    for (; i >= 0; i = p.runs.runs[i].next) {
      const state_run& run = p.runs.runs[i];
      const std::int32_t* tokens = p.tokens + run.first_row;
      const auto own = [&](int r) { return static_cast<float>(tokens[r] + 1); };
      const spread_channel<decltype(own)> of{p.states, run, 0, own};
      const int back = of.tail_rows();
      for (int r = 0; r < run.rows; ++r)
        for (int k = 0; k < back; ++k)
          p.to[std::size_t(run.first_row + r) * back + k] = static_cast<std::int32_t>(of.input(r - 1 - k)) - 1;
      of.keep(p.runs);
    }
  }
};

/// A block has a row.
struct agreed_kernel {
  static constexpr const char* name = "take_agreed";
  static constexpr unsigned threads = 256;
  static constexpr float least = 1e-6f;
  agreed_params p;

  TROUPE_DEVICE static float* row_of(const tensor& x) {
    return static_cast<float*>(x.data) + std::size_t(simt::block_x()) * x.stride;
  }

  TROUPE_DEVICE void operator()() const {
    const float *a = row_of(p.a), *b = row_of(p.b), *value = row_of(p.value);
    float* out = row_of(p.out);
    float sum = 0;
    for (std::size_t c = simt::thread(); c < p.out.cols; c += threads)
      sum = simt::fused(a[c], b[c], sum);
    const float agreed = simt::block_sum(sum, reinterpret_cast<float*>(simt::shared())) * p.scale;
    const float size = simt::larger(agreed < 0 ? -agreed : agreed, least), root = size * simt::inverse_sqrt(size);
    const float share = 1 / (1 + simt::exp(agreed > 0 ? -root : agreed < 0 ? root : 0));
    for (std::size_t c = simt::thread(); c < p.out.cols; c += threads)
      out[c] = share * value[c];
  }
};

} // namespace

void convolve_spread(const stream& on, const spread_params& params) {
  const auto parts = ceil_div(static_cast<unsigned>(params.states.channels), spread_kernel::threads);
  launch(on, {static_cast<unsigned>(params.runs.count), parts}, 0, spread_kernel{params});
}

void recall(const stream& on, const recall_params& params) {
  launch(on, {static_cast<unsigned>(params.runs.count), 1}, 0, recall_kernel{params});
}

void take_agreed(const stream& on, const agreed_params& params) {
  launch(on, {static_cast<unsigned>(params.out.rows), 1}, agreed_kernel::threads / warp_lanes * sizeof(float),
         agreed_kernel{params});
}

} // namespace troupe::kernels::cuda
