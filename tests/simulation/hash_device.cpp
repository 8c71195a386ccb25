#include "tests/simulation/hash_device.hpp"

#include "tests/simulation/hash_runner.hpp"
#include "tests/simulation/late_sampler.hpp"

#include <utility>

namespace troupe::simulation {

namespace {

class hash_device final : public device {
public:
  hash_device(hash_device_settings settings, std::shared_ptr<outside_work> work)
    : settings_(settings), work_(std::move(work)) {}

  std::string description() const override { return "hashes"; }
  device_capabilities capabilities() const override {
    return {.own_thread = settings_.asynchronous, .hidden_states = true};
  }
  std::unique_ptr<kernels::backend> open() const override { return nullptr; }
  std::size_t available_memory() const override { return std::size_t(1) << 40; }
  int decode_rows(int sequences) const override { return sequences; }
  int most_step_tokens(int) const override { return 64; }
  std::size_t step_memory(const step_sizes&, int, std::size_t) const override { return 0; }
  swap_rates measure_moves(const kernels::kv_shape&) const override { return {}; }
  device_peaks measure_peaks(kernels::dtype, bool) const override { return {}; }

  std::unique_ptr<step_runner> make_runner(runner_spec spec) const override {
    return std::make_unique<hash_runner>(spec, settings_);
  }

  std::unique_ptr<step_sampler> make_sampler(sampler_spec spec, std::function<void()> sampled) const override {
    spec.host.threads = 0;
    if (settings_.late_masks)
      spec.host.elsewhere = [work = work_](std::function<void()> job) { work->masks.push_back(std::move(job)); };
    if (settings_.asynchronous)
      return std::make_unique<late_sampler>(std::move(spec), std::move(sampled), work_);
    return std::make_unique<cpu_step_sampler>(spec.eos_ids, spec.host);
  }

private:
  hash_device_settings settings_;
  std::shared_ptr<outside_work> work_;
};

} // namespace

broken_promise::broken_promise(const std::string& what) : std::logic_error(what) {
  if (first.empty())
    first = what;
}

std::shared_ptr<const device> make_hash_device(hash_device_settings settings, std::shared_ptr<outside_work> work) {
  return std::make_shared<hash_device>(settings, std::move(work));
}

std::size_t hash_block_bytes() { return kernels::block_tokens * sizeof(std::uint64_t); }

} // namespace troupe::simulation
