#include "kernels/cuda/graph.hpp"

#include "kernels/cuda/native/status.hpp"

namespace troupe::kernels::cuda {

graph::graph(const stream& on, const std::function<void()>& work) {
  const auto queue = static_cast<cudaStream_t>(on.native());
  cudaGraph_t recorded = nullptr;
  check(cudaStreamBeginCapture(queue, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(queue, &recorded);
    if (recorded)
      cudaGraphDestroy(recorded);
    throw;
  }
  check(cudaStreamEndCapture(queue, &recorded), "cudaStreamEndCapture");
  cudaGraphExec_t made = nullptr;
  const auto status = cudaGraphInstantiate(&made, recorded, 0);
  cudaGraphDestroy(recorded);
  check(status, "cudaGraphInstantiate");
  instance_ = made;
}

graph::~graph() {
  if (instance_)
    cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(instance_));
}

void graph::replay(const stream& on) const {
  check(cudaGraphLaunch(static_cast<cudaGraphExec_t>(instance_), static_cast<cudaStream_t>(on.native())),
        "cudaGraphLaunch");
}

} // namespace troupe::kernels::cuda
