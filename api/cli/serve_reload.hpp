// Reads the settings of `troupe serve` again while it serves: what can change does, the rest is told. On the thread that
// hears of SIGHUP.
#pragma once

#include "api/catalogue/catalogue.hpp"
#include "api/cli/command.hpp"
#include "api/record/recorder.hpp"
#include "api/server/http_server.hpp"

#include <mutex>
#include <string>

namespace CLI {
class App;
}

namespace troupe::cli {

struct serve_options;

/// The policy that models must be able to follow, also those that are loaded later.
class policy_for_models {
public:
  explicit policy_for_models(server_policy now) : now_(std::move(now)) {}
  void set(server_policy next) {
    const std::lock_guard lock(mutex_);
    now_ = std::move(next);
  }
  void check(const served_model& model) const {
    const std::lock_guard lock(mutex_);
    check_policy(now_, model);
  }

private:
  mutable std::mutex mutex_;
  server_policy now_;
};

/// Whether everybody who reaches the server from other machines is let in. Throws usage_failure if that is not wanted.
bool check_access(const serve_options& options, const std::string& host);

/// Reads the command line and all files that it names. `given`: as they were; null `record`: nothing is recorded.
void reload(server& listening, catalogue& models, recorder* record, policy_for_models& policy, const CLI::App& given,
            const reader& again, const std::string& host, server_log& log);

} // namespace troupe::cli
