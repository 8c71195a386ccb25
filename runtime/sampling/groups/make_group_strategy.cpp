#include "runtime/sampling/group_strategy.hpp"

#include <utility>

namespace troupe {

std::vector<group_child> group_strategy::go_on(std::span<const double>) {
  throw failure(errc::internal, "values of answers were not asked for");
}

std::unique_ptr<group_strategy> technique_use::judge(group_start) const {
  throw failure(errc::internal, "this technique judges no sequences together");
}

std::unique_ptr<group_strategy> make_group_strategy(std::shared_ptr<const sampling_params> params,
                                                    std::vector<token_id> eos_ids, std::span<const token_id> prompt,
                                                    std::span<const token_id> emitted, float mirostat_mu,
                                                    token_text_ptr text) {
  const auto* by = params->techniques.group();
  if (!by)
    throw failure(errc::internal, "no technique judges the sequences together");
  return by->judge({params, std::move(eos_ids), prompt, emitted, mirostat_mu, std::move(text)});
}

} // namespace troupe
