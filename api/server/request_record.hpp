// The log line of one request: its route, outcome, token counts and timings; never a prompt, a key or generated text.
// Filled in on the connection's strand.
#pragma once

#include "api/http/log.hpp"
#include "api/openai/openai_request.hpp"

#include <chrono>
#include <string>
#include <string_view>

namespace troupe {

/// The client's own id for its request if it is short and safe to echo, else empty.
std::string accepted_request_id(std::string_view given);

/// The status of a request whose client left before an answer was sent.
inline constexpr unsigned client_left = 499;

class request_record {
public:
  /// `route`: "POST /v1/completions".
  request_record(std::string id, std::string route);

  const std::string& id() const { return id_; }
  /// The id of a WebSocket frame.
  void set_frame(std::string id) { frame_ = std::move(id); }
  /// Marks a probe, which is logged only at level debug.
  void set_minor() { minor_ = true; }

  /// Records a parsed request's prompt tokens and sequences. Called once per prompt.
  void parsed(const generation& one);
  void see(const event& e);
  void answered(unsigned status) { status_ = status; }
  void failed(std::string_view code, std::string_view param);

  /// Writes the line. Call once, at the end.
  void write(server_log& log);

private:
  using clock = std::chrono::steady_clock;
  void count(const token_event& e);
  void count(const done_event& done);

  std::string id_, route_, frame_;
  clock::time_point begun_ = clock::now(), first_{}, last_{};
  unsigned status_ = client_left;
  std::string code_, param_;
  std::string finish_; // "stop", or "stop,length" if choices differ
  std::uint64_t prompt_tokens_ = 0, completion_tokens_ = 0, cached_tokens_ = 0, sequences_ = 0;
  double queue_ms_ = 0; // maximum over the prompts
  bool minor_ = false;
};

} // namespace troupe
