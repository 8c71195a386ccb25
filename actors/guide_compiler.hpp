// The guide compiler actor: compiles the guides of requests (runtime/guide/guide_cache, which the model owns). Who
// comes next is decided by runtime/guide/compile_queue; the work is done by a few threads of its own, which yield to
// those that compute. A request that ends takes its guide with it, also while it is being compiled.
#pragma once

#include "actors/messages.hpp"

namespace troupe {

guide_compiler_actor spawn_guide_compiler(caf::actor_system& system, loaded_model_ptr model);

} // namespace troupe
