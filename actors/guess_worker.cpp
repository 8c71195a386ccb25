#include "actors/guess_worker.hpp"

#include "actors/messages/guessing.hpp"
#include "actors/spawn.hpp"
#include "runtime/techniques/guesser.hpp"

namespace troupe {

namespace {

class guess_worker_state {
public:
  static constexpr const char* name = "drafter";

  guess_worker_state(guess_worker_actor::pointer self, const model_replica& what)
    : self_(self), self_handle_(self), model_(what.model->guesses.make_model(what)) {}

  guess_worker_actor::behavior_type make_behavior() {
    return {
      [this](const guesses_wanted& order) {
        self_->send(order.client, guesses_made{std::make_shared<const guess_reply>(model_->serve(*order.request))});
      },
    };
  }

private:
  guess_worker_actor::pointer self_;
  // Only an exit message may end the actor: the state must be destroyed on its own thread.
  guess_worker_actor self_handle_;
  std::unique_ptr<guess_model> model_;
};

} // namespace

guess_worker_actor spawn_guess_worker(caf::actor_system& system, model_replica what) {
  return spawn_state<guess_worker_actor, guess_worker_state, caf::detached>(system, std::move(what));
}

} // namespace troupe
