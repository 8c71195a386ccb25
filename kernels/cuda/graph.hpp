// Work that is recorded once and replayed as one launch. What is recorded must not wait, allocate or copy from pageable
// memory: ops have been called once for the batch before, so that plans are uploaded and choices made.
#pragma once

#include "kernels/cuda/device.hpp"

#include <functional>

namespace troupe::kernels::cuda {

class graph {
public:
  /// Records what `work` queues on the stream; nothing of it runs yet.
  graph(const stream& on, const std::function<void()>& work);
  ~graph();
  graph(const graph&) = delete;
  graph& operator=(const graph&) = delete;

  void replay(const stream& on) const;

private:
  void* instance_ = nullptr;
};

} // namespace troupe::kernels::cuda
