#include "api/http/request_scope.hpp"
#include "api/server/answers/answers.hpp"
#include "api/server/metrics.hpp"
#include "api/server/watch_frames.hpp"

#include <condition_variable>
#include <mutex>

namespace troupe {

namespace {

constexpr int longest_trace = 30; // seconds
constexpr std::size_t most_traced_steps = 20'000;

int seconds_of(std::string_view query) {
  constexpr std::string_view name = "?seconds=";
  if (query.empty())
    return 1;
  const auto value = query.starts_with(name) ? query.substr(name.size()) : std::string_view();
  int seconds = 0;
  for (const auto c : value.substr(0, 3))
    seconds = c >= '0' && c <= '9' && seconds >= 0 ? 10 * seconds + (c - '0') : -1;
  if (value.empty() || value.size() > 3 || seconds < 1 || seconds > longest_trace)
    throw failure(errc::bad_request, "`seconds` must be a whole number from 1 to " + std::to_string(longest_trace),
                  "seconds");
  return seconds;
}

} // namespace

// Records are made while somebody watches, so this watches for as long as was asked for.
reply trace_steps(const call& c) {
  const auto seconds = seconds_of(c.query);
  const auto ring = std::make_shared<step_ring>(most_traced_steps);
  auto watched = c.engine.watch([ring](const step_ring::record_ptr& record) { ring->add(record); });
  if (!watched)
    throw failure(errc::unsupported, "this server's steps leave no records");
  std::mutex mutex;
  std::condition_variable_any changed;
  std::unique_lock lock(mutex);
  changed.wait_for(lock, c.stop, std::chrono::seconds(seconds), [] { return false; });
  watched.reset();
  check(c.stop);
  auto result = reply::json(trace_of(ring->take().records));
  result.headers.emplace_back("Content-Disposition", "attachment; filename=\"troupe-trace.json\"");
  return result;
}

reply tell_figures(const call& c) {
  if (!c.page)
    throw failure(errc::not_found, "this server keeps no figures, as it has no web page (--no-page)");
  return reply::json(c.counted.figures());
}

} // namespace troupe
