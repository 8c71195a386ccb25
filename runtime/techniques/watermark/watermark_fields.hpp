// Watermarks in requests, and the format of their detection. Pure; any thread. No message holds a key.
#pragma once

#include "runtime/support/json/field_reader.hpp"
#include "runtime/techniques/technique.hpp"
#include "runtime/techniques/watermark/detector.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::watermarks {

/// An object of `type` ("green" or "gumbel"), `scheme`, `context_width`, `gamma`, `delta` and `key`. `fallback` stands
/// in for the key. Throws failure(bad_request) naming the field.
options parse_watermark(const field_reader& mark, const std::optional<hash_key>& fallback);

/// What the field `watermark` asks for: such an object, or its type alone. Null if it is absent or false.
std::shared_ptr<const options> read_mark(const field_reader& body, const std::optional<hash_key>& fallback);

/// What POST /v1/watermark/detect asks: `text` or at most so many `tokens`, and `watermark` unless the server has one of
/// its own. Without a tokenizer `encode` is empty. Throws failure(bad_request) naming the field.
struct detection_request {
  std::shared_ptr<const options> mark;
  std::vector<token_id> tokens;
};
detection_request read_detection(const field_reader& body, const technique_values& values, int vocab, std::size_t most,
                                 const std::function<std::vector<token_id>(std::string_view)>& encode);

/// The answer of POST /v1/watermark/detect.
std::string detection_object(const options& mark, const detection& found);

} // namespace troupe::watermarks
