// The executor actor: owns the KV memory, the activations and the compute threads or streams of one stage on one device
// (a step_runner of runtime/execution), borrows the weights, and runs one forward pass per plan, in order. Detached: it
// blocks its own thread while it computes.
#pragma once

#include "actors/messages.hpp"
#include "runtime/engine/loading/loaded_model.hpp"

#include <cstddef>

namespace troupe {

/// Whom a stage sends what it has computed.
struct stage_peers {
  executor_actor next = {}; // the stage behind it; null: this is the last, which has the others
  sampler_actor sampler = {};
  kv_mover_actor writer = {}; // writes the images that blocks are saved to; null: none are
};

executor_actor spawn_executor(caf::actor_system& system, model_replica what, std::size_t stage, stage_peers to);

} // namespace troupe
