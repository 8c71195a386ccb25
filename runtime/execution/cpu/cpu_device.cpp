#include "runtime/execution/cpu/cpu_device.hpp"

#include "kernels/cpu/thread_pool.hpp"
#include "runtime/execution/cpu/cpu_step_runner.hpp"
#include "runtime/execution/cpu/cpu_step_sampler.hpp"
#include "runtime/support/available_memory.hpp"

#include <map>
#include <mutex>
#include <thread>

namespace troupe {

namespace {

class cpu_device final : public device {
public:
  explicit cpu_device(const kernels::cpu_options& options)
    : options_(options), description_(kernels::make_cpu_backend(options)->description()) {}

  std::string description() const override { return description_; }
  device_capabilities capabilities() const override {
    return {.hidden_states = true, .steering = true, .adapters = true, .dola = true};
  }
  std::unique_ptr<kernels::backend> open() const override {
    auto options = options_;
    options.pool = pool_of_this_thread();
    return kernels::make_cpu_backend(options);
  }
  std::size_t available_memory() const override { return troupe::available_memory(); }
  int decode_rows(int sequences) const override { return sequences; }

  // Products of 256 rows are as fast as larger ones, also where many cores share the memory.
  int most_step_tokens(int max_sequences) const override { return 256 + max_sequences; }

  std::size_t step_memory(const step_sizes& sizes, int vocab, std::size_t) const override {
    return cpu_step_runner::logits_bytes(static_cast<std::size_t>(sizes.logit_rows()), static_cast<std::size_t>(vocab));
  }

  swap_rates measure_moves(const kernels::kv_shape&) const override { return {}; }

  device_peaks measure_peaks(kernels::dtype compute, bool quantised) const override {
    return peaks_of(kernels::measure_machine(options_.threads), compute, quantised);
  }

  std::unique_ptr<step_runner> make_runner(runner_spec spec) const override {
    return std::make_unique<cpu_step_runner>(std::move(spec), open());
  }

  std::unique_ptr<step_sampler> make_sampler(sampler_spec spec, std::function<void()>) const override {
    return std::make_unique<cpu_step_sampler>(std::move(spec.eos_ids), std::move(spec.guided));
  }

private:
  /// A thread does one thing at a time, so its backends (of a model and its amateur) share their threads. Those of other
  /// threads (a draft model, adapters that are being loaded) compute at the same time.
  std::shared_ptr<kernels::thread_pool> pool_of_this_thread() const {
    const std::lock_guard lock(mutex_);
    std::erase_if(pools_, [](const auto& each) { return each.second.expired(); });
    auto& known = pools_[std::this_thread::get_id()];
    auto pool = known.lock();
    if (!pool)
      known = pool = std::make_shared<kernels::thread_pool>(options_.threads, options_.cores);
    return pool;
  }

  kernels::cpu_options options_;
  std::string description_;
  mutable std::mutex mutex_;
  mutable std::map<std::thread::id, std::weak_ptr<kernels::thread_pool>> pools_;
};

} // namespace

std::shared_ptr<const device> make_cpu_device(const kernels::cpu_options& options) {
  return std::make_shared<cpu_device>(options);
}

device_peaks peaks_of(const kernels::machine_peaks& peaks, kernels::dtype compute, bool quantised) {
  device_peaks found{peaks.read, "memory read", 0, ""};
  const auto consider = [&](double rate, const char* name) {
    if (found.operations == 0 && rate > 0) {
      found.operations = rate;
      found.operations_of = name;
    }
  };
  if (quantised) {
    consider(peaks.int8_amx, "int8 AMX");
    consider(peaks.int8_dot, "int8 dot");
    return found;
  }
  if (compute == kernels::dtype::bf16) {
    consider(peaks.bf16_amx, "bf16 AMX");
    consider(peaks.bf16_dot, "bf16 dot");
  }
  consider(peaks.f32_fma, "f32 FMA");
  return found;
}

} // namespace troupe
