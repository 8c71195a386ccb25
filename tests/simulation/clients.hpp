// The clients of a simulation: functions and actors that hear the answers, and do what their plans say.
#pragma once

#include "actors/messages.hpp"
#include "tests/simulation/hearing.hpp"
#include "tests/simulation/scenario.hpp"

#include <caf/actor_system.hpp>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace troupe::simulation {

/// One client. Actors hold it: it may outlive the simulation's own look at it.
struct client : std::enable_shared_from_this<client> {
  client_plan plan;
  generation_ptr asked;
  hearing heard;
  request_actor request; // null until it is known
  caf::actor_id request_id = 0;
  client_actor actor; // that hears, if it is one
  bool begun = false, left = false, cancelled = false, threw = false;
  bool finished = false; // it has said that its answer is long enough
  bool refused = false;  // the engine did not take the submission
  bool paused = false;
  int events = 0;
  std::size_t next_deed = 0;
  std::chrono::steady_clock::time_point asked_at = {}, ended_at = {}; // of virtual time

  bool ended() const { return heard.ended() || refused || left; }

  /// Sends the request.
  void begin(caf::actor_system& system, const engine_actor& engine);

  /// Does what its plan says of now, in jobs since the start. Returns what, in a word, or nothing.
  std::string act(int now, bool at_once);

private:
  void take(const event& e);
  void pause(bool now);

  caf::actor_system* system_ = nullptr;
};

/// Asks an engine for its statistics and blocks, and watches its steps, by turns. No counter may go back.
class observer {
public:
  observer(caf::actor_system& system, engine_actor engine, bool watches);

  /// Asks, at another time.
  void ask();
  void end();

  /// Of the last answer.
  const engine_stats* last() const { return state_->last ? &*state_->last : nullptr; }
  bool waits() const { return state_->open > 0; }
  const std::string& trouble() const { return state_->trouble; }
  void forget() { state_->last.reset(); }

private:
  struct shared {
    std::optional<engine_stats> last;
    std::map<std::string, std::uint64_t> counted;
    int open = 0;
    std::string trouble;
    void take(const engine_stats& s);
  };

  std::shared_ptr<shared> state_ = std::make_shared<shared>();
  caf::actor asker_;
  step_watcher_actor watcher_;
  engine_actor engine_;
  int turn_ = 0;
};

} // namespace troupe::simulation
