// The models of a service as one server serves them: with its own settings. Any thread.
#pragma once

#include "api/server/http_server.hpp"
#include "api/service/service.hpp"
#include "runtime/support/json/field_reader.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace troupe {

class served_models {
public:
  /// Both must outlive this.
  served_models(const service& of, const server_options& options) : of_(of), options_(options) {}

  /// Never empty: throws failure(unavailable) with the progress of loading.
  std::vector<std::shared_ptr<const served_model>> all() const;
  /// The one of requests that name none. Throws likewise.
  std::shared_ptr<const served_model> first() const { return all().front(); }
  /// The one that a body names in `model`, or `name` as older clients of Ollama have it. The first where it names none,
  /// or one that is not there: the parser of the request refuses that in its API's words. Throws likewise.
  std::shared_ptr<const served_model> named_in(const field_reader& body) const;

private:
  using model = std::shared_ptr<const served_model>;
  model with_settings(model one) const;

  const service& of_;
  const server_options& options_;
  mutable std::mutex mutex_;
  mutable std::map<model, model> marked_; // by the service's own
};

} // namespace troupe
