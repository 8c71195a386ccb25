// The events of one stream, or the frames of one WebSocket, that a client may not have got, between the coroutine that
// makes them and the connection that sends them, which may be lost and come back as another one. Thread-safe.
#pragma once

#include "api/http/byte_budget.hpp"
#include "runtime/support/error.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

namespace troupe {

class stream_journal {
public:
  using clock = std::chrono::steady_clock;
  /// Between two questions whether others have given memory back.
  static constexpr auto between_tries = std::chrono::milliseconds(200);

  struct origin {
    std::string request_id, answer_id;
    std::size_t owner = 0; // index of the API key
    std::string client;    // who asked (server_context::client_of): nobody else gets it
    bool frames = false;   // of a WebSocket
  };
  struct bounds {
    std::size_t ahead = 256 << 10; // bytes made ahead of a reader that is there
    std::size_t kept = 1 << 20;    // bytes in all; half of them for what was sent, and may not have arrived
  };

  /// `memory` is what it may take; `wake_maker` is called on any thread, under no lock, when one of the questions below
  /// may have another answer.
  stream_journal(origin from, bounds most, byte_budget& memory, std::function<void()> wake_maker);

  const std::string& request_id() const { return from_.request_id; }
  const std::string& answer_id() const { return from_.answer_id; }
  const std::string& client() const { return from_.client; }
  bool has_frames() const { return from_.frames; }
  bool belongs_to(std::size_t owner, std::string_view client) const {
    return from_.owner == owner && from_.client == client;
  }

  // For the maker:
  /// Whole events of a stream of server-sent events, which get ids: 1, 2, ...
  void append(std::string_view events);
  /// A JSON object, which gets a number too: "seq", ahead of its members.
  void append_frame(std::string_view object);
  /// Instead of any event.
  void refuse(error why);
  void end();
  bool has_room();
  /// Whether it has none because others hold the memory.
  bool lacks_memory() const;
  /// Since when nobody reads; nothing while somebody does.
  std::optional<clock::time_point> unread_since() const;
  /// What a reader's connection, or the server, ends it with.
  std::optional<error> cut_short() const;
  bool is_dropped() const;

  // For those who keep it:
  bool has_ended() const;
  /// Nobody gets it any more.
  void drop();
  void tell_maker() const { wake_maker_(); }

  // For a reader:
  /// Reads behind event `after`, instead of whoever did. `wake` as above, for new events or another reader; it may be
  /// called until leave(). Throws failure if these events are not kept any more, or were never made.
  std::uint64_t attach(std::uint64_t after, std::function<void()> wake);
  void leave(std::uint64_t reader);
  /// Throws as attach().
  void check(std::uint64_t after) const;
  struct part {
    std::string text;
    bool replaced = false;        // by another reader, or dropped
    bool ended = false;           // nothing follows
    std::optional<error> refused; // nothing came
  };
  /// The next events: at least one if there is any, and about `most` bytes.
  part read(std::uint64_t reader, std::size_t most);
  void cut(error why);

private:
  struct event {
    std::uint64_t number;
    std::string text;
  };
  void push(std::string numbered);
  void check_kept(std::uint64_t after) const;
  void pop();
  void fit();
  void wake(std::unique_lock<std::mutex>& lock, bool maker);

  const origin from_;
  const bounds most_;
  const std::function<void()> wake_maker_;

  mutable std::mutex mutex_; // guards what follows
  byte_budget::share memory_;
  std::deque<event> events_;
  std::size_t bytes_ = 0, unsent_ = 0; // of all events, and of those from next_ on
  std::uint64_t last_ = 0, next_ = 1;  // numbers: of the last one made, and of the next to be sent
  std::uint64_t reader_ = 0, readers_ = 0;
  std::function<void()> wake_reader_;
  std::optional<clock::time_point> unread_since_ = clock::now();
  std::optional<error> refused_, cut_;
  bool over_ = false; // the memory does not allow what it has
  bool ended_ = false, dropped_ = false;
};

} // namespace troupe
