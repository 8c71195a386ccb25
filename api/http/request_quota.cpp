#include "api/http/request_quota.hpp"

namespace troupe {

std::shared_ptr<const void> request_quota::acquire(const std::string& owner, std::size_t sequences,
                                                   std::optional<std::size_t> own) {
  const auto wanted = ", and this request asks for " + std::to_string(sequences);
  if (room_ > 0 && sequences > room_) // else it would be told to try again, for ever
    throw failure(errc::bad_request,
                  "this server can run and queue " + std::to_string(room_) + " sequences" + wanted + " at once", "n");
  const std::size_t most = own.value_or(most_);
  if (most == 0)
    return nullptr;
  const auto limit = owner_kind_ + " may have at most " + std::to_string(most) + ' ' + what_ + " at once";
  if (sequences > most)
    throw failure(errc::bad_request, limit + wanted, "n");
  {
    const std::lock_guard lock(counts_->mutex);
    const auto its = counts_->by_owner.find(owner);
    const auto taken = its == counts_->by_owner.end() ? 0 : its->second;
    if (taken + sequences > most)
      throw failure(errc::overloaded, limit + "; " + std::to_string(taken) + " are running" + wanted);
    counts_->by_owner[owner] = taken + sequences;
  }
  return {counts_.get(), [counts = counts_, owner, sequences](const void*) {
            const std::lock_guard lock(counts->mutex);
            if ((counts->by_owner[owner] -= sequences) == 0)
              counts->by_owner.erase(owner);
          }};
}

} // namespace troupe
