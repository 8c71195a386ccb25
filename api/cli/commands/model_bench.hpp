// Measures how fast a model runs, without tokenising and sampling: a device's runner, driven on the calling thread by
// fixed batches, like llama-bench and llama-batched-bench.
#pragma once

#include "runtime/checkpoint/packed/packed_cache.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/model/decoder/model_work.hpp"
#include "runtime/techniques/technique.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace troupe::cli {

struct model_bench_options : compute_options {
  std::string model;     // a checkpoint's folder, or synthetic:SHAPE
  int step_tokens = 512; // rows of a prefill step, at most
  int prompt = 512;      // tokens per sequence; 0: measure decoding only
  int generate = 128;    // tokens per sequence; 0: measure prefill only
  int repeat = 3;
  bool peaks = false;          // first measure the device's peaks
  flag_values techniques = {}; // what the sequences use, by the names of their flags
};

/// Medians over the repetitions. A rate is 0 if there was nothing to measure.
struct model_bench_result {
  int batch = 0;
  double prefill_ms = 0;          // for all prompts of the batch
  double prefill_tps = 0;         // tokens per second
  double decode_ms_per_step = 0;  // a step yields one token per sequence
  double decode_tps = 0;          // tokens per second over the whole batch
  std::size_t peak_rss_bytes = 0; // this process, so far

  // Lower bounds, counted by shape (runtime/model/decoder/model_work.hpp), without weights that only zeros would multiply.
  double decode_bytes_per_step = 0;         // mean
  double decode_skipped_bytes_per_step = 0; // mean of those weights
  double prefill_operations = 0;            // for all prompts of the batch
  double decode_unread_values_per_step = 0; // bytes of V that attention left out; mean

  // Only if peaks were measured; 0 for those that are not known.
  double decode_bandwidth_share = 0; // 0 to 1
  double prefill_peak_share = 0;
  double device_ms_per_step = 0;  // decoding, on a device that can time steps; mean
  double step_overhead_share = 0; // share of decoding time in which the device worked on no step
};

class model_bench {
public:
  /// Loads the model; `log` receives lines on long operations and on the packed cache. Throws failure or device_error.
  model_bench(const model_bench_options& options, const gpu_opener& open_gpu, const progress_fn& progress,
              const log_sink& log);

  /// Runs `batch` sequences: their prompts one after another in steps of up to `step_tokens` rows, then `generate`
  /// steps with one row per sequence. Throws failure(out_of_memory) if memory does not suffice.
  model_bench_result measure(int batch);

  const std::string& name() const { return name_; }
  const std::string& weights() const { return weights_; } // type of most: "BF16", "Q4_K", "int8"
  std::string device() const { return device_->description(); }
  std::string dtype() const { return kernels::to_string(precision_.compute); }
  std::string kv_dtype() const { return kernels::to_string(precision_.kv); }
  int threads() const { return threads_; }
  double load_seconds() const { return load_seconds_; }
  mlp_sparsity sparsity() const { return precision_.sparsity; }

  weight_work work_per_token() const { return troupe::work_per_token(*weights_in_memory_); }

  /// All 0 unless asked for.
  const troupe::device_peaks& peaks() const { return peaks_; }

  /// Whether the device's time per step is measured.
  bool times_steps() const { return device_->capabilities().step_times; }

private:
  struct run;
  memory_estimate memory_of(const kernels::backend& backend, int batch, int rows) const;

  model_bench_options options_;
  model_source source_;
  std::string name_, weights_;
  precision precision_ = kernels::dtype::f32;
  int threads_ = 0;
  double load_seconds_ = 0;
  std::shared_ptr<const troupe::device> device_;
  troupe::device_peaks peaks_;
  std::shared_ptr<const model_weights> weights_in_memory_;
  std::vector<row_features_ptr> features_; // that sequences have in turn; none: they have none
};

} // namespace troupe::cli
