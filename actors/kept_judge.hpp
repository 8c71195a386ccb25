// The judge of an engine that has one, loaded again whenever it has ended. A part of the engine actor, on whose
// thread it is used; the engine passes it the ends of actors, and decides when it is loaded.
#pragma once

#include "actors/child.hpp"
#include "actors/engine.hpp"
#include "actors/faults.hpp"
#include "actors/messages.hpp"
#include "runtime/engine/engine_options.hpp"
#include "runtime/engine/engine_stats.hpp"
#include "runtime/engine/restart_policy.hpp"

#include <caf/actor_addr.hpp>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

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
  void end() noexcept;

  /// Null: nobody judges.
  const judge_actor& now() const { return now_; }

  /// Whether it had this address; it has ended.
  bool lose(const caf::actor_addr& actor);

  /// It can judge. Returns what to tell a person; empty: nothing was amiss.
  std::string ready();

  /// After its end: the wait before load_again().
  std::chrono::milliseconds wait_after(const fault& f);

  /// Starts another. Returns what has happened, for a person. Throws if it cannot.
  std::string load_again();

  /// Why searches fail for a while; empty: they do not, or not for long.
  const std::string& trouble() const { return trouble_; }

  /// An answer more is judged.
  void count() { ++answers_, policy_.forgive(); }

  /// Adds what is counted of all of them.
  void add_to(replica_stats& stats) const {
    stats.restarts += restarts_;
    stats.model.judged_answers = answers_;
  }

private:
  std::string name() const { return std::string(judge_of(options_.techniques)->name); }

  engine_actor::pointer engine_;
  engine_options options_;
  model_loader loader_;
  judge_actor now_;
  std::vector<child> alive_; // it, or nobody
  restart_policy policy_;
  std::optional<std::chrono::steady_clock::time_point> ready_; // since when it can judge
  std::string why_, trouble_;                                  // of its last end
  std::uint64_t answers_ = 0, restarts_ = 0;
};

} // namespace troupe
