// Tracks the KV blocks that steps in flight read or write, because copies of other blocks need not wait for these
// steps. Single-threaded; owned by the runner.
#pragma once

#include "kernels/device_event.hpp"
#include "runtime/scheduling/step.hpp"

#include <algorithm>
#include <deque>
#include <vector>

namespace troupe {

class block_hazards {
public:
  /// Adds a step, which uses the blocks of its tables until `done` happens. Steps that are done are forgotten: where no
  /// blocks are moved, nobody asks for them.
  void add(const step_plan& plan, kernels::device_event_ptr done) {
    forget_done();
    auto blocks = plan.block_tables;
    std::ranges::sort(blocks);
    steps_.push_back({std::move(blocks), std::move(done)});
  }

  /// Whether an unfinished step uses the block.
  bool in_use(std::int32_t block) {
    forget_done();
    return std::ranges::any_of(steps_, [block](auto& s) { return std::ranges::binary_search(s.blocks, block); });
  }

private:
  struct step {
    std::vector<std::int32_t> blocks; // ascending
    kernels::device_event_ptr done;
  };

  void forget_done() {
    while (!steps_.empty() && steps_.front().done->happened())
      steps_.pop_front();
  }

  std::deque<step> steps_; // oldest first
};

} // namespace troupe
