// GPUs that share a model: their streams, the memory in which each has its parts of results, and how they wait for each
// other. Used by one thread.
#pragma once

#include "kernels/cuda/cuda_backend.hpp"
#include "kernels/cuda/device_scratch.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>

namespace troupe::kernels::cuda {

/// A GPU of the group. Its parts of an op are queued on its own stream.
struct device_rank {
  /// With its device in use.
  device_rank(int device, std::unique_ptr<cuda_backend> backend) : device(device), backend(std::move(backend)) {}

  int device;
  std::unique_ptr<cuda_backend> backend;
  event done;
  device_scratch in, out, bias, qkv, attended; // copies of what the first GPU has, and what goes back there
  device_scratch activated, normed, residual;  // parts that stay for the ops that follow (divided_rows)
  tensor rotated;                              // what was rotated last, in `qkv`
};

inline void copy_tensor(const stream& on, const tensor& to, const tensor& from) {
  copy_rows(on, to.data, to.stride * size_of(to.type), from.data, from.stride * size_of(from.type),
            from.cols * size_of(from.type), from.rows);
}

/// Rows without gaps.
inline tensor packed_rows(device_scratch& memory, dtype type, std::size_t rows, std::size_t cols) {
  return {memory.reserve(std::max<std::size_t>(rows * cols, 1) * size_of(type)), type, rows, cols, cols};
}

struct device_group {
  std::deque<device_rank> ranks;

  const stream& queue() const { return ranks[0].backend->queue(); }
  void first() const { use_device(ranks[0].device); }

  /// Calls f(rank, index) with the rank's device in use, for all but the first, whose device is then in use again.
  template <class F>
  void on_others(const F& f) {
    for (std::size_t i = 1; i < ranks.size(); ++i) {
      use_device(ranks[i].device);
      f(ranks[i], i);
    }
    first();
  }
  template <class F>
  void on_all(const F& f) {
    f(ranks[0], std::size_t(0));
    on_others(f);
  }

  /// Lets all ranks queue their part behind everything that the first GPU has queued, and what it queues next wait for
  /// them.
  template <class F>
  void together(const F& f) {
    event before;
    before.record(queue());
    on_others([&](device_rank& r, std::size_t i) {
      wait_for(r.backend->queue(), before);
      f(r, i);
      r.done.record(r.backend->queue());
    });
    f(ranks[0], std::size_t(0));
    for (std::size_t i = 1; i < ranks.size(); ++i)
      wait_for(queue(), ranks[i].done);
  }
};

} // namespace troupe::kernels::cuda
