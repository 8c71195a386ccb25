#include "api/cli/commands/model_bench.hpp"

#include "api/cli/commands/median.hpp"
#include "kernels/activation_sparsity.hpp"
#include "runtime/engine/checked_generation.hpp"
#include "runtime/engine/loading/memory_plan.hpp"
#include "runtime/engine/loading/named_precision.hpp"
#include "runtime/engine/loading/weight_loading.hpp"
#include "runtime/support/error.hpp"
#include "runtime/techniques/repertoire.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>
#include <utility>

namespace troupe::cli {

namespace {

using clock = std::chrono::steady_clock;
using milliseconds = std::chrono::duration<double, std::milli>;

std::size_t size(int n) { return static_cast<std::size_t>(n); }

/// Bytes. Not getrusage's figure, which starts with the parent process's.
std::size_t peak_rss() {
  std::ifstream in("/proc/self/status");
  std::string line;
  while (std::getline(in, line))
    if (std::size_t kib = 0; std::sscanf(line.c_str(), "VmHWM: %zu", &kib) == 1)
      return kib * 1024;
  return 0;
}

} // namespace

/// The runner of one batch size, and its steps.
struct model_bench::run {
  run(const model_bench& bench, int batch, int max_rows, int blocks_each)
    : options(bench.options_),
      features(bench.features_),
      recurrent(bench.weights_in_memory_->config.recurrent),
      vocab(bench.weights_in_memory_->config.vocab),
      batch(batch),
      blocks_each(blocks_each) {
    const auto& device = *bench.device_;
    runner = device.make_runner({bench.weights_in_memory_,
                                 bench.precision_,
                                 {max_rows, batch, options.prompt + options.generate},
                                 batch * blocks_each});
    plan.block_tables.resize(size(batch) * size(blocks_each)); // sequence i starts at block i * blocks_each
    std::iota(plan.block_tables.begin(), plan.block_tables.end(), 0);
  }

  /// One step of the prefill, from token `done` of all prompts laid end to end.
  void prefill_step(int done, int rows) {
    begin();
    while (rows > 0) {
      const int sequence = done / options.prompt, position = done % options.prompt;
      const int part = std::min(rows, options.prompt - position);
      add(sequence, position, part, position + part == options.prompt);
      done += part;
      rows -= part;
    }
    queue();
  }

  void decode_step(int position) {
    begin();
    for (int i = 0; i < batch; ++i)
      add(i, position, 1, true);
    queue();
  }

  double prefill() {
    const auto start = clock::now();
    const int all = batch * options.prompt;
    for (int done = 0; done < all; done += options.step_tokens)
      prefill_step(done, std::min(options.step_tokens, all - done));
    finish();
    return milliseconds(clock::now() - start).count();
  }

  /// Waits for all queued steps.
  void finish() { wait_for(std::exchange(last, {})); }

  const model_bench_options& options;
  const std::vector<row_features_ptr>& features;
  bool recurrent;
  int vocab, batch, blocks_each;
  std::unique_ptr<step_runner> runner;
  step_plan plan;
  step_output last;
  std::minstd_rand random;

private:
  void begin() {
    plan.tokens.clear();
    plan.sequences.clear();
    plan.states.clear();
    plan.logit_rows.clear();
    plan.featured.clear();
  }

  void add(int sequence, int position, int rows, bool wants_logits) {
    plan.sequences.push_back({static_cast<std::int32_t>(plan.tokens.size()), rows, position, sequence * blocks_each});
    if (recurrent)
      plan.states.push_back({sequence, 0});
    if (!features.empty())
      plan.featured.push_back(
        {features[size(sequence) % features.size()], static_cast<std::int32_t>(plan.sequences.size()) - 1});
    for (int i = 0; i < rows; ++i)
      plan.tokens.push_back(static_cast<token_id>(random() % static_cast<unsigned>(vocab)));
    if (wants_logits)
      plan.logit_rows.push_back(static_cast<std::int32_t>(plan.tokens.size()) - 1);
  }

  /// Queues one step ahead, like the engine: returns when the previous step is done.
  void queue() { wait_for(std::exchange(last, runner->run(plan))); }

  static void wait_for(const step_output& step) {
    if (step.ready)
      step.ready->synchronise();
  }
};

model_bench::model_bench(const model_bench_options& options, const gpu_opener& open_gpu, const progress_fn& progress,
                         const log_sink& log)
  : options_(options) {
  options_.time_steps = options.peaks;
  const auto opening = clock::now();
  source_ = open_model(options.model);
  load_seconds_ = std::chrono::duration<double>(clock::now() - opening).count();
  const auto& source = source_;
  if (source.config.encoder)
    throw encodes_only();
  const int context = options.prompt + options.generate;
  if (context > source.config.max_context)
    throw failure(errc::bad_request,
                  "a prompt of " + std::to_string(options.prompt) + " and " + std::to_string(options.generate) +
                    " generated tokens exceed the " + std::to_string(source.config.max_context) + " that " +
                    source.name + " allows");
  name_ = source.name;
  device_ = open_device(options_, open_gpu);
  precision_ = precision_of(options, *source.tensors, device_->capabilities());
  weights_ = weights_kind(*source.tensors, precision_.weights);
  if (options.peaks) {
    log("measuring what " + device_->description() + " can do");
    const bool stored_as_floats = weights_ == "F32" || weights_ == "F16" || weights_ == "BF16" || weights_ == "bf16" ||
      weights_ == "F8_E4M3" || weights_ == "fp8";
    const auto multiplied = weights_ == "F16" ? kernels::dtype::f32 : precision_.compute; // f16 is not rounded to bf16
    peaks_ = device_->measure_peaks(multiplied,
                                    !stored_as_floats || precision_.weights == kernels::quantization::int8 ||
                                      precision_.weights == kernels::quantization::int4);
  }
  const auto loading = clock::now();
  const auto backend = device_->open();
  // The largest batch is told apart later; half of what is left beside one is for what steps keep.
  const auto need = memory_of(*backend, 1, options.step_tokens);
  const auto context_blocks = static_cast<std::size_t>(context / kernels::block_tokens + 1);
  const auto budget = budget_beside(source, options, precision_, *backend, need, context_blocks * need.kv_block,
                                    device_->available_memory());
  const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  threads_ = options.threads > 0 ? options.threads : cores;
  weights_in_memory_ = load_weights(source, options, precision_, *backend, progress, log, {}, budget);
  load_seconds_ += std::chrono::duration<double>(clock::now() - loading).count();
  const technique_model described{.config = source.config,
                                  .name = name_,
                                  .device = device_->description(),
                                  .changes_rows = device_->capabilities().changes_rows,
                                  .adds_products = device_->capabilities().adds_products,
                                  .compute = precision_.compute,
                                  .open = [this] { return device_->open(); },
                                  .log = log};
  for (const auto* each : repertoire())
    if (each->samples)
      for (auto& use : each->samples(options.techniques, described))
        features_.push_back(std::make_shared<const row_features>(row_features{.used = technique_uses(use)}));
}

memory_estimate model_bench::memory_of(const kernels::backend& backend, int batch, int rows) const {
  return estimate_memory(*source_.tensors, source_.config, precision_, *device_, backend,
                         {rows, batch, options_.prompt + options_.generate});
}

model_bench_result model_bench::measure(int batch) {
  const int context = options_.prompt + options_.generate;
  const int blocks_each = (context + kernels::block_tokens - 1) / kernels::block_tokens;
  const auto& config = weights_in_memory_->config;
  const int prompt_rows = std::min(options_.step_tokens, batch * options_.prompt);
  const auto memory = memory_of(*device_->open(), batch, std::max(prompt_rows, batch));
  require_memory("a batch of " + std::to_string(batch),
                 memory.steps() + size(batch) * size(blocks_each) * memory.kv_block, device_->available_memory(),
                 " for its steps and KV cache");
  run work(*this, batch, std::max(prompt_rows, batch), blocks_each);

  // Warm up: first touches of memory are not measured.
  if (work.recurrent)
    work.prefill(); // whole, as states go on where they have come to
  else if (options_.prompt > 0)
    work.prefill_step(0, prompt_rows);
  for (int i = 0; i < std::min(3, options_.generate); ++i) // a GPU records the second step of a shape
    work.decode_step(options_.prompt + i);
  work.finish();

  const auto* sparsity = work.runner->sparsity();
  const auto unread_before = sparsity != nullptr ? sparsity->unread_values() : 0;
  std::vector<double> prefills, decodes, steps;
  double on_device = 0, skipped = 0;
  for (int i = 0; i < options_.repeat; ++i) {
    if (options_.prompt > 0)
      prefills.push_back(work.prefill());
    double all = 0;
    const double device_before = work.runner->device_ms();
    const auto skipped_before = work.runner->skipped_bytes();
    for (int g = 0; g < options_.generate; ++g) {
      const auto start = clock::now();
      work.decode_step(options_.prompt + g);
      if (g + 1 == options_.generate)
        work.finish();
      steps.push_back(milliseconds(clock::now() - start).count());
      all += steps.back();
    }
    on_device += work.runner->device_ms() - device_before;
    skipped += static_cast<double>(work.runner->skipped_bytes() - skipped_before);
    if (options_.generate > 0)
      decodes.push_back(all);
  }

  const auto rate = [&](int tokens, double ms) { return ms > 0 ? 1000.0 * batch * tokens / ms : 0; };
  model_bench_result result;
  result.batch = batch;
  result.prefill_ms = median(prefills);
  result.prefill_tps = rate(options_.prompt, result.prefill_ms);
  result.decode_ms_per_step = median(steps);
  result.decode_tps = rate(options_.generate, median(decodes));
  result.peak_rss_bytes = peak_rss();

  const auto share = [](double part, double whole) { return whole > 0 ? part / whole : 0; };
  double bytes = 0;
  for (int g = 0; g < options_.generate; ++g)
    bytes += static_cast<double>(decode_bytes(*weights_in_memory_, precision_.kv, batch, options_.prompt + g + 1));
  bytes -= skipped / options_.repeat;
  result.decode_bytes_per_step = share(bytes, options_.generate);
  result.decode_skipped_bytes_per_step = share(skipped, options_.repeat * options_.generate);
  if (sparsity != nullptr) {
    result.decode_unread_values_per_step = share(static_cast<double>(sparsity->unread_values() - unread_before),
                                                 options_.repeat * options_.generate);
  }
  result.prefill_operations = options_.prompt > 0 ? batch * prefill_operations(config, options_.prompt) : 0;
  result.decode_bandwidth_share = share(share(bytes, median(decodes) / 1000), peaks_.bandwidth);
  result.prefill_peak_share = share(share(result.prefill_operations, result.prefill_ms / 1000), peaks_.operations);
  const double wall = std::accumulate(decodes.begin(), decodes.end(), 0.0);
  result.device_ms_per_step = share(on_device, options_.repeat * options_.generate);
  if (times_steps())
    result.step_overhead_share = share(wall - on_device, wall);
  return result;
}

} // namespace troupe::cli
