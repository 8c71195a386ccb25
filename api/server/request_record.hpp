// What the log will say of one request: who asked for what, how it ended and how long its parts took; never a prompt, a
// key or a text. Filled on the connection's strand.
#pragma once

#include "api/http/log.hpp"
#include "api/openai/openai_request.hpp"

#include <chrono>
#include <string>
#include <string_view>

namespace troupe {

/// A client's own name for its request, where it is short and harmless enough to be repeated; else empty.
std::string accepted_request_id(std::string_view given);

/// The status of a request whose client had left before there was one.
inline constexpr unsigned client_left = 499;

class request_record {
public:
  /// `route`: "POST /v1/completions".
  request_record(std::string id, std::string route);

  const std::string& id() const { return id_; }
  /// The name of a WebSocket's frame.
  void set_frame(std::string id) { frame_ = std::move(id); }
  /// Of a probe, which is worth a line only to those who look for faults.
  void set_minor() { minor_ = true; }

  /// It was understood: so many tokens in, so many sequences out.
  void understood(const generation& one);
  void see(const event& e);
  void answered(unsigned status) { status_ = status; }
  void failed(std::string_view code, std::string_view param);

  /// Writes the line. Called once, at the end.
  void write(server_log& log);

private:
  using clock = std::chrono::steady_clock;
  void count(const token_event& e);
  void count(const done_event& done);

  std::string id_, route_, frame_;
  clock::time_point begun_ = clock::now(), first_{}, last_{};
  unsigned status_ = client_left;
  std::string code_, param_;
  std::string finish_; // "stop", or where choices differ "stop,length"
  std::uint64_t prompt_tokens_ = 0, completion_tokens_ = 0, cached_tokens_ = 0, sequences_ = 0;
  double queue_ms_ = 0; // of the prompt that waited longest
  bool minor_ = false;
};

} // namespace troupe
