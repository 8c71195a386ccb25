// What Prometheus scrapes: latencies that the server sees pass by, and the engine's own counters, read when asked. One
// per server; all of it may be called from any thread.
#pragma once

#include "api/openai/service.hpp"

#include <memory>
#include <string>

namespace troupe {

class metrics {
public:
  explicit metrics(const service& engine);
  ~metrics();

  /// A sink that measures a request submitted now, and hands its events on to `next`.
  service::event_sink measured(service::event_sink next);

  /// Requests submitted and not ended.
  std::size_t in_flight() const;

  void connection_opened();
  void connection_closed();
  /// One HTTP response, or one upgrade (101).
  void answered(unsigned status);

  /// The exposition format, version 0.0.4. May block for a moment.
  std::string text() const;

private:
  struct instruments;
  const service& engine_;
  std::shared_ptr<instruments> all_; // shared with the sinks, which may outlive the server
};

} // namespace troupe
