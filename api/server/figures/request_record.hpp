// The log line of one request: its route, outcome, token counts and timings; never a prompt, a key or generated text.
// Filled in on the connection's strand.
#pragma once

#include "api/http/log.hpp"
#include "api/openai/openai_request.hpp"
#include "api/server/figures/metrics.hpp"
#include "api/server/figures/request_times.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

/// The client's own id for its request if it is short and safe to echo, else empty.
std::string accepted_request_id(std::string_view given);

/// The status of a request whose client left before an answer was sent.
inline constexpr unsigned client_left = 499;

/// A line for each sentence on what of a request is left out. `frame`: its id on a WebSocket.
void log_notes(server_log& log, const std::string& id, const std::vector<std::string>& notes,
               const std::string& frame = {});

class request_record {
public:
  /// `route`: "POST /v1/completions".
  request_record(std::string id, std::string route);

  const std::string& id() const { return id_; }
  const std::string& route() const { return route_; }
  /// Who asks: an address, what a proxy says about it, the name of a key, and what the request says itself.
  struct origin {
    std::string client, forwarded_for, key, user;
  };
  void set_origin(origin from) { from_ = std::move(from); }
  void set_key(std::string name) { from_.key = std::move(name); }
  void set_user(std::string user) { from_.user = std::move(user); }
  const origin& from() const { return from_; }

  /// The id of a WebSocket frame.
  void set_frame(std::string id) { frame_ = std::move(id); }
  /// Marks a probe, which is logged only at level debug.
  void set_minor() { minor_ = true; }

  /// Records a parsed request's prompt tokens and sequences. Called once per prompt.
  void parsed(const generation& one);
  void see(const event& e);
  /// The server's policy ended it, whatever the engine says then.
  void filtered() { filtered_ = true; }
  void answered(unsigned status) { status_ = status; }
  unsigned status() const { return status_; }
  /// Of the error with which it failed; else empty.
  const std::string& code() const { return code_; }
  /// Never null.
  const std::shared_ptr<request_times>& times() const { return times_; }
  /// `why` is a sentence.
  void failed(std::string_view code, std::string_view param, std::string_view why);
  /// The code of one that goes on in another process.
  static constexpr std::string_view moved = "moved";

  /// Writes the line, and counts the request. Call once, at the end.
  void write(server_log& log, metrics& counted);

private:
  using clock = std::chrono::steady_clock;
  void count(const token_event& e);
  void count(const done_event& done);
  const char* outcome() const;

  std::string id_, route_, frame_, model_;
  clock::time_point begun_ = clock::now(), first_{}, last_{};
  std::shared_ptr<request_times> times_ = std::make_shared<request_times>();
  unsigned status_ = client_left;
  std::string code_, param_, why_;
  origin from_;
  std::string finish_; // "stop", or "stop,length" if choices differ
  std::uint64_t prompt_tokens_ = 0, completion_tokens_ = 0, cached_tokens_ = 0, sequences_ = 0;
  std::optional<double> queue_ms_; // maximum over the prompts
  bool minor_ = false, filtered_ = false;
};

} // namespace troupe
