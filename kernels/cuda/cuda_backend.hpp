// The op interface on one NVIDIA GPU. Ops queue their work on the backend's own stream and return; only `download` and
// allocations wait. Adds what an executor on a GPU needs: a second stream for copies, upload of a step's inputs ahead
// of time, block moves to and from host memory. Sampling is separate (device/sampling.hpp). Used by one thread, which
// has selected the device.
#pragma once

#include "kernels/block_transfer.hpp"
#include "kernels/cuda/device.hpp"
#include "kernels/low_rank.hpp"
#include "kernels/ops.hpp"

#include <memory>
#include <optional>
#include <vector>

namespace troupe::kernels::cuda {

struct cuda_options {
  int device = 0;
  /// Fixed kernels and splits, so that a row's bits do not depend on the other rows. Slower for long chunks and many
  /// rows.
  bool deterministic = false;
  /// A number close to all attention scores of the model. Partitions then sum exponentials relative to it instead of
  /// their own largest score. Rows whose scores differ by more than about 40 are computed twice. None: off.
  std::optional<float> unified_maximum = {};
  /// Bytes of weights that are expanded to bf16 at a time for products that go through the library.
  std::size_t expanded_memory = std::size_t(128) << 20;
};

/// Inputs of a forward pass, in host memory.
struct step_inputs {
  std::span<const std::int32_t> tokens; // [rows]; -1 - s: the token in slot s when the step begins
  batch rows;
  std::span<const std::int32_t> logit_rows;
  bool repeatable = false; // pad the plan, so that similar steps can replay its launches
};

struct softmax_counts; // device/attention/attention.hpp
class low_rank_layers; // low_rank_layers.hpp

class cuda_backend : public backend, public block_transfer, public low_rank_products {
public:
  /// The streams of the ops and of concurrent copies.
  virtual const stream& queue() const = 0;
  virtual const stream& copy_queue() const = 0;
  virtual bool deterministic() const = 0;

  /// Queues the upload of a step's inputs on the copy stream, after all ops of the previous step have been called. The
  /// ops that follow use the uploaded inputs if called with the same batch, rows and tokens (0 for tokens in slots).
  virtual void stage(const step_inputs& inputs) = 0;

  /// Begins the staged step on the stream of the ops. `slot_tokens`: device memory.
  virtual void begin_step(const std::int32_t* slot_tokens) = 0;

  /// Staged steps of equal shape make the same launches with the same arguments, as long as `memory_moves` does not
  /// change. Empty: the step cannot be repeated.
  virtual std::vector<std::uint64_t> launch_shape() const = 0;
  virtual std::uint64_t memory_moves() const = 0;

  /// Must be called before an op's result is read by other means than ops: parts of it may be in another GPU's memory.
  virtual void settle(const tensor& /*result*/) {}

  /// Copies one block in its canonical form to or from `host` (asynchronous if pinned). Unlike `export_blocks` and
  /// `import_blocks`, which wait for the stream of the ops.
  virtual void save_block(const stream& on, const kv_cache& cache, std::int32_t block, void* host) = 0;
  virtual void restore_block(const stream& on, kv_cache& cache, std::int32_t block, const void* host) = 0;

  void export_blocks(const kv_cache& cache, std::span<const block_export> blocks) override {
    for (const auto& b : blocks)
      save_block(queue(), cache, b.block, b.to);
    queue().synchronise();
  }

  void import_blocks(kv_cache& cache, std::span<const block_import> blocks) override {
    for (const auto& b : blocks)
      restore_block(queue(), cache, b.block, b.from);
    queue().synchronise();
  }

  /// What computes pairs of low rank, on the first GPU.
  virtual low_rank_layers& low_rank() = 0;

  /// linear_activated with biases of each row: f32 [rows, outputs], gated: gate's, then up's.
  virtual void linear_biased(const tensor& out, const tensor& in, const matrix& w, const activation& act, bool gated,
                             const tensor& biases) = 0;

  std::unique_ptr<const matrix> pack_low_rank(std::span<const low_rank_pair> pairs, std::size_t inputs,
                                              std::size_t outputs, dtype compute, bool gated) override;
  void linear_plus(const tensor& out, const tensor& in, const matrix& w, const float* bias, store how,
                   std::span<const row_group> groups) override;
  void linear_activated_plus(const tensor& out, const tensor& in, const matrix& w, const activation& act, bool gated,
                             const float* bias, std::span<const row_group> groups) override;

  /// What attention with a unified maximum has counted, in the memory of each device; empty without one.
  virtual std::vector<const softmax_counts*> softmax() const = 0;

  /// `copy_blocks` on another stream.
  virtual void copy_blocks_on(const stream& on, kv_cache& cache, std::span<const block_copy> copies) = 0;
};

/// Throws device_error if there is no such device. Unlike the CPU backend, it does not quantise activations: bf16
/// activations are multiplied with the codes and only sums are rounded, or, for many rows through the library, weights
/// are rounded to bf16 (in fp8, activations become fp8). With f32 activations, quantised weights are expanded at load.
std::unique_ptr<cuda_backend> make_cuda_backend(const cuda_options& options = {});

/// One backend of the GPUs from options.device on: each keeps columns of all weights, and K and V of neighbouring KV
/// heads, in its own memory. The first one has activations, norms and logits; the others copy inputs from there and
/// their columns of results back, through addresses that are mapped between devices. Nothing is summed across GPUs, so
/// with `deterministic` the bits are those of one. Steps are not recorded as graphs.
std::unique_ptr<cuda_backend> make_device_ranks(const cuda_options& options, int ranks);

} // namespace troupe::kernels::cuda
