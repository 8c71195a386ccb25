// What tests and benches change inside an engine, beside the options that its users have.
#pragma once

#include "runtime/techniques/technique.hpp"

namespace troupe {

struct engine_internals {
  technique_values techniques = {}; // what they find instead of their own
  bool strict_roles = false;        // prompts and answers are computed where roles say, whatever it costs
};

} // namespace troupe
