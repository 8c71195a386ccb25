// What the engine answers to a request that asks where it is to run, and a step on its way through a replica's stages.
#pragma once

#include "actors/messages.hpp"
#include "runtime/support/error.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace troupe {

struct stage_rows; // runtime/execution/step_runner.hpp

// clang-format off

/// A step on its way through the stages.
struct stage_work {
  step_plan_ptr plan = {};
  std::shared_ptr<const stage_rows> rows = {}; // null: of a plan without rows
  std::vector<double> stage_ms = {};           // that the stages before have taken
  executor_actor first = {};                   // stage, which the sampler sends the tokens to
};

/// The engine's answer to admit.
struct admit_reply {
  loaded_model_ptr model = {};
  bool asks = false;              // for a route_query, to be sent with admit: there are several replicas
  scheduler_actor scheduler = {}; // null while no replica runs: another reply follows
  guide_compiler_actor guides = {}; // of the same replica
  int replica = 0;                // its number
  int moves_to = -1;              // where its blocks are to be sent meanwhile; -1: nowhere
  std::int32_t expected_cached = 0; // tokens of the prompt, there
  std::uint64_t number = 0;       // of the request, for this admission
  std::uint64_t arrival = 0;      // of the request, at this engine
  error why = {};                 // if model is null: refused
};

// clang-format on

} // namespace troupe
