#include "actors/drafter.hpp"

#include "actors/spawn.hpp"
#include "runtime/engine/loader.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/execution/draft_model.hpp"

namespace troupe {

namespace {

class drafter_state {
public:
  static constexpr const char* name = "drafter";

  drafter_state(drafter_actor::pointer self, const loaded_model_ptr& model)
    : self_(self), self_handle_(self), draft_(*model->device, model->drafting()) {}

  drafter_actor::behavior_type make_behavior() {
    return {
      [this](draft_atom, const draft_request_ptr& request, const draft_reply_actor& client) {
        self_->send(client, draft_atom::value, std::make_shared<const draft_reply>(draft_.serve(*request)));
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

drafter_actor spawn_drafter(caf::actor_system& system, loaded_model_ptr model) {
  return spawn_state<drafter_actor, drafter_state, caf::detached>(system, std::move(model));
}

} // namespace troupe
