#include "runtime/execution/gpu/gpu_device.hpp"

#include "runtime/execution/gpu/gpu_step_runner.hpp"
#include "runtime/execution/gpu/gpu_step_sampler.hpp"

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/machine.hpp"
#include "runtime/execution/gpu/decode_buckets.hpp"
#include "runtime/support/error.hpp"

#include <algorithm>

namespace troupe {

namespace {

namespace cuda = kernels::cuda;

class gpu_device final : public device {
public:
  explicit gpu_device(const gpu_options& options) : options_(options), description_(open_cuda()->description()) {}

  std::string description() const override { return description_; }

  device_capabilities capabilities() const override {
    return {.schedule_invariant = options_.deterministic,
            .own_memory = true,
            .own_thread = true,
            .f16_as_bf16 = true,
            .step_times = options_.time_steps,
            .hidden_states = true,
            .trees = true,
            .ranks_by_kv_head = options_.ranks};
  }

  std::unique_ptr<kernels::backend> open() const override { return open_cuda(); }

  std::size_t available_memory() const override {
    const auto info = cuda::select_device(options_.index);
    return info.available - std::min(info.available, info.overhead);
  }

  int decode_rows(int sequences) const override { return bucket_of(sequences); }

  /// With quantised weights a step costs as much as thousands of rows before its first one: they are expanded to bf16
  /// (tests/cuda/step_table.py).
  int most_step_tokens(int max_sequences) const override { return 8192 + max_sequences; }

  std::size_t step_memory(const step_sizes& sizes, int vocab, std::size_t kv_block) const override {
    const auto row = static_cast<std::size_t>(vocab) * sizeof(float);
    const auto decodes = bucket_of(sizes.sequences);
    if (vocab == 0) // layers without the head
      return kv_block + static_cast<std::size_t>(sizes.sequences) * sizeof(std::int32_t);
    return gpu_step_runner::logits_buffers * row * static_cast<std::size_t>(std::max(decodes, sizes.logit_rows())) +
      row * static_cast<std::size_t>(decodes) + kv_block + gpu_step_sampler::memory(sizes, vocab);
  }

  swap_rates measure_moves(const kernels::kv_shape& shape) const override {
    const auto backend = open_cuda();
    const auto cache = backend->make_kv_cache(shape);
    const auto block = shape.block_bytes();
    const auto host = cuda::allocate_pinned(block * shape.blocks);
    cuda::stream timed;
    const auto rate = [&](const auto& move) {
      double best = 0;
      for (int run = 0; run < 3; ++run) {
        timed.start_timer();
        for (std::size_t i = 0; i < shape.blocks; ++i)
          move(static_cast<std::int32_t>(i), static_cast<char*>(host.get()) + i * block);
        const double seconds = std::max(1e-9, timed.stop_timer() / 1e3);
        best = std::max(best, static_cast<double>(block * shape.blocks) / seconds);
      }
      return best;
    };
    return {block, rate([&](std::int32_t i, void* to) { backend->save_block(timed, *cache, i, to); }),
            rate([&](std::int32_t i, void* from) { backend->restore_block(timed, *cache, i, from); })};
  }

  device_peaks measure_peaks(kernels::dtype, bool) const override {
    const auto peaks = cuda::measure_gpu(options_.index);
    return {peaks.copy, "device copy", peaks.bf16_product, peaks.bf16_product > 0 ? "cuBLASLt bf16" : ""};
  }

  std::unique_ptr<step_runner> make_runner(runner_spec spec) const override {
    auto backend = open_cuda();
    if (const auto part = spec.weights->config.part(); part.embeds && !part.heads)
      map_others();
    return std::make_unique<gpu_step_runner>(std::move(spec), std::move(backend), options_.graphs, options_.time_steps);
  }

  std::unique_ptr<step_sampler> make_sampler(sampler_spec spec, std::function<void()> sampled) const override {
    cuda::select_device(options_.index);
    return std::make_unique<gpu_step_sampler>(std::move(spec.eos_ids), spec.vocab, spec.max_sequences,
                                              std::move(sampled), std::move(spec.host));
  }

private:
  std::unique_ptr<cuda::cuda_backend> open_cuda() const {
    const cuda::cuda_options options{
      .device = options_.index, .deterministic = options_.deterministic, .unified_maximum = options_.unified_maximum};
    return options_.ranks == 1 ? cuda::make_cuda_backend(options) : cuda::make_device_ranks(options, options_.ranks);
  }

  /// A sampler of a later stage may have its slots on any of them.
  void map_others() const {
    for (int other = 0, all = cuda::device_count(); other < all; ++other)
      try {
        if (other != options_.index)
          cuda::map_device(other);
      } catch (const kernels::device_error&) { // copies then go through the host
      }
  }

  gpu_options options_;
  std::string description_;
};

} // namespace

std::shared_ptr<const device> open_gpu(const gpu_options& options) {
  std::string why_none;
  if (const int count = cuda::device_count(&why_none); options.index >= count)
    throw failure(errc::bad_request,
                  "there is no device `cuda:" + std::to_string(options.index) +
                    "`: " + (count == 0 ? why_none : "the last is cuda:" + std::to_string(count - 1)),
                  "device");
  if (const int count = cuda::device_count(&why_none); options.ranks > count - options.index)
    refuse_field("tensor_parallel",
                 "" + std::to_string(options.ranks) + " needs as many GPUs from cuda:" + std::to_string(options.index) +
                   " on, but the last is cuda:" + std::to_string(count - 1));
  return std::make_shared<gpu_device>(options);
}

} // namespace troupe
