// Watermarks in requests, and the format of their detection. Pure; runs on worker threads. No message holds a key.
#pragma once

#include "api/openai/fields/field_reader.hpp"
#include "api/service/served_model.hpp"
#include "runtime/sampling/watermark/detector.hpp"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// An object of `type` ("green" or "gumbel"), `scheme`, `context_width`, `gamma`, `delta` and `key`. `fallback` stands
/// in for the key. Throws failure(bad_request) naming the field.
watermarks::options parse_watermark(const field_reader& mark, const std::optional<watermarks::hash_key>& fallback);

/// The mark of a generation: the server's, else what the request's `watermark` asks for (an object, or its type alone),
/// else null.
std::shared_ptr<const watermarks::options> read_watermark(const field_reader& body, const served_model& model);

/// The body of POST /v1/watermark/detect: `text` or `tokens`, and `watermark` unless the server has one of its own.
struct detection_request {
  std::shared_ptr<const watermarks::options> mark;
  std::vector<token_id> tokens;
};
detection_request parse_detection(const field_reader& body, const served_model& model);

/// The answer to it.
std::string detection_object(const watermarks::options& mark, const watermarks::detection& found);

} // namespace troupe
