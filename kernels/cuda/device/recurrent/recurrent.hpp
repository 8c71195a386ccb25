// Launchers for kernels of recurrent layers (kernels/recurrent.hpp): the convolution, the recurrence, gates. States are
// evaluated row by row in the order of positions, by the threads that own their part of a state, so that chunks and
// steps change no bits. Callers check the arguments.
#pragma once

#include "kernels/cuda/device.hpp"
#include "kernels/cuda/device/common.hpp"
#include "kernels/recurrent.hpp"

namespace troupe::kernels::cuda {

/// What a step does to a sequence's state: state_cache::run as kernels read it. Runs are followed by the saves of all,
/// pairs of rows and slot.
struct state_run {
  std::uint64_t replayed = 0; // a bit for each row of the log
  std::int32_t first_row = 0, rows = 0;
  std::int32_t slot = 0;
  std::int32_t fresh = 0;                 // it begins with zeros
  std::int32_t pending = 0, logged = 0;   // rows, and rows of the log before them
  std::int32_t branch = 0;                // the state stays as it is
  std::int32_t first_save = 0, saves = 0; // pairs
  std::int32_t next = -1;                 // the run that follows in the same slot; or none
  std::int32_t begins = 0;                // it follows no other; 0, too, for entries that only fill the launch
  std::int32_t unused = 0;
};

/// The place of the lowest row of the log, of some.
TROUPE_DEVICE std::size_t lowest_row(std::uint64_t rows) {
  std::size_t place = 0;
  for (; (rows & 1) == 0; rows >>= 1)
    ++place;
  return place;
}

/// Device memory.
struct state_runs {
  const state_run* runs = nullptr;
  std::size_t count = 0;
};

/// The states of one layer and the logs of what is pending. A state is [tail | matrices], a log [inputs | rows of each
/// head], as state_shape says. Strides in floats.
struct layer_states {
  float* states = nullptr;
  std::size_t slot_stride = 0;
  float* logs = nullptr;
  std::size_t log_stride = 0;
  std::int32_t pending = 0; // rows of a log; 0: there is none
  std::int32_t channels = 0, taps = 0;
  std::size_t tail = 0;         // floats of it
  std::size_t value_stride = 0; // of a matrix's rows
  std::size_t head_log = 0;     // of a logged row
};

inline constexpr int most_convolution_taps = 8;
inline constexpr int most_key_dim = 1024;

struct convolve_params {
  float* out = nullptr;
  std::size_t out_stride = 0;
  const float* in = nullptr;
  std::size_t in_stride = 0;
  convolution how;
  layer_states states;
  state_runs runs;
};
void convolve(const stream& on, const convolve_params& params);

/// A convolution beside those of the layers, whose taps may be apart (kernels/gram_ops.hpp). `states` has its strides and
/// channels.
struct spread_params : convolve_params {
  int spacing = 1;
};
void convolve_spread(const stream& on, const spread_params& params);

/// The last tokens before each row: a state of one channel, in which 0 is none. See gram_ops::recall_tokens.
struct recall_params {
  std::int32_t* to = nullptr;
  const std::int32_t* tokens = nullptr;
  layer_states states;
  state_runs runs;
};
void recall(const stream& on, const recall_params& params);

/// out = sigmoid(root(scale * (a · b))) * value, see gram_ops::take_agreed.
struct agreed_params {
  tensor out, a, b, value; // f32, of one shape
  float scale = 1;
};
void take_agreed(const stream& on, const agreed_params& params);

struct recur_params {
  float* out = nullptr;
  std::size_t out_stride = 0;
  const float* in = nullptr;
  std::size_t in_stride = 0;
  const float* rates = nullptr;
  std::size_t rates_stride = 0;
  const float* betas = nullptr; // none for ssd
  std::size_t betas_stride = 0;
  recurrence how;
  layer_states states;
  state_runs runs;
};
void recur(const stream& on, const recur_params& params);

struct gate_params {
  void* out = nullptr;
  dtype out_type = dtype::f32; // or bf16
  std::size_t out_stride = 0;
  const void* x = nullptr;
  dtype x_type = dtype::f32; // or bf16
  std::size_t x_stride = 0;
  const float* gate = nullptr;
  std::size_t gate_stride = 0;
  gated_rows how;
  std::size_t rows = 0, cols = 0;
};
void gate(const stream& on, const gate_params& params);

/// out = a * b.
struct multiply_params {
  void* out = nullptr;
  dtype out_type = dtype::f32; // or bf16
  std::size_t out_stride = 0;
  const float* a = nullptr;
  std::size_t a_stride = 0;
  const float* b = nullptr;
  std::size_t b_stride = 0;
  std::size_t rows = 0, cols = 0;
};
void multiply(const stream& on, const multiply_params& params);

} // namespace troupe::kernels::cuda
