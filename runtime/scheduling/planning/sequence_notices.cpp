#include "runtime/scheduling/planning/sequence_notices.hpp"

#include <algorithm>

namespace troupe {

void sequence_notices::commit(scheduled_sequence& s, block_request& request) {
  if (s.whole)
    return;
  constexpr auto block = kernels::block_tokens;
  const auto full = std::min(s.planned, s.known()) / block * block;
  if (full <= s.committed)
    return;
  request.commits.push_back({s.id, {s.tokens.begin() + s.committed, s.tokens.begin() + full}});
  s.committed = full;
}

void sequence_notices::fork(const scheduled_sequence& from, const scheduled_sequence& to, bool after_step) {
  later_.forks.push_back({from.id, to.id});
  if (recurrent_)
    (after_step ? later_copies_ : copies_).push_back({block_move::kind::copy_state, from.slot, to.slot});
}

void sequence_notices::leave(scheduled_sequence& s, block_request* now) {
  auto& request = now ? *now : later_;
  commit(s, request);
  request.releases.push_back(s.id);
  if (now) // forks come behind it: they would give it blocks of a sequence that may be dropped
    std::erase_if(later_.forks, [&](const block_fork& f) { return f.to == s.id; });
}

bool sequence_notices::forks_later(std::uint64_t request) const {
  return std::ranges::any_of(later_.forks, [request](const block_fork& f) { return f.to.request == request; });
}

void sequence_notices::begin_step() {
  copies_.insert(copies_.end(), later_copies_.begin(), later_copies_.end());
  later_copies_.clear();
}

void sequence_notices::keep(std::span<const kernels::block_copy> line) {
  for (const auto& copy : line)
    copies_.push_back({block_move::kind::copy, copy.from, copy.to});
}

} // namespace troupe
