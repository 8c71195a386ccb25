#include "api/http/request_quota.hpp"

namespace troupe {

std::shared_ptr<const void> request_quota::acquire(std::size_t owner, std::size_t sequences) {
  const auto wanted = ", and this request asks for " + std::to_string(sequences);
  if (room_ > 0 && sequences > room_) // else it would be told to try again, for ever
    throw failure(errc::bad_request,
                  "this server can run and queue " + std::to_string(room_) + " sequences" + wanted + " at once", "n");
  const std::size_t most = most_;
  if (most == 0)
    return nullptr;
  const auto limit = owner_kind_ + " may have at most " + std::to_string(most) + " sequences at once";
  if (sequences > most)
    throw failure(errc::bad_request, limit + wanted, "n");
  {
    const std::lock_guard lock(counts_->mutex);
    auto& taken = counts_->by_owner[owner];
    if (taken + sequences > most)
      throw failure(errc::overloaded, limit + "; " + std::to_string(taken) + " are running" + wanted);
    taken += sequences;
  }
  return {counts_.get(), [counts = counts_, owner, sequences](const void*) {
            const std::lock_guard lock(counts->mutex);
            counts->by_owner.at(owner) -= sequences;
          }};
}

} // namespace troupe
