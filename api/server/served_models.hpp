// The models of a service as one server serves them: with its own settings. Any thread.
#pragma once

#include "api/server/http_server.hpp"
#include "api/service/service.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace troupe {

/// Thrown where a request has to wait for a model. Whoever runs the request waits without a thread, and runs it again.
struct must_wait {
  std::shared_ptr<model_wait> what;
};

/// The same, for what outlives its requests: it keeps nothing loaded.
inline std::shared_ptr<const served_model> unheld(const std::shared_ptr<const served_model>& one) {
  return one->shared_from_this();
}

class served_models {
public:
  /// Both must outlive this.
  served_models(service& of, const server_options& options) : of_(of), options_(options) {}

  /// Never empty: throws failure(unavailable) with the progress of loading.
  std::vector<std::shared_ptr<const served_model>> all() const;
  /// All that are known, loaded or not. Throws as all(), unless there are several.
  std::vector<known_model> known() const;
  /// Throws as all(), before anything is read of a request; not where each model is waited for by itself.
  void require_any() const;
  /// The one of requests that name none. Throws likewise, and must_wait.
  std::shared_ptr<const served_model> first() const;
  /// The one that a body names in `model`, or `name` as older clients of Ollama have it. The first where it names none,
  /// or one that is not there: the parser of the request refuses that in its API's words. Throws likewise. Of several
  /// models, it stays loaded while the result lives; throws must_wait for one that is not loaded yet, and
  /// failure(not_found) with the names there are.
  std::shared_ptr<const served_model> named_in(const field_reader& body) const;

  /// Whether a body names a model that is not loaded, nor about to be.
  bool names_one_away(const field_reader& body) const;

private:
  using model = std::shared_ptr<const served_model>;
  model with_settings(model one) const;
  model of_several(std::string_view name) const;

  service& of_;
  const server_options& options_;
  mutable std::mutex mutex_;
  struct marked {
    std::weak_ptr<const served_model> of; // the service's own
    model with_settings;
  };
  mutable std::map<const served_model*, marked> marked_;
};

} // namespace troupe
