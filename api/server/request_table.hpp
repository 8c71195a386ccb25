// The requests that generate, by their ids: what their owners may ask of them from elsewhere, and what is kept of the
// last that ended. An entry is written on its connection's strand; any thread may ask.
#pragma once

#include "api/http/request_scope.hpp"
#include "api/server/figures/request_times.hpp"
#include "runtime/engine/request_handle.hpp"
#include "runtime/scheduling/request.hpp"

#include <boost/asio/any_io_executor.hpp>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe {

class request_entry : public std::enable_shared_from_this<request_entry> {
public:
  struct origin {
    std::string id, route;
    std::size_t owner = 0; // index of the API key
  };
  /// `scope` must live until end().
  request_entry(origin from, std::shared_ptr<request_times> times, boost::asio::any_io_executor strand,
                request_scope& scope);

  // On the strand:
  /// `answer_id`: of the answer; empty: it has none.
  void parsed(const std::vector<generation>& prompts, std::string_view answer_id);
  void submitted(request_handle handle);
  /// It goes on without its connection: `scope` takes the place of the first.
  void follow(request_scope& scope) { scope_ = &scope; }
  /// `code`: of the error with which it failed, or empty.
  void end(unsigned status, std::string code = {});

  // Any thread:
  const std::string& id() const { return from_.id; }
  std::size_t owner() const { return from_.owner; }
  bool is_called(std::string_view name) const;
  bool ended() const;
  std::string json() const;
  /// Its client gets an error, behind what it has.
  void cancel();
  /// Its answers end where they are, or their reasoning does. Throw failure where there is nothing to end.
  void finish();
  void end_reasoning();

private:
  void check_controllable() const;

  const origin from_;
  const std::shared_ptr<request_times> times_;
  const std::time_t created_ = std::time(nullptr);
  request_scope* scope_; // of the strand; null once it has ended

  mutable std::mutex mutex_; // guards what follows
  boost::asio::any_io_executor strand_;
  std::vector<request_handle> handles_; // while it runs
  std::string answer_id_, model_;
  std::uint64_t prompt_tokens_ = 0;
  std::string whole_; // the field by which its answers are found whole; empty: they come token by token
  bool generates_ = false, reasons_ = false;
  unsigned status_ = 0; // once it has ended
  std::string code_;
};

class request_table {
public:
  using entry_ptr = std::shared_ptr<request_entry>;

  /// `most_ended`: entries kept of requests that ended.
  explicit request_table(std::size_t most_ended = 1024) : most_ended_(most_ended) {}

  void open(const entry_ptr& one);
  void close(const entry_ptr& one);

  /// The newest of this id, one that runs before those that ended. An answer's id serves as well. Clients may use an id
  /// of theirs again, so there may be several. Throws failure(not_found).
  entry_ptr find(std::size_t owner, std::string_view id) const;
  /// All that run; none: failure(not_found).
  std::vector<entry_ptr> running(std::size_t owner, std::string_view id) const;

private:
  const std::size_t most_ended_;
  mutable std::mutex mutex_;
  std::deque<entry_ptr> open_, ended_; // the oldest first
};

} // namespace troupe
