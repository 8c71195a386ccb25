// Says which tokens end a sequence of a group, and which may not be chosen yet. sequence_state has the same rules for
// sequences that are sampled alone.
#pragma once

#include "runtime/sampling/sampler.hpp"
#include "runtime/sampling/sampling_params.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace troupe {

class group_endings {
public:
  group_endings(const sampling_params& params, std::vector<token_id> eos_ids);

  /// EOS and stop ids, ascending.
  std::span<const token_id> ids() const { return ids_; }

  /// Whether `min_tokens` forbids ids() as the token after `emitted` others.
  bool forbidden(std::size_t emitted) const { return emitted < min_tokens_; }

  /// Whether and why `id` is the last token of a sequence that then has `emitted`.
  enum sampled_token::finish of(token_id id, std::size_t emitted) const;

private:
  std::vector<token_id> eos_ids_; // that end a sequence; ascending, as is ids_
  std::vector<token_id> ids_;
  stop_id_set stop_ids_;
  std::size_t min_tokens_, max_tokens_;
};

} // namespace troupe
