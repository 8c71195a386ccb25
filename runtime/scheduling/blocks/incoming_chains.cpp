#include "runtime/scheduling/blocks/incoming_chains.hpp"

namespace troupe {

bool incoming_chains::expect(std::uint64_t request, std::int32_t blocks, time_point now) {
  std::erase_if(chains_, [now](const auto& each) { return each.second.until <= now; });
  if (chains_.size() >= most && !chains_.contains(request))
    return false;
  chains_.insert_or_assign(request, chain{blocks, now + patience});
  return true;
}

bool incoming_chains::arrived(std::uint64_t request, std::int32_t end, time_point now) {
  const auto found = chains_.find(request);
  if (found == chains_.end())
    return false;
  if (end < found->second.blocks) {
    found->second.until = now + patience;
    return false;
  }
  chains_.erase(found);
  return true;
}

} // namespace troupe
