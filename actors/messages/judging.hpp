// A reward model values the answers of tree searches: the sampler orders, the judge settles the order and tells the
// engine, which counts and restarts it.
#pragma once

#include "actors/messages.hpp"

namespace troupe {

/// To the judge, from a sampler: settle this. Settling calls guided_settings::late.
struct answers_to_value {
  judge_order_ptr order;
};

/// To the judge, from itself: nobody waits for that order any more.
struct order_unwanted {
  std::uint64_t order = 0;
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
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::judge_ready)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::judge_failed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::answer_valued)
