// What tests and benches change inside an engine, beside the options that its users have.
#pragma once

#include "runtime/speculation/drafter.hpp"

namespace troupe {

struct engine_internals {
  drafter_factory drafter = {}; // what it makes is a sequence's only source of guesses
  int guesses = 0;              // of each sequence in a step, whatever they cost; 0: as many as pay
  bool strict_roles = false;    // prompts and answers are computed where roles say, whatever it costs
};

} // namespace troupe
