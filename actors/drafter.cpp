#include "actors/drafter.hpp"

#include "actors/messages/drafting.hpp"
#include "actors/spawn.hpp"
#include "runtime/execution/draft_model.hpp"
#include "runtime/speculation/draft_request.hpp"

namespace troupe {

namespace {

class drafter_state {
public:
  static constexpr const char* name = "drafter";

  drafter_state(drafter_actor::pointer self, const model_replica& what)
    : self_(self), self_handle_(self), draft_(what.plan.last(), what.drafting()) {}

  drafter_actor::behavior_type make_behavior() {
    return {
      [this](const drafts_wanted& order) {
        self_->send(order.client, tokens_drafted{std::make_shared<const draft_reply>(draft_.serve(*order.request))});
      },
    };
  }

private:
  drafter_actor::pointer self_;
  // Only an exit message may end the actor: the state must be destroyed on its own thread.
  drafter_actor self_handle_;
  draft_model draft_;
};

} // namespace

drafter_actor spawn_drafter(caf::actor_system& system, model_replica what) {
  return spawn_state<drafter_actor, drafter_state, caf::detached>(system, std::move(what));
}

} // namespace troupe
