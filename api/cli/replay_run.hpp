// Asks again what a record has (api/record), compares what the engine says, and measures how soon it says it. Uses one
// thread, on which a console waits.
#pragma once

#include "api/record/record_comparison.hpp"
#include "api/record/record_reader.hpp"
#include "api/service/policy.hpp"
#include "api/service/service.hpp"

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace troupe::cli {

class console;

struct replay_rules {
  double speed = 1;                               // times as fast as recorded; 0: as fast as it goes
  std::size_t most = 0;                           // sequences that run at a time, if as fast as it goes
  std::size_t limit = 0;                          // requests; 0: all
  double ttft_goal_ms = 1000, tpot_goal_ms = 120; // of goodput
  server_policy policy = {};                      // that was in force
};

/// How soon answers came, in milliseconds.
struct replay_times {
  std::vector<double> ttft, tpot;   // to the first token; between tokens, a mean for each request
  double seconds = 0;               // from the first arrival to the last end
  std::size_t tokens = 0, good = 0; // generated; requests that met both goals
};

struct replay_report {
  std::size_t replayed = 0, equal = 0;
  std::size_t refused_then = 0;               // with an error when it was recorded: not compared
  std::size_t not_compared = 0;               // whose prompts or answers are not in the record
  std::map<std::string, std::size_t> refused; // now, by reason
  std::size_t tokens = 0;                     // compared
  double largest = 0;                         // difference of the log-probabilities of equal tokens
  struct first_difference {
    std::size_t request = 0; // in the order of arrival, from 1
    std::string id, endpoint;
    record_difference what;
    std::string was, is; // texts of the tokens
  };
  std::optional<first_difference> first = {}; // of the earliest request that differs
  std::size_t differing = 0;
  replay_times then, now; // of the requests that were answered both times
  bool interrupted = false;
};

/// `tell`: requests that have ended.
replay_report replay(record_reader& record, service& models, const replay_rules& rules, console& terminal,
                     const std::function<void(std::size_t)>& tell);

/// The report as a person reads it, a sentence or a row on each line.
std::string text_of(const replay_report& report, const replay_rules& rules);
/// A JSON object.
std::string json_of(const replay_report& report);

} // namespace troupe::cli
