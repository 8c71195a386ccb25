// Recorded decode steps, which replay all launches of a step as one. The first step of a shape runs unrecorded, which
// makes every choice and allocation; the second is recorded; later ones are replayed. Owned by the runner.
#pragma once

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/graph.hpp"

#include <functional>
#include <map>
#include <memory>
#include <vector>

namespace troupe {

class step_graphs {
public:
  /// Queues `work`, which calls the ops of a step of this shape. An empty shape is never recorded.
  void run(const kernels::cuda::cuda_backend& on, const std::vector<std::uint64_t>& shape,
           const std::function<void()>& work) {
    if (shape.empty())
      return work();
    if (moves_ != on.memory_moves() || recorded_.size() > most) // recordings refer to freed memory
      recorded_.clear();
    moves_ = on.memory_moves();
    if (const auto found = recorded_.find(shape); found != recorded_.end()) {
      if (!found->second)
        found->second = std::make_unique<kernels::cuda::graph>(on.queue(), work);
      found->second->replay(on.queue());
      return;
    }
    work();
    if (moves_ != on.memory_moves()) {
      recorded_.clear();
      moves_ = on.memory_moves();
    }
    recorded_.try_emplace(shape);
  }

private:
  static constexpr std::size_t most = 256;
  std::map<std::vector<std::uint64_t>, std::unique_ptr<kernels::cuda::graph>> recorded_; // null: seen once
  std::uint64_t moves_ = 0;
};

} // namespace troupe
