// The server's public face: OpenAI-compatible HTTP with SSE, and WebSocket token streaming, over anything that
// satisfies `service`. It runs on threads that it is given (run_until_stopped) and a few of its own for tokenising.
#pragma once

#include "api/http/log.hpp"
#include "api/openai/service.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace troupe {

struct server_options {
  std::string host = "127.0.0.1";         // an address or a name
  std::uint16_t port = 8080;              // 0: any that is free
  std::vector<std::string> api_keys;      // none: everyone may ask
  std::vector<std::string> cors_origins;  // browsers' origins that may ask; "*": all
  std::vector<std::string> allowed_hosts; // that requests may name besides this machine; "*": all
  std::size_t max_header_bytes = 16 << 10;
  std::size_t max_body_bytes = 16 << 20;
  std::size_t max_frame_bytes = 1 << 20;    // of a WebSocket message
  std::size_t max_connections = 1024;       // one more is told 503
  std::size_t max_body_memory = 256 << 20;  // of all bodies under way; one more is refused
  std::size_t max_requests_per_socket = 64; // sequences that run at once on one WebSocket
  std::size_t max_requests_per_key = 0;     // sequences of one API key; 0: no bound of its own
  std::size_t brief_bytes = 64 << 10;       // of a request that waits for no longer ones to be read
  std::size_t max_waiting = 1024;           // requests of one kind to be read; one more is refused
  std::size_t sink_bytes = 256 << 10;       // that wait for a slow reader; then its requests pause
  std::chrono::milliseconds header_timeout = std::chrono::seconds(10);
  std::chrono::milliseconds body_timeout = std::chrono::seconds(60);
  std::chrono::milliseconds idle_timeout = std::chrono::seconds(120); // between requests; of a silent WebSocket peer
  std::chrono::milliseconds write_timeout = std::chrono::minutes(5);  // of a client that reads nothing at all
  std::chrono::milliseconds stop_grace = std::chrono::seconds(30);    // for running requests when stopping
  std::shared_ptr<server_log> log;                                    // null: none
  int threads = 1;                                                    // that do I/O
  int workers = 2; // that tokenise and apply templates; half as many for long requests
};

struct server_context;

class server {
public:
  /// Listens at once. Throws failure(unavailable) where the address cannot be had. `engine` must outlive the server.
  server(service& engine, server_options options);
  ~server();

  /// The port listened on.
  std::uint16_t port() const;

  /// Serves on this thread (and `threads` - 1 more) until stop() was called and the last connection is closed.
  void run_until_stopped();

  /// Takes no more connections; running requests get `stop_grace` to finish, then they end with an error. Any thread;
  /// returns at once.
  void stop();

  /// The same without the grace.
  void stop_now();

private:
  std::unique_ptr<server_context> context_;
};

} // namespace troupe
