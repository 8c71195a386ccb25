// What a model runs on: a CPU with one of its instruction sets, or an accelerator. Opens backends, and makes what executor
// and sampler actors use. Immutable; any thread.
#pragma once

#include "kernels/cpu/machine.hpp"
#include "runtime/execution/step_runner.hpp"
#include "runtime/scheduling/swap_policy.hpp"

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace troupe {

struct loaded_model;

/// What the memory of steps depends on.
struct run_sizes {
  int vocab = 0;
  int max_sequences = 0;
  int max_context = 0;      // tokens
  std::size_t kv_block = 0; // bytes of one block of the KV cache
};

/// What a device can do at most, measured: times are judged by it. 0: not known.
struct device_peaks {
  double bandwidth = 0;      // bytes per second of the memory where weights and K/V live
  std::string bandwidth_of;  // "memory read"
  double operations = 0;     // per second; a multiplication and an addition are two
  std::string operations_of; // "int8 dot"
};

class device {
public:
  virtual ~device() = default;

  /// For the log: "cpu, avx2, 2 threads".
  virtual std::string description() const = 0;

  /// For the calling thread. Throws device_error.
  virtual std::unique_ptr<kernels::backend> open() const = 0;

  /// Bytes that can still be taken of the memory where weights and K/V live.
  virtual std::size_t available_memory() const = 0;

  /// Rows of a step in which so many sequences decode: it may be padded.
  virtual int decode_rows(int sequences) const = 0;

  /// Rows of a step where nobody asks for a number: enough for products to be efficient, few enough that streams do not
  /// wait long for a step that also reads prompts.
  virtual int default_step_tokens(int max_sequences) const = 0;

  /// Bytes of it that runner and sampler need beside a decoder's activations, what the backend's ops take, and the KV cache.
  virtual std::size_t step_memory(const run_sizes& sizes) const = 0;

  /// Whether a row's results depend on that row alone, and not on the other rows of a step, on chunks or on what is cached.
  virtual bool schedule_invariant() const = 0;

  /// Whether calls return before their work is done; such a device has memory of its own.
  virtual bool works_by_itself() const = 0;

  /// How fast K/V blocks of this shape go to host memory and come back; zero where the memory is the same.
  virtual swap_rates measure_moves(const kernels::kv_shape& shape) const = 0;

  /// For weights that are multiplied in `compute`, or, `quantised`, in less. Takes seconds, in which nothing else should
  /// run. Throws device_error.
  virtual device_peaks measure_peaks(kernels::dtype compute, bool quantised) const = 0;

  /// What runs the model's steps, and samples from their logits; made by the thread that will use it. `sampled` is called,
  /// on any thread, once for each sample that can be collected.
  virtual std::unique_ptr<step_runner> make_runner(std::shared_ptr<const loaded_model> model) const = 0;
  virtual std::unique_ptr<step_sampler> make_sampler(const loaded_model& model,
                                                     std::function<void()> sampled) const = 0;
};

/// Of a CPU: the fastest instruction that weights of that kind can be multiplied with. (Floats in bf16 are, where there is
/// none for them, multiplied in f32.)
device_peaks peaks_of(const kernels::machine_peaks& peaks, kernels::dtype compute, bool quantised);

struct gpu_options {
  int index = 0;
  bool deterministic = false;
  bool graphs = true;
  std::optional<float> unified_maximum = {};
  bool time_steps = false;
};

/// Opens GPU `index`. Throws failure(bad_request) where there is no such device. Null: this program has none.
using gpu_opener = std::function<std::shared_ptr<const device>(const gpu_options&)>;

/// What a model is computed on and in, by the names that people write.
struct compute_options {
  std::string dtype = "auto";                // auto | f32 | bf16
  std::string quantize = "none";             // none | int8 | int4 | fp8: of weights that are stored as floats
  std::string kv_dtype = "auto";             // of K and V: auto | f32 | bf16 | int8 | fp8
  std::string device = "auto";               // auto | cpu | cpu:INSTRUCTION_SET | cuda:N
  int threads = 0;                           // of a CPU; 0: one per core
  std::string packed_cache = {};             // of a CPU: a folder that keeps packed weights; empty: none
  bool deterministic = false;                // of a GPU: schedule-invariant, at some cost; a CPU is that anyway
  bool graphs = true;                        // of a GPU: replay the launches of decode steps
  std::optional<float> unified_maximum = {}; // of a GPU: a number near which attention scores are (FlashDecoding++)
  bool time_steps = false;                   // of a GPU: its runner knows how long steps took there
};

/// "auto": the first GPU, else the CPU. `why`, where it is not null, gets the reason where there is a GPU. Throws failure(bad_request)
/// naming those there are.
std::shared_ptr<const device> open_device(const compute_options& options, const gpu_opener& open_gpu,
                                          std::string* why = nullptr);

} // namespace troupe
