// The recurrences. A block computes one head of a sequence and holds its state in registers for all rows of a step. So
// a step reads and writes a state once, however many rows it has; pending rows go on in registers that are not stored.
// Neighbouring lanes share a column of the state: each has every `split`-th group of four keys. Heads of Mamba 1 (`scans`)
// are columns that share keys; each has time steps of its own, and a rate of decay for each key, also in registers.
#include "kernels/cuda/device/launch.hpp"
#include "kernels/cuda/device/recurrent/recurrent.hpp"

namespace troupe::kernels::cuda {

namespace {

/// How a head is divided.
struct recur_plan {
  int split = 4;   // lanes of a column, a power of two
  int dim = 0;     // keys, with zeros up to a multiple of what the lanes have
  int rows = 1;    // that are prepared at once
  int columns = 0; // of a block; those of wider heads come one part after another
};

TROUPE_DEVICE float softplus(float x) { return x > 20 ? x : simt::log1p(simt::exp(x)); }
TROUPE_DEVICE float sigmoid(float x) { return 1 / (1 + simt::exp(-x)); }

/// `Keys`: of a column, in each of its lanes.
template <recurrence_type Type, int Keys, unsigned Threads>
struct recur_kernel {
  static constexpr const char* name = "recur";
  static constexpr unsigned threads = Threads;
  static constexpr bool scans = Type == recurrence_type::selective, by_channel = Type == recurrence_type::channel_delta;
  static constexpr bool is_delta = by_channel || Type == recurrence_type::delta;
  recur_params p;
  recur_plan plan;

  /// A thread's part of a state.
  using column = float[Keys];
  /// How its elements decay, if it scans.
  using column_rates = float[scans ? Keys : 1];

  /// Prepared rows in shared memory.
  TROUPE_DEVICE float* keys() const { return reinterpret_cast<float*>(simt::shared()); }
  TROUPE_DEVICE float* queries() const { return keys() + plan.rows * plan.dim; }
  TROUPE_DEVICE float* decays() const { return queries() + plan.rows * plan.dim; } // by_channel
  TROUPE_DEVICE float* values() const { return decays() + (by_channel ? plan.rows * plan.dim : 0); }
  TROUPE_DEVICE float* learns() const { return values() + plan.rows * plan.columns; } // scans: of each column
  TROUPE_DEVICE float* whole_decays() const { return learns() + plan.rows; }

  TROUPE_DEVICE int part() const { return static_cast<int>(simt::thread()) % plan.split; }  // of a column
  TROUPE_DEVICE int place() const { return static_cast<int>(simt::thread()) / plan.split; } // of the column

  TROUPE_DEVICE void operator()() const {
    std::int32_t i = static_cast<std::int32_t>(simt::block_x());
    if (p.runs.runs[i].begins == 0)
      return;
    for (; i >= 0; i = p.runs.runs[i].next)
      for (int first = 0; first < p.how.value_dim; first += plan.columns)
        run(p.runs.runs[i], first);
  }

  /// Computes the columns from `first` on.
  TROUPE_DEVICE void run(const state_run& r, int first) const {
    const bool is_last = first + plan.columns >= p.how.value_dim;
    const int value = first + place();
    const bool has_column = value < p.how.value_dim;
    // Lanes of a warp take part in its sums together.
    const bool has_columns = first + static_cast<int>(simt::warp() * warp_lanes) / plan.split < p.how.value_dim;
    const float skip = is_delta || !has_column ? 0 : p.how.skip[scans ? value_of_all(value) : simt::block_y()];
    column_rates rates = {};
    if constexpr (scans)
      load_rates(rates, value);
    column state;
    load(state, r, value);
    for (std::uint64_t left = r.replayed; left != 0;) {
      int count = 0;
      std::uint64_t after = left;
      for (; count < plan.rows && after != 0; after &= after - 1)
        ++count;
      prepare_logged(r, left, count, first);
      left = after;
      simt::sync_block();
      if (has_columns)
        for (int row = 0; row < count; ++row)
          add(state, rates, row);
      simt::sync_block();
    }
    const std::int32_t kept = r.rows - r.pending;
    if (kept == 0 && r.branch == 0)
      store(state, r.slot, value);
    const auto* saves = reinterpret_cast<const std::int32_t*>(p.runs.runs + p.runs.count) + 2 * r.first_save;
    std::int32_t save = 0;
    for (std::int32_t begin = 0; begin < r.rows; begin += plan.rows) {
      const int count = at_most(r.rows - begin, plan.rows);
      prepare(r, begin, count, first, is_last);
      simt::sync_block();
      if (has_columns)
        for (int row = 0; row < count; ++row) {
          const float y = add(state, rates, row);
          const std::int32_t done = begin + row + 1;
          if (has_column && part() == 0)
            p.out[static_cast<std::size_t>(r.first_row + done - 1) * p.out_stride + value_of_all(value)] = is_delta
              ? y
              : simt::fused(values()[row * plan.columns + place()], skip, y);
          if (done == kept)
            store(state, r.slot, value);
          for (; save < r.saves && saves[2 * save] == done; ++save)
            store(state, saves[2 * save + 1], value);
        }
      simt::sync_block();
    }
  }

  // -- states ---------------------------------------------------------------------------------------------------------

  TROUPE_DEVICE float* matrix(std::int32_t slot, int value) const {
    return p.states.states + static_cast<std::size_t>(slot) * p.states.slot_stride + p.states.tail +
      simt::block_y() * static_cast<std::size_t>(p.how.key_dim) * p.states.value_stride +
      static_cast<std::size_t>(value);
  }

  /// The place of a value of the head among those of all.
  TROUPE_DEVICE std::size_t value_of_all(int value) const {
    return simt::block_y() * static_cast<std::size_t>(p.how.value_dim) + static_cast<std::size_t>(value);
  }

  TROUPE_DEVICE int key_of(int k) const { return (k / 4 * plan.split + part()) * 4 + k % 4; }

  TROUPE_DEVICE void load(column& state, const state_run& r, int value) const {
    const float* from = matrix(r.slot, value);
    const bool exists = r.fresh == 0 && value < p.how.value_dim;
#pragma unroll
    for (int k = 0; k < Keys; ++k)
      state[k] = exists && key_of(k) < p.how.key_dim ? from[static_cast<std::size_t>(key_of(k)) * p.states.value_stride]
                                                     : 0;
  }

  TROUPE_DEVICE void load_rates(column_rates& rates, int value) const {
    const auto values = static_cast<std::size_t>(p.how.heads) * static_cast<std::size_t>(p.how.value_dim);
    const float* from = p.how.decay + value_of_all(value);
#pragma unroll
    for (int k = 0; k < Keys; ++k)
      rates[k] = value < p.how.value_dim && key_of(k) < p.how.key_dim
        ? from[static_cast<std::size_t>(key_of(k)) * values]
        : 0;
  }

  TROUPE_DEVICE void store(const column& state, std::int32_t slot, int value) const {
    if (value >= p.how.value_dim)
      return;
    float* to = matrix(slot, value);
#pragma unroll
    for (int k = 0; k < Keys; ++k)
      if (key_of(k) < p.how.key_dim)
        to[static_cast<std::size_t>(key_of(k)) * p.states.value_stride] = state[k];
  }

  // -- a row ----------------------------------------------------------------------------------------------------------

  TROUPE_DEVICE static float element(const words4& from, int index) {
    return simt::bits_to_float(word_of(from, index));
  }

  TROUPE_DEVICE words4 four(const float* rows, int row, int k) const {
    return *reinterpret_cast<const words4*>(rows + row * plan.dim + key_of(k));
  }

  /// A sum over the keys of a column, always in the same order.
  TROUPE_DEVICE float over_keys(const float (&sums)[4]) const {
    float sum = simt::add(simt::add(sums[0], sums[1]), simt::add(sums[2], sums[3]));
    for (int mask = 1; mask < plan.split; mask *= 2)
      sum = simt::add(sum, simt::shuffle_xor(sum, mask));
    return sum;
  }

  /// Adds a prepared row to the state, and reads it with its query.
  TROUPE_DEVICE float add(column& state, [[maybe_unused]] const column_rates& rates, int row) const {
    const float whole = by_channel || scans ? 1 : whole_decays()[row];
    float learned = values()[row * plan.columns + place()];
    if constexpr (is_delta) {
      float known[4] = {};
#pragma unroll
      for (int k = 0; k < Keys; k += 4) {
        const words4 key = four(keys(), row, k);
        words4 decay;
        if constexpr (by_channel)
          decay = four(decays(), row, k);
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          state[k + e] = simt::mul(state[k + e], by_channel ? element(decay, e) : whole);
          known[e] = simt::fused(state[k + e], element(key, e), known[e]);
        }
      }
      learned = simt::sub(learned, over_keys(known));
    }
    const float learn = learns()[scans ? row * plan.columns + place() : row];
    learned = simt::mul(learned, learn);
    float read[4] = {};
#pragma unroll
    for (int k = 0; k < Keys; k += 4) {
      const words4 key = four(keys(), row, k), query = four(queries(), row, k);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float before = state[k + e];
        if constexpr (scans)
          before = simt::mul(before, simt::exp(simt::mul(rates[k + e], learn)));
        else if constexpr (!is_delta)
          before = simt::mul(before, whole);
        state[k + e] = simt::fused(element(key, e), learned, before);
        read[e] = simt::fused(state[k + e], element(query, e), read[e]);
      }
    }
    return over_keys(read);
  }

  // -- rows, made ready: warps take a key or a query each ---------------------------------------------------------------

  TROUPE_DEVICE float* log(const state_run& r, std::int32_t row) const {
    return p.states.logs + static_cast<std::size_t>(r.slot) * p.states.log_stride +
      static_cast<std::size_t>(p.states.pending) *
      (static_cast<std::size_t>(p.states.channels) + simt::block_y() * p.states.head_log) +
      static_cast<std::size_t>(row) * p.states.head_log;
  }

  /// The first `count` rows of the log in `rows`.
  TROUPE_DEVICE void prepare_logged(const state_run& r, std::uint64_t rows, int count, int first) const {
    const auto logged = [&](int row) {
      std::uint64_t left = rows;
      for (; row > 0; --row)
        left &= left - 1;
      return log(r, static_cast<std::int32_t>(lowest_row(left)));
    };
    const auto key_dim = static_cast<std::size_t>(p.how.key_dim);
    for (int row = static_cast<int>(simt::warp()); row < count; row += static_cast<int>(threads / warp_lanes)) {
      const float *key = logged(row), *decay = key + key_dim + p.states.value_stride;
      for (int k = static_cast<int>(simt::lane()); k < plan.dim; k += static_cast<int>(warp_lanes)) {
        keys()[row * plan.dim + k] = k < p.how.key_dim ? key[k] : 0;
        queries()[row * plan.dim + k] = 0; // nothing is read
        if (by_channel)
          decays()[row * plan.dim + k] = k < p.how.key_dim ? decay[k] : 0;
      }
      if (!scans && simt::lane() == 0) {
        whole_decays()[row] = decay[0];
        learns()[row] = decay[by_channel ? key_dim : 1];
      }
    }
    for (int i = static_cast<int>(simt::thread()); i < count * plan.columns; i += static_cast<int>(threads)) {
      const int value = first + i % plan.columns;
      const float* own = logged(i / plan.columns) + key_dim + static_cast<std::size_t>(value);
      values()[i] = value < p.how.value_dim ? own[0] : 0;
      if constexpr (scans)
        learns()[i] = value < p.how.value_dim ? own[p.states.value_stride] : 0;
    }
  }

  /// With `logs`, also keeps those that are pending.
  TROUPE_DEVICE void prepare(const state_run& r, std::int32_t begin, int count, int first, bool logs) const {
    const int key_heads = p.how.key_heads, head = static_cast<int>(simt::block_y());
    const int group = scans ? 0 : p.how.in_turns ? head % key_heads : head / (p.how.heads / key_heads);
    const auto key_dim = static_cast<std::size_t>(p.how.key_dim);
    const auto key_width = static_cast<std::size_t>(key_heads) * key_dim,
               value_width = static_cast<std::size_t>(p.how.heads) * static_cast<std::size_t>(p.how.value_dim);
    // [q | k | v] or [x | B | C]; scans: x, and [B | C] apart
    const auto key_at = scans ? 0 : (is_delta ? key_width : value_width) + static_cast<std::size_t>(group) * key_dim,
               query_at = scans ? key_dim
      : is_delta                ? key_at - key_width
                                : key_at + key_width,
               value_at = (is_delta ? 2 * key_width : 0) +
      static_cast<std::size_t>(head) * static_cast<std::size_t>(p.how.value_dim);
    const std::int32_t kept = r.rows - r.pending;
    const auto input = [&](int row) {
      return p.in + static_cast<std::size_t>(r.first_row + begin + row) * p.in_stride;
    };
    const auto keys_of = [&](int row) {
      return scans ? p.betas + static_cast<std::size_t>(r.first_row + begin + row) * p.betas_stride : input(row);
    };
    for (int task = static_cast<int>(simt::warp()); task < 2 * count; task += static_cast<int>(threads / warp_lanes)) {
      const int row = task / 2;
      if (task % 2 == 1) {
        copy(queries() + row * plan.dim, keys_of(row) + query_at, simt::inverse_sqrt(static_cast<float>(p.how.key_dim)),
             nullptr);
        continue;
      }
      float* to_log = logs && begin + row >= kept ? log(r, r.logged + begin + row - kept) : nullptr;
      copy(keys() + row * plan.dim, keys_of(row) + key_at, 1, to_log);
      if constexpr (!scans)
        prepare_decay(static_cast<std::size_t>(r.first_row + begin + row), row,
                      to_log != nullptr ? to_log + key_dim + p.states.value_stride : nullptr);
    }
    for (int i = static_cast<int>(simt::thread()); i < count * plan.columns; i += static_cast<int>(threads)) {
      const int value = first + i % plan.columns;
      values()[i] = value < p.how.value_dim ? input(i / plan.columns)[value_at + static_cast<std::size_t>(value)] : 0;
      if constexpr (scans)
        learns()[i] = value < p.how.value_dim ? time_step(r.first_row + begin + i / plan.columns, value) : 0;
    }
    if (!logs)
      return;
    for (int row = at_least(kept - begin, 0); row < count; ++row)
      for (int v = static_cast<int>(simt::thread()); v < p.how.value_dim; v += static_cast<int>(threads)) {
        float* to = log(r, r.logged + begin + row - kept) + key_dim + static_cast<std::size_t>(v);
        to[0] = input(row)[value_at + static_cast<std::size_t>(v)];
        if constexpr (scans)
          to[p.states.value_stride] = time_step(r.first_row + begin + row, v);
      }
  }

  /// Of a value, if it scans.
  TROUPE_DEVICE float time_step(std::int32_t input_row, int value) const {
    const auto at = value_of_all(value);
    return softplus(p.rates[static_cast<std::size_t>(input_row) * p.rates_stride + at] + p.how.dt_bias[at]);
  }

  /// A key or a query, by a warp: of delta rules brought to the length `scale`.
  TROUPE_DEVICE void copy(float* to, const float* from, float scale, float* to_log) const {
    float by = 1;
    if constexpr (is_delta) {
      float squares = 0;
      for (int k = static_cast<int>(simt::lane()); k < p.how.key_dim; k += static_cast<int>(warp_lanes))
        squares = simt::fused(from[k], from[k], squares);
      by = scale * simt::inverse_sqrt(simt::warp_sum(squares) + 1e-6f);
    }
    for (int k = static_cast<int>(simt::lane()); k < plan.dim; k += static_cast<int>(warp_lanes)) {
      const float x = k < p.how.key_dim ? (is_delta ? from[k] * by : from[k]) : 0;
      to[k] = x;
      if (to_log != nullptr && k < p.how.key_dim)
        to_log[k] = x;
    }
  }

  TROUPE_DEVICE float exponent(float decay, float given) const {
    return p.how.decay_bound < 0 ? p.how.decay_bound * sigmoid(-decay * given) : decay * softplus(given);
  }

  /// How much a row decays and learns, by a warp.
  TROUPE_DEVICE void prepare_decay(std::size_t input_row, int row, float* to_log) const {
    const std::size_t head = simt::block_y();
    const float* rates = p.rates + input_row * p.rates_stride;
    if constexpr (by_channel)
      for (int k = static_cast<int>(simt::lane()); k < plan.dim; k += static_cast<int>(warp_lanes)) {
        const auto at = head * static_cast<std::size_t>(p.how.key_dim) + static_cast<std::size_t>(k);
        const float decay = k < p.how.key_dim ? simt::exp(exponent(p.how.decay[head], rates[at] + p.how.dt_bias[at]))
                                              : 0;
        decays()[row * plan.dim + k] = decay;
        if (to_log != nullptr && k < p.how.key_dim)
          to_log[k] = decay;
      }
    if (simt::lane() != 0)
      return;
    float learn = 0, decay = 1;
    if constexpr (is_delta)
      learn = simt::mul(p.how.most_learned, sigmoid(p.betas[input_row * p.betas_stride + head]));
    if constexpr (!by_channel) {
      float dt = softplus(rates[head] + p.how.dt_bias[head]);
      if constexpr (!is_delta) {
        dt = dt < p.how.least_dt ? p.how.least_dt : dt;
        if (p.how.most_dt > p.how.least_dt)
          dt = dt > p.how.most_dt ? p.how.most_dt : dt;
        learn = dt;
      }
      decay = simt::exp(dt * p.how.decay[head]);
    }
    learns()[row] = learn;
    whole_decays()[row] = decay;
    if (to_log != nullptr) {
      if (!by_channel)
        to_log[0] = decay;
      to_log[by_channel ? p.how.key_dim : 1] = learn;
    }
  }
};

template <recurrence_type Type, int Keys, unsigned Threads>
void launch_recur(const stream& on, const recur_params& params, recur_plan plan) {
  constexpr int most_rows = 8, prepared_floats = 10240; // with values less than default shared memory
  plan.columns = static_cast<int>(Threads) / plan.split;
  plan.rows = at_least(at_most(prepared_floats / (3 * plan.dim), most_rows), 1);
  const int row = (Type == recurrence_type::channel_delta ? 3 : 2) * plan.dim +
    (Type == recurrence_type::selective ? 2 : 1) * plan.columns + 2;
  launch(on, {static_cast<unsigned>(params.runs.count), static_cast<unsigned>(params.how.heads)},
         static_cast<std::size_t>(plan.rows * row) * sizeof(float), recur_kernel<Type, Keys, Threads>{params, plan});
}

template <recurrence_type Type, int Keys>
void launch_recur(const stream& on, const recur_params& params, const recur_plan& plan) {
  const int lanes = params.how.value_dim * plan.split;
  if (lanes <= 128)
    launch_recur<Type, Keys, 128>(on, params, plan);
  else if (lanes <= 256)
    launch_recur<Type, Keys, 256>(on, params, plan);
  else
    launch_recur<Type, Keys, 512>(on, params, plan);
}

template <recurrence_type Type>
void launch_recur(const stream& on, const recur_params& params) {
  constexpr int few = Type == recurrence_type::selective ? 4 : 16, many = 32; // keys of a lane
  recur_plan plan;
  const bool is_narrow = params.how.key_dim <= few * plan.split;
  const int keys = is_narrow ? few : many;
  while (plan.split * keys < params.how.key_dim)
    plan.split *= 2;
  plan.dim = plan.split * keys;
  if (is_narrow)
    launch_recur<Type, few>(on, params, plan);
  else
    launch_recur<Type, many>(on, params, plan);
}

} // namespace

void recur(const stream& on, const recur_params& params) {
  switch (params.how.type) {
    case recurrence_type::delta: return launch_recur<recurrence_type::delta>(on, params);
    case recurrence_type::channel_delta: return launch_recur<recurrence_type::channel_delta>(on, params);
    case recurrence_type::ssd: return launch_recur<recurrence_type::ssd>(on, params);
    case recurrence_type::selective: return launch_recur<recurrence_type::selective>(on, params);
    case recurrence_type::none: return;
  }
}

} // namespace troupe::kernels::cuda
