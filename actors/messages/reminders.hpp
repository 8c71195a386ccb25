// What actors send to themselves, to go on later.
#pragma once

#include "actors/messages.hpp"

namespace troupe {

/// kv_mover: there is more to read.
struct read_on {};

/// kv_block_manager: there may be images again in which blocks are sent.
struct send_on {};

/// kv_block_manager: there may be images again in which blocks are saved.
struct save_on {
  scheduler_actor scheduler;
};

/// scheduler: a kv_fetch for this request takes too long.
struct fetch_overdue {
  std::uint64_t request = 0;
};

/// sampler: has the device failed?
struct device_check_due {};

/// sampler: a step has waited long enough for masks.
struct masks_overdue {};

/// engine: the time of a request may be over.
struct deadlines_due {};

/// engine: this replica may start again, or the judge be loaded again.
struct restart_due {
  int replica = 0; // -1: the judge
};

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::read_on)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::send_on)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::save_on)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::fetch_overdue)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::device_check_due)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::masks_overdue)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::deadlines_due)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::restart_due)
