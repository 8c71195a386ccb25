// The responses that clients can ask for again, or continue: bounded in number and in bytes, the least recently used are
// forgotten first. An owner (an API key) sees its own only. Thread-safe.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>

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

  void keep(std::size_t owner, const std::string& id, stored_response response);
  /// Null if there is none. Counts as a use.
  std::shared_ptr<const stored_response> find(std::size_t owner, const std::string& id);
  /// Whether there was one.
  bool remove(std::size_t owner, const std::string& id);

  std::size_t bytes() const;

private:
  struct entry {
    std::size_t owner;
    std::string id;
    std::shared_ptr<const stored_response> response;
  };
  using entries = std::list<entry>;

  /// Under the lock. Returns what must be destroyed outside of it.
  std::shared_ptr<const stored_response> erase(entries::iterator at);
  entries::iterator look_up(std::size_t owner, const std::string& id);

  const std::size_t most_entries_, most_bytes_;
  mutable std::mutex mutex_;
  entries entries_; // most recently used first
  std::map<std::string, entries::iterator> by_id_;
  std::size_t bytes_ = 0;
};

} // namespace troupe
