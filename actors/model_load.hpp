// The one load of an engine's model, on a thread of its own. A part of the engine actor, on whose thread it is used: the
// engine hears by message how the load ended, and passes on the ends of actors.
#pragma once

#include "actors/engine.hpp"
#include "actors/messages.hpp"
#include "runtime/engine/engine_options.hpp"

#include <caf/actor_addr.hpp>

#include <atomic>
#include <memory>
#include <optional>

namespace troupe {

class model_load {
public:
  model_load(engine_actor::pointer engine, engine_options options, model_loader loader);

  /// What will be loaded; null once it loads.
  const engine_options* waits() const { return ahead_ ? &ahead_->options : nullptr; }

  /// `tell` hears the progress, on the thread that loads.
  void start(const engine_listener& tell);

  /// It is wanted no longer: no more progress is told.
  void abandon() { *abandoned_ = true; }

  /// Whether the thread is there. It has said all once the engine has its message, and may have no memory to say that
  /// it has ended.
  bool runs() const { return static_cast<bool>(loader_); }
  void ended() { loader_ = {}; }
  /// Whether it had this address; it has ended.
  bool lose(const caf::actor_addr& actor);

private:
  struct order {
    engine_options options;
    model_loader load;
  };

  engine_actor::pointer engine_;
  std::optional<order> ahead_;
  std::shared_ptr<std::atomic<bool>> abandoned_ = std::make_shared<std::atomic<bool>>(false);
  caf::actor_addr loader_;
};

} // namespace troupe
