// A device whose steps can be made to fail or block, for tests of supervision.
#pragma once

#include "runtime/execution/device.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <utility>

namespace troupe::testing {

/// Shared by all runners of one engine.
struct faults {
  std::function<void(int)> on_step;              // at the start of step n since the engine's start, from 1
  std::function<void(const step_plan&)> on_plan; // likewise
  std::function<void(int)> on_runner;            // before runner n is made
  std::function<void()> late;                    // how the last sampler hears of masks
  std::atomic<int> steps = 0, runners = 0;
  std::atomic<int> alive = 0, most_alive = 0; // runners, each with a KV cache
};

class faulty_runner final : public step_runner {
public:
  faulty_runner(const std::function<std::unique_ptr<step_runner>()>& make, std::shared_ptr<faults> script)
    : script_(std::move(script)) {
    if (const int n = ++script_->runners; script_->on_runner)
      script_->on_runner(n);
    const int alive = ++script_->alive;
    for (int most = script_->most_alive; alive > most && !script_->most_alive.compare_exchange_weak(most, alive);) {
    }
    real_ = make();
  }

  ~faulty_runner() override {
    real_.reset();
    --script_->alive;
  }

  void receive(const step_tokens& tokens) override { real_->receive(tokens); }

  step_output run(const step_plan& plan, const stage_rows* before = nullptr) override {
    if (const int n = ++script_->steps; script_->on_step)
      script_->on_step(n);
    if (script_->on_plan)
      script_->on_plan(plan);
    return real_->run(plan, before);
  }

  void move(std::span<const block_move> moves) override { real_->move(moves); }
  std::size_t block_bytes() const override { return real_->block_bytes(); }

private:
  std::unique_ptr<step_runner> real_;
  std::shared_ptr<faults> script_;
};

class faulty_device final : public device {
public:
  faulty_device(std::shared_ptr<const device> real, std::shared_ptr<faults> script)
    : real_(std::move(real)), script_(std::move(script)) {}

  std::string description() const override { return real_->description(); }
  device_capabilities capabilities() const override { return real_->capabilities(); }
  std::unique_ptr<kernels::backend> open() const override { return real_->open(); }
  std::size_t available_memory() const override { return real_->available_memory(); }
  int decode_rows(int sequences) const override { return real_->decode_rows(sequences); }
  int most_step_tokens(int max_sequences) const override { return real_->most_step_tokens(max_sequences); }
  std::size_t step_memory(const step_sizes& sizes, int vocab, std::size_t kv_block) const override {
    return real_->step_memory(sizes, vocab, kv_block);
  }
  swap_rates measure_moves(const kernels::kv_shape& shape) const override { return real_->measure_moves(shape); }
  device_peaks measure_peaks(kernels::dtype compute, bool quantised) const override {
    return real_->measure_peaks(compute, quantised);
  }

  std::unique_ptr<step_runner> make_runner(runner_spec spec) const override {
    return std::make_unique<faulty_runner>([&] { return real_->make_runner(std::move(spec)); }, script_);
  }
  std::unique_ptr<step_sampler> make_sampler(sampler_spec spec, std::function<void()> sampled) const override {
    script_->late = spec.host.late;
    return real_->make_sampler(std::move(spec), std::move(sampled));
  }

private:
  std::shared_ptr<const device> real_;
  std::shared_ptr<faults> script_;
};

} // namespace troupe::testing
