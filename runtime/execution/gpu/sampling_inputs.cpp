#include "runtime/execution/gpu/sampling_inputs.hpp"

#include "runtime/execution/gpu/sampling_row.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace troupe {

namespace {

namespace cuda = kernels::cuda;

/// The guess in a demand's row, behind those before it in its line.
std::vector<token_id> guesses_until(const step_plan& plan, const sample_demand& demand, std::int32_t row) {
  std::vector<token_id> guesses;
  for (; row > 0; row = demand.parents ? (*demand.parents)[static_cast<std::size_t>(row) - 1] + 1 : row - 1)
    guesses.push_back(plan.token_of(demand.logit_row + row));
  std::ranges::reverse(guesses);
  return guesses;
}

} // namespace

void sampling_inputs::add(const sample_demand& demand, const step_plan& plan, const sequence_state& state,
                          std::int32_t in_flight) {
  for (std::int32_t i = 0; i <= demand.guesses; ++i)
    add_row(demand, plan, state, in_flight, i);
}

void sampling_inputs::add_row(const sample_demand& demand, const step_plan& plan, const sequence_state& state,
                              std::int32_t in_flight, std::int32_t i) {
  const auto& p = state.params();
  const auto guesses = guesses_until(plan, demand, i);
  const auto unknown = static_cast<std::uint64_t>(in_flight) + guesses.size(); // tokens that `state` lacks
  auto row = sampling_row_of(p);
  row.logit_row = demand.logit_row + i;
  row.position = state.position() + unknown;
  row.index = state.index();
  row.slot = demand.slot;
  if (state.uses_counts()) {
    row.pending = in_flight > 0;
    const auto before = counts_.size();
    for (const auto& entry : state.counts().distinct())
      if (is_known(entry.id))
        counts_.push_back({entry.id, entry.generated});
    for (const auto guess : guesses) {
      const auto known = std::find_if(counts_.begin() + static_cast<std::ptrdiff_t>(before), counts_.end(),
                                      [guess](const auto& entry) { return entry.id == guess; });
      if (known != counts_.end())
        ++known->generated;
      else
        counts_.push_back({guess, 1});
    }
    row.counted = static_cast<std::int32_t>(counts_.size() - before);
  }
  const auto biases_before = biases_.size();
  for (const auto& [id, bias] : p.logit_bias)
    if (is_known(id))
      biases_.push_back({id, bias});
  row.bias_count = static_cast<std::int32_t>(biases_.size() - biases_before);
  if (state.emitted() + unknown < static_cast<std::uint64_t>(p.min_tokens)) {
    const auto before = masked_.size();
    masked_.insert(masked_.end(), state.eos_ids().begin(), state.eos_ids().end());
    std::ranges::copy_if(p.stop_token_ids, std::back_inserter(masked_), [&](token_id id) { return is_known(id); });
    row.masked_count = static_cast<std::int32_t>(masked_.size() - before);
  }
  rows_.push_back(row);
}

void sampling_inputs::write(char* host, const char* device) const {
  auto rows = rows_;
  const auto biases = bytes_of(rows), counts = biases + bytes_of(biases_), masked = counts + bytes_of(counts_);
  const auto* bias = reinterpret_cast<const cuda::logit_bias*>(device + biases);
  const auto* count = reinterpret_cast<const cuda::token_count*>(device + counts);
  const auto* mask = reinterpret_cast<const std::int32_t*>(device + masked);
  for (auto& row : rows) {
    row.biases = bias;
    row.counts = count;
    row.masked = mask;
    bias += row.bias_count, count += row.counted, mask += row.masked_count;
  }
  const auto put = [&](std::size_t at, const auto& v) {
    if (!v.empty())
      std::memcpy(host + at, v.data(), v.size() * sizeof(v[0]));
  };
  put(0, rows), put(biases, biases_), put(counts, counts_), put(masked, masked_);
}

} // namespace troupe
