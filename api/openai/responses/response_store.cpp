#include "api/openai/responses/response_store.hpp"

#include <utility>
#include <vector>

namespace troupe {

void response_store::keep(std::size_t owner, const std::string& id, stored_response response) {
  const auto size = response.bytes();
  if (size > most_bytes_ || most_entries_ == 0)
    return;
  const auto kept = std::make_shared<const stored_response>(std::move(response));
  std::vector<std::shared_ptr<const stored_response>> dropped; // destroyed without the lock
  const std::lock_guard lock(mutex_);
  if (by_id_.contains(id))
    return;
  while (entries_.size() >= most_entries_ || bytes_ + size > most_bytes_)
    dropped.push_back(erase(std::prev(entries_.end())));
  entries_.push_front({owner, id, kept});
  by_id_.emplace(id, entries_.begin());
  bytes_ += size;
}

std::shared_ptr<const stored_response> response_store::find(std::size_t owner, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = look_up(owner, id);
  if (found == entries_.end())
    return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return found->response;
}

bool response_store::remove(std::size_t owner, const std::string& id) {
  std::shared_ptr<const stored_response> dropped;
  const std::lock_guard lock(mutex_);
  const auto found = look_up(owner, id);
  if (found == entries_.end())
    return false;
  dropped = erase(found);
  return true;
}

std::size_t response_store::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::shared_ptr<const stored_response> response_store::erase(entries::iterator at) {
  auto response = std::move(at->response);
  bytes_ -= response->bytes();
  by_id_.erase(at->id);
  entries_.erase(at);
  return response;
}

response_store::entries::iterator response_store::look_up(std::size_t owner, const std::string& id) {
  const auto found = by_id_.find(id);
  return found == by_id_.end() || found->second->owner != owner ? entries_.end() : found->second;
}

} // namespace troupe
