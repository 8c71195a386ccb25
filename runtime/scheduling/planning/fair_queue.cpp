#include "runtime/scheduling/planning/fair_queue.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace troupe {

namespace {

/// The turns of this many clients are remembered.
constexpr std::size_t most_remembered = 4096;

} // namespace

void fair_queue::add(const std::string& client, const place& at) { size_ += waiting_[client].insert(at).second; }

void fair_queue::remove(const std::string& client, const place& at) {
  const auto found = waiting_.find(client);
  if (found == waiting_.end())
    return;
  size_ -= found->second.erase(at);
  if (found->second.empty())
    waiting_.erase(found);
}

void fair_queue::served(const std::string& client) {
  last_turns_[client] = ++turn_;
  if (last_turns_.size() > most_remembered) // a turn long ago is as good as none
    std::erase_if(last_turns_, [&](auto& each) { return each.second + most_remembered / 2 < turn_; });
}

std::size_t fair_queue::size_of(const std::string& client) const {
  const auto found = waiting_.find(client);
  return found == waiting_.end() ? 0 : found->second.size();
}

std::uint64_t fair_queue::last_turn_of(const std::string& client) const {
  const auto found = last_turns_.find(client);
  return found == last_turns_.end() ? 0 : found->second;
}

std::optional<std::string> fair_queue::largest_beside(const std::string& newcomer) const {
  const auto largest = std::ranges::max_element(waiting_, {}, [](auto& each) { return each.second.size(); });
  if (largest == waiting_.end() || largest->second.size() <= size_of(newcomer) + 1)
    return std::nullopt;
  return largest->first;
}

fair_queue::turns::turns(const fair_queue& queue, const slots_by_client& held) {
  clients_.reserve(queue.waiting_.size());
  for (const auto& [name, places] : queue.waiting_) {
    const auto slots = held.find(name);
    clients_.push_back(
      {places.begin(), places.end(), slots == held.end() ? 0 : slots->second, queue.last_turn_of(name)});
  }
}

std::optional<sequence_id> fair_queue::turns::next() {
  last_ = nullptr;
  for (auto& each : clients_)
    if (each.next != each.end && (!last_ || each.rank() < last_->rank()))
      last_ = &each;
  if (!last_)
    return std::nullopt;
  return (last_->next++)->id;
}

void fair_queue::turns::take(std::int32_t slots) {
  last_->held += slots;
  last_->last_turn = std::numeric_limits<std::uint64_t>::max();
}

void row_shares::divide(std::int32_t rows, std::int32_t least, std::map<std::string, std::uint64_t, std::less<>>& turns,
                        std::int32_t beside) {
  most_.reset();
  most_of_.clear();
  std::erase_if(turns, [&](const auto& turn) { return !wanted_.contains(turn.first); });
  const auto wanting = static_cast<std::int32_t>(wanted_.size());
  auto clients = std::max(wanting, std::min(wanting + beside, most_parts));
  if (clients < 2)
    return;
  if (beside > 0)
    for (const auto& [client, had] : had_) {
      rows += had;
      if (const auto found = wanted_.find(client); found != wanted_.end()) {
        found->second += had;
        taken_[client] += had;
      }
    }
  const auto all = rows;
  std::vector<std::int32_t> wanted;
  for (const auto& [_, each] : wanted_)
    wanted.push_back(each);
  std::ranges::sort(wanted);
  for (const auto each : wanted) {
    const auto equal = rows / clients;
    if (each > equal) {
      most_ = std::max(equal, least);
      if (equal < least)
        divide_in_turns(all, least, turns);
      return;
    }
    rows -= each;
    --clients;
  }
}

void row_shares::divide_in_turns(std::int32_t rows, std::int32_t least,
                                 std::map<std::string, std::uint64_t, std::less<>>& turns) {
  std::vector<std::pair<std::uint64_t, std::string_view>> order;
  std::uint64_t last = 0;
  for (const auto& [client, _] : wanted_) {
    const auto turn = turns.find(client);
    order.emplace_back(turn == turns.end() ? 0 : turn->second, client);
    last = std::max(last, order.back().first);
  }
  std::ranges::sort(order);
  for (const auto& [_, client] : order) {
    const auto whole = std::min(wanted_[client], least), share = std::min(whole, rows);
    most_of_[client] = share;
    rows -= share;
    if (share == whole) // whether or not it can be granted: otherwise who cannot have blocks would come first for ever
      turns.insert_or_assign(std::string(client), ++last);
  }
}

std::int32_t row_shares::left(std::string_view client) const {
  if (!most_)
    return std::numeric_limits<std::int32_t>::max();
  const auto taken = taken_.find(client);
  const auto own = most_of_.find(client);
  const auto most = own == most_of_.end() ? *most_ : own->second;
  return std::max(0, most - (taken == taken_.end() ? 0 : taken->second));
}

} // namespace troupe
