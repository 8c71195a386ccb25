// The metrics that Prometheus scrapes: latencies measured by the server, and the engine's counters, read on demand. One
// per server. Thread-safe.
#pragma once

#include "api/server/figures/figures_history.hpp"
#include "api/service/service.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace troupe {

/// What one request used.
struct key_usage {
  unsigned status = 0;
  std::uint64_t prompt_tokens = 0, completion_tokens = 0;
};

class metrics {
public:
  /// `every`: how often figures are kept for the page.
  explicit metrics(const service& engine, std::chrono::milliseconds every = std::chrono::seconds(10));
  ~metrics();

  /// A sink that measures a request submitted now and forwards its events to `next`.
  /// `model`: whose it is, where there are several.
  service::event_sink measured(service::event_sink next, const std::string& model);

  /// Counts a request that was refused before it could be submitted.
  void refused();

  /// Counts a request that the server's policy refused.
  void refused_by_policy();

  /// A function that counts an answer which the server's policy ended. Any thread; it may outlive this.
  std::function<void()> counter_of_filtered() const;

  /// Counts a request of the key by this name. There are few names, all of the operator's choice.
  void ended(const std::string& key, const key_usage& used);

  /// Where the time of one went: "answered", "cancelled", "failed", or "moved" to another process.
  void spent(const std::string& model, const char* outcome, const wait_parts& parts);

  /// Requests that are submitted and have not ended.
  std::size_t in_flight() const;

  void connection_opened();
  void connection_closed();
  /// Counts one HTTP response, or one upgrade (101).
  void answered(unsigned status);

  /// In the exposition format, version 0.0.4. May block briefly.
  std::string text() const;

  /// Keeps the figures of now; false while no model is loaded. May block briefly.
  bool keep_figures();
  /// The samples that were kept, as JSON.
  std::string figures() const { return figures_.json(std::chrono::system_clock::now()); }

private:
  struct instruments;
  const service& engine_;
  const bool several_; // models
  figures_history figures_;
  std::shared_ptr<instruments> all_; // shared with the sinks, which may outlive the server
};

} // namespace troupe
