// The responses that clients can ask for again, or continue: bounded in number and in bytes. An owner, which is an API
// key or a connection, sees its own only. The client that has most, over all its connections, is the first to lose its
// least recently used one. Thread-safe.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

namespace troupe {

struct stored_response {
  std::string body;     // the response object
  std::string input;    // its input items: a JSON list
  std::string messages; // the conversation up to its end: messages of a chat, separated by commas

  std::size_t bytes() const { return body.size() + input.size() + messages.size() + 512; }
};

class response_store {
public:
  /// A `most_bytes` of 0 keeps nothing.
  response_store(std::size_t most_entries, std::size_t most_bytes)
    : most_entries_(most_entries), most_bytes_(most_bytes) {}

  /// `client`: who pays for it.
  void keep(std::size_t owner, const std::string& id, stored_response response, const std::string& client);
  /// Null if there is none. Counts as a use.
  std::shared_ptr<const stored_response> find(std::size_t owner, const std::string& id);
  /// Whether there was one.
  bool remove(std::size_t owner, const std::string& id);
  /// Removes all of one owner's.
  void forget(std::size_t owner);

  std::size_t bytes() const;

private:
  struct entry {
    std::size_t owner;
    std::string id, client;
    std::shared_ptr<const stored_response> response;
  };
  using entries = std::list<entry>;
  struct belongings {
    entries all; // most recently used first
    std::size_t bytes = 0;
  };

  // Under the lock:
  /// Returns what must be destroyed outside of it.
  std::shared_ptr<const stored_response> erase(entries::iterator at);
  std::optional<entries::iterator> look_up(std::size_t owner, const std::string& id);
  /// The one to go for another of `client` with `bytes`; nothing if there is room.
  std::optional<entries::iterator> surplus(const std::string& client, std::size_t bytes);

  const std::size_t most_entries_, most_bytes_;
  mutable std::mutex mutex_;
  std::map<std::string, belongings> clients_; // those who have any
  std::map<std::string, entries::iterator> by_id_;
  std::map<std::size_t, std::set<std::string>> ids_; // by owner
  std::size_t bytes_ = 0;
};

/// Where the responses of one client are. A connection's own, which were not to be stored, end with it.
struct response_shelf {
  response_store& store;
  std::size_t owner = 0;                      // index of the API key
  std::string client = {};                    // who pays for what is kept
  std::optional<std::size_t> connection = {}; // an owner that nobody else is

  std::shared_ptr<const stored_response> find(const std::string& id) const {
    auto found = connection ? store.find(*connection, id) : nullptr;
    return found ? found : store.find(owner, id);
  }
  /// `stays`: behind the connection's end.
  void keep(const std::string& id, stored_response response, bool stays) const {
    if (stays)
      store.keep(owner, id, std::move(response), client);
    else if (connection)
      store.keep(*connection, id, std::move(response), client);
  }
};

} // namespace troupe
