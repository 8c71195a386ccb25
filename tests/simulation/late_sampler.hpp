// A step_sampler as a GPU's is: tokens are left on the device, and reported once it comes to them. Samples as a CPU does, when the
// simulation says so or a runner needs the tokens. Used by one sampler.
#pragma once

#include "runtime/execution/cpu/cpu_step_sampler.hpp"
#include "tests/simulation/hash_device.hpp"

#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace troupe::simulation {

class late_sampler final : public step_sampler {
public:
  late_sampler(sampler_spec spec, std::function<void()> sampled, std::shared_ptr<outside_work> work);

  void prepare(const step_plan& plan) override { core_->host.prepare(plan); }
  bool lacks_masks(const step_plan& plan) override { return core_->host.lacks_masks(plan); }
  step_tokens sample(const std::shared_ptr<const step_plan>& plan, const step_output& logits) override;
  step_result collect() override;
  step_result collect_late() override;
  step_result settle(const verdict& its) override { return core_->host.settle(its); }
  void check() const override {}

private:
  /// Outlives the sampler in work that is not done.
  struct core {
    cpu_step_sampler host;
    std::vector<std::int32_t> slots; // on the device
    std::deque<step_result> done;
    explicit core(const sampler_spec& spec);
  };
  class sample_event;

  std::shared_ptr<const sample_event> last_;
  std::shared_ptr<core> core_;
  std::function<void()> sampled_, late_;
  std::shared_ptr<outside_work> work_;
  std::size_t uncollected_ = 0;
};

} // namespace troupe::simulation
