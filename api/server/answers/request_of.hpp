// Parses a JSON body and finds the model that it names.
#pragma once

#include "api/server/endpoint.hpp"
#include "api/server/served_models.hpp"

namespace troupe {

/// Throws failure: if nothing is loaded, before it looks at the body.
struct request_of {
  explicit request_of(const call& c) : document(parsed(c)), body(document.root()), model(c.models.named_in(body)) {}

  const json::document document;
  const field_reader body;
  const std::shared_ptr<const served_model> model;

private:
  static json::document parsed(const call& c) {
    c.models.require_any();
    return json::document::parse(c.body, "the body", errc::bad_request);
  }
};

} // namespace troupe
