#include "actors/actor_counts.hpp"

#include <algorithm>
#include <mutex>

namespace troupe {

namespace {

struct all_kinds {
  std::mutex mutex;
  std::vector<const actor_counts*> list; // they live as long as the program
};

all_kinds& kinds() {
  static all_kinds made;
  return made;
}

} // namespace

std::atomic<int> actor_counts::watchers_ = 0;

actor_counts::actor_counts(const char* kind) : kind_(kind) {
  const std::lock_guard lock(kinds().mutex);
  kinds().list.push_back(this);
}

void actor_counts::queued(std::int64_t more) {
  const auto before = queued_.fetch_add(more, std::memory_order_relaxed);
  if (before <= 0 && before + more > 0)
    since_.store(clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  else if (before + more <= 0)
    since_.store(0, std::memory_order_relaxed);
}

std::vector<actor_load> actor_counts::all() {
  std::vector<actor_load> result;
  const std::lock_guard lock(kinds().mutex);
  for (const auto* each : kinds().list) {
    const auto ended = each->ended_.load(), spawned = each->spawned_.load(); // in this order
    actor_load load{each->kind_, spawned - std::min(ended, spawned), spawned, each->handled_.load()};
    load.queued = static_cast<std::uint64_t>(std::max<std::int64_t>(0, each->queued_.load()));
    if (const auto since = each->since_.load(); since != 0 && load.queued > 0)
      load.waiting_ms =
        std::chrono::duration<double, std::milli>(clock::now().time_since_epoch() - clock::duration(since)).count();
    const auto same = std::ranges::find(result, load.kind, &actor_load::kind);
    if (same == result.end()) {
      result.push_back(std::move(load));
    } else { // another interface under the same name
      same->alive += load.alive, same->spawned += load.spawned, same->handled += load.handled;
      same->queued += load.queued, same->waiting_ms = std::max(same->waiting_ms, load.waiting_ms);
    }
  }
  std::ranges::sort(result, {}, &actor_load::kind);
  return result;
}

} // namespace troupe
