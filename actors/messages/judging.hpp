// A judge values the answers of searches by a second model: the sampler orders, the judge settles the order and tells the
// engine, which counts and restarts it. What a judge has not settled when it ends, it never will: samplers learn of its
// end by judge_known.
#pragma once

#include "actors/messages.hpp"
#include "runtime/sampling/judging.hpp"

namespace troupe {

/// To the judge, from a sampler: order_settled follows.
struct answers_to_value {
  judge_order_ptr order;
  sampler_actor sampler;
};

/// To the judge, from the sampler: nobody waits for that any more.
struct order_unwanted {
  judge_order_ptr order;
};

/// To the sampler, from the judge; from itself, where nobody judges.
struct order_settled {
  verdict its;
};

/// To the engine, from the judge: its model is loaded.
struct judge_ready {};

/// To the engine, from the judge, which ends: it cannot value anything.
struct judge_failed {
  error why;
};

/// To the engine, from the judge: one answer more has its value.
struct answer_valued {};

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::answers_to_value)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::order_unwanted)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::order_settled)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::judge_ready)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::judge_failed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::answer_valued)
