// How long a request is expected to take in a replica, and what it costs others: milliseconds by what each replica has
// measured of its steps. Reads loads and lengths. Made by the router for each request.
#pragma once

#include "runtime/scheduling/cost/step_pace.hpp"
#include "runtime/scheduling/routing/awaited_answers.hpp"
#include "runtime/scheduling/routing/replica_loads.hpp"

#include <cstdint>

namespace troupe {

class route_costs {
public:
  /// `prompt_ms`: that prompts of recent requests take.
  route_costs(const replica_loads& loads, const awaited_answers& answers, double prompt_ms)
    : loads_(loads), answers_(answers), prompt_ms_(prompt_ms) {}

  std::int32_t cached_tokens(const routed_replica& r, const route_query& what) const;
  double first_token_ms(const routed_replica& r, const step_shape& prompt, const weighed_query& what) const;
  double answer_ms(const routed_replica& r, const step_shape& prompt, const weighed_query& what) const;
  double delay_of_others(const routed_replica& r, const step_shape& prompt) const;
  double handover_ms(const routed_replica& to, const step_shape& missing, const weighed_query& what) const;
  /// A prompt, beside no answers.
  double alone_ms(const routed_replica& r, const step_shape& prompt) const;

private:
  replica_pace pace_of(const routed_replica& r) const;
  double wait_ms(const routed_replica& r, double rows, std::int32_t sequences) const;

  const replica_loads& loads_;
  const awaited_answers& answers_;
  const double prompt_ms_;
};

} // namespace troupe
