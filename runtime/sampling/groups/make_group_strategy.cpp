#include "runtime/sampling/group_strategy.hpp"
#include "runtime/sampling/groups/beam_search.hpp"
#include "runtime/sampling/groups/stochastic_beam_search.hpp"

#include <utility>

namespace troupe {

std::unique_ptr<group_strategy> make_group_strategy(std::shared_ptr<const sampling_params> params,
                                                    std::vector<token_id> eos_ids, std::size_t prompt_tokens) {
  if (params->stochastic_beams)
    return std::make_unique<stochastic_beam_search>(std::move(params), std::move(eos_ids), prompt_tokens);
  return std::make_unique<beam_search>(std::move(params), std::move(eos_ids));
}

} // namespace troupe
