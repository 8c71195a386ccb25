#include "api/http/connection_table.hpp"

#include <algorithm>

namespace troupe {

connection_table::verdict connection_table::judge(const std::string& address) const {
  const auto mine = size_of(address);
  if (open_.size() < most_)
    return {mine < most_of_one_ ? refusal::none : refusal::share};
  const auto largest = std::ranges::max_element(by_address_, {}, [](auto& each) { return each.second; });
  if (largest == by_address_.end() || largest->second <= mine + 1)
    return {refusal::full};
  const auto found = longest_idle_of(largest->first);
  return {found ? refusal::none : refusal::full, found};
}

connection_table::id connection_table::crowded_out() const {
  if (open_.size() < most_)
    return nullptr;
  return longest_idle_of(std::ranges::max_element(by_address_, {}, [](auto& each) { return each.second; })->first);
}

connection_table::id connection_table::longest_idle_of(const std::string& address) const {
  id found = nullptr;
  std::uint64_t since = 0;
  for (const auto& [one, what] : open_)
    if (what.idle_since > 0 && what.address == address && (since == 0 || what.idle_since < since)) {
      found = one;
      since = what.idle_since;
    }
  return found;
}

void connection_table::open(id one, const std::string& address) {
  const auto added = open_.emplace(one, connection{address}).first;
  try {
    ++by_address_[address];
  } catch (...) {
    open_.erase(added);
    throw;
  }
}

void connection_table::close(id one) {
  const auto found = open_.find(one);
  if (found == open_.end())
    return;
  if (const auto its = by_address_.find(found->second.address); --its->second == 0)
    by_address_.erase(its);
  open_.erase(found);
}

void connection_table::set_idle(id one, bool idle) {
  if (const auto found = open_.find(one); found != open_.end())
    found->second.idle_since = idle ? ++last_idle_ : 0;
}

std::size_t connection_table::size_of(const std::string& address) const {
  const auto found = by_address_.find(address);
  return found == by_address_.end() ? 0 : found->second;
}

} // namespace troupe
