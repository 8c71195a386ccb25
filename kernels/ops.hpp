// The op interface: everything that the decoder (runtime/model) asks of a device. Backends (kernels/cpu, kernels/cuda)
// implement it. A backend is used by one thread at a time (its executor) and runs its ops in call order. Packed
// matrices and tables are immutable; several backends of the same kind may share them.
//
// Schedule invariance: for every op, the bits of a row's result depend on that row's inputs alone, not on the number of
// rows, the threads, the chunking of a prompt or the rest of the batch. Sums over K run in one fixed order, attention
// is cut at absolute multiples of `partition_tokens`, and partials merge in order.
#pragma once

#include "kernels/formats/activation.hpp"
#include "kernels/formats/kv_type.hpp"
#include "kernels/formats/weight_format.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace troupe::kernels {

/// Tokens in one block of the paged KV cache.
inline constexpr int block_tokens = 16;

/// Attention over a context is computed in partitions of this many absolute positions under every schedule.
inline constexpr int partition_tokens = 256;

/// A device failure: allocation, launch, lost context. The message names the call.
struct device_error : std::runtime_error {
  explicit device_error(const std::string& what, bool context_lost = false)
    : std::runtime_error(what), context_lost(context_lost) {}

  bool context_lost; // this process can no longer use the device
};

/// Activations in device memory: [rows, cols], `stride` elements from one row to the next.
struct tensor {
  void* data = nullptr;
  dtype type = dtype::f32;
  std::size_t rows = 0;
  std::size_t cols = 0;
  std::size_t stride = 0;
};

/// A weight matrix as a checkpoint stores it, in host memory: row-major [rows = outputs, cols = inputs].
struct stored_matrix {
  const void* data = nullptr;
  weight_format format = weight_format::f32;
  std::size_t rows = 0;
  std::size_t cols = 0; // a multiple of block_inputs(format)

  stored_matrix() = default;
  stored_matrix(const void* data, weight_format format, std::size_t rows, std::size_t cols)
    : data(data), format(format), rows(rows), cols(cols) {}
  stored_matrix(const void* data, dtype type, std::size_t rows, std::size_t cols)
    : stored_matrix(data, format_of(type), rows, cols) {}

  const void* row(std::size_t index) const { return static_cast<const char*>(data) + index * row_bytes(format, cols); }
};

/// A weight matrix in the layout of a backend's kernels. Opaque; made by `backend::pack`.
class matrix {
public:
  virtual ~matrix() = default;
  std::size_t outputs = 0;
  std::size_t inputs = 0;
  std::size_t bytes = 0; // of device memory
};

/// Device memory, freed with its owner.
using buffer = std::shared_ptr<void>;

/// The heads of K and V of one layer.
struct kv_heads_shape {
  int heads = 0;
  int dim = 0;
  bool values = true; // or K alone (sparse_attention.hpp)

  /// Bytes of one token.
  std::size_t bytes(kv_type type) const {
    return static_cast<std::size_t>(heads) * (values ? kv_bytes(type, dim) : key_bytes(type, dim));
  }

  bool operator==(const kv_heads_shape&) const = default;
};

struct kv_shape {
  int layers = 0;
  int kv_heads = 0; // of the layers that are not alike: the most
  int head_dim = 0; // likewise
  kv_type type = kv_type::f32;
  std::size_t blocks = 0;
  std::vector<kv_heads_shape> own = {}; // [layers], where layers are not alike; or empty

  kv_heads_shape layer(int i) const {
    return own.empty() ? kv_heads_shape{kv_heads, head_dim} : own[static_cast<std::size_t>(i)];
  }

  /// Bytes of one block of the layers before `layer`, K and V.
  std::size_t block_bytes_before(int layer) const {
    std::size_t bytes = 0;
    for (int i = 0; i < (own.empty() ? 1 : layer); ++i)
      bytes += std::size_t(block_tokens) * this->layer(i).bytes(type);
    return own.empty() ? bytes * static_cast<std::size_t>(layer) : bytes;
  }

  /// Bytes of one block over all layers.
  std::size_t block_bytes() const { return block_bytes_before(layers); }
};

class storable_matrices; // kernels/cpu/cpu_backend.hpp
struct recurrent_step;   // kernels/recurrent.hpp
struct planned_steps;    // kernels/planned_steps.hpp

/// The memory of a paged KV cache; its layout within a block is the backend's own.
class kv_cache {
public:
  virtual ~kv_cache() = default;
  kv_shape shape;
};

/// The rows of one sequence in a step: consecutive rows at consecutive positions. Its block table starts at
/// `block_tables[first_block]` and covers the positions 0 to first_position + rows - 1.
struct sequence_rows {
  std::int32_t first_row = 0;
  std::int32_t rows = 0;
  std::int32_t first_position = 0;
  std::int32_t first_block = 0;
  std::int32_t length = 0; // tokens of the sequence, which rotations and encoders may depend on (rope_rows, `ahead`)
  std::int32_t second = 0; // the position from which on tokens are of the second of two texts; 0: there is one text
};

/// A token's K and V, of one layer, that belong in another block, too, at the same place.
struct token_copy {
  std::int32_t from = 0, to = 0; // blocks
  std::int32_t place = 0;        // within them

  bool operator==(const token_copy&) const = default;
};

/// The sequences of a step. All arrays are in host memory and stay valid until the step's last op has been called.
struct batch {
  std::span<const sequence_rows> sequences;
  std::span<const std::int32_t> block_tables;
  const recurrent_step* recurrent = nullptr; // of models with recurrent layers
  std::span<const token_copy> common = {};   // behind each layer's write of K and V; for trees of rows (tree_lines.hpp)
};

/// A whole block to copy (K and V of all layers) before a step writes to `to`: copy-on-write.
struct block_copy {
  std::int32_t from = 0;
  std::int32_t to = 0;
};

/// Per-head RMS norm of q and k (Qwen 3). Weights are f32 [head_dim], or null for no norm.
struct head_norm {
  const float* q = nullptr;
  const float* k = nullptr;
  float eps = 0;
  bool behind = false; // the rotation, instead of before it; of further families
};

/// Rotations by position, in device memory: per position head_dim/2 cosines, then head_dim/2 sines, f32.
struct rope_rows {
  const float* angles = nullptr; // null: nothing is rotated
  const float* longer = nullptr; // of all positions of sequences of more than `border` tokens; null: the same
  std::int32_t border = 0;

  rope_rows() = default;
  rope_rows(const float* angles) : angles(angles) {}
  rope_rows(const float* angles, const float* longer, std::int32_t border)
    : angles(angles), longer(longer), border(border) {}

  const float* of(const sequence_rows& s) const { return longer != nullptr && s.length > border ? longer : angles; }
};

/// How attention turns products of queries and keys into weights. Vectors are in device memory.
struct attention_scores {
  float scale = 1;
  int window = 0;                // positions seen, the row's own included; 0: all
  float soft_cap = 0;            // score = cap * tanh(score / cap); 0: none
  const float* slopes = nullptr; // [heads], ALiBi: slope * (key's position - query's) is added; or null
  const float* sinks = nullptr;  // [heads], score of one more token that has no value; or null
  int chunk = 0;                 // positions from the last multiple of this on are seen; 0: all
  int ahead = 0;                 // positions seen after the row's own, up to the sequence's length: such sequences are
                                 // computed whole
  float threshold = 0; // weights below this share of the largest one among their partition and the first one, where it
                       // is seen, count as zero, on a CPU; 0: none

  bool plain() const { return soft_cap == 0 && slopes == nullptr && sinks == nullptr && chunk == 0 && ahead == 0; }
};

/// All positions that follow, for attention_scores::ahead.
inline constexpr int all_ahead = 1 << 30;

enum class store : std::uint8_t { set, add };

/// The rows that one matrix of a grouped product is multiplied with: those that chose an expert. Arrays are in host
/// memory.
struct row_group {
  const matrix* w = nullptr;
  const float* bias = nullptr;         // as for a product with `w` alone
  std::span<const std::int32_t> rows;  // none twice
  std::span<const float> factors = {}; // of the rows, for `grouped_sum`
};

class backend {
public:
  virtual ~backend() = default;

  /// What the log says of it: "cpu, avx512-bf16, 2 threads".
  virtual std::string description() const = 0;

  // -- memory -------------------------------------------------------------------------------------------------------

  /// Zeroed device memory, aligned to 64 bytes. Throws device_error naming the size.
  virtual buffer allocate(std::size_t bytes) = 0;

  /// Copies `values` to device memory; for vectors such as norm weights and biases.
  virtual buffer upload(std::span<const float> values) = 0;

  virtual std::unique_ptr<kv_cache> make_kv_cache(const kv_shape& shape) = 0;

  // -- weights ------------------------------------------------------------------------------------------------------

  /// Packs matrices that share their input, stacked along the outputs (q, k and v become one). Activations will come as
  /// `compute` (f32 or bf16). With f32, stored values are used exactly; with bf16 they are rounded to it, except that a
  /// CPU keeps f16 exact. Matrices in GGUF's blocks keep their codes and scales exactly; floats are quantised to `how`.
  /// For both, a CPU rounds activations to int8, symmetrically and to nearest even, with one f32 scale per 32 inputs. A
  /// GPU keeps activations as they are; for many rows it rounds weights to bf16 or, in fp8, activations too, with one
  /// scale per row. A CPU multiplies codes of fp8 exactly, and their sum by the output's scale. Throws
  /// std::invalid_argument for matrices that cannot be packed together.
  virtual std::unique_ptr<matrix> pack(std::span<const stored_matrix> stacked, dtype compute,
                                       quantization how = quantization::none) = 0;

  /// Packs the gate and up projections of a gated MLP, each [ffn, hidden], for `linear_silu_gate`. If their formats
  /// differ, both are multiplied as floats.
  virtual std::unique_ptr<matrix> pack_gate_up(const stored_matrix& gate, const stored_matrix& up, dtype compute,
                                               quantization how = quantization::none) = 0;

  /// Bytes of device memory that packed matrices of these formats and shapes take, for memory plans. Their data may be
  /// null. `gated`: gate and up. By default, the stored size.
  virtual std::size_t packed_bytes(std::span<const stored_matrix> stacked, dtype /*compute*/, quantization /*how*/,
                                   bool /*gated*/) const {
    std::size_t bytes = 0;
    for (const auto& m : stacked)
      bytes += m.rows * row_bytes(m.format, m.cols);
    return bytes;
  }

  /// A table for `embed`. On a CPU it refers to the caller's memory, which must outlive it.
  virtual std::unique_ptr<matrix> load_table(const stored_matrix& table) = 0;

  /// Bytes of device memory that `load_table` takes; the data may be null.
  virtual std::size_t table_bytes(const stored_matrix& table) const {
    return table.rows * row_bytes(table.format, table.cols);
  }

  /// Bytes of device memory that the ops of such steps allocate as scratch, at most, and keep.
  virtual std::size_t scratch_bytes(const planned_steps& /*steps*/) const { return 0; }

  /// How files can keep packed matrices; null where they cannot.
  virtual const storable_matrices* storable() const { return nullptr; }

  // -- ops ----------------------------------------------------------------------------------------------------------

  /// out[r] = table[tokens[r]], as f32. `tokens` [out.rows], host memory.
  virtual void embed(const tensor& out, const matrix& table, const std::int32_t* tokens) = 0;

  /// out[i] = x[r] / sqrt(mean(x[r]^2) + eps) * weight, with r = rows[i] (host memory), or r = i if `rows` is null.
  /// x is f32; out is f32 or bf16.
  virtual void rms_norm(const tensor& out, const tensor& x, const float* weight, float eps,
                        const std::int32_t* rows = nullptr) = 0;

  /// out = in · wᵀ + bias, or out += that. `in` has the type that w was packed for; out is f32; bias f32 or null.
  virtual void linear(const tensor& out, const tensor& in, const matrix& w, const float* bias = nullptr,
                      store how = store::set) = 0;

  /// out = silu(in · gateᵀ + bias_gate) * (in · upᵀ + bias_up). `bias`: gate's then up's, f32 [2 * ffn], or null.
  /// `out` has the type of `in`.
  virtual void linear_silu_gate(const tensor& out, const tensor& in, const matrix& gate_up,
                                const float* bias = nullptr) = 0;

  /// Prepares each row of qkv (f32, [q heads | k heads | v heads] × head_dim) for attention: norms q and k per head if
  /// asked, rotates both by the row's position (halves convention: element i pairs with i + head_dim/2), leaves q in
  /// place and writes k and v to the cache's `layer`. Further families: qkv may have q alone, and then nothing is
  /// written.
  virtual void rope_write_kv(const tensor& qkv, int heads, const head_norm& norm, const rope_rows& rope,
                             kv_cache& cache, int layer, const batch& step) = 0;

  /// Causal attention of each row's q (f32, the first heads × head_dim columns of qkv) over its sequence's cached
  /// positions 0 to its own, or the last `window` of them (0: all). out [rows, heads * head_dim], f32 or bf16.
  /// Grouped: query head h reads KV head h / (heads / kv_heads).
  virtual void attention(const tensor& out, const tensor& qkv, int heads, float scale, int window,
                         const kv_cache& cache, int layer, const batch& step) = 0;

  // -- ops of further families: a backend may lack them, and then throws device_error ---------------------------------

  /// Whether the backend has the ops below, in all their variants.
  virtual bool has_family_ops() const { return false; }

  /// out[i] = (x[r] - mean) / sqrt(variance + eps) * weight + bias, with r as in rms_norm. `bias` may be null.
  virtual void layer_norm(const tensor& /*out*/, const tensor& /*x*/, const float* /*weight*/, const float* /*bias*/,
                          float /*eps*/, const std::int32_t* /*rows*/ = nullptr) {
    lacks("layer norm");
  }

  /// out = act(in · wᵀ + bias), of the type of `in`. `gated`: w is packed by pack_gate_up, and out = act(gate) * up.
  virtual void linear_activated(const tensor& out, const tensor& in, const matrix& w, const activation& act, bool gated,
                                const float* bias = nullptr) {
    if (!gated || act.type != activation_type::silu)
      lacks("this activation");
    linear_silu_gate(out, in, w, bias);
  }

  /// Attention with scores that are shaped.
  virtual void shaped_attention(const tensor& out, const tensor& qkv, int heads, const attention_scores& scores,
                                const kv_cache& cache, int layer, const batch& step) {
    if (!scores.plain())
      lacks("this kind of attention");
    attention(out, qkv, heads, scores.scale, scores.window, cache, layer, step);
  }

  /// x *= factor, where a factor of 0 gives 0 even for NaN; then, if `soft_cap` is not 0, x = soft_cap *
  /// tanh(x / soft_cap). f32.
  virtual void scale(const tensor& /*x*/, float /*factor*/, float /*soft_cap*/ = 0) { lacks("scaled activations"); }

  /// x = min(max(x, -limit), limit), f32; NaN stays.
  virtual void clamp(const tensor& /*x*/, float /*limit*/) { lacks("clipped activations"); }

  /// to[rows[i]] += factor * factors[i] * x[i], f32. Null `rows`: i; null `factors`: 1. Both in host memory; no row
  /// twice.
  virtual void add_rows(const tensor& /*to*/, const tensor& /*x*/, float /*factor*/,
                        const std::int32_t* /*rows*/ = nullptr, const float* /*factors*/ = nullptr) {
    lacks("scaled sums");
  }

  /// to *= x, element by element. x is f32, `to` f32 or bf16.
  virtual void multiply_rows(const tensor& /*to*/, const tensor& /*x*/) { lacks("products of activations"); }

  /// to[i] = from[rows[i]] (host memory), or from[i] if `rows` is null. Of one type, or f32 into bf16.
  virtual void gather_rows(const tensor& /*to*/, const tensor& /*from*/, const std::int32_t* /*rows*/ = nullptr) {
    lacks("gathered rows");
  }

  /// Products with the matrices of several groups, which have one shape: out = act(in[rows] · wᵀ + bias) of the
  /// rows of the first group, then of the next one. `out` has a row for each, of the type of `in`. `gated`: see
  /// linear_activated, whose bits a row has.
  virtual void grouped_activated(const tensor& /*out*/, const tensor& /*in*/, std::span<const row_group> /*groups*/,
                                 const activation& /*act*/, bool /*gated*/) {
    lacks("grouped products");
  }

  /// The way back: to[rows] += factors * (in · wᵀ + bias), where `in` has the rows of the first group, then those of
  /// the next. `to` is f32. A row's sum starts at 0 (with store::set) and takes the groups in their order, with the
  /// bits of `linear` and `add_rows`.
  virtual void grouped_sum(const tensor& /*to*/, const tensor& /*in*/, std::span<const row_group> /*groups*/,
                           store /*how*/ = store::set) {
    lacks("grouped products");
  }

  /// to[r] += table[rows[r]], f32. `rows` [to.rows], host memory.
  virtual void embed_add(const tensor& /*to*/, const matrix& /*table*/, const std::int32_t* /*rows*/) {
    lacks("learned positions");
  }

  // -- copies -------------------------------------------------------------------------------------------------------

  /// Copies in order, before any later op reads or writes.
  virtual void copy_blocks(kv_cache& cache, std::span<const block_copy> copies) = 0;

  /// Copies f32 rows from device to host memory, synchronously.
  virtual void download(float* to, const tensor& from) = 0;

  /// Copies between blocks of one layer, none of which reads what another writes. A backend may lack it, and then throws
  /// device_error.
  virtual void copy_tokens(kv_cache& /*cache*/, int /*layer*/, std::span<const token_copy> copies) {
    if (!copies.empty())
      lacks("trees of rows");
  }

private:
  [[noreturn]] void lacks(const char* what) const { throw device_error(description() + " has no " + what); }
};

} // namespace troupe::kernels
