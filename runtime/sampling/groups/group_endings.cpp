#include "runtime/sampling/groups/group_endings.hpp"

#include <algorithm>
#include <utility>

namespace troupe {

group_endings::group_endings(const sampling_params& params, std::vector<token_id> eos_ids)
  : eos_ids_(std::move(eos_ids)),
    stop_ids_(params.stop_token_ids),
    min_tokens_(static_cast<std::size_t>(params.min_tokens)),
    max_tokens_(static_cast<std::size_t>(params.max_tokens)) {
  std::ranges::sort(eos_ids_);
  ids_ = eos_ids_;
  ids_.insert(ids_.end(), stop_ids_.begin(), stop_ids_.end());
  std::ranges::sort(ids_);
  const auto same = std::ranges::unique(ids_);
  ids_.erase(same.begin(), same.end());
  if (params.ignore_eos)
    eos_ids_.clear();
}

enum sampled_token::finish group_endings::of(token_id id, std::size_t emitted) const {
  if (std::ranges::binary_search(eos_ids_, id))
    return sampled_token::finish::eos;
  if (stop_ids_.contains(id))
    return sampled_token::finish::stop_token;
  return emitted >= max_tokens_ ? sampled_token::finish::length : sampled_token::finish::none;
}

} // namespace troupe
