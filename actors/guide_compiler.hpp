// The guide compiler actor: compiles the guides of requests (runtime/guide/guide_cache, which the model owns). A hostile
// guide takes long, at most what its limits allow. So there are two threads, which yield to those that compute: guides go
// to the patient one while it has nothing to do; else the other compiles those that do not take long, and the rest wait.
#pragma once

#include "actors/messages.hpp"

namespace troupe {

guide_compiler_actor spawn_guide_compiler(caf::actor_system& system, loaded_model_ptr model);

} // namespace troupe
