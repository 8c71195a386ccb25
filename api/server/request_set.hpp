// The running requests of one connection, and the queue of their events between the engine's threads and the
// connection's strand. Flow control for slow readers: all requests pause at the queue's high mark and resume at its low
// mark. Used only on the connection's strand; the sinks it makes run on any thread.
#pragma once

#include "api/http/answer_budget.hpp"
#include "api/http/token_rate.hpp"
#include "api/record/recorder.hpp"
#include "api/server/figures/metrics.hpp"
#include "api/service/service.hpp"

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

/// Time for the last events of requests that were cancelled, which the engine sends at once.
inline constexpr auto cancelling_time = std::chrono::milliseconds(300);

class request_set : public std::enable_shared_from_this<request_set> {
public:
  struct item {
    std::uint64_t key = 0;
    event what;
  };

  /// `high_mark` is in bytes, approximately as written to the client. What events take is counted in `account` from
  /// their arrival until written().
  request_set(boost::asio::any_io_executor strand, service& engine, metrics& counted, std::size_t high_mark,
              std::shared_ptr<answer_budget::account> account);

  /// Sets generation::client of the requests that follow, whose tokens are taken off its `rates`.
  void speak_for(std::string client, std::shared_ptr<token_rate> rates) {
    client_ = std::move(client);
    rates_ = std::move(rates);
  }
  /// Does nothing after close(), and returns a handle to nothing. `held` is released when the request ends in the engine. If there is no memory to
  /// submit the request, an out_of_memory error is its only event. `recorded`: what hears of it, as its prompt of this
  /// number.
  request_handle submit(std::uint64_t key, generation request, std::shared_ptr<const void> held = nullptr,
                        const recorder::request_ptr& recorded = nullptr, std::size_t prompt = 0);
  void cancel(std::uint64_t key);
  void cancel_all();
  /// Each ends with a done_event that has `begun`, unless it ends before.
  void hand_over_all();
  /// Cancels all requests and waits for their last events, at most for `limit`; what they still generated is dropped.
  boost::asio::awaitable<std::vector<item>> end_all(std::chrono::milliseconds limit);
  /// Cancels all requests at the end of the connection; no event is delivered afterwards.
  void close();
  /// Requests that have not ended.
  std::size_t size() const { return running_.size(); }

  /// Waits until there are events or poke() was called. Throws if cancelled.
  boost::asio::awaitable<void> wait();
  void poke();

  /// Removes and returns the events that have arrived, in order.
  std::vector<item> receive();
  /// Whether events were lost because the account had no room for them: the connection cannot go on.
  bool overflowed() const;
  /// Bytes of the events received since written().
  std::size_t in_hand() const { return in_hand_; }
  /// The received events take no memory any more.
  void written();
  /// Resumes paused requests if the queue has drained. Call once the received events are written.
  void resume_if_drained();

private:
  struct queue;
  void arrived();

  boost::asio::any_io_executor strand_;
  service& engine_;
  metrics& counted_;
  std::size_t high_mark_;
  std::string client_;
  std::shared_ptr<token_rate> rates_ = std::make_shared<token_rate>();
  std::size_t in_hand_ = 0; // bytes of events received and not yet written
  boost::asio::steady_timer wake_;
  std::shared_ptr<queue> queue_;
  std::map<std::uint64_t, request_handle> running_;
  bool paused_ = false;
  bool poked_ = false;
  bool closed_ = false;
};

} // namespace troupe
