// What can change while a server runs (server::reload). Immutable: each request uses those that are in force when it
// asks. Any thread.
#pragma once

#include "api/http/access.hpp"
#include "api/http/tls_identity.hpp"
#include "api/server/http_server.hpp"
#include "api/service/policy.hpp"

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

struct live_settings {
  /// Throws failure(bad_request) as banned_by_policy, and what tls_identity throws.
  live_settings(const server_options& from, known_hosts may_be_named)
    : metrics_key(from.metrics_key),
      admin_key(from.admin_key),
      cors_origins(from.cors_origins),
      hosts(std::move(may_be_named)),
      policy(from.policy),
      banned(from.policy),
      tls(from.tls_certificate.empty() ? nullptr
                                       : std::make_shared<const tls_identity>(from.tls_certificate, from.tls_key)),
      header_timeout(from.header_timeout),
      idle_timeout(from.idle_timeout),
      stop_grace(from.stop_grace) {}

  std::string metrics_key, admin_key;
  std::vector<std::string> cors_origins;
  known_hosts hosts;
  server_policy policy;
  banned_by_policy banned;
  std::shared_ptr<const tls_identity> tls; // by which new connections speak TLS; null: plainly
  std::chrono::milliseconds header_timeout, idle_timeout, stop_grace;
};

/// The settings in force.
class settings_in_force {
public:
  explicit settings_in_force(const server_options& from) { set(live_settings(from, {})); }

  std::shared_ptr<const live_settings> get() const {
    const std::lock_guard lock(mutex_);
    return now_;
  }
  void set(live_settings next) {
    auto made = std::make_shared<const live_settings>(std::move(next));
    const std::lock_guard lock(mutex_);
    now_ = std::move(made);
  }

private:
  mutable std::mutex mutex_;
  std::shared_ptr<const live_settings> now_;
};

} // namespace troupe
