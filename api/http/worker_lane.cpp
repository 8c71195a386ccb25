#include "api/http/worker_lane.hpp"

#include "runtime/support/error.hpp"
#include "runtime/support/machine/threads.hpp"

#include <algorithm>
#include <tuple>

namespace troupe {

worker_lane::worker_lane(int threads, std::size_t most, bool is_slow)
  : most_(most), most_running_of_one_(static_cast<std::size_t>(std::max(1, threads - is_slow))), is_slow_(is_slow) {
  try {
    for (int i = 0; i < std::max(1, threads); ++i)
      threads_.emplace_back([this] { work(); });
  } catch (...) {
    join();
    throw;
  }
}

void worker_lane::join() {
  {
    const std::lock_guard hold(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  threads_.clear();
}

// Newcomers find room where others have taken all places.
void worker_lane::take_place(const std::string& client) {
  const std::lock_guard hold(mutex_);
  const auto known = clients_.find(client);
  const auto its = known == clients_.end() ? 0 : known->second.places;
  const bool is_full = taken_ >= most_ && (its >= most_ / 8 || taken_ >= 2 * most_);
  if (is_full || its >= std::max<std::size_t>(1, most_ / 2))
    throw failure(errc::overloaded,
                  "too many requests are being read; at most " + std::to_string(most_) +
                    " may wait for that, and half as many of one client");
  ++clients_[client].places;
  ++taken_;
}

void worker_lane::leave_place(const std::string& client) {
  const std::lock_guard hold(mutex_);
  const auto its = clients_.find(client);
  if (--its->second.places == 0 && its->second.running == 0)
    clients_.erase(its);
  --taken_;
}

void worker_lane::add(const std::string& client, task what) {
  {
    const std::lock_guard hold(mutex_);
    auto& its = clients_.at(client);
    if (its.waiting.empty() && its.running == 0)
      its.last_turn = ++turn_;
    its.waiting.push_back(std::move(what));
    ++waiting_;
  }
  changed_.notify_one();
}

/// The client who runs fewest, then waits longest for a turn. The end: nobody may begin now.
worker_lane::client_place worker_lane::next() {
  auto found = clients_.end();
  const auto rank = [](client_place c) { return std::tuple(c->second.running, c->second.last_turn); };
  for (auto its = clients_.begin(); its != clients_.end(); ++its)
    if (!its->second.waiting.empty() && its->second.running < most_running_of_one_ &&
        (found == clients_.end() || rank(its) < rank(found)))
      found = its;
  return found;
}

void worker_lane::work() {
  name_thread("lane");
  if (is_slow_)
    give_way();
  std::unique_lock hold(mutex_);
  for (;;) {
    auto at = clients_.end();
    changed_.wait(hold, [&] { return (at = next()) != clients_.end() || (stopping_ && waiting_ == 0); });
    if (at == clients_.end())
      return;
    auto& its = at->second;
    auto what = std::move(its.waiting.front());
    its.waiting.pop_front();
    --waiting_;
    ++its.running;
    its.last_turn = ++turn_;
    hold.unlock();
    what();
    what = nullptr; // destroys what it holds without the lock
    hold.lock();
    if (--its.running == 0 && its.places == 0) // its request has gone on meanwhile
      clients_.erase(at);
    if (waiting_ > 0 || stopping_)
      changed_.notify_all();
  }
}

} // namespace troupe
