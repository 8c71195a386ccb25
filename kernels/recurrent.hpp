// Layers with a state of fixed size for each sequence: short convolutions, gated delta rules, Mamba 1 and 2. An optional
// interface of backends, beside ops.hpp. A state is the convolution's last inputs and a matrix for each head, f32.
//
// States are evaluated row by row in the order of positions. Threads divide heads and sequences, never positions. So
// chunks, steps and threads change no bits.
//
// Taking rows back: the last rows of a sequence in a step may be *pending* (guesses). The state stays as it was before
// them, and what they would add to it is logged. The next step of the sequence begins at any position from the state's
// to the end of the log. It first adds the accepted rows, by the same arithmetic as if they had not been pending.
//
// Trees of guesses (tree_lines.hpp): all of a tree's pending rows are in the log, in order. A further line of it begins
// with the state and what the log has of its ancestors.
#pragma once

#include "kernels/ops.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace troupe::kernels {

/// A convolution that is part of a state beside those of the layers, and whose taps may be apart (gram_ops.hpp): an output
/// depends on the rows 0, spacing, ... (taps - 1) * spacing before.
struct spread_shape {
  int channels = 0, taps = 0, spacing = 1;

  std::size_t rows() const { return std::size_t(taps - 1) * spacing; }
  std::size_t tail() const { return rows() * channels; } // floats
};

/// The states of a model's recurrent layers, which are alike.
struct state_shape {
  int layers = 0;                            // 0: there is only what is `spread`
  int slots = 0;                             // states: first those of running sequences, then snapshots
  int running = 0;                           // of these; they may have rows pending
  int pending = 0;                           // rows, at most, that are pending in one of them
  int channels = 0, taps = 0;                // of the convolution: a channel's output depends on its last `taps` inputs
  int heads = 0, key_dim = 0, value_dim = 0; // a matrix [key_dim, value_dim] for each head; 0 heads: none
  bool decays = false;                       // by key dimension; else by head
  bool rates = false;                        // time steps by value (selective)
  std::vector<spread_shape> spread = {};     // behind the layers

  // Sizes of one layer's state, in floats.
  std::size_t tail() const { return std::size_t(taps > 0 ? taps - 1 : 0) * channels; }
  std::size_t value_stride() const { return (std::size_t(value_dim) + 15) / 16 * 16; }
  std::size_t matrices() const { return std::size_t(heads) * key_dim * value_stride(); }
  std::size_t state() const { return tail() + matrices(); }
  /// A logged row of a head: its key, its value, what it decays (or its time steps) and how much it learns.
  std::size_t head_log() const {
    return key_dim + value_stride() + (decays ? std::size_t(key_dim) : rates ? value_stride() : 1) + 1;
  }
  std::size_t log() const { return std::size_t(pending) * (channels + heads * head_log()); }

  // Floats of what is ahead of a spread convolution in a state, and in a log; with all of them, of the whole.
  std::size_t spread_before(std::size_t index) const {
    std::size_t floats = std::size_t(layers) * state();
    for (std::size_t i = 0; i < index; ++i)
      floats += spread[i].tail();
    return floats;
  }
  std::size_t spread_log_before(std::size_t index) const {
    std::size_t floats = std::size_t(layers) * log();
    for (std::size_t i = 0; i < index; ++i)
      floats += std::size_t(pending) * spread[i].channels;
    return floats;
  }

  std::size_t slot_bytes() const { return spread_before(spread.size()) * sizeof(float); }
  std::size_t log_bytes() const { return spread_log_before(spread.size()) * sizeof(float); }
  std::size_t bytes() const { return slots * slot_bytes() + running * log_bytes(); }
};

/// The state of a sequence in a step.
struct sequence_state {
  std::int32_t slot = 0;
  std::int32_t pending = 0; // of its last rows
  /// The rows of the log that come before its own, a bit for each: behind or within a tree. 0: as many of the first ones
  /// as its position says.
  std::uint64_t behind = 0;
  /// It is a further line of the tree whose first line is before it in the step. All its rows are pending.
  bool branch = false;
};

/// The state of the step's `sequence` behind its first `rows` rows, of which none is pending, is also stored in another
/// slot.
struct state_save {
  std::int32_t sequence = 0;
  std::int32_t rows = 0;
  std::int32_t slot = 0;
};

struct state_copy {
  std::int32_t from = 0;
  std::int32_t to = 0;
};

/// A state outside its cache is `slot_bytes` bytes of host memory: layer by layer, the convolution's tail, then the
/// matrices, as the backend arranges them, and behind them the tails of spread convolutions. Only equal backends
/// understand each other's.
struct state_export {
  std::int32_t slot = 0;
  void* to = nullptr;
};

struct state_import {
  const void* from = nullptr;
  std::int32_t slot = 0;
  std::int32_t position = 0; // rows that are part of it
};

/// The memory of states, and the positions that they have come to. Steps and copies change it in order.
class state_cache {
public:
  explicit state_cache(const state_shape& shape) : shape(shape), slots_(static_cast<std::size_t>(shape.slots)) {}
  virtual ~state_cache() = default;

  const state_shape shape;

  /// What a step does to one sequence's state. A sequence may come several times in a step: then one run follows the
  /// other.
  struct run {
    std::int32_t first_row = 0, rows = 0;
    std::int32_t slot = 0;
    bool fresh = false;                 // it begins with zeros
    std::uint64_t replayed = 0;         // logged rows that are added first, a bit for each
    std::int32_t pending = 0;           // of the rows
    std::int32_t logged = 0;            // rows of the log before these
    bool branch = false;                // what was replayed does not become part of the state either
    std::vector<state_save> saves = {}; // ascending by rows
    std::int32_t next = -1;             // the run that follows in the same slot; or none
  };

  /// Before the first layer of a step. Throws std::invalid_argument if a sequence does not go on where its state, or
  /// what is logged behind it, has come to.
  void begin(std::span<const sequence_rows> sequences, std::span<const sequence_state> states,
             std::span<const state_save> saves);

  /// Behind the last layer.
  void end();

  /// The number of the step that was begun last, which no step of any other cache has either; 0: none was.
  std::uint64_t step() const { return step_; }

  const std::vector<run>& runs() const { return runs_; }
  /// The runs that follow no other. Others belong to the tasks of these.
  const std::vector<std::int32_t>& first_runs() const { return first_runs_; }

protected:
  /// The copied states have no rows pending.
  void copied(std::span<const state_copy> copies);

  /// Throws std::invalid_argument if a slot has no state, or rows pending.
  void expect_settled(std::span<const state_export> out) const;
  void imported(std::span<const state_import> in);

private:
  struct place {
    std::int32_t position = -1; // rows that are part of the state; -1: none was ever stored
    std::int32_t logged = 0;    // rows behind it
  };

  place& at(std::int32_t slot);

  std::vector<place> slots_;
  std::uint64_t step_ = 0;
  std::vector<run> runs_;
  std::vector<std::int32_t> first_positions_; // of `runs_`
  std::vector<place> after_;                  // each of them
  std::vector<std::int32_t> first_runs_;
};

/// What recurrent layers know of a step, beside `batch`.
struct recurrent_step {
  state_cache* states = nullptr;
  std::span<const sequence_state> sequences;
  std::span<const state_save> saves;
  bool begun = false; // whether `states` was told of the step, and is told of its end, by the decoder's caller
};

/// A causal convolution of each channel with its own weights: out[p] = act(bias + sum over t of in[p - taps + 1 + t] *
/// weight[t]).
struct convolution {
  const float* weight = nullptr; // [taps][channels]
  const float* bias = nullptr;   // [channels], or null
  bool silu = false;             // act; else none
};

enum class recurrence_type : std::uint8_t {
  none,
  delta, // gated delta rule: S = d S; S += k ⊗ β (v - Sᵀk); out = Sᵀq. d and β of a head; q and k of length 1
  channel_delta, // the same with d of each key dimension (Kimi)
  ssd,           // Mamba 2: S = d S + B ⊗ dt x; out = SᵀC + D x
  // Mamba 1: the same with dt of each value, d = e^(dt A) of each key dimension and value, and one B and C for all heads.
  // Heads only divide the values among threads.
  selective
};

/// How a convolved row is evaluated: [q | k | v] or [x | B | C], with `key_heads` heads of q and k, or of B
/// and C. For selective, it is x.
struct recurrence {
  recurrence_type type = recurrence_type::none;
  int heads = 0, key_heads = 0, key_dim = 0, value_dim = 0;
  // Negative: a step of dt multiplies the state by e^(dt * decay). [heads]; selective: A, [key_dim][values].
  const float* decay = nullptr;
  // dt = softplus(rate + bias): [heads], [heads * key_dim] for channel_delta, or [values] for selective.
  const float* dt_bias = nullptr;
  const float* skip = nullptr;     // D: ssd: [heads]; selective: [values]
  float most_learned = 1;          // delta: factor of β
  float decay_bound = 0;           // channel_delta, negative: d = e^(bound * sigmoid(-decay * (rate + bias))); 0: not
  float least_dt = 0, most_dt = 0; // ssd: limits of dt; no upper one if it is not above the lower
  bool in_turns = false;           // head i has head i % key_heads of keys; else neighbours have one
};

enum class gate_norm : std::uint8_t { none, before, after }; // before the gate multiplies, or after

/// out = norm(x) * act(gate), or norm(x * act(gate)), by groups of columns.
struct gated_rows {
  gate_norm norm = gate_norm::none;
  const float* weight = nullptr; // [columns]
  float eps = 0;
  std::size_t group = 0; // columns that are normed together
  bool sigmoid = false;  // act; else silu
  bool softplus = false; // or this
};

class recurrent_ops {
public:
  virtual ~recurrent_ops() = default;

  virtual std::unique_ptr<state_cache> make_state_cache(const state_shape& shape) = 0;

  /// How many sequences a decoder may have whose caller keeps no states; at most one for each row of a step.
  virtual int states_of_a_decoder(int rows) const { return rows; } // a host's memory is used as far as it is touched

  // Ops on the rows of a step that states.begin() was told of. All tensors are f32 unless it says otherwise.

  /// `in` and `out` [rows, channels], not the same memory.
  virtual void convolve(const tensor& out, const tensor& in, const convolution& how, state_cache& states,
                        int layer) = 0;

  /// `in` [rows, channels]; `rates` [rows, heads], [rows, heads * key_dim] for channel_delta, or [rows, values] for
  /// selective; `betas` [rows, heads] before their sigmoid, none for ssd, [B | C] for selective. out [rows, values].
  virtual void recur(const tensor& out, const tensor& in, const tensor& rates, const tensor& betas,
                     const recurrence& how, state_cache& states, int layer) = 0;

  /// x and out f32 or bf16, perhaps the same memory if of one type; gate f32.
  virtual void gate(const tensor& out, const tensor& x, const tensor& gate, const gated_rows& how) = 0;

  /// out = a * b; out f32 or bf16.
  virtual void multiply(const tensor& out, const tensor& a, const tensor& b) = 0;

  /// Copies in order, before any later op.
  virtual void copy_states(state_cache& states, std::span<const state_copy> copies) = 0;

  /// Calls return when the bytes are there; they come behind the ops called before, and ahead of those called later.
  virtual void export_states(const state_cache& states, std::span<const state_export> out) = 0;
  virtual void import_states(state_cache& states, std::span<const state_import> in) = 0;
};

} // namespace troupe::kernels
