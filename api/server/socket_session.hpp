// What the server's WebSocket connections have in common: they read messages, submit requests and write what these
// yield, until the client leaves, the server stops, or a client reads too slowly. Derived classes know the messages.
// Runs within the coroutine of the HTTP connection that it was upgraded from, on the same strand.
#pragma once

#include "api/server/model_waiting.hpp"
#include "api/server/request_set.hpp"
#include "api/server/resume/strand_signal.hpp"
#include "api/server/resume/stream_journal.hpp"
#include "api/server/websocket_session.hpp"
#include "api/server/wire/reply.hpp"
#include "api/server/wire/websocket_stream.hpp"

#include <boost/asio/steady_timer.hpp>

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

namespace troupe {

class socket_session : public websocket_endpoint, public std::enable_shared_from_this<socket_session> {
public:
  /// Sinks that outlive the connection must not count in an account whose server is gone.
  ~socket_session() override;

  void drain() override;
  void cut() override;
  void abort() override;
  asio::any_io_executor executor() override { return strand_; }
  void come_back(returning_client client) override;
  asio::awaitable<void> run(std::unique_ptr<const boost::beast::http::request<budgeted_body>> head, std::string id,
                            key_ring::owner caller, std::string client, request_record::origin from) override;

protected:
  using messages = std::vector<std::string>; // an empty one takes no memory

  socket_session(server_context& context, byte_stream bytes);

  virtual asio::awaitable<void> handle(held_text message) = 0;
  virtual void refuse_binary() = 0;
  /// Whether a lost client may come back (server_options::resume_window).
  virtual bool outlives_connection() const { return false; }
  /// Ends what is being parsed.
  virtual void stop_parsing() = 0;
  /// The client leaves.
  virtual void client_leaves() {}
  /// What a request has yielded.
  virtual void add(const request_set::item& item, messages& out) = 0;
  /// Ends every request with an error.
  virtual void end_all(messages& out) = 0;
  /// Records the requests whose client has left.
  virtual asio::awaitable<void> end_left() = 0;
  /// Whether nothing runs or waits.
  virtual bool is_idle() const = 0;
  /// Around the writing of what has gathered.
  virtual void before_writing(messages&) {}
  virtual void after_writing() {}

  /// Writes ahead of what requests yield.
  void send(std::string message);

  /// Parses a message: a short one on the strand, a longer one by a worker. `parse` throws Bad.
  template <class Bad, class Good>
  asio::awaitable<std::variant<Good, Bad>> parsed(const std::string& text, Good (*parse)(std::string_view)) {
    const auto parse_it = [&text, parse]() -> std::variant<Good, Bad> {
      try {
        return parse(text);
      } catch (const Bad& bad) {
        return bad;
      } catch (...) { // out of memory
        return Bad{{}, caught_error()};
      }
    };
    if (text.size() <= parsed_in_place)
      co_return parse_it();
    try {
      co_return co_await context_.lane_for(text.size()).run(client_, parse_it);
    } catch (...) { // the lane is full, or memory
      co_return Bad{{}, caught_error()};
    }
  }

  /// What `parse` makes on a lane of a text of so many bytes, and makes again once the model is loaded that it `waits`
  /// for. It ends with what is `wrong` when the connection ends or `stop` is requested. Throws what the lane does.
  template <class Parse>
  asio::awaitable<std::invoke_result_t<const Parse&>> parsed_with_model(const Parse& parse, std::size_t bytes,
                                                                        const std::stop_token& stop,
                                                                        request_times& times) {
    const wait_cut cut = [this, &stop] { return why_not_wait(stop); };
    const wait_teller nobody;
    auto result = co_await context_.lane_for(bytes).run(client_, parse);
    while (result.waits && !result.wrong) {
      const auto waits = std::move(result.waits); // until it is parsed: the model is kept for it
      times.loads(true);
      result.wrong = co_await wait_for_model(*waits, cut, nobody);
      times.loads(false);
      if (!result.wrong)
        result = co_await context_.lane_for(bytes).run(client_, parse);
    }
    co_return result;
  }

  /// Room for a request with so many sequences in the quotas of this connection and of its API key. Throws failure.
  std::shared_ptr<const void> acquire_quotas(std::size_t sequences);

  server_context& context_;
  asio::any_io_executor strand_;
  websocket_stream stream_;
  std::shared_ptr<answer_budget::account> account_;
  std::shared_ptr<request_set> requests_; // both from run() on
  std::string id_;                        // of the upgrade request
  key_ring::owner caller_;
  std::string client_; // who asks, for what is shared out among clients
  request_record::origin from_;
  request_quota quota_;
  std::uint64_t next_key_ = 0;
  bool gone_ = false;  // nothing more is read or written here
  bool ended_ = false; // nor will be, by another connection
  bool draining_ = false;
  bool cut_ = false; // nothing more is submitted

private:
  static constexpr std::size_t parsed_in_place = 8 << 10;

  /// Why a request waits no more for its model: the connection has ended, or its client has given it up.
  std::optional<error> why_not_wait(const std::stop_token& stop) const;

  void leave(bool closed);
  void give_up();
  bool may_return() const;
  void begin_journal();
  void attach(std::uint64_t after);
  asio::awaitable<bool> await_return();
  void gather(messages& all);
  void keep_frames(messages& all);
  asio::awaitable<bool> write(std::string_view message);
  asio::awaitable<void> serve(std::unique_ptr<const boost::beast::http::request<budgeted_body>> head);
  asio::awaitable<bool> accept(const boost::beast::http::request<budgeted_body>& head, std::string id);
  asio::awaitable<bool> accept_returned();
  void begin_reading();
  asio::awaitable<void> read_messages();
  asio::awaitable<void> reader_ends();
  asio::awaitable<void> write_messages();
  asio::awaitable<void> write_until_end();

  asio::steady_timer room_; // cancelled when replies_ have been written, and when the reader has ended
  messages replies_;
  std::size_t reply_bytes_ = 0;
  bool reader_done_ = false;
  bool closed_ = false; // the client said that it leaves

  // Where a client may come back:
  std::shared_ptr<strand_signal> back_;
  std::shared_ptr<stream_journal> journal_;
  std::uint64_t reader_ = 0; // of the journal
  std::shared_ptr<returning_client> returned_;
};

} // namespace troupe
