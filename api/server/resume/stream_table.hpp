// The streams whose clients may come back, by the ids of their requests and answers: their memory, their number, and who
// goes first. Thread-safe.
#pragma once

#include "api/http/byte_budget.hpp"
#include "api/server/resume/stream_journal.hpp"

#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string_view>

namespace troupe {

class stream_table {
public:
  using journal_ptr = std::shared_ptr<stream_journal>;

  /// `most_bytes` and `most_unread` of all streams, one client half of both.
  stream_table(std::size_t most_bytes, std::size_t most_unread)
    : memory(most_bytes, most_bytes / 2), most_unread_(most_unread) {}

  void open(journal_ptr one);
  void close(const journal_ptr& one);

  /// The newest that is called so, one that goes on before those that have ended. Throws failure(not_found), also for
  /// another's.
  journal_ptr find(std::size_t owner, std::string_view client, std::string_view id, bool frames = false) const;

  /// Whether one that nobody reads may be kept; others that nobody reads and have ended are dropped for it.
  bool keep(const journal_ptr& one);

  /// Drops the one that has ended and was left first, if need be another client's. False if there is none.
  bool drop_ended(std::string_view client);

  /// Nobody can come back any more: tells all makers.
  void stop();

  byte_budget memory;

private:
  const std::size_t most_unread_;
  mutable std::mutex mutex_;
  std::deque<journal_ptr> all_; // the oldest first
};

} // namespace troupe
