#include "kernels/cpu/recurrent.hpp"

#include "kernels/cpu/dispatch.hpp"
#include "kernels/cpu/tensor_rows.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace troupe::kernels {

namespace {

/// Channels of one task. Changes no result.
constexpr std::size_t channels_per_task = 512;

const recurrent_target& find_recurrent_target(isa wanted) {
  switch (wanted) {
#if defined(TROUPE_RECURRENT_NEON)
    case isa::neon:
    case isa::neon_dotprod:
    case isa::neon_i8mm:
    case isa::sve_128: return neon_recurrent_target(); // registers of the same length
#endif
#if defined(TROUPE_RECURRENT_SVE_256)
    case isa::sve_256: return sve_256_recurrent_target();
#endif
#if defined(TROUPE_RECURRENT_SVE_512)
    case isa::sve_512: return sve_512_recurrent_target();
#endif
#if defined(TROUPE_RECURRENT_AVX2)
    case isa::avx2:
    case isa::avx_vnni: return avx2_recurrent_target();
#endif
#if defined(TROUPE_RECURRENT_AVX512)
    case isa::avx512:
    case isa::avx512_vnni:
    case isa::avx512_bf16:
    case isa::avx512_amx: return avx512_recurrent_target();
#endif
    default: return portable_recurrent_target();
  }
}

/// log(1 + e^x)
float softplus(float x) { return x > 20 ? x : std::log1p(std::exp(x)); }

float sigmoid(float x) { return 1 / (1 + std::exp(-x)); }

} // namespace

cpu_state_cache::cpu_state_cache(const state_shape& wanted) : state_cache(wanted) {
  expect((shape.layers > 0 || !shape.spread.empty()) && shape.slots >= shape.running && shape.running >= 0,
         "a state cache needs layers and slots");
  expect(shape.layers == 0 || (shape.taps > 0 && shape.taps <= most_taps && shape.channels > 0),
         "the CPU backend's convolutions have 1 to 8 taps");
  states_ = allocate_zeroed(std::max<std::size_t>(1, shape.slots * shape.slot_bytes()));
  logs_ = allocate_zeroed(std::max<std::size_t>(1, shape.running * shape.log_bytes()));
}

float* cpu_state_cache::tail(int slot, int layer) const {
  return static_cast<float*>(states_.get()) + std::size_t(slot) * (shape.slot_bytes() / sizeof(float)) +
    std::size_t(layer) * shape.state();
}

float* cpu_state_cache::matrix(int slot, int layer, int head) const {
  return tail(slot, layer) + shape.tail() + std::size_t(head) * shape.key_dim * shape.value_stride();
}

float* cpu_state_cache::inputs_log(int slot, int layer) const {
  return static_cast<float*>(logs_.get()) + std::size_t(slot) * (shape.log_bytes() / sizeof(float)) +
    std::size_t(layer) * shape.log();
}

float* cpu_state_cache::spread_tail(int slot, int index) const {
  return tail(slot, 0) + shape.spread_before(static_cast<std::size_t>(index));
}

float* cpu_state_cache::spread_log(int slot, int index) const {
  return inputs_log(slot, 0) + shape.spread_log_before(static_cast<std::size_t>(index));
}

float* cpu_state_cache::head_log(int slot, int layer, int head) const {
  return inputs_log(slot, layer) + std::size_t(shape.pending) * (shape.channels + head * shape.head_log());
}

template <class F>
void cpu_state_cache::for_parts(thread_pool& pool, const F& f) const {
  const auto layer = shape.state() * sizeof(float), layers = std::size_t(shape.layers), all = shape.slot_bytes();
  pool.parallel_for(layers + (all > layers * layer ? 1 : 0),
                    [&](std::size_t i, int) { f(i * layer, i < layers ? layer : all - layers * layer); });
}

void cpu_state_cache::copy(std::span<const state_copy> copies, thread_pool& pool) {
  if (copies.empty())
    return;
  copied(copies);
  for_parts(pool, [&](std::size_t first, std::size_t bytes) {
    for (const auto& c : copies)
      std::memmove(reinterpret_cast<char*>(tail(c.to, 0)) + first,
                   reinterpret_cast<const char*>(tail(c.from, 0)) + first, bytes);
  });
}

void cpu_state_cache::copy_out(std::span<const state_export> out, thread_pool& pool) const {
  if (out.empty())
    return;
  expect_settled(out);
  for_parts(pool, [&](std::size_t first, std::size_t bytes) {
    for (const auto& each : out)
      std::memcpy(static_cast<char*>(each.to) + first, reinterpret_cast<const char*>(tail(each.slot, 0)) + first,
                  bytes);
  });
}

void cpu_state_cache::copy_in(std::span<const state_import> in, thread_pool& pool) {
  if (in.empty())
    return;
  imported(in);
  for_parts(pool, [&](std::size_t first, std::size_t bytes) {
    for (const auto& each : in) // in order: a slot may come twice
      std::memcpy(reinterpret_cast<char*>(tail(each.slot, 0)) + first, static_cast<const char*>(each.from) + first,
                  bytes);
  });
}

cpu_recurrence::cpu_recurrence(isa target, thread_pool& pool) : kernels_(find_recurrent_target(target)), pool_(pool) {}

void cpu_recurrence::convolve(const tensor& out, const tensor& in, const convolution& how,
                              const cpu_state_cache& states, int layer) {
  const auto& shape = states.shape;
  const auto channels = static_cast<std::size_t>(shape.channels);
  expect(in.type == dtype::f32 && out.type == dtype::f32 && in.cols == channels && out.cols == channels,
         "convolve: both must be f32 with the states' channels");
  const auto parts = ceil_div(channels, channels_per_task);
  const auto& runs = states.runs();
  const auto& first_runs = states.first_runs();
  const auto compute = [&](const state_cache::run& run, std::size_t first) {
    const auto row = static_cast<std::size_t>(run.first_row);
    convolve_op op{.channels = std::min(channels_per_task, channels - first),
                   .taps = shape.taps,
                   .weight = how.weight + first,
                   .bias = how.bias != nullptr ? how.bias + first : nullptr,
                   .silu = how.silu,
                   .stride = channels,
                   .tail = states.tail(run.slot, layer) + first,
                   .log = shape.pending > 0 && run.slot < shape.running ? states.inputs_log(run.slot, layer) + first
                                                                        : nullptr,
                   .replayed = run.replayed,
                   .rows = static_cast<std::size_t>(run.rows),
                   .pending = static_cast<std::size_t>(run.pending),
                   .logged = static_cast<std::size_t>(run.logged),
                   .branch = run.branch,
                   .in = row_of<float>(in, row) + first,
                   .in_stride = in.stride,
                   .out = row_of<float>(out, row) + first,
                   .out_stride = out.stride};
    if (run.fresh)
      for (int t = 0; t + 1 < shape.taps; ++t)
        std::fill_n(op.tail + t * channels, op.channels, 0.0f);
    std::vector<std::int32_t> rows;
    std::vector<float*> tails;
    for (const auto& save : run.saves) {
      rows.push_back(save.rows);
      tails.push_back(states.tail(save.slot, layer) + first);
    }
    op.save_rows = rows.data();
    op.save_tails = tails.data();
    op.saves = rows.size();
    kernels_.convolve(op);
  };
  pool_.parallel_for(first_runs.size() * parts, [&](std::size_t task, int) {
    for (auto r = first_runs[task / parts]; r >= 0; r = runs[static_cast<std::size_t>(r)].next)
      compute(runs[static_cast<std::size_t>(r)], task % parts * channels_per_task);
  });
}

namespace {

/// One head of one sequence in a step.
class head_run {
public:
  head_run(const recurrent_target& kernels, const recurrence& how, const cpu_state_cache& states, int layer, int head,
           const tensor& out, const tensor& in, const tensor& rates, const tensor& betas, float* room)
    : kernels_(kernels),
      how_(how),
      states_(states),
      layer_(layer),
      head_(head),
      out_(out),
      in_(in),
      rates_(rates),
      betas_(betas),
      room_(room),
      key_dim_(static_cast<std::size_t>(how.key_dim)),
      value_dim_(static_cast<std::size_t>(how.value_dim)),
      matrix_floats_(key_dim_ * states.shape.value_stride()),
      row_room_(row_room(states.shape)),
      op_{.key_dim = how.key_dim,
          .value_dim = how.value_dim,
          .stride = states.shape.value_stride(),
          .delta = how.type == recurrence_type::delta || how.type == recurrence_type::channel_delta,
          .by_channel = how.type == recurrence_type::channel_delta} {
    if (how.type != recurrence_type::selective)
      return;
    op_.rates = how.decay + as_offset(head);
    op_.rates_stride = static_cast<std::size_t>(how.heads) * value_dim_;
    op_.skips = how.skip + as_offset(head);
  }

  /// Floats of `room`.
  static std::size_t room_of(const state_shape& shape) {
    return recurrent_rows * row_room(shape) + std::size_t(shape.key_dim) * shape.value_stride();
  }

  void compute(const state_cache::run& run) {
    auto* state = states_.matrix(run.slot, layer_, head_);
    if (run.fresh)
      std::fill_n(state, matrix_floats_, 0.0f);
    if (run.branch) {
      auto* own = trial(state);
      replay(run, own);
      rows(run, own, 0, run.rows, true);
      return;
    }
    replay(run, state);
    const auto kept = run.rows - run.pending;
    std::int32_t done = 0;
    for (const auto& save : run.saves) {
      rows(run, state, done, save.rows, false);
      done = save.rows;
      std::copy_n(state, matrix_floats_, states_.matrix(save.slot, layer_, head_));
    }
    rows(run, state, done, kept, false);
    if (run.pending == 0)
      return;
    rows(run, trial(state), kept, run.rows, true);
  }

private:
  /// Of a row that is ready: key, query and decays, or time steps.
  static std::size_t row_room(const state_shape& shape) {
    return 3 * std::size_t(shape.key_dim) + (shape.rates ? shape.value_stride() : 0);
  }

  std::size_t as_offset(int head) const { return static_cast<std::size_t>(head) * value_dim_; }

  std::size_t decays() const { return op_.by_channel ? key_dim_ : op_.rates != nullptr ? value_dim_ : 1; }

  /// A copy of a state, for rows that do not become part of it.
  float* trial(const float* state) {
    auto* to = room_ + recurrent_rows * row_room_;
    std::copy_n(state, matrix_floats_, to);
    return to;
  }

  void replay(const state_cache::run& run, float* state) {
    for (auto left = run.replayed; left != 0; left &= left - 1) {
      const auto* logged = log(run, std::countr_zero(left));
      recurrent_row row;
      row.key = logged;
      row.value = logged + key_dim_;
      row.decay = row.value + op_.stride;
      row.learn = row.decay[decays()];
      kernels_.recur(op_, state, &row, 1);
    }
  }

  float* log(const state_cache::run& run, std::int32_t row) const {
    return states_.head_log(run.slot, layer_, head_) + std::size_t(row) * states_.shape.head_log();
  }

  void rows(const state_cache::run& run, float* state, std::int32_t first, std::int32_t end, bool logged) {
    recurrent_row ready[recurrent_rows];
    while (first < end) {
      const auto count = std::min<std::int32_t>(end - first, recurrent_rows);
      for (std::int32_t i = 0; i < count; ++i) {
        ready[i] = prepare(static_cast<std::size_t>(run.first_row + first + i), static_cast<std::size_t>(i));
        if (logged)
          keep(log(run, run.logged + first + i - (run.rows - run.pending)), ready[i]);
      }
      kernels_.recur(op_, state, ready, static_cast<std::size_t>(count));
      first += count;
    }
  }

  void keep(float* to, const recurrent_row& row) const {
    std::copy_n(row.key, key_dim_, to);
    std::copy_n(row.value, value_dim_, to + key_dim_);
    std::copy_n(row.decay, decays(), to + key_dim_ + op_.stride);
    to[key_dim_ + op_.stride + decays()] = row.learn;
  }

  recurrent_row prepare(std::size_t r, std::size_t place) {
    if (op_.rates != nullptr)
      return prepare_scan(r, place);
    const auto head = static_cast<std::size_t>(head_), heads = static_cast<std::size_t>(how_.heads);
    const auto keys = static_cast<std::size_t>(how_.key_heads),
               group = how_.in_turns ? head % keys : head / (heads / keys);
    const auto* x = row_of<float>(in_, r);
    auto* key = room_ + place * row_room_;
    auto *query = key + key_dim_, *decay = query + key_dim_;
    recurrent_row row;
    row.out = row_of<float>(out_, r) + head * value_dim_;
    row.decay = decay;
    const float* rate = row_of<float>(rates_, r);
    if (!op_.delta) { // [x | B | C]
      row.value = x + head * value_dim_;
      row.key = x + heads * value_dim_ + group * key_dim_;
      row.query = row.key + keys * key_dim_;
      float dt = std::max(softplus(rate[head] + how_.dt_bias[head]), how_.least_dt);
      if (how_.most_dt > how_.least_dt)
        dt = std::min(dt, how_.most_dt);
      row.learn = dt;
      decay[0] = std::exp(dt * how_.decay[head]);
      row.skip = how_.skip[head];
      return row;
    }
    // [q | k | v]
    kernels_.to_length(query, x + group * key_dim_, key_dim_, 1 / std::sqrt(static_cast<float>(key_dim_)));
    kernels_.to_length(key, x + (keys + group) * key_dim_, key_dim_, 1);
    row.query = query;
    row.key = key;
    row.value = x + 2 * keys * key_dim_ + head * value_dim_;
    row.learn = how_.most_learned * sigmoid(row_of<float>(betas_, r)[head]);
    for (std::size_t i = 0; i < decays(); ++i) {
      const auto at = head * decays() + i;
      const float given = rate[at] + how_.dt_bias[at];
      decay[i] = std::exp(how_.decay_bound < 0 ? how_.decay_bound * sigmoid(-how_.decay[head] * given)
                                               : how_.decay[head] * softplus(given));
    }
    return row;
  }

  recurrent_row prepare_scan(std::size_t r, std::size_t place) {
    const auto first = as_offset(head_);
    auto* steps = room_ + place * row_room_;
    const float* rate = row_of<float>(rates_, r) + first;
    for (std::size_t i = 0; i < value_dim_; ++i)
      steps[i] = softplus(rate[i] + how_.dt_bias[first + i]);
    recurrent_row row;
    row.key = row_of<float>(betas_, r); // [B | C]
    row.query = row.key + key_dim_;
    row.value = row_of<float>(in_, r) + first;
    row.decay = steps;
    row.out = row_of<float>(out_, r) + first;
    return row;
  }

  const recurrent_target& kernels_;
  const recurrence& how_;
  const cpu_state_cache& states_;
  int layer_, head_;
  const tensor &out_, &in_, &rates_, &betas_;
  float* room_;
  std::size_t key_dim_, value_dim_, matrix_floats_, row_room_;
  recur_op op_;
};

} // namespace

void cpu_recurrence::recur(const tensor& out, const tensor& in, const tensor& rates, const tensor& betas,
                           const recurrence& how, const cpu_state_cache& states, int layer) {
  const auto& shape = states.shape;
  const bool scans = how.type == recurrence_type::selective;
  expect(how.heads == shape.heads && how.key_dim == shape.key_dim && how.value_dim == shape.value_dim &&
           shape.decays == (how.type == recurrence_type::channel_delta) && shape.rates == scans && how.heads > 0 &&
           (scans ? how.key_heads == 0 : how.key_heads > 0 && how.heads % how.key_heads == 0),
         "recur: heads of another shape than the states'");
  const auto values = std::size_t(how.heads) * how.value_dim, keys = std::size_t(how.key_heads) * how.key_dim;
  expect(!scans || (rates.cols == values && betas.cols == 2 * std::size_t(how.key_dim)),
         "recur: time steps, B and C of another shape than the states'");
  expect(in.type == dtype::f32 && out.type == dtype::f32 && in.cols == values + 2 * keys && out.cols == values,
         "recur: rows of another shape than the heads'");
  const auto& runs = states.runs();
  const auto heads = static_cast<std::size_t>(how.heads), room = head_run::room_of(shape);
  auto* all = scratch_.reserve(room * static_cast<std::size_t>(pool_.size()));
  const auto& first_runs = states.first_runs();
  pool_.parallel_for(first_runs.size() * heads, [&](std::size_t task, int thread) {
    head_run head(kernels_, how, states, layer, static_cast<int>(task % heads), out, in, rates, betas,
                  all + room * static_cast<std::size_t>(thread));
    for (auto r = first_runs[task / heads]; r >= 0; r = runs[static_cast<std::size_t>(r)].next)
      head.compute(runs[static_cast<std::size_t>(r)]);
  });
}

void cpu_recurrence::gate(const tensor& out, const tensor& x, const tensor& gate, const gated_rows& how) {
  expect(gate.type == dtype::f32 && x.type != dtype::f16 && out.type != dtype::f16 && x.cols == gate.cols &&
           out.cols == x.cols,
         "gate: f32 gates of rows in f32 or bf16");
  const gate_op op{.cols = x.cols,
                   .group = how.norm == gate_norm::none ? x.cols : how.group,
                   .weight = how.weight,
                   .eps = how.eps,
                   .norm_before = how.norm == gate_norm::before,
                   .norm_after = how.norm == gate_norm::after,
                   .sigmoid = how.sigmoid,
                   .softplus = how.softplus,
                   .x_bf16 = x.type == dtype::bf16,
                   .out_bf16 = out.type == dtype::bf16};
  expect(op.group > 0, "gate: groups of no columns");
  auto* all = scratch_.reserve(x.cols * static_cast<std::size_t>(pool_.size()));
  pool_.parallel_for(x.rows, [&](std::size_t r, int thread) {
    kernels_.gate(op, row_of(out, r), row_of(x, r), row_of<float>(gate, r), all + x.cols * std::size_t(thread));
  });
}

void cpu_recurrence::multiply(const tensor& out, const tensor& a, const tensor& b) {
  expect(a.type == dtype::f32 && b.type == dtype::f32 && out.type != dtype::f16 && a.cols == b.cols &&
           out.cols == a.cols,
         "multiply: f32 rows of the same columns");
  for_rows(pool_, out.rows, [&](std::size_t r) {
    if (out.type == dtype::bf16)
      kernels_.multiply_narrow(row_of<std::uint16_t>(out, r), row_of<float>(a, r), row_of<float>(b, r), out.cols);
    else
      kernels_.multiply(row_of<float>(out, r), row_of<float>(a, r), row_of<float>(b, r), out.cols);
  });
}

} // namespace troupe::kernels
