// Pools the hidden states of prompts into their embeddings. A prompt's states come in order, over as many steps as its
// prefill takes. They are summed one by one, so that the sum does not depend on how they were cut into steps. Owned by
// one step_sampler; single-threaded.
#pragma once

#include "runtime/scheduling/step.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace troupe {

class prompt_pooling {
public:
  /// Takes a step's `hidden`, f32 [plan.hidden_rows.size(), hidden]; appends the embeddings that are complete.
  void add(const step_plan& plan, std::span<const float> hidden, step_result& result);

  /// The request has ended.
  void forget(sequence_id id) { sums_.erase(id.request); }

  /// Prompts of which only a part has come.
  std::size_t size() const { return sums_.size(); }

private:
  struct sum {
    std::vector<double> values;
    std::int32_t tokens = 0;
  };
  std::map<std::uint64_t, sum> sums_; // by request
};

} // namespace troupe
