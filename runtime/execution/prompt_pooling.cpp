#include "runtime/execution/prompt_pooling.hpp"

namespace troupe {

void prompt_pooling::add(const step_plan& plan, std::span<const float> hidden, step_result& result) {
  if (plan.embeds.empty())
    return;
  const auto width = hidden.size() / plan.hidden_rows.size();
  for (const auto& demand : plan.embeds) {
    const auto states = hidden.subspan(static_cast<std::size_t>(demand.hidden_row) * width,
                                       static_cast<std::size_t>(demand.tokens) * width);
    if (demand.how != pooling::mean) { // a single state
      result.embeddings.push_back({demand.request, {states.begin(), states.end()}});
      continue;
    }
    auto& of = sums_[demand.request];
    of.values.resize(width);
    for (std::size_t row = 0; row < states.size(); row += width)
      for (std::size_t i = 0; i < width; ++i)
        of.values[i] += static_cast<double>(states[row + i]);
    of.tokens += demand.tokens;
    if (!demand.complete)
      continue;
    prompt_embedding done{demand.request, {}};
    for (const auto v : of.values)
      done.values.push_back(static_cast<float>(v / of.tokens));
    result.embeddings.push_back(std::move(done));
    sums_.erase(demand.request);
  }
}

} // namespace troupe
