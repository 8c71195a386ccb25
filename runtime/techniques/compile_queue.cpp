#include "runtime/techniques/compile_queue.hpp"

#include "runtime/support/error.hpp"

#include <algorithm>

namespace troupe {

void compile_queue::push(lane& in, const std::string& client, ticket t) {
  auto& mine = in.waiting[client];
  if (mine.empty())
    in.turns.push_back(client);
  mine.push_back(t);
}

void compile_queue::erase(lane& in, const std::string& client, ticket t) {
  const auto mine = in.waiting.find(client);
  if (mine == in.waiting.end() || std::erase(mine->second, t) == 0 || !mine->second.empty())
    return;
  in.waiting.erase(mine);
  std::erase(in.turns, client);
}

void compile_queue::add(ticket t, const std::string& client, std::size_t bytes) {
  auto& mine = clients_[client];
  const bool is_full = jobs_.size() >= most_.jobs || bytes_ + bytes > most_.bytes;
  const bool has_half = mine.jobs >= most_.jobs / 2 || mine.bytes + bytes > most_.bytes / 2;
  if (is_full || has_half) {
    if (mine.jobs == 0)
      clients_.erase(client);
    throw failure(errc::overloaded,
                  has_half ? "too many guides of this client wait to be compiled; try again later"
                           : "too many guides wait to be compiled; try again later");
  }
  jobs_.emplace(t, job{client, bytes});
  ++mine.jobs;
  mine.bytes += bytes;
  bytes_ += bytes;
  push(brief_, client, t);
}

std::optional<compile_queue::ticket> compile_queue::next(lane& from, bool has_patience) {
  const auto turn = std::ranges::find_if(
    from.turns, [&](const auto& client) { return !has_patience || clients_.at(client).patient == 0; });
  if (turn == from.turns.end())
    return std::nullopt;
  const auto client = *turn;
  from.turns.erase(turn);
  auto& mine = from.waiting.at(client);
  const auto t = mine.front();
  mine.pop_front();
  if (mine.empty())
    from.waiting.erase(client);
  else
    from.turns.push_back(client);
  if (has_patience) {
    jobs_.at(t).has_patience = true;
    ++clients_.at(client).patient;
  }
  return t;
}

void compile_queue::put_back(ticket t) {
  if (const auto known = jobs_.find(t); known != jobs_.end())
    push(patient_, known->second.client, t);
}

void compile_queue::remove(ticket t) {
  const auto known = jobs_.find(t);
  if (known == jobs_.end())
    return;
  const auto [client, bytes, has_patience] = known->second;
  erase(brief_, client, t);
  erase(patient_, client, t);
  jobs_.erase(known);
  bytes_ -= bytes;
  auto& mine = clients_.at(client);
  mine.bytes -= bytes;
  mine.patient -= has_patience;
  if (--mine.jobs == 0)
    clients_.erase(client);
}

} // namespace troupe
