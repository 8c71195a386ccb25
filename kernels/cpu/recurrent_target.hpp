// The interface between the CPU backend and the kernels of recurrent layers, of the same kind as target.hpp: plain
// structs, and functions on one task that are called on any thread. The kernels are compiled for some instruction sets;
// the others use those of the set that they extend.
#pragma once

#include <cstddef>
#include <cstdint>

namespace troupe::kernels {

inline constexpr int most_taps = 8;
inline constexpr std::size_t recurrent_rows = 32; // of a head that are prepared at once

/// Rows of one sequence for some channels. They follow `replayed` logged ones, a bit for each, which become part of the
/// state unless they are of a branch.
struct convolve_op {
  std::size_t channels = 0; // of the task
  int taps = 0;
  const float* weight = nullptr; // [taps], `stride` apart
  const float* bias = nullptr;
  bool silu = false;
  std::size_t stride = 0; // of weights, tails and logs: all channels
  float* tail = nullptr;  // [taps - 1]
  float* log = nullptr;   // [logged + pending]
  std::uint64_t replayed = 0;
  std::size_t rows = 0, pending = 0, logged = 0;
  bool branch = false;
  const float* in = nullptr;
  std::size_t in_stride = 0;
  float* out = nullptr;
  std::size_t out_stride = 0;
  const std::int32_t* save_rows = nullptr; // ascending
  float* const* save_tails = nullptr;
  std::size_t saves = 0;
};

/// A row of one head, ready to be added to its state.
struct recurrent_row {
  const float* key = nullptr;
  const float* query = nullptr; // null: nothing is read
  const float* value = nullptr;
  const float* decay = nullptr; // [key_dim], or one; scans: dt, [value_dim]
  float learn = 0;              // β, or dt
  float* out = nullptr;
  float skip = 0;
};

struct recur_op {
  int key_dim = 0, value_dim = 0;
  std::size_t stride = 0; // of the state's rows: value_dim, rounded up to 16
  bool delta = false;     // else ssd
  bool by_channel = false;
  // Scans (Mamba 1): A, [key_dim] rows `rates_stride` apart, and D, [value_dim].
  const float* rates = nullptr;
  std::size_t rates_stride = 0;
  const float* skips = nullptr;
};

struct gate_op {
  std::size_t cols = 0, group = 0;
  const float* weight = nullptr;
  float eps = 0;
  bool norm_before = false, norm_after = false, sigmoid = false, softplus = false;
  bool x_bf16 = false, out_bf16 = false;
};

struct recurrent_target {
  void (*convolve)(const convolve_op&);

  /// Rows in order, on `state` [key_dim][stride].
  void (*recur)(const recur_op&, float* state, const recurrent_row* rows, std::size_t count);

  /// to = x * scale / sqrt(sum of squares + 1e-6).
  void (*to_length)(float* to, const float* x, std::size_t n, float scale);

  /// `room`: [cols] floats.
  void (*gate)(const gate_op&, void* out, const void* x, const float* gate, float* room);

  void (*multiply)(float* to, const float* a, const float* b, std::size_t n);
  void (*multiply_narrow)(std::uint16_t* to, const float* a, const float* b, std::size_t n);
};

const recurrent_target& portable_recurrent_target();
const recurrent_target& neon_recurrent_target();
const recurrent_target& sve_256_recurrent_target();
const recurrent_target& sve_512_recurrent_target();
const recurrent_target& avx2_recurrent_target();
const recurrent_target& avx512_recurrent_target();

} // namespace troupe::kernels
