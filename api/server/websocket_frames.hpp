// The frames of /v1/ws: what clients send, parsed; what they get, written. Pure functions.
#pragma once

#include "api/openai/openai_request.hpp"
#include "api/openai/service.hpp"

#include <memory>
#include <string>
#include <string_view>

namespace troupe {

struct client_frame {
  enum class kind : std::uint8_t { generate, cancel } type = kind::generate;
  std::string id;
  std::size_t bytes = 0;                      // of the whole frame
  std::shared_ptr<const json::document> body; // generate's other fields
};

/// A frame that cannot be served: which request it was about, if it said so, and why not.
struct bad_frame {
  std::string id;
  error why;
};

/// Throws bad_frame.
client_frame parse_frame(std::string_view text);

/// The generation that a frame asks for: a chat where it has `messages`, else a completion of one prompt. Throws
/// failure; failure(cancelled) soon after `stop` was asked for.
generation parse_frame_body(const client_frame& frame, const served_model& model, const std::stop_token& stop = {});

/// {"type":"token",…}; empty where there is nothing to tell.
std::string token_frame(std::string_view id, const token_event& e, const served_model& model);
std::string done_frame(std::string_view id, const done_event& done);
/// `id` is null where empty.
std::string error_frame(std::string_view id, const error& why);

} // namespace troupe
