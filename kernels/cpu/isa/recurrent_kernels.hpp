// Kernels of recurrent layers. Lanes run across channels and across the values of a head, whose columns of the state do
// not depend on each other; sums over keys have the order of the keys. Only for the recurrent target units.
#pragma once

#include "kernels/cpu/isa/activations.hpp"
#include "kernels/cpu/recurrent_target.hpp"

namespace troupe::kernels {
namespace {

// -- convolution ------------------------------------------------------------------------------------------------------

/// Some of 16 neighbouring channels.
inline void convolve_lanes(const convolve_op& op, std::size_t first, std::size_t n) {
  vec window[most_taps]; // the last taps - 1 inputs, oldest first, then the row's own
  vec weight[most_taps];
  const int tail = op.taps - 1;
  for (int t = 0; t < op.taps; ++t)
    weight[t] = load_some(op.weight + t * op.stride + first, n);
  for (int t = 0; t < tail; ++t)
    window[t] = load_some(op.tail + t * op.stride + first, n);
  const vec bias = op.bias != nullptr ? load_some(op.bias + first, n) : zero();
  const auto store_tail = [&](float* to) {
    for (int t = 0; t < tail; ++t)
      store_some(to + t * op.stride + first, window[t], n);
  };
  const auto shift = [&] {
    for (int t = 0; t < tail; ++t)
      window[t] = window[t + 1];
  };
  for (std::uint64_t left = op.replayed; left != 0; left &= left - 1) {
    window[tail] = load_some(op.log + std::size_t(__builtin_ctzll(left)) * op.stride + first, n);
    shift();
  }
  const std::size_t kept = op.rows - op.pending;
  if (kept == 0 && !op.branch)
    store_tail(op.tail);
  std::size_t save = 0;
  for (std::size_t r = 0; r < op.rows; ++r) {
    window[tail] = load_some(op.in + r * op.in_stride + first, n);
    vec y = bias;
    for (int t = 0; t <= tail; ++t)
      y = fma(window[t], weight[t], y);
    store_some(op.out + r * op.out_stride + first, op.silu ? swish(y, y) : y, n);
    if (r >= kept)
      store_some(op.log + (op.logged + r - kept) * op.stride + first, window[tail], n);
    shift();
    if (r + 1 == kept)
      store_tail(op.tail);
    for (; save < op.saves && std::size_t(op.save_rows[save]) == r + 1; ++save)
      store_tail(op.save_tails[save]);
  }
}

void convolve(const convolve_op& op) {
  for (std::size_t first = 0; first < op.channels; first += lanes)
    convolve_lanes(op, first, op.channels - first < lanes ? op.channels - first : lanes);
}

// -- recurrence -------------------------------------------------------------------------------------------------------

/// `Vecs` vectors of a head's columns, of which the last may be beyond `value_dim`.
template <int Vecs, bool Delta, bool ByChannel>
inline void recur_columns(const recur_op& op, float* state, const recurrent_row& row, std::size_t first) {
  const std::size_t dim = op.value_dim;
  vec learned[Vecs];
  for (int j = 0; j < Vecs; ++j)
    learned[j] = load_some(row.value + first + j * lanes, dim - first - j * lanes);
  const vec rate = broadcast(row.learn), whole = broadcast(row.decay[0]);
  if constexpr (Delta) {
    vec known[Vecs];
    for (int j = 0; j < Vecs; ++j)
      known[j] = zero();
    for (int k = 0; k < op.key_dim; ++k) {
      float* s = state + k * op.stride + first;
      const vec key = broadcast(row.key[k]);
      const vec decay = ByChannel ? broadcast(row.decay[k]) : whole;
      for (int j = 0; j < Vecs; ++j) {
        const vec kept = load(s + j * lanes) * decay;
        store(s + j * lanes, kept);
        known[j] = fma(kept, key, known[j]);
      }
    }
    for (int j = 0; j < Vecs; ++j)
      learned[j] = (learned[j] - known[j]) * rate;
  } else {
    for (int j = 0; j < Vecs; ++j)
      learned[j] = learned[j] * rate;
  }
  vec read[Vecs];
  for (int j = 0; j < Vecs; ++j)
    read[j] = zero();
  for (int k = 0; k < op.key_dim; ++k) {
    float* s = state + k * op.stride + first;
    const vec key = broadcast(row.key[k]);
    const vec query = broadcast(row.query != nullptr ? row.query[k] : 0.0f);
    for (int j = 0; j < Vecs; ++j) {
      vec now = load(s + j * lanes);
      if constexpr (!Delta)
        now = now * whole;
      now = fma(key, learned[j], now);
      store(s + j * lanes, now);
      read[j] = fma(now, query, read[j]);
    }
  }
  if (row.out == nullptr)
    return;
  const vec skip = broadcast(row.skip);
  for (int j = 0; j < Vecs; ++j) {
    const std::size_t at = first + j * lanes, n = dim - at;
    const vec out = Delta ? read[j] : fma(load_some(row.value + at, n), skip, read[j]);
    store_some(row.out + at, out, n);
  }
}

template <int Vecs, bool Delta, bool ByChannel>
inline void recur_rows(const recur_op& op, float* state, const recurrent_row* rows, std::size_t count,
                       std::size_t first) {
  for (std::size_t r = 0; r < count; ++r)
    recur_columns<Vecs, Delta, ByChannel>(op, state, rows[r], first);
}

template <bool Delta, bool ByChannel>
inline void recur_head(const recur_op& op, float* state, const recurrent_row* rows, std::size_t count) {
  const std::size_t vecs = op.stride / lanes;
  std::size_t v = 0;
  for (; v + 4 <= vecs; v += 4)
    recur_rows<4, Delta, ByChannel>(op, state, rows, count, v * lanes);
  for (; v + 2 <= vecs; v += 2)
    recur_rows<2, Delta, ByChannel>(op, state, rows, count, v * lanes);
  for (; v < vecs; ++v)
    recur_rows<1, Delta, ByChannel>(op, state, rows, count, v * lanes);
}

/// `Vecs` vectors of values, each of which has a time step of its own.
template <int Vecs>
inline void scan_columns(const recur_op& op, float* state, const recurrent_row& row, std::size_t first) {
  const std::size_t dim = op.value_dim;
  vec step[Vecs], learned[Vecs], read[Vecs];
  for (int j = 0; j < Vecs; ++j) {
    const std::size_t at = first + j * lanes, n = dim - at;
    step[j] = load_some(row.decay + at, n);
    learned[j] = load_some(row.value + at, n) * step[j];
    read[j] = zero();
  }
  for (int k = 0; k < op.key_dim; ++k) {
    float* s = state + k * op.stride + first;
    const float* rates = op.rates + k * op.rates_stride + first;
    const vec key = broadcast(row.key[k]);
    const vec query = broadcast(row.query != nullptr ? row.query[k] : 0.0f);
    for (int j = 0; j < Vecs; ++j) {
      const vec decay = exp(load_some(rates + j * lanes, dim - first - j * lanes) * step[j]);
      const vec now = fma(key, learned[j], load(s + j * lanes) * decay);
      store(s + j * lanes, now);
      read[j] = fma(now, query, read[j]);
    }
  }
  if (row.out == nullptr)
    return;
  for (int j = 0; j < Vecs; ++j) {
    const std::size_t at = first + j * lanes, n = dim - at;
    store_some(row.out + at, fma(load_some(row.value + at, n), load_some(op.skips + at, n), read[j]), n);
  }
}

void scan(const recur_op& op, float* state, const recurrent_row* rows, std::size_t count) {
  const std::size_t vecs = op.stride / lanes;
  std::size_t v = 0;
  for (; v + 2 <= vecs; v += 2)
    for (std::size_t r = 0; r < count; ++r)
      scan_columns<2>(op, state, rows[r], v * lanes);
  for (; v < vecs; ++v)
    for (std::size_t r = 0; r < count; ++r)
      scan_columns<1>(op, state, rows[r], v * lanes);
}

void recur(const recur_op& op, float* state, const recurrent_row* rows, std::size_t count) {
  if (op.rates != nullptr)
    scan(op, state, rows, count);
  else if (!op.delta)
    recur_head<false, false>(op, state, rows, count);
  else if (op.by_channel)
    recur_head<true, true>(op, state, rows, count);
  else
    recur_head<true, false>(op, state, rows, count);
}

// -- rows -------------------------------------------------------------------------------------------------------------

/// Sum of squares, over lanes first.
inline float sum_of_squares(const float* x, std::size_t n) {
  vec squares = zero();
  for (std::size_t i = 0; i < n; i += lanes) {
    const vec v = load_some(x + i, n - i);
    squares = fma(v, v, squares);
  }
  return sum(squares);
}

void to_length(float* to, const float* x, std::size_t n, float scale) {
  const vec by = broadcast(scale / __builtin_sqrtf(sum_of_squares(x, n) + 1e-6f));
  for (std::size_t i = 0; i < n; i += lanes)
    store_some(to + i, load_some(x + i, n - i) * by, n - i);
}

inline void norm_groups(const gate_op& op, float* x) {
  for (std::size_t first = 0; first < op.cols; first += op.group) {
    const std::size_t n = op.cols - first < op.group ? op.cols - first : op.group;
    const float mean = sum_of_squares(x + first, n) / static_cast<float>(n);
    const vec by = broadcast(1.0f / __builtin_sqrtf(mean + op.eps));
    for (std::size_t i = first; i < first + n; i += lanes)
      store_some(x + i, load_some(x + i, first + n - i) * by * load_some(op.weight + i, first + n - i), first + n - i);
  }
}

template <class Out>
inline void store_row(Out* to, const float* from, std::size_t n) {
  for (std::size_t i = 0; i < n; i += lanes)
    store_some(to + i, load_some(from + i, n - i), n - i);
}

/// log(1 + e^x)
inline vec softplus(vec x) {
  alignas(64) float each[lanes];
  store(each, x);
  for (float& v : each)
    v = v > 20 ? v : __builtin_log1pf(__builtin_expf(v));
  return load(each);
}

void gate(const gate_op& op, void* out, const void* x, const float* gate, float* room) {
  for (std::size_t i = 0; i < op.cols; i += lanes) {
    const std::size_t n = op.cols - i;
    if (op.x_bf16) {
      const auto* from = static_cast<const std::uint16_t*>(x) + i;
      std::uint16_t some[lanes] = {};
      std::memcpy(some, from, (n < lanes ? n : lanes) * sizeof *some);
      store_some(room + i, load_bf16(some), n);
    } else {
      store_some(room + i, load_some(static_cast<const float*>(x) + i, n), n);
    }
  }
  if (op.norm_before)
    norm_groups(op, room);
  const vec one = broadcast(1.0f);
  for (std::size_t i = 0; i < op.cols; i += lanes) {
    const vec g = load_some(gate + i, op.cols - i);
    const vec open = op.sigmoid ? one / (one + exp(zero() - g)) : op.softplus ? softplus(g) : swish(g, g);
    store_some(room + i, load_some(room + i, op.cols - i) * open, op.cols - i);
  }
  if (op.norm_after)
    norm_groups(op, room);
  if (op.out_bf16)
    store_row(static_cast<std::uint16_t*>(out), room, op.cols);
  else
    store_row(static_cast<float*>(out), room, op.cols);
}

void multiply(float* to, const float* a, const float* b, std::size_t n) {
  for (std::size_t i = 0; i < n; i += lanes)
    store_some(to + i, load_some(a + i, n - i) * load_some(b + i, n - i), n - i);
}

void multiply_narrow(std::uint16_t* to, const float* a, const float* b, std::size_t n) {
  for (std::size_t i = 0; i < n; i += lanes)
    store_some(to + i, load_some(a + i, n - i) * load_some(b + i, n - i), n - i);
}

constexpr recurrent_target recurrent_table{convolve, recur, to_length, gate, multiply, multiply_narrow};

} // namespace
} // namespace troupe::kernels
