#include "runtime/model/measuring/last_states.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/kv_blocks.hpp"

#include <algorithm>
#include <numeric>
#include <string>

namespace troupe {

std::vector<std::vector<float>> last_states(decoder& graph, kernels::backend& backend, kernels::kv_cache& cache,
                                            std::span<const token_id> prompt) {
  const auto context = as_size(graph.max_context());
  if (prompt.empty() || prompt.size() > context)
    throw failure(errc::bad_request,
                  "a prompt has " + std::to_string(prompt.size()) + " tokens, not 1 to " + std::to_string(context));
  std::vector<std::int32_t> table(blocks_for(prompt.size()));
  std::iota(table.begin(), table.end(), 0);
  const auto& config = graph.weights().config;
  std::vector<std::vector<float>> states(as_size(config.layers), std::vector<float>(as_size(config.hidden)));
  const auto keep_last = [&](int passed, const kernels::tensor& residual) {
    if (passed == 0)
      return;
    auto* last = static_cast<float*>(residual.data) + (residual.rows - 1) * residual.stride;
    backend.download(states[as_size(passed - 1)].data(), {last, residual.type, 1, residual.cols, residual.stride});
  };
  const auto most = as_size(graph.max_rows());
  for (std::size_t first = 0; first < prompt.size(); first += most) {
    const auto rows = std::min(most, prompt.size() - first);
    const kernels::sequence_rows sequence{.rows = static_cast<std::int32_t>(rows),
                                          .first_position = static_cast<std::int32_t>(first),
                                          .length = static_cast<std::int32_t>(prompt.size())};
    const bool complete = first + rows == prompt.size();
    graph.forward(prompt.subspan(first, rows), {std::span(&sequence, 1), table}, {}, cache, {}, {}, {},
                  complete ? layer_hook(keep_last) : layer_hook());
  }
  return states;
}

} // namespace troupe
