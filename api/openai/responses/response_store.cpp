#include "api/openai/responses/response_store.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

namespace troupe {

void response_store::keep(std::size_t owner, const std::string& id, stored_response response,
                          const std::string& client) {
  const auto size = response.bytes();
  if (size > most_bytes_ || most_entries_ == 0)
    return;
  const auto kept = std::make_shared<const stored_response>(std::move(response));
  std::vector<std::shared_ptr<const stored_response>> dropped; // destroyed without the lock
  const std::lock_guard lock(mutex_);
  if (by_id_.contains(id))
    return;
  while (const auto next = surplus(client, size))
    dropped.push_back(erase(*next));
  auto& mine = clients_[client];
  mine.all.push_front({owner, id, client, kept});
  mine.bytes += size;
  bytes_ += size;
  by_id_.emplace(id, mine.all.begin());
  ids_[owner].insert(id);
}

std::optional<response_store::entries::iterator> response_store::surplus(const std::string& client, std::size_t bytes) {
  const bool too_many = by_id_.size() >= most_entries_;
  if (!too_many && bytes_ + bytes <= most_bytes_)
    return std::nullopt;
  const auto has = [&](const auto& each) { // with the newcomer
    const auto& [whose, what] = each;
    return too_many ? what.all.size() + (whose == client) : what.bytes + (whose == client ? bytes : 0);
  };
  return std::prev(std::ranges::max_element(clients_, {}, has)->second.all.end());
}

std::shared_ptr<const stored_response> response_store::find(std::size_t owner, const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = look_up(owner, id);
  if (!found)
    return nullptr;
  auto& mine = clients_.at((*found)->client).all;
  mine.splice(mine.begin(), mine, *found);
  return (*found)->response;
}

bool response_store::remove(std::size_t owner, const std::string& id) {
  std::shared_ptr<const stored_response> dropped;
  const std::lock_guard lock(mutex_);
  const auto found = look_up(owner, id);
  if (!found)
    return false;
  dropped = erase(*found);
  return true;
}

void response_store::forget(std::size_t owner) {
  std::vector<std::shared_ptr<const stored_response>> dropped; // destroyed without the lock
  const std::lock_guard lock(mutex_);
  while (ids_.contains(owner))
    dropped.push_back(erase(by_id_.at(*ids_.at(owner).begin())));
}

std::size_t response_store::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

std::shared_ptr<const stored_response> response_store::erase(entries::iterator at) {
  auto response = std::move(at->response);
  const auto whose = clients_.find(at->client);
  const auto seen_by = ids_.find(at->owner);
  seen_by->second.erase(at->id);
  if (seen_by->second.empty())
    ids_.erase(seen_by);
  bytes_ -= response->bytes();
  whose->second.bytes -= response->bytes();
  by_id_.erase(at->id);
  whose->second.all.erase(at);
  if (whose->second.all.empty())
    clients_.erase(whose);
  return response;
}

std::optional<response_store::entries::iterator> response_store::look_up(std::size_t owner, const std::string& id) {
  const auto found = by_id_.find(id);
  if (found == by_id_.end() || found->second->owner != owner)
    return std::nullopt;
  return found->second;
}

} // namespace troupe
