#include "api/server/websocket_session.hpp"

#include "api/http/request_scope.hpp"
#include "api/openai/openai_response.hpp"
#include "api/server/request_record.hpp"
#include "api/server/request_set.hpp"
#include "api/server/routes.hpp"
#include "api/server/websocket_frames.hpp"

#include <boost/asio/buffer.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/websocket.hpp>

#include <deque>
#include <optional>
#include <variant>

namespace troupe {

namespace beast = boost::beast;
namespace websocket = beast::websocket;

namespace {

/// Frames up to this size are parsed at once, longer ones by a worker.
constexpr std::size_t parsed_in_place = 8 << 10;
constexpr std::size_t most_read_at_once = 64 << 10;
constexpr auto farewell_time = std::chrono::seconds(2);

class websocket_session : public websocket_endpoint, public std::enable_shared_from_this<websocket_session> {
public:
  websocket_session(server_context& context, byte_stream bytes)
    : context_(context),
      strand_(bytes.get_executor()),
      stream_(std::move(bytes)),
      room_(strand_),
      requests_(std::make_shared<request_set>(strand_, context.engine, context.counted, context.options.sink_bytes)),
      quota_("one connection", context.options.max_requests_per_socket) {}

  void drain() override;
  void cut() override;
  void abort() override;
  asio::awaitable<void> run(const beast::http::request<budgeted_body>& head, std::string id, std::size_t key) override;

private:
  struct running {
    std::uint64_t key = 0;
    request_record record;
    bool cancelled = false;  // asked for before it was submitted
    std::stop_source stop{}; // of its parsing
  };
  struct submitted {
    std::string id;
    std::shared_ptr<const served_model> model;
  };

  void leave();
  void stop_parsing();
  void end_all(std::deque<std::string>& frames);
  asio::awaitable<std::optional<held_text>> read_message();
  asio::awaitable<void> read_frames();
  asio::awaitable<void> take_frame(held_text message);
  asio::awaitable<void> begin(client_frame frame, std::uint64_t key);
  asio::awaitable<void> write_frames();
  asio::awaitable<bool> write(std::string_view frame);
  std::string frame_of(const request_set::item& item);
  std::optional<error> objection(const client_frame& frame) const;
  void generate(client_frame frame, byte_budget::share memory);
  std::shared_ptr<const void> take_places(std::size_t sequences);
  request_record record_of(const std::string& id) const;
  void refuse(const std::string& id, request_record record, const error& why);
  void end(running& one, unsigned status);
  void cancel(const std::string& id);
  void forget(std::uint64_t key, const std::string& id);
  void say(std::string frame);

  server_context& context_;
  asio::any_io_executor strand_;
  websocket::stream<byte_stream, false> stream_; // no permessage-deflate
  asio::steady_timer room_; // cancelled when replies_ have been written
  std::shared_ptr<request_set> requests_;
  std::string id_;      // of the upgrade
  std::size_t key_ = 0; // which of the server's
  request_quota quota_;
  std::map<std::string, running> ids_;
  std::map<std::uint64_t, submitted> by_key_;
  std::deque<std::string> replies_; // errors, ahead of tokens
  std::size_t reply_bytes_ = 0;
  std::uint64_t next_key_ = 0;
  std::optional<websocket::close_code> close_code_; // to be told to the peer
  bool gone_ = false;                               // nothing more is read or written
  bool reader_done_ = false;
  bool draining_ = false;
  bool cut_ = false; // nothing more is submitted
};

void websocket_session::drain() {
  asio::post(strand_, [self = shared_from_this()] {
    self->draining_ = true;
    self->requests_->poke();
  });
}

void websocket_session::cut() {
  asio::post(strand_, [self = shared_from_this()] {
    self->draining_ = self->cut_ = true;
    self->stop_parsing();
    self->requests_->poke();
  });
}

void websocket_session::abort() {
  asio::post(strand_, [self = shared_from_this()] { self->stream_.next_layer().close(); });
}

asio::awaitable<void> websocket_session::run(const beast::http::request<budgeted_body>& head, std::string id,
                                             std::size_t key) {
  using namespace asio::experimental::awaitable_operators;
  id_ = std::move(id);
  key_ = key;
  const auto& options = context_.options;
  stream_.set_option(websocket::stream_base::timeout{options.header_timeout, options.idle_timeout, true});
  stream_.set_option(websocket::stream_base::decorator([id = id_](websocket::response_type& response) {
    response.set(beast::http::field::server, "troupe");
    response.set("X-Request-Id", id);
  }));
  stream_.read_message_max(0); // read_message() has the limit
  stream_.control_callback([this](websocket::frame_type kind, beast::string_view) {
    // The reader itself hears of it only when the peer has closed its side, too.
    if (kind == websocket::frame_type::close)
      leave();
  });
  boost::system::error_code ec;
  co_await stream_.async_accept(head, asio::redirect_error(asio::use_awaitable, ec));
  if (ec)
    co_return;
  stream_.text(true);
  stream_.auto_fragment(false);
  co_await (read_frames() && write_frames());
}

void websocket_session::stop_parsing() {
  for (auto& [id, one] : ids_)
    one.stop.request_stop();
}

/// Tells of each request that it will not be finished.
void websocket_session::end_all(std::deque<std::string>& frames) {
  for (auto& [id, one] : ids_) {
    frames.push_back(error_frame(id, server_stops()));
    one.record.see(server_stops());
    end(one, status_of(server_stops().code));
  }
  ids_.clear();
  by_key_.clear();
  requests_->close();
}

void websocket_session::leave() {
  gone_ = true;
  stop_parsing();
  for (auto& [id, one] : ids_)
    end(one, client_left);
  ids_.clear();
  by_key_.clear();
  room_.cancel();
  requests_->close();
}

/// Nothing where the connection is at its end.
asio::awaitable<std::optional<held_text>> websocket_session::read_message() {
  held_text held{{}, byte_budget::share(context_.bodies)};
  auto& message = held.text;
  bool whole = false;
  while (!whole) {
    boost::system::error_code ec;
    const auto room = context_.options.max_frame_bytes + 1 - message.size();
    auto buffer = asio::dynamic_buffer(message);
    co_await stream_.async_read_some(buffer, std::min(room, most_read_at_once),
                                     asio::redirect_error(asio::use_awaitable, ec));
    if (ec)
      co_return std::nullopt;
    whole = stream_.is_message_done();
    if (message.size() > context_.options.max_frame_bytes) {
      close_code_ = websocket::close_code::too_big;
      co_return std::nullopt;
    }
    if (!held.count()) {
      close_code_ = websocket::close_code::try_again_later;
      co_return std::nullopt;
    }
  }
  co_return std::move(held);
}

asio::awaitable<void> websocket_session::read_frames() {
  while (auto message = co_await read_message()) {
    if (stream_.got_text())
      co_await take_frame(std::move(*message));
    else
      say(error_frame({}, {errc::bad_request, "frames must be text, not binary", {}}));
    // A client that sends nonsense and does not read the answers gets no more attention until it does.
    while (reply_bytes_ > context_.options.sink_bytes && !gone_) {
      boost::system::error_code ec;
      room_.expires_at(asio::steady_timer::time_point::max());
      co_await room_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
    }
  }
  leave();
  reader_done_ = true;
  room_.cancel();
}

asio::awaitable<void> websocket_session::take_frame(held_text message) {
  context_.tidy_up_later();
  using outcome = std::variant<client_frame, bad_frame>;
  const auto& text = message.text;
  auto parse = [&text]() -> outcome {
    try {
      return parse_frame(text);
    } catch (const bad_frame& bad) {
      return bad;
    }
  };
  outcome parsed;
  if (text.size() <= parsed_in_place) {
    parsed = parse();
  } else {
    try {
      parsed = co_await context_.lane_for(text.size()).run(parse);
    } catch (const failure& full) {
      parsed = bad_frame{{}, full.what_failed()};
    }
  }
  if (const auto* bad = std::get_if<bad_frame>(&parsed))
    refuse(bad->id, record_of(bad->id), bad->why);
  else if (auto& frame = std::get<client_frame>(parsed); frame.type == client_frame::kind::cancel)
    cancel(frame.id);
  else
    generate(std::move(frame), std::move(message.share));
}

std::optional<error> websocket_session::objection(const client_frame& frame) const {
  if (ids_.contains(frame.id))
    return error{errc::bad_request, "a request with this `id` is still running", "id"};
  if (ids_.size() >= context_.options.max_requests_per_socket)
    return error{errc::overloaded,
                 "at most " + std::to_string(context_.options.max_requests_per_socket) +
                   " requests may run on one connection",
                 {}};
  if (draining_)
    return server_stops();
  return std::nullopt;
}

/// Of this connection and of its key.
std::shared_ptr<const void> websocket_session::take_places(std::size_t sequences) {
  using places = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
  return std::make_shared<places>(quota_.take(0, sequences), context_.keys.take(key_, sequences));
}

request_record websocket_session::record_of(const std::string& id) const {
  request_record result(id_, "WS /v1/ws");
  result.set_frame(id);
  return result;
}

void websocket_session::end(running& one, unsigned status) {
  one.record.answered(status);
  one.record.write(*context_.log);
}

void websocket_session::refuse(const std::string& id, request_record record, const error& why) {
  say(error_frame(id, why));
  record.see(why);
  record.answered(status_of(why.code));
  record.write(*context_.log);
}

void websocket_session::generate(client_frame frame, byte_budget::share memory) {
  if (const auto why_not = objection(frame))
    return refuse(frame.id, record_of(frame.id), *why_not);
  const auto key = next_key_++;
  ids_.emplace(frame.id, running{key, record_of(frame.id)});
  asio::co_spawn(
    strand_,
    [self = shared_from_this(), frame = std::move(frame), memory = std::move(memory),
     key]() mutable -> asio::awaitable<void> {
      try {
        co_await self->begin(std::move(frame), key);
      } catch (const std::exception&) { // there is no memory to answer: that the connection ends tells its client
        self->stream_.next_layer().close();
      }
    },
    asio::detached);
}

asio::awaitable<void> websocket_session::begin(client_frame frame, std::uint64_t key) {
  struct outcome {
    generation request;
    std::shared_ptr<const served_model> model;
    std::optional<error> wrong;
  };
  if (gone_ || cut_)
    co_return;
  auto parse = [this, &frame, stop = ids_.at(frame.id).stop.get_token()] {
    outcome result;
    try {
      check(stop); // it may have waited for long
      result.model = ready_model(context_.engine);
      result.request = parse_frame_body(frame, *result.model, stop);
    } catch (...) {
      result.wrong = caught_error();
    }
    return result;
  };
  outcome parsed;
  std::shared_ptr<const void> places;
  try {
    parsed = co_await context_.lane_for(frame.bytes).run(parse);
    if (!parsed.wrong)
      places = take_places(static_cast<std::size_t>(parsed.request.sampling.n));
  } catch (const failure& full) {
    parsed.wrong = full.what_failed();
  }
  if (gone_ || cut_)
    co_return;
  auto& mine = ids_.at(frame.id);
  if (parsed.wrong) {
    refuse(frame.id, std::move(mine.record), *parsed.wrong);
    ids_.erase(frame.id);
    co_return;
  }
  mine.record.understood(parsed.request);
  by_key_[key] = {frame.id, parsed.model};
  requests_->submit(key, std::move(parsed.request), std::move(places));
  if (mine.cancelled)
    requests_->cancel(key);
}

void websocket_session::cancel(const std::string& id) {
  const auto found = ids_.find(id);
  if (found == ids_.end()) {
    say(error_frame(id, {errc::not_found, "no request with this `id` is running", "id"}));
    return;
  }
  found->second.cancelled = true;
  requests_->cancel(found->second.key);
}

void websocket_session::say(std::string frame) {
  reply_bytes_ += frame.size();
  replies_.push_back(std::move(frame));
  requests_->poke();
}

void websocket_session::forget(std::uint64_t key, const std::string& id) {
  ids_.erase(id);
  by_key_.erase(key);
}

std::string websocket_session::frame_of(const request_set::item& item) {
  const auto& [id, model] = by_key_.at(item.key);
  auto& mine = ids_.at(id);
  mine.record.see(item.what);
  if (const auto* token = std::get_if<token_event>(&item.what))
    return token_frame(id, *token, *model);
  const auto* done = std::get_if<done_event>(&item.what);
  auto result = done ? done_frame(id, *done) : error_frame(id, std::get<error>(item.what));
  end(mine, done ? 200 : status_of(std::get<error>(item.what).code));
  forget(item.key, std::string(id));
  return result;
}

asio::awaitable<bool> websocket_session::write(std::string_view frame) {
  boost::system::error_code ec;
  co_await stream_.async_write(asio::buffer(frame), asio::redirect_error(asio::use_awaitable, ec));
  co_return !ec;
}

asio::awaitable<void> websocket_session::write_frames() {
  bool open = true;
  while (open && !gone_) {
    co_await requests_->wait();
    std::deque<std::string> frames;
    frames.swap(replies_);
    for (const auto& item : requests_->take())
      if (auto frame = frame_of(item); !frame.empty())
        frames.push_back(std::move(frame));
    if (cut_)
      end_all(frames);
    for (auto frame = frames.begin(); frame != frames.end() && open && !gone_; ++frame)
      open = co_await write(*frame);
    if (replies_.empty())
      reply_bytes_ = 0;
    room_.cancel();
    requests_->settled();
    if (draining_ && ids_.empty() && replies_.empty()) {
      close_code_ = websocket::close_code::going_away;
      open = false;
    }
  }
  boost::system::error_code ec;
  if (close_code_) {
    stream_.set_option(websocket::stream_base::timeout{farewell_time, context_.options.idle_timeout, true});
    co_await stream_.async_close(*close_code_, asio::redirect_error(asio::use_awaitable, ec));
  }
  // After the peer's close frame the reader waits for the peer to hang up, but not for ever.
  if (gone_ && !reader_done_) {
    room_.expires_after(farewell_time);
    co_await room_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  }
  stream_.next_layer().close();
}

} // namespace

std::shared_ptr<websocket_endpoint> make_websocket_session(server_context& context, byte_stream bytes) {
  return std::make_shared<websocket_session>(context, std::move(bytes));
}

} // namespace troupe
