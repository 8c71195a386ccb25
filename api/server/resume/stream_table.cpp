#include "api/server/resume/stream_table.hpp"

#include <ranges>
#include <utility>
#include <vector>

namespace troupe {

void stream_table::open(journal_ptr one) {
  const std::lock_guard lock(mutex_);
  all_.push_back(std::move(one));
}

void stream_table::close(const journal_ptr& one) {
  const std::lock_guard lock(mutex_);
  std::erase(all_, one);
}

stream_table::journal_ptr stream_table::find(std::size_t owner, std::string_view client, std::string_view id,
                                             bool frames) const {
  journal_ptr ended;
  const std::lock_guard lock(mutex_);
  for (const auto& one : all_ | std::views::reverse) {
    const bool named = one->request_id() == id || (!one->answer_id().empty() && one->answer_id() == id);
    if (!named || one->has_frames() != frames || !one->belongs_to(owner, client) || one->is_dropped())
      continue;
    if (!one->has_ended())
      return one;
    if (!ended)
      ended = one;
  }
  if (!ended)
    throw failure(errc::not_found, "there is no stream of this id to come back to, or not any more", "id");
  return ended;
}

bool stream_table::keep(const journal_ptr& mine) {
  const std::lock_guard lock(mutex_);
  std::size_t all = 0, of_client = 0;
  journal_ptr oldest, oldest_of_client; // of those that have ended
  for (const auto& one : all_) {
    if (one == mine || one->is_dropped() || !one->unread_since())
      continue;
    const bool same = one->client() == mine->client();
    ++all;
    of_client += same;
    if (one->has_ended() && !oldest)
      oldest = one;
    if (one->has_ended() && same && !oldest_of_client)
      oldest_of_client = one;
  }
  if (all < most_unread_ && of_client < (most_unread_ + 1) / 2)
    return true;
  const auto& goes = of_client < (most_unread_ + 1) / 2 ? oldest : oldest_of_client;
  if (!goes)
    return false;
  goes->drop();
  return true;
}

bool stream_table::drop_ended(std::string_view client) {
  journal_ptr oldest;
  const std::lock_guard lock(mutex_);
  for (const auto& one : all_) {
    if (one->is_dropped() || !one->has_ended() || !one->unread_since())
      continue;
    if (!oldest || (oldest->client() != client && one->client() == client))
      oldest = one;
  }
  if (oldest)
    oldest->drop();
  return oldest != nullptr;
}

void stream_table::stop() {
  std::vector<journal_ptr> all;
  {
    const std::lock_guard lock(mutex_);
    all.assign(all_.begin(), all_.end());
  }
  for (const auto& one : all)
    one->tell_maker();
}

} // namespace troupe
