// The judge actor: values the answers of tree searches by a reward model (runtime/engine/reward_model). It owns a second
// engine, in which all texts of all orders are computed together, and is that engine's client. Detached: it renders and
// encodes texts, however long. It belongs to the engine whose answers it judges, not to one of its replicas; what it is
// asked after its end has failed. It ends when its engine has failed for good, with the reason, and the engine that it
// belongs to may put another in its place.
#pragma once

#include "actors/engine.hpp"
#include "actors/messages.hpp"
#include "runtime/engine/engine_options.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

namespace troupe {

/// What outlives a judge: who judges now, and what was counted. Samplers hold it. Any thread.
class judges {
public:
  void set(judge_actor now) {
    const std::scoped_lock hold(lock_);
    now_ = std::move(now);
  }
  /// Null: nobody.
  judge_actor now() const {
    const std::scoped_lock hold(lock_);
    return now_;
  }

  std::atomic<std::uint64_t> answers = 0;  // judged so far
  std::atomic<std::uint64_t> restarts = 0; // of judges

private:
  mutable std::mutex lock_;
  judge_actor now_; // guarded by lock_
};

struct spawned_judge {
  judge_actor actor = {};
  std::shared_future<std::optional<error>> loaded = {}; // why it cannot judge; nothing once it can
};

/// Loads options.reward_model. `progress` is called on the loader's thread; answers are counted in `counted`.
spawned_judge spawn_judge(caf::actor_system& system, const engine_options& options,
                          std::function<void(const load_status&)> progress, std::shared_ptr<judges> counted,
                          model_loader loader = loader_with());

} // namespace troupe
