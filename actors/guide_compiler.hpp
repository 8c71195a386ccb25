// The guide compiler actor: compiles the guides of requests (runtime/guide/guide_cache, which the model owns). Detached, and
// yielding to those that compute: a hostile guide takes long, at most what its limits allow.
#pragma once

#include "actors/messages.hpp"

namespace troupe {

guide_compiler_actor spawn_guide_compiler(caf::actor_system& system, loaded_model_ptr model);

} // namespace troupe
