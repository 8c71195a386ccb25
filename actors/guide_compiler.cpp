#include "actors/guide_compiler.hpp"

#include "actors/spawn.hpp"
#include "runtime/engine/loader.hpp"
#include "runtime/guide/guide_cache.hpp"
#include "runtime/support/threads.hpp"

namespace troupe {

namespace {

class guide_compiler_state {
public:
  static constexpr const char* name = "guide_compiler";

  guide_compiler_state(guide_compiler_actor::pointer self, loaded_model_ptr model)
    : self_(self), self_handle_(self), model_(std::move(model)) {
    give_way();
  }

  guide_compiler_actor::behavior_type make_behavior() {
    return {
      [this](const generation_ptr& what, std::uint64_t number, const request_actor& client) {
        compile(*what, number, client);
      },
    };
  }

private:
  void compile(const generation& what, std::uint64_t number, const request_actor& client) {
    try {
      self_->send(client, number, model_->guides->get(*what.guide, !what.sampling.stop_token_ids.empty()));
    } catch (const failure& f) {
      self_->send(client, number, f.what_failed());
    } catch (const std::bad_alloc&) {
      self_->send(client, number, error{errc::out_of_memory, "there is not enough memory to compile the guide", {}});
    }
  }

  guide_compiler_actor::pointer self_;
  // Only an exit message may end the actor, on its own thread.
  guide_compiler_actor self_handle_;
  loaded_model_ptr model_;
};

} // namespace

guide_compiler_actor spawn_guide_compiler(caf::actor_system& system, loaded_model_ptr model) {
  return spawn_state<guide_compiler_actor, guide_compiler_state, caf::detached>(system, std::move(model));
}

} // namespace troupe
