#include "runtime/sampling/group_strategy.hpp"
#include "runtime/sampling/groups/beam_search.hpp"
#include "runtime/sampling/groups/guided_pair.hpp"
#include "runtime/sampling/groups/stochastic_beam_search.hpp"
#include "runtime/sampling/groups/tree_search.hpp"

#include <utility>

namespace troupe {

std::vector<group_child> group_strategy::go_on(std::span<const double>) {
  throw failure(errc::internal, "values of answers were not asked for");
}

std::unique_ptr<group_strategy> make_group_strategy(std::shared_ptr<const sampling_params> params,
                                                    std::vector<token_id> eos_ids, std::span<const token_id> prompt,
                                                    std::span<const token_id> emitted, float mirostat_mu,
                                                    token_text_ptr text) {
  if (params->paired())
    return std::make_unique<guided_pair>(std::move(params), std::move(eos_ids), prompt, emitted, mirostat_mu);
  if (params->searched())
    return std::make_unique<tree_search>(std::move(params), std::move(eos_ids), prompt, std::move(text));
  if (params->stochastic_beams)
    return std::make_unique<stochastic_beam_search>(std::move(params), std::move(eos_ids), prompt, std::move(text));
  return std::make_unique<beam_search>(std::move(params), std::move(eos_ids), prompt, std::move(text));
}

} // namespace troupe
