// Parses request bodies against a small byte-level model. For tests only.
#pragma once

#include "api/openai/openai_request.hpp"
#include "tests/api/service/fake_service.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace troupe::test {

inline generation_request parse(dialect speaks, std::string_view body, int max_context = 200) {
  const auto parsed = json::document::parse(body, "the body", errc::bad_request);
  return parse_generation(speaks, field_reader(parsed.root()), *byte_model(max_context));
}

inline generation_request completion(std::string_view body) { return parse(dialect::completions, body); }

inline generation_request chat(std::string_view body) { return parse(dialect::chat, body); }

inline std::string text_of(const std::vector<token_id>& ids) { return byte_model()->decode(ids, false); }

/// The error that `f` throws, or one with the code internal if it throws none.
template <class F>
error fault_of(F f) {
  try {
    f();
  } catch (const failure& caught) {
    return caught.what_failed();
  }
  return {errc::internal, "nothing was wrong", "nothing"};
}

} // namespace troupe::test
