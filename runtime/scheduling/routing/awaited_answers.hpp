// How long the answers of requests are expected to become, and which of these have not ended: their lengths are learned.
// Owned by the router; single-threaded.
#pragma once

#include "runtime/scheduling/cost/load_report.hpp"
#include "runtime/scheduling/lengths/expected_answer.hpp"
#include "runtime/scheduling/routing/route_query.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>

namespace troupe {

/// What is weighed of a request.
struct weighed_query : route_query {
  double answer = 0;      // tokens that are expected to follow
  double long_answer = 0; // that follow at most, with a probability of 0.8
};

class awaited_answers {
public:
  weighed_query weighed(const route_query& what) const;
  void await(std::uint64_t request, const route_query& what);
  void rename(std::uint64_t was, std::uint64_t request);
  void learn(const ended_answer& ended);
  /// The request is gone, or is asked for anew. Its replica may yet report how long its answer became, or never will.
  void end(std::uint64_t request);
  /// Requests whose answers' lengths may yet be reported.
  std::size_t size() const { return awaited_.size(); }

  /// Whether any has ended.
  bool known() const { return lengths_.scores().answers > 0; }
  length_model& lengths() { return lengths_; }

private:
  length_model lengths_;
  std::map<std::uint64_t, expected_answer> awaited_;
  std::deque<std::uint64_t> ended_; // the last of these that have ended
};

} // namespace troupe
