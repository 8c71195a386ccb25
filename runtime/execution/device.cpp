#include "runtime/execution/device.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/engine/loader.hpp"
#include "runtime/engine/memory_plan.hpp"
#include "runtime/execution/cpu/cpu_step_runner.hpp"
#include "runtime/execution/cpu/cpu_step_sampler.hpp"
#include "runtime/support/error.hpp"

#include <charconv>

namespace troupe {

namespace {

class cpu_device final : public device {
public:
  explicit cpu_device(const kernels::cpu_options& options)
    : options_(options), description_(kernels::make_cpu_backend(options)->description()) {}

  std::string description() const override { return description_; }
  std::unique_ptr<kernels::backend> open() const override { return kernels::make_cpu_backend(options_); }
  std::size_t available_memory() const override { return troupe::available_memory(); }
  int decode_rows(int sequences) const override { return sequences; }
  // 64 rows of prompts reach nearly the rate of 512 (tests/bench/latency.py) and fit in beside a full batch.
  int default_step_tokens(int max_sequences) const override { return 64 + max_sequences; }
  std::size_t step_memory(const run_sizes&) const override { return 0; } // logits come and go
  bool schedule_invariant() const override { return true; }
  bool works_by_itself() const override { return false; }
  swap_rates measure_moves(const kernels::kv_shape&) const override { return {}; }

  device_peaks measure_peaks(kernels::dtype compute, bool quantised) const override {
    return peaks_of(kernels::measure_machine(options_.threads), compute, quantised);
  }

  std::unique_ptr<step_runner> make_runner(std::shared_ptr<const loaded_model> model) const override {
    return std::make_unique<cpu_step_runner>(std::move(model), open());
  }

  std::unique_ptr<step_sampler> make_sampler(const loaded_model& model, std::function<void()>) const override {
    return std::make_unique<cpu_step_sampler>(model.info.defaults.stops);
  }

private:
  kernels::cpu_options options_;
  std::string description_;
};

std::shared_ptr<const device> open_cpu(const compute_options& options,
                                       kernels::isa target = kernels::available_isas().back()) {
  if (options.unified_maximum)
    throw failure(errc::bad_request, "`unified_maximum` is for NVIDIA GPUs", "unified_maximum");
  return std::make_shared<cpu_device>(kernels::cpu_options{.threads = options.threads, .target = target});
}

/// What is for CPUs only.
void check_gpu(const compute_options& options) {
  if (!options.packed_cache.empty())
    throw failure(errc::bad_request, "`packed_cache` is for CPUs", "packed_cache");
}

/// The first GPU; null where there is none, and where it does not work, which `why` tells.
std::shared_ptr<const device> try_gpu(const gpu_opener& open_gpu, const gpu_options& first, std::string& why) {
  try {
    why = "it is the first GPU";
    if (open_gpu)
      return open_gpu(first);
    why.clear();
  } catch (const failure&) { // there is none, which is nothing to tell whoever has not asked for one
    why.clear();
  } catch (const kernels::device_error& e) {
    why = "the first GPU does not work: " + std::string(e.what());
  }
  return nullptr;
}

} // namespace

device_peaks peaks_of(const kernels::machine_peaks& peaks, kernels::dtype compute, bool quantised) {
  device_peaks found{peaks.read, "memory read", 0, ""};
  const auto take = [&](double rate, const char* name) {
    if (found.operations == 0 && rate > 0) {
      found.operations = rate;
      found.operations_of = name;
    }
  };
  if (quantised) {
    take(peaks.int8_amx, "int8 AMX");
    take(peaks.int8_dot, "int8 dot");
    return found;
  }
  if (compute == kernels::dtype::bf16) {
    take(peaks.bf16_amx, "bf16 AMX");
    take(peaks.bf16_dot, "bf16 dot");
  }
  take(peaks.f32_fma, "f32 FMA");
  return found;
}

std::shared_ptr<const device> open_device(const compute_options& options, const gpu_opener& open_gpu,
                                          std::string* why) {
  const auto& name = options.device;
  gpu_options gpu{0, options.deterministic, options.graphs, options.unified_maximum, options.time_steps};
  if (name == "cpu")
    return open_cpu(options);
  if (name == "auto") {
    std::string reason;
    auto found = try_gpu(open_gpu, gpu, reason);
    if (why)
      *why = reason;
    if (!found)
      return open_cpu(options);
    check_gpu(options);
    return found;
  }
  std::string known = "auto, cpu";
  for (auto target : kernels::available_isas()) {
    const auto with_target = "cpu:" + std::string(kernels::to_string(target));
    if (name == with_target)
      return open_cpu(options, target);
    known += ", " + with_target;
  }
  constexpr std::string_view cuda = "cuda:";
  if (name.starts_with(cuda)) {
    const auto* end = name.data() + name.size();
    const auto [stop, problem] = std::from_chars(name.data() + cuda.size(), end, gpu.index);
    if (problem == std::errc() && stop == end && gpu.index >= 0) {
      if (!open_gpu)
        throw failure(errc::bad_request, "there is no device `" + name + "`: this program was built without CUDA",
                      "device");
      check_gpu(options);
      return open_gpu(gpu);
    }
  }
  throw failure(errc::bad_request,
                "there is no device `" + name + "` here; there are " + known +
                  (open_gpu ? ", and cuda:N for NVIDIA GPU N" : ""),
                "device");
}

} // namespace troupe
