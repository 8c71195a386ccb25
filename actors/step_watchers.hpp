// Who watches the steps of an engine: replicas record them while there is anybody. A part of the engine actor, on whose
// thread it is used.
#pragma once

#include "actors/messages.hpp"
#include "actors/replica_set.hpp"

#include <caf/actor_addr.hpp>
#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <map>

namespace troupe {

class step_watchers {
public:
  step_watchers(engine_actor::pointer engine, replica_set& replicas) : engine_(engine), replicas_(replicas) {}

  void add(const step_watcher_actor& watcher) {
    if (all_.emplace(watcher.address(), watcher).second)
      engine_->monitor(watcher);
    tell_replicas();
  }
  void dismiss(const step_watcher_actor& watcher) {
    engine_->demonitor(watcher.address());
    remove(watcher.address());
  }
  /// It has ended, or is none of them.
  void remove(const caf::actor_addr& watcher) {
    if (all_.erase(watcher) > 0)
      tell_replicas();
  }
  /// There are other replicas, or other watchers.
  void tell_replicas() { replicas_.watch_steps(!all_.empty()); }

  void pass_on(const step_record_ptr& record) {
    for (auto& [_, watcher] : all_)
      engine_->send(watcher, record_atom::value, record);
  }

private:
  engine_actor::pointer engine_;
  replica_set& replicas_;
  std::map<caf::actor_addr, step_watcher_actor> all_;
};

} // namespace troupe
