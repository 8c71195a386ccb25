// The judge of an engine with a reward model, loaded again after it has ended, unless it ends too often. A part of the
// engine actor, on whose thread it is used; the engine passes it the ends of actors.
#pragma once

#include "actors/engine.hpp"
#include "actors/faults.hpp"
#include "actors/messages.hpp"
#include "runtime/engine/engine_options.hpp"
#include "runtime/engine/restart_policy.hpp"

#include <caf/actor_addr.hpp>

#include <cstdint>
#include <functional>
#include <string>

namespace troupe {

class kept_judge {
public:
  kept_judge(engine_actor::pointer engine, engine_options options, model_loader loader);
  kept_judge(const kept_judge&) = delete;
  kept_judge& operator=(const kept_judge&) = delete;
  ~kept_judge() { end(); }

  /// Spawns and monitors it. `progress` is called on the loader's thread.
  void start(std::function<void(const load_status&)> progress);

  /// Ends it.
  void end();

  /// Null: nobody judges.
  const judge_actor& now() const { return now_; }

  /// Whether it had this address; it has ended.
  bool lose(const caf::actor_addr& actor);

  /// After its end: starts another, or gives up. Returns what has happened, for a person.
  std::string replace(const fault& f);

  /// Why there is none any more; empty: it has not been given up.
  const std::string& given_up() const { return given_up_; }

  /// An answer more is judged.
  void count() { ++answers_; }

  std::uint64_t answers() const { return answers_; } // of all of them
  std::uint64_t restarts() const { return restarts_; }

private:
  engine_actor::pointer engine_;
  engine_options options_;
  model_loader loader_;
  judge_actor now_;
  restart_policy policy_;
  std::string given_up_;
  std::uint64_t answers_ = 0, restarts_ = 0;
};

} // namespace troupe
