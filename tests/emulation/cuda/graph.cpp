#include "kernels/cuda/graph.hpp"

#include "tests/emulation/cuda/queues.hpp"

namespace troupe::kernels::cuda {

using recording = std::vector<emulated::work>;

graph::graph(const stream& on, const std::function<void()>& work) {
  emulated::start_recording(on);
  try {
    work();
  } catch (...) {
    emulated::discard_recording(on);
    throw;
  }
  instance_ = new recording(emulated::finish_recording(on));
}

graph::~graph() { delete static_cast<recording*>(instance_); }

void graph::replay(const stream& on) const {
  emulated::count_replay();
  emulated::enqueue(on, [all = *static_cast<const recording*>(instance_)] {
    for (const auto& one : all)
      one();
  });
}

} // namespace troupe::kernels::cuda
