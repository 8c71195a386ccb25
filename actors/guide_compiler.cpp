#include "actors/guide_compiler.hpp"

#include "actors/spawn.hpp"
#include "runtime/engine/loader.hpp"
#include "runtime/guide/guide_cache.hpp"
#include "runtime/support/threads.hpp"

#include <atomic>

namespace troupe {

namespace {

using waiting_count = std::shared_ptr<std::atomic<int>>; // guides that the patient one has

class compiling_state {
public:
  compiling_state(guide_compiler_actor::pointer self, loaded_model_ptr model)
    : self_(self), self_handle_(self), model_(std::move(model)) {
    give_way();
  }

protected:
  using guide_ptr = std::shared_ptr<const guides::answer_guide>;
  using compile_fn = guide_ptr (guides::guide_cache::*)(const guides::guide_source&, bool);

  /// Answers the client; false if the guide was not compiled, which is no failure.
  bool answer(const generation& what, std::uint64_t number, const request_actor& client, compile_fn compile) {
    try {
      auto guide = (*model_->guides.*compile)(*what.guide, !what.sampling.stop_token_ids.empty());
      if (!guide)
        return false;
      self_->send(client, number, std::move(guide));
    } catch (const failure& f) {
      self_->send(client, number, f.what_failed());
    } catch (const std::bad_alloc&) {
      self_->send(client, number, error{errc::out_of_memory, "there is not enough memory to compile the guide", {}});
    }
    return true;
  }

  guide_compiler_actor::pointer self_;

private:
  // Only an exit message may end the actor, on its own thread.
  guide_compiler_actor self_handle_;
  loaded_model_ptr model_;
};

class patient_compiler_state : compiling_state {
public:
  static constexpr const char* name = "patient_guide_compiler";

  patient_compiler_state(guide_compiler_actor::pointer self, loaded_model_ptr model, waiting_count waiting)
    : compiling_state(self, std::move(model)), waiting_(std::move(waiting)) {}

  guide_compiler_actor::behavior_type make_behavior() {
    return {
      [this](const generation_ptr& what, std::uint64_t number, const request_actor& client) {
        answer(*what, number, client, &guides::guide_cache::get);
        --*waiting_;
      },
    };
  }

private:
  waiting_count waiting_;
};

class guide_compiler_state : compiling_state {
public:
  static constexpr const char* name = "guide_compiler";

  guide_compiler_state(guide_compiler_actor::pointer self, loaded_model_ptr model)
    : compiling_state(self, model),
      waiting_(std::make_shared<std::atomic<int>>(0)),
      patient_(spawn_state<guide_compiler_actor, patient_compiler_state, caf::detached>(self->system(),
                                                                                        std::move(model), waiting_)) {
    self->link_to(patient_);
  }

  guide_compiler_actor::behavior_type make_behavior() {
    return {
      [this](const generation_ptr& what, std::uint64_t number, const request_actor& client) {
        if (*waiting_ > 0 && answer(*what, number, client, &guides::guide_cache::get_soon))
          return;
        ++*waiting_;
        self_->send(patient_, what, number, client);
      },
    };
  }

private:
  waiting_count waiting_;
  guide_compiler_actor patient_;
};

} // namespace

guide_compiler_actor spawn_guide_compiler(caf::actor_system& system, loaded_model_ptr model) {
  return spawn_state<guide_compiler_actor, guide_compiler_state, caf::detached>(system, std::move(model));
}

} // namespace troupe
