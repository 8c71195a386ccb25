// A device that models run on: a CPU with one of its instruction sets, or an accelerator. It opens backends, and makes
// the runners and samplers that executor and sampler actors use. Immutable; any thread.
#pragma once

#include "kernels/cpu/machine.hpp"
#include "runtime/execution/compute_options.hpp"
#include "runtime/execution/core_plan.hpp"
#include "runtime/execution/step_runner.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/scheduling/cost/swap_policy.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace troupe {

/// Measured upper limits of a device, which times are judged by. 0: not known.
struct device_peaks {
  double bandwidth = 0;      // bytes per second of the memory that holds weights and K/V
  std::string bandwidth_of;  // "memory read"
  double operations = 0;     // per second; a multiplication and an addition are two
  std::string operations_of; // "int8 dot"
};

struct device_capabilities {
  bool schedule_invariant = true; // a row's results depend on that row alone: not on other rows, chunks or the cache
  bool own_memory = false;        // weights and K/V are not in host memory
  bool own_thread = false;        // runners and samplers need threads of their own, which make, use and destroy them
  bool f16_as_bf16 = false;       // f16 checkpoints are computed in bf16 by default, which is many times faster here
  bool step_times = false;        // runners measure how long steps take on the device
  bool hidden_states = false;     // runners give the hidden states that plans want
  bool changes_rows = false;      // runners let techniques change rows between layers
  bool adds_products = false;     // runners let techniques add to products of rows
  bool looks_inside = false;      // runners have inner_rows
  bool trees = false;             // runners and samplers take guesses that branch
  int ranks_by_kv_head = 1;       // K and V are divided among so many, where there are as many KV heads
};

class device {
public:
  virtual ~device() = default;

  /// What the log says of it: "cpu, avx2, 2 threads".
  virtual std::string description() const = 0;

  virtual device_capabilities capabilities() const = 0;

  /// Opens a backend for the calling thread. Backends of a CPU that one thread opens share their threads. Throws
  /// device_error.
  virtual std::unique_ptr<kernels::backend> open() const = 0;

  /// What a stage of a replica computes on: its part of this device's threads, with the same results. `layout`: the
  /// replicas, and each one's stages on this device; its ranks are the device's own. Throws failure(unsupported |
  /// bad_request).
  virtual std::shared_ptr<const device> part_of(const core_layout& layout, int replica, int stage) const;

  /// Bytes still available of the memory that holds weights and K/V.
  virtual std::size_t available_memory() const = 0;

  /// Rows of a step in which so many sequences decode: it may be padded.
  virtual int decode_rows(int sequences) const = 0;

  /// Rows for which a step's memory is planned unless the user says: as many as can be efficient, beside a full batch.
  /// Fewer are planned where memory is short.
  virtual int most_step_tokens(int max_sequences) const = 0;

  /// Bytes that runner and sampler take beside decoder and KV cache. `vocab`: 0 for layers without the head;
  /// `kv_block`: bytes of a block.
  virtual std::size_t step_memory(const step_sizes& sizes, int vocab, std::size_t kv_block) const = 0;

  /// How fast K/V blocks of this shape move to other host memory and back.
  virtual swap_rates measure_moves(const kernels::kv_shape& shape) const = 0;

  /// Measures the peaks for weights that are multiplied in `compute` or, if `quantised`, in less. Takes seconds, in
  /// which nothing else should run. Throws device_error.
  virtual device_peaks measure_peaks(kernels::dtype compute, bool quantised) const = 0;

  /// Made by the thread that will use it. `sampled` is called, on any thread, once for each sample that can be
  /// collected.
  virtual std::unique_ptr<step_runner> make_runner(runner_spec spec) const = 0;
  virtual std::unique_ptr<step_sampler> make_sampler(sampler_spec spec, std::function<void()> sampled) const = 0;
};

/// What a pipeline over these devices can do.
device_capabilities in_stages(std::span<const std::shared_ptr<const device>> devices);

/// The memory of a model, or of the part that `config` describes, on a device, with runner and sampler. `backend` is of
/// the device. Throws as `require_tensor`.
memory_estimate estimate_memory(const checkpoint& tensors, const model_config& config, precision precision,
                                const device& device, const kernels::backend& backend, const step_sizes& sizes);

/// "auto": the first GPU, else the CPU. `why`, unless null, receives the reason if there is a GPU. Throws
/// failure(bad_request) that names the devices there are.
std::shared_ptr<const device> open_device(const compute_options& options, const gpu_opener& open_gpu,
                                          std::string* why = nullptr);

} // namespace troupe
