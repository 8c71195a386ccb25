// The server: OpenAI-compatible HTTP with server-sent events, and WebSocket token streaming, over any `service`. I/O
// runs on the threads that call run_until_stopped(); tokenising runs on a few threads of the server's own.
#pragma once

#include "api/http/log.hpp"
#include "api/service/policy.hpp"
#include "api/service/service.hpp"
#include "runtime/support/files/descriptor.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace troupe {

class control_peer;
class recorder; // api/record/recorder.hpp

struct server_options {
  std::string host = "127.0.0.1";             // address or name
  std::uint16_t port = 8080;                  // 0: any free port
  int socket = -1;                            // that listens already, on `host` and any port; -1: none
  std::filesystem::path tls_certificate = {}; // with tls_key, by which TLS is spoken (tls_identity); empty: plain HTTP
  std::filesystem::path tls_key = {};
  std::vector<std::string> api_keys = {};      // these and those of key_file; none of both: no key needed
  std::filesystem::path key_file = {};         // of `name=key` lines, read again when it changes; empty: none
  std::string metrics_key = {};                // opens /metrics alone, which needs a key then; empty: none
  std::string admin_key = {};                  // loads and unloads models; empty: no client may
  std::vector<std::string> cors_origins = {};  // browser origins that are allowed; "*": all
  std::vector<std::string> allowed_hosts = {}; // Host values allowed besides this machine's; "*": all
  bool accept_later = false;                   // only once server::accept() is called
  bool movable = false;                        // requests keep what another process needs to go on with them
  bool page = true;                            // whether `GET /` serves the web page to browsers
  bool isolate_keys = false;                   // no client shares cached prefixes with another one
  bool fault_injection = false;                // whether clients may make parts fail (/debug/faults), for tests
  std::size_t max_header_bytes = 16 << 10;
  std::size_t max_body_bytes = 16 << 20;
  std::size_t max_frame_bytes = 1 << 20;      // per WebSocket message
  std::size_t max_connections = 1024;         // further connections get a 503
  std::size_t max_body_memory = 256 << 20;    // bytes of all bodies held at once; further requests are refused
  std::size_t max_answer_memory = 256 << 20;  // bytes of all answers under way; slow readers lose theirs first
  std::size_t max_requests_per_socket = 64;   // concurrent sequences on one WebSocket
  std::size_t max_requests_per_key = 0;       // concurrent sequences of one API key; 0: unlimited
  std::size_t max_stored_responses = 4096;    // of /v1/responses; the least recently used are forgotten
  std::size_t max_response_memory = 64 << 20; // bytes of them
  std::chrono::milliseconds resume_window{0}; // how long a stream goes on without its client; 0: not at all
  std::size_t max_resume_memory = 64 << 20;   // bytes of what such clients may have missed
  std::size_t max_unread_streams = 256;       // that go on without their clients, or have ended
  std::size_t brief_bytes = 64 << 10;         // up to this size, a request is parsed ahead of longer ones
  std::size_t max_waiting = 1024;             // requests waiting to be parsed, per lane; further ones are refused
  std::size_t sink_bytes = 256 << 10;         // bytes queued for a slow reader before its requests pause
  std::chrono::milliseconds header_timeout = std::chrono::seconds(10);
  std::chrono::milliseconds body_timeout = std::chrono::seconds(60);
  std::chrono::milliseconds idle_timeout = std::chrono::seconds(
    120); // between requests, and for a silent WebSocket peer
  std::chrono::milliseconds write_timeout = std::chrono::minutes(5);     // for a client that reads nothing
  std::chrono::milliseconds stop_grace = std::chrono::seconds(30);       // for running requests when stopping
  std::chrono::milliseconds figures_interval = std::chrono::seconds(10); // of what is kept for the page's figures
  technique_values techniques = {};                                      // what they serve with
  std::size_t engine_room = 0;                                           // sequences that run and wait; 0: not known
  unknown_fields unknown = unknown_fields::warn;                         // of requests
  server_policy policy = {};                                             // what clients cannot lift
  std::shared_ptr<server_log> log = {};                                  // null: no log
  std::shared_ptr<recorder> record = {};                                 // of what is asked and answered; null: none
  int threads = 1;                                                       // for I/O
  int workers = 2; // threads that tokenise and apply templates; half as many more for long requests
};

struct server_context;

class server {
public:
  /// Starts listening. Throws failure(unavailable) if it cannot bind the address, and what tls_identity throws. `engine`
  /// must outlive the server.
  server(service& engine, server_options options);
  ~server();

  /// The port listened on.
  std::uint16_t port() const;

  /// Of the socket that it listens on.
  int listening_socket() const;
  /// Accepts connections from now on (server_options::accept_later). Any thread.
  void accept();

  /// Another process takes this one's place: nothing more is accepted, `next` gets idle connections and what can go on
  /// there, as it described itself (describe_self()), and the rest has `grace`; then run_until_stopped() returns. Any
  /// thread. Throws failure.
  void give_to(std::shared_ptr<control_peer> next, std::string_view description, std::chrono::milliseconds grace);
  std::string describe_self() const;
  /// Goes on with a connection that another process has given away, with its message. Any thread.
  void take(const std::string& message, descriptor socket);

  /// Serves on this thread (and `threads` - 1 more) until stop() has been called and the last connection is closed.
  void run_until_stopped();

  /// Puts in force what can change meanwhile: keys, the metrics key, the policy, origins, allowed hosts, the bound of a
  /// key's sequences, the timeouts of headers and idle connections, the grace, the certificate of new connections. Running
  /// requests go on. Throws failure(bad_request | not_found | bad_file), and then nothing has changed. Any thread.
  void reload(const server_options& next);
  /// Throws what reload would, but for files that change meanwhile.
  void check(const server_options& next) const;

  /// Requests that are submitted and have not ended. Any thread.
  std::size_t running_requests() const;

  /// Running requests have `stop_grace` to finish and then end with an error. Until then, further connections hear from
  /// /health that the server is draining, and are refused anything but that and /metrics. Any thread; returns at once.
  void stop();

  /// stop() without the grace period.
  void stop_now();

private:
  std::unique_ptr<server_context> context_;
};

} // namespace troupe
