// How fast a model runs, tokenising and sampling excluded: a decoder, a backend and a KV cache, driven on the calling
// thread by fixed batches as llama-bench and llama-batched-bench drive theirs.
#pragma once

#include "runtime/execution/device.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/model.hpp"
#include "runtime/model/model_work.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace troupe::cli {

struct model_bench_options : compute_options {
  std::string model;     // a checkpoint's folder, or synthetic:SHAPE
  int step_tokens = 512; // most rows of a prefill step
  int prompt = 512;      // tokens per sequence; 0: measure decoding only
  int generate = 128;    // tokens per sequence; 0: measure prefill only
  int repeat = 3;
  bool ceilings = false; // measure what the device can do, first
};

/// Medians over the repetitions. A rate is 0 where there was nothing to measure.
struct model_bench_result {
  int batch = 0;
  double prefill_ms = 0;          // of all prompts of the batch
  double prefill_tps = 0;         // tokens per second
  double decode_ms_per_step = 0;  // a step yields one token per sequence
  double decode_tps = 0;          // tokens per second over the whole batch
  std::size_t peak_rss_bytes = 0; // of this process so far

  // What had to be read and computed, counted by shape (runtime/model_work.hpp).
  double decode_bytes_per_step = 0; // mean of the steps
  double prefill_operations = 0;    // of all prompts of the batch

  // Where ceilings were measured, and of what they are known.
  double decode_bandwidth_share = 0; // of 1
  double prefill_peak_share = 0;
  double device_ms_per_step = 0;  // of decoding, on a device that works by itself; mean
  double step_overhead_share = 0; // of a decode step's time, that in which the device was between two steps; mean
};

class model_bench {
public:
  /// Loads the model; `say` hears of the packed cache and of what takes long. Throws failure or device_error.
  model_bench(const model_bench_options& options, const gpu_opener& open_gpu, const progress_fn& progress,
              const log_sink& say);

  /// `batch` sequences: their prompts one after the other in steps of up to `step_tokens` rows, then `generate` steps
  /// of one row each. Throws failure(out_of_memory) where the machine has no room for it.
  model_bench_result measure(int batch);

  const std::string& name() const { return name_; }
  const std::string& weights() const { return weights_; } // most of them: "BF16", "Q4_K", "int8"
  std::string device() const { return device_->description(); }
  std::string dtype() const { return kernels::to_string(numbers_.compute); }
  std::string kv_dtype() const { return kernels::to_string(numbers_.kv); }
  int threads() const { return threads_; }
  double load_seconds() const { return load_seconds_; }

  weight_work work_per_token() const { return troupe::work_per_token(*weights_in_memory_); }

  /// All 0 where they were not asked for.
  const troupe::device_peaks& peaks() const { return peaks_; }

  /// Whether steps' times on the device are measured.
  bool times_steps() const { return options_.time_steps && device_->works_by_itself(); }

private:
  struct run;
  memory_need need(int batch, int max_rows) const;

  model_bench_options options_;
  model_source source_;
  std::string name_, weights_;
  precision numbers_ = kernels::dtype::f32;
  int threads_ = 0;
  double load_seconds_ = 0;
  std::shared_ptr<const troupe::device> device_;
  troupe::device_peaks peaks_;
  std::shared_ptr<const model_weights> weights_in_memory_;
};

} // namespace troupe::cli
