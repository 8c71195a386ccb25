// A request asks the engine where it is to run, and the engine answers; and a step on its way through a replica's
// stages.
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

/// To the engine, from a request: an admit_reply follows.
struct admission_wanted {
  request_actor request;
  std::uint64_t tokens = 0;   // that it has
  bool ran = false;           // it was computed since it was admitted last
  route_query_ptr query = {}; // that an admit_reply asked for
};

/// To the engine, from a request that was tried: it has a token more; or none, as it is paused.
struct trial_ended {
  request_actor request;
  std::uint64_t tokens = 0; // that it has
};

/// The engine's answer to admission_wanted.
struct admit_reply {
  loaded_model_ptr model = {};
  bool asks = false;              // for a route_query: there are several replicas
  bool tried = false;             // trial_ended is wanted
  scheduler_actor scheduler = {}; // null while no replica runs: another reply follows
  constraint_compiler_actor constraints = {}; // of the same replica; null: there are none
  int replica = 0;                // its number
  int moves_to = -1;              // where its blocks are to be sent meanwhile; -1: nowhere
  std::int32_t expected_cached = 0; // tokens of the prompt, there
  std::uint64_t number = 0;       // of the request, for this admission
  std::uint64_t arrival = 0;      // of the request, at this engine
  error why = {};                 // if model is null: refused
};

// clang-format on

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::admission_wanted)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::trial_ended)
