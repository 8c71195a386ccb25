// Drives the writer of a generation_job with events of the test's. For tests only.
#pragma once

#include "api/openai/answer_writer.hpp"
#include "runtime/support/json/field_reader.hpp"
#include "tests/api/openai/parse_request.hpp"

#include <string>
#include <string_view>

namespace troupe::test {

/// `parse(field_reader, model)` of a body, with a model of bytes.
template <class Parse>
auto parsed(std::string_view body, Parse parse, std::shared_ptr<const served_model> model = byte_model()) {
  const auto document = json::document::parse(body, "the body", errc::bad_request);
  return parse(field_reader(document.root()), std::move(model));
}

inline token_event said(std::string text) {
  token_event e;
  for (const unsigned char c : text)
    e.token_ids.push_back(c);
  e.text = std::move(text);
  return e;
}

inline done_event ended(std::uint32_t prompt, std::uint32_t tokens, finish_reason reason = finish_reason::stop) {
  done_event e;
  e.choices.push_back({0, reason, tokens});
  e.prompt_tokens = prompt;
  e.completion_tokens = tokens;
  e.cached_tokens = 1;
  e.queue_ms = 1;
  e.prefill_ms = 2;
  e.decode_ms = 4.5;
  return e;
}

/// Replaces what follows each `key` up to `end`, so that ids and times can be compared.
inline std::string without(std::string text, std::string_view key, std::string_view end = "\"") {
  for (auto at = text.find(key); at != text.npos; at = text.find(key, at + 1)) {
    const auto start = at + key.size();
    text.replace(start, text.find(end, start) - start, "X");
  }
  return text;
}

} // namespace troupe::test
