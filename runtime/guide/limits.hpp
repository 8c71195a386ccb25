// What one guide may cost. Every limit is on something that is counted the same whatever happened before, so that the
// same guide and text meet it at the same place.
#pragma once

#include "runtime/support/error.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace troupe::guides {

struct guide_limits {
  std::size_t source = 1 << 20;        // bytes of the schema, regular expression or grammar
  std::size_t expressions = 1'000'000; // regular expressions, derivatives included
  std::size_t depth = 1'000;           // of nesting
  std::size_t rules = 100'000;         // rules and states of a grammar
  std::size_t states = 100'000;        // of the automaton
  std::size_t items = 4'000'000;       // positions in rules, over all its states
  std::size_t memory = 128u << 20;     // bytes of the automaton and its masks
  std::size_t alternatives = 2'000;    // of one JSON value, after anyOf, oneOf and allOf are resolved
};

/// Larger limits might have let it through.
class too_complex : public failure {
  using failure::failure;
};

[[noreturn]] inline void too_large(const std::string& what, std::size_t limit) {
  throw too_complex(errc::bad_request, "the guide is too complex: more than " + std::to_string(limit) + " " + what);
}

/// The same failure, of a request's field.
[[noreturn]] inline void blame(const failure& f, const std::string& field) {
  const auto message = "`" + field + "`: " + f.what();
  if (dynamic_cast<const too_complex*>(&f))
    throw too_complex(f.what_failed().code, message, field);
  throw failure(f.what_failed().code, message, field);
}

} // namespace troupe::guides
