// The constraint compiler actor: compiles the constraints of requests, by the constraint_compiler of a technique, which
// the model owns. Who comes next is decided by runtime/techniques/compile_queue; the work is done by a few threads of
// its own, which yield to those that compute. A request that ends takes its order with it, also while it is at work.
#pragma once

#include "actors/messages.hpp"

namespace troupe {

constraint_compiler_actor spawn_constraint_compiler(caf::actor_system& system, loaded_model_ptr model);

} // namespace troupe
