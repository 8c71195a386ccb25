// How often each token occurs in a transcript, for the penalties. Iteration costs the number of distinct tokens, not
// the length of the transcript. Owned by one sequence's sampling state.
#pragma once

#include "runtime/support/types.hpp"

#include <span>
#include <unordered_map>
#include <vector>

namespace troupe {

class token_counts {
public:
  struct entry {
    token_id id;
    std::int32_t generated; // occurrences after the prompt
  };

  void add_prompt(std::span<const token_id> ids) {
    for (const auto id : ids)
      find_or_add(id);
  }

  void add_generated(token_id id) { ++find_or_add(id).generated; }

  /// Every distinct token of prompt and generated text, in order of first occurrence.
  std::span<const entry> distinct() const { return entries_; }

private:
  entry& find_or_add(token_id id) {
    const auto [found, added] = places_.try_emplace(id, entries_.size());
    if (added)
      entries_.push_back({id, 0});
    return entries_[found->second];
  }

  std::vector<entry> entries_;
  std::unordered_map<token_id, std::size_t> places_;
};

} // namespace troupe
