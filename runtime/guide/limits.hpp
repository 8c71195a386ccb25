// What one guide may cost. Every limit counts something that is the same whatever happened before, so the same guide
// and text always meet it at the same place. The meter charges `work` and `compiling` while the work is done. The other
// limits bound what makes a guide large, and are met first in most cases.
#pragma once

#include "runtime/support/error.hpp"
#include "runtime/support/meter.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace troupe::guides {

struct guide_limits {
  std::size_t source = 1 << 20;          // bytes of the schema, regular expression or grammar
  std::size_t expressions = 1'000'000;   // regular expressions, derivatives included
  std::size_t depth = 1'000;             // of nesting
  std::size_t rules = 100'000;           // rules and states of a grammar
  std::size_t states = 100'000;          // of the automaton
  std::size_t items = 4'000'000;         // positions in rules, over all its states
  std::size_t memory = 128u << 20;       // bytes of the automaton and its masks
  std::uint64_t work = 400'000'000;      // steps (support/meter.hpp) to compile it
  std::uint64_t following = 100'000'000; // steps to build one automaton and its masks
  std::size_t compiling = 128u << 20;    // bytes at any time while it is compiled
  std::size_t alternatives = 2'000;      // of one JSON value, after anyOf, oneOf and allOf are resolved
};

/// Larger limits might have let it through.
class too_complex : public failure {
  using failure::failure;
};

[[noreturn]] inline void too_large(const std::string& what, std::size_t limit) {
  throw too_complex(errc::bad_request, "the guide is too complex: more than " + std::to_string(limit) + " " + what);
}

/// Runs `f` within the meter. Throws too_complex where that is spent, and failure(cancelled) if it was stopped.
template <class F>
decltype(auto) within(meter& m, F&& f) {
  try {
    return m.run(std::forward<F>(f));
  } catch (const std::exception&) {
    switch (m.spent()) { // whatever was made of it on the way
      case meter::reason::none: throw;
      case meter::reason::bytes: too_large("bytes of memory", m.most().bytes);
      case meter::reason::steps: too_large("steps of work", m.most().steps);
      case meter::reason::stopped: break;
    }
    throw failure(errc::cancelled, "the guide is no longer wanted");
  }
}

/// Throws the failure that is being handled again, as one of a request's field.
[[noreturn]] inline void blame(const failure& f, const std::string& field) {
  if (!f.what_failed().param.empty()) // a part of it, which has its own name
    throw;
  const auto message = "`" + field + "`: " + f.what();
  if (dynamic_cast<const too_complex*>(&f))
    throw too_complex(f.what_failed().code, message, field);
  throw failure(f.what_failed().code, message, field);
}

} // namespace troupe::guides
