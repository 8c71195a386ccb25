#include "tests/simulation/late_sampler.hpp"

#include "tests/actors/failing_memory.hpp"

#include <new>
#include <utility>

namespace troupe::simulation {

/// A sample on the device's stream: done once, when its turn comes or somebody waits for it, behind those before it.
class late_sampler::sample_event final : public kernels::device_event {
public:
  sample_event(std::shared_ptr<core> c, std::shared_ptr<const step_plan> plan, step_output logits,
               std::shared_ptr<const sample_event> before)
    : core_(std::move(c)), plan_(std::move(plan)), logits_(std::move(logits)), before_(std::move(before)) {}

  bool happened() const override { return !plan_; }

  void synchronise() const override {
    if (!plan_)
      return;
    if (const auto before = std::exchange(before_, nullptr))
      before->synchronise();
    const auto plan = std::exchange(plan_, nullptr);
    const auto tokens = core_->host.sample(plan, std::exchange(logits_, {}));
    for (const auto& each : tokens.sampled->sampled)
      core_->slots.at(static_cast<std::size_t>(each.slot)) = each.token.id;
    core_->done.push_back(*tokens.sampled);
    core_ = {};
  }

private:
  mutable std::shared_ptr<core> core_;
  mutable std::shared_ptr<const step_plan> plan_;
  mutable step_output logits_;
  mutable std::shared_ptr<const sample_event> before_;
};

late_sampler::core::core(const sampler_spec& spec)
  : host(spec.eos_ids, spec.host), slots(static_cast<std::size_t>(spec.max_sequences)) {}

late_sampler::late_sampler(sampler_spec spec, std::function<void()> sampled, std::shared_ptr<outside_work> work)
  : core_(std::make_shared<core>(spec)),
    sampled_(std::move(sampled)),
    late_(std::move(spec.host.late)),
    work_(std::move(work)) {}

step_tokens late_sampler::sample(const std::shared_ptr<const step_plan>& plan, const step_output& logits) {
  const auto event = std::make_shared<const sample_event>(core_, plan, logits, last_);
  last_ = event;
  ++uncollected_;
  work_->device.push_back([event, tell = sampled_] {
    event->synchronise();
    tell();
  });
  return {plan->step, nullptr, {core_, core_->slots.data()}, event};
}

step_result late_sampler::collect() {
  if (core_->done.empty()) // sampling found no memory
    throw std::bad_alloc();
  auto result = std::move(core_->done.front());
  core_->done.pop_front();
  if (--uncollected_ == 0) {
    const test::no_failing_allocation patience; // in the product another thread tells, and waits until there is memory
    late_();                                    // what was sampled meanwhile, behind this
  }
  return result;
}

// Behind what was deferred.
step_result late_sampler::collect_late() { return uncollected_ > 0 ? step_result() : core_->host.collect_late(); }

} // namespace troupe::simulation
