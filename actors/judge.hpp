// The judge actor: values the answers of tree searches by a reward model (runtime/engine/reward_model). It owns a second
// engine, in which all texts of all orders are computed together, and is that engine's client. Detached: it renders and
// encodes texts, however long. It belongs to the engine whose answers it judges, not to one of its replicas; what it is
// asked after its end, or the end of its engine, has failed.
#pragma once

#include "actors/messages.hpp"
#include "runtime/engine/engine_options.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>

namespace troupe {

struct spawned_judge {
  judge_actor actor = {};                                  // null: there is none
  std::shared_future<std::optional<error>> loaded = {};    // why it cannot judge; nothing once it can
  std::shared_ptr<std::atomic<std::uint64_t>> judged = {}; // answers so far
};

/// Loads options.reward_model. `progress` is called on the loader's thread.
spawned_judge spawn_judge(caf::actor_system& system, const engine_options& options,
                          std::function<void(const load_status&)> progress);

} // namespace troupe
