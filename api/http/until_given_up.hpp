// Ends what is made of a request's text once nobody waits for it: tokenising, and whatever else charges a meter or allocates.
#pragma once

#include "runtime/support/error.hpp"
#include "runtime/support/meter.hpp"

#include <stop_token>
#include <utility>

namespace troupe {

/// What `f` returns. Throws what it throws, and failure(cancelled) soon after a stop request.
template <class F>
decltype(auto) until_given_up(const std::stop_token& stop, F&& f) {
  meter cost({}, stop);
  try {
    return cost.run(std::forward<F>(f));
  } catch (...) {
    if (cost.spent() == meter::reason::stopped)
      throw failure(errc::cancelled, "the request was given up");
    throw;
  }
}

} // namespace troupe
