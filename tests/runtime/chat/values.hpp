// Jinja values written as JSON.
#pragma once

#include "runtime/chat/jinja/value.hpp"
#include "runtime/support/json/json.hpp"

#include <string_view>

namespace troupe::test {

inline jinja::value parsed(std::string_view json) {
  return jinja::from_json(json::document::parse(json, "test", errc::bad_request).root());
}

} // namespace troupe::test
