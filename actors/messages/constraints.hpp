// How a request gets its constraint: it asks the constraint compiler, which orders one of its workers to compile it.
#pragma once

#include "actors/messages.hpp"

#include <stop_token>

namespace troupe {

/// To a worker, from the compiler: constraint_settled follows.
struct constraint_ordered {
  std::uint64_t ticket = 0; // of the order
  generation_ptr what;
  bool is_brief = false; // to be given up where it takes long
  std::stop_token stop;  // no longer wanted
  constraint_compiler_actor compiler;
};

/// To the compiler, from a worker that has nothing to do now.
struct constraint_settled {
  std::uint64_t ticket = 0;
  constraint_ptr made = {}; // null: why not
  error why = {};
  bool takes_long = false; // neither: the order was brief
};

/// To a request, from the compiler.
struct constraint_compiled {
  std::uint64_t request = 0; // its number
  constraint_ptr made;
};

} // namespace troupe

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::constraint_ordered)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::constraint_settled)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(troupe::constraint_compiled)
