// Work that is recorded once and replayed as one launch. Recorded work must not wait, allocate or copy from pageable
// memory. Callers therefore run the ops of a batch once before they record them: that uploads plans and makes choices.
#pragma once

#include "kernels/cuda/device.hpp"

#include <functional>

namespace troupe::kernels::cuda {

class graph {
public:
  /// Records what `work` queues on the stream, without running it.
  graph(const stream& on, const std::function<void()>& work);
  ~graph();
  graph(const graph&) = delete;
  graph& operator=(const graph&) = delete;

  void replay(const stream& on) const;

private:
  void* instance_ = nullptr;
};

} // namespace troupe::kernels::cuda
