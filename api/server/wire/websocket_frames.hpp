// The frames of /v1/ws: parses those of clients, writes those of the server. Pure functions.
#pragma once

#include "api/openai/chat_message.hpp"
#include "api/openai/openai_request.hpp"
#include "api/openai/openai_response.hpp"
#include "api/service/service.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

struct client_frame {
  enum class kind : std::uint8_t { generate, cancel, watch } type = kind::generate;
  std::string id;
  std::size_t bytes = 0;                      // size of the frame
  std::shared_ptr<const json::document> body; // the fields of `generate` or `watch`
};

/// A frame that cannot be served: the id of its request, if it has one, and the reason.
struct bad_frame {
  std::string id;
  error why;
};

/// Throws bad_frame.
client_frame parse_frame(std::string_view text);

/// The generation that a frame requests: a chat if it has `messages`, else a completion of one prompt. Throws failure,
/// and failure(cancelled) soon after a stop request.
generation_request parse_frame_body(const client_frame& frame, const served_model& model,
                                    const std::stop_token& stop = {});

/// How often a watcher wants frames. Throws failure.
std::chrono::milliseconds watch_interval(const client_frame& frame);
/// Of whose engine, if it says so. Throws failure.
std::optional<std::string> watched_model(const client_frame& frame);

/// {"type":"done",…} of a watch that was cancelled.
std::string watch_done_frame(std::string_view id);

/// {"type":"token",…}; empty if the event has neither text nor tokens.
std::string token_frame(std::string_view id, const token_event& e, const served_model& model);
/// The token frame of a text that is taken apart: `text` is its content, beside `reasoning_content` and `tool_calls`.
std::string token_frame(std::string_view id, const token_event& e, const output_deltas& deltas,
                        const served_model& model);
/// {"type":"prompt",…}: log-probabilities of prompt tokens from `position` on; the very first token has none.
std::string prompt_frame(std::string_view id, std::size_t position, const std::vector<sampled_token>& tokens,
                         const served_model& model);
/// What is known of a choice beside its summary.
struct choice_end {
  std::size_t calls = 0;  // of tools
  bool filtered = false;  // it was ended ahead of a banned text
  std::size_t tokens = 0; // that were told, if it was
};

/// `ranked`: its choices have scores. `ends`: by choice; may be shorter. `used`: what is known of the usage beside
/// `done`. `notes`: on fields that nothing reads, told as `warnings`.
std::string done_frame(std::string_view id, const done_event& done, bool ranked,
                       const std::vector<choice_end>& ends = {}, usage used = {},
                       const std::vector<std::string>& notes = {});
/// An empty `id` is written as null. `spent`: where the time went of a request that it ends.
std::string error_frame(std::string_view id, const error& why, const std::optional<wait_parts>& spent = std::nullopt);

} // namespace troupe
