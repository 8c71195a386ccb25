#include "runtime/execution/cpu/cpu_device.hpp"

#include "kernels/block_transfer.hpp"
#include "kernels/cpu/thread_pool.hpp"
#include "kernels/sharded/sharded_backend.hpp"
#include "runtime/execution/core_plan.hpp"
#include "runtime/execution/cpu/cpu_step_runner.hpp"
#include "runtime/execution/cpu/cpu_step_sampler.hpp"
#include "runtime/support/error.hpp"
#include "runtime/support/machine/available_memory.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// The threads of backends that compute in turn.
struct thread_team {
  std::vector<std::unique_ptr<kernels::thread_pool>> ranks;
  std::unique_ptr<kernels::thread_pool> leaders; // of several ranks
};
using shared_team = std::shared_ptr<const thread_team>;

shared_team make_team(std::span<const kernels::cpu_options> ranks) {
  auto team = std::make_shared<thread_team>();
  const bool led = ranks.size() > 1;
  for (const auto& rank : ranks)
    team->ranks.push_back(std::make_unique<kernels::thread_pool>(rank.threads, rank.cores, !led));
  if (led)
    team->leaders = std::make_unique<kernels::thread_pool>(static_cast<int>(ranks.size()));
  return team;
}

std::unique_ptr<kernels::backend> make_backend(std::span<const kernels::cpu_options> ranks, const shared_team& team) {
  std::vector<std::unique_ptr<kernels::backend>> backends;
  // Each pool keeps the team alive.
  kernels::rank_leaders leaders{{team, team->leaders.get()}, {}};
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    auto own = ranks[i];
    own.pool = {team, team->ranks[i].get()};
    backends.push_back(kernels::make_cpu_backend(own));
    leaders.cores.push_back(own.cores);
  }
  return backends.size() == 1 ? std::move(backends.front())
                              : kernels::make_sharded_backend(std::move(backends), leaders);
}

class cpu_device final : public device {
public:
  explicit cpu_device(std::vector<kernels::cpu_options> ranks)
    : ranks_(std::move(ranks)), description_(make_backend(ranks_, make_team(ranks_))->description()) {}

  std::string description() const override { return description_; }
  device_capabilities capabilities() const override {
    return {.hidden_states = true, .changes_rows = true, .adds_products = true, .looks_inside = true, .trees = true};
  }
  std::unique_ptr<kernels::backend> open() const override { return make_backend(ranks_, team_of_this_thread()); }
  std::shared_ptr<const device> part_of(const core_layout& layout, int replica, int stage) const override {
    const int ranks = static_cast<int>(ranks_.size()), each = layout.stages * ranks, most = threads() / each;
    if (layout.stages > 1 && most == 0)
      refuse_field("stages",
                   "must be at most " + std::to_string(threads() / ranks) + ", one for each " +
                     (ranks > 1 ? std::to_string(ranks) + " threads" : "thread") + " to compute with, not " +
                     std::to_string(layout.stages));
    if (layout.replicas > most)
      refuse_field("replicas",
                   "must be at most " + std::to_string(most) + ", one for each " +
                     (each > 1 ? std::to_string(each) + " threads" : "thread") + " to compute with, not " +
                     std::to_string(layout.replicas));
    const core_plan plan(threads(), usable_cores(),
                         {.replicas = layout.replicas, .stages = layout.stages, .ranks = ranks});
    auto own = ranks_;
    for (int i = 0; i < ranks; ++i) {
      const auto& group = plan.group(replica, stage, i);
      auto& rank = own[static_cast<std::size_t>(i)];
      rank.threads = group.threads;
      rank.cores = group.cores;
    }
    return std::make_shared<cpu_device>(std::move(own));
  }
  std::size_t available_memory() const override { return troupe::available_memory(); }
  int decode_rows(int sequences) const override { return sequences; }

  // Products of 256 rows are as fast as larger ones, also where many cores share the memory.
  int most_step_tokens(int max_sequences) const override { return 256 + max_sequences; }

  std::size_t step_memory(const step_sizes& sizes, int vocab, std::size_t) const override {
    return cpu_step_runner::logits_bytes(static_cast<std::size_t>(sizes.logit_rows()), static_cast<std::size_t>(vocab));
  }

  swap_rates measure_moves(const kernels::kv_shape& shape) const override {
    const auto backend = open();
    auto& transfer = dynamic_cast<kernels::block_transfer&>(*backend);
    const auto cache = backend->make_kv_cache(shape);
    const auto block = shape.block_bytes();
    const auto host = backend->allocate(block * shape.blocks);
    std::vector<kernels::block_export> out;
    std::vector<kernels::block_import> in;
    for (std::size_t i = 0; i < shape.blocks; ++i) {
      auto* place = static_cast<char*>(host.get()) + i * block;
      out.push_back({static_cast<std::int32_t>(i), place});
      in.push_back({place, static_cast<std::int32_t>(i)});
    }
    const auto rate = [&](const auto& move) {
      double best = 0;
      for (int run = 0; run < 3; ++run) {
        const auto began = std::chrono::steady_clock::now();
        move();
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
        best = std::max(best, static_cast<double>(block * shape.blocks) / std::max(1e-9, took.count()));
      }
      return best;
    };
    return {block, rate([&] { transfer.export_blocks(*cache, out); }),
            rate([&] { transfer.import_blocks(*cache, in); })};
  }

  device_peaks measure_peaks(kernels::dtype compute, bool quantised) const override {
    return peaks_of(kernels::measure_machine(threads()), compute, quantised);
  }

  std::unique_ptr<step_runner> make_runner(runner_spec spec) const override {
    return std::make_unique<cpu_step_runner>(std::move(spec), open(), threads());
  }

  std::unique_ptr<step_sampler> make_sampler(sampler_spec spec, std::function<void()>) const override {
    cpu_step_sampler::division divided{.threads = threads()};
    for (const auto& rank : ranks_)
      divided.cores.insert(divided.cores.end(), rank.cores.begin(), rank.cores.end());
    return std::make_unique<cpu_step_sampler>(std::move(spec.eos_ids), std::move(spec.host), std::move(divided));
  }

private:
  int threads() const {
    int all = 0;
    for (const auto& rank : ranks_)
      all += rank.threads;
    return all;
  }

  /// A thread does one thing at a time, so its backends (of a model and one beside it) share their threads. Those of
  /// other threads (a model that guesses, files of techniques that are being loaded) compute at the same time.
  shared_team team_of_this_thread() const {
    const std::lock_guard lock(mutex_);
    std::erase_if(teams_, [](const auto& each) { return each.second.expired(); });
    auto& known = teams_[std::this_thread::get_id()];
    auto team = known.lock();
    if (!team)
      known = team = make_team(ranks_);
    return team;
  }

  std::vector<kernels::cpu_options> ranks_;
  std::string description_;
  mutable std::mutex mutex_;
  mutable std::map<std::thread::id, std::weak_ptr<const thread_team>> teams_;
};

} // namespace

std::shared_ptr<const device> make_cpu_device(std::vector<kernels::cpu_options> ranks) {
  return std::make_shared<cpu_device>(std::move(ranks));
}

device_peaks peaks_of(const kernels::machine_peaks& peaks, kernels::dtype compute, bool quantised) {
  device_peaks found{peaks.read, "memory read", 0, ""};
  const auto consider = [&](double rate, const char* name) {
    if (rate > found.operations) {
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
