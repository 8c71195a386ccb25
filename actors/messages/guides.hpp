// How a request gets its guide: it asks the guide compiler, which orders one of its workers to compile it.
#pragma once

#include "actors/messages.hpp"

#include <stop_token>

namespace troupe {

/// To a worker, from the compiler: guide_settled follows.
struct guide_ordered {
  std::uint64_t ticket = 0; // of the order
  generation_ptr what;
  bool is_brief = false; // to be given up where it takes long
  std::stop_token stop;  // no longer wanted
  guide_compiler_actor compiler;
};

/// To the compiler, from a worker that has nothing to do now.
struct guide_settled {
  std::uint64_t ticket = 0;
  answer_guide_ptr guide = {}; // null: why not
  error why = {};
  bool takes_long = false; // neither: the order was brief
};

/// To a request, from the compiler: its guide.
struct guide_compiled {
  std::uint64_t request = 0; // its number
  answer_guide_ptr guide;
};

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::guide_ordered)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::guide_settled)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::guide_compiled)
