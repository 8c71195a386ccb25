#include "api/server/socket_session.hpp"

#include "api/http/request_scope.hpp"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>

#include <utility>

namespace troupe {

namespace {

/// Limit of the closing handshake.
constexpr auto farewell_time = std::chrono::seconds(2);

} // namespace

socket_session::socket_session(server_context& context, byte_stream bytes)
  : context_(context),
    strand_(bytes.get_executor()),
    stream_(std::move(bytes)),
    quota_("one connection", context.options.max_requests_per_socket),
    room_(strand_) {}

socket_session::~socket_session() {
  if (requests_)
    requests_->close();
}

std::optional<error> socket_session::why_not_wait(const std::stop_token& stop) const {
  if (gone_ || cut_)
    return server_stops();
  if (stop.stop_requested())
    return error{errc::cancelled, "the request was given up", {}};
  return std::nullopt;
}

std::shared_ptr<const void> socket_session::acquire_quotas(std::size_t sequences) {
  using both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
  return std::make_shared<both>(quota_.acquire({}, sequences),
                                context_.acquire_quota(caller_.name, client_, sequences));
}

void socket_session::drain() {
  asio::post(strand_, [self = shared_from_this()] {
    self->draining_ = true;
    if (self->requests_)
      self->requests_->poke();
  });
}

void socket_session::cut() {
  asio::post(strand_, [self = shared_from_this()] {
    self->draining_ = self->cut_ = true;
    self->stop_parsing();
    if (self->requests_)
      self->requests_->poke();
  });
}

void socket_session::abort() {
  asio::post(strand_, [self = shared_from_this()] { self->stream_.close(); });
}

asio::awaitable<void> socket_session::run(std::unique_ptr<const boost::beast::http::request<budgeted_body>> head,
                                          std::string id, key_ring::owner caller, std::string client,
                                          request_record::origin from) {
  using namespace asio::experimental::awaitable_operators;
  id_ = std::move(id);
  caller_ = std::move(caller);
  client_ = std::move(client);
  from_ = std::move(from);
  const auto& options = context_.options;
  const auto live = context_.live.get();
  account_ = std::make_shared<answer_budget::account>(context_.answers, [weak = weak_from_this(), strand = strand_] {
    asio::post(strand, [weak] {
      if (const auto self = weak.lock())
        self->stream_.close();
    });
  });
  requests_ = std::make_shared<request_set>(strand_, context_.engine, context_.counted, options.sink_bytes, account_);
  account_->speak_for(client_);
  requests_->speak_for(client_, context_.rates);
  const bool accepted = co_await stream_.accept(*head, id_, live->header_timeout, live->idle_timeout,
                                                [this] { leave(); });
  if (!accepted)
    co_return;
  head.reset();
  co_await (read_messages() && write_messages());
  co_await end_left();
}

void socket_session::leave() {
  gone_ = true;
  client_leaves();
  stop_parsing();
  requests_->cancel_all();
  room_.cancel();
  requests_->poke();
}

asio::awaitable<void> socket_session::read_messages() {
  while (auto message = co_await stream_.read(context_.options.max_frame_bytes, context_.bodies, client_)) {
    if (message->text)
      co_await handle(std::move(message->held));
    else
      refuse_binary();
    // A client that sends what is refused without reading the errors is not read further until it reads.
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

asio::awaitable<void> socket_session::write_messages() {
  bool open = true;
  while (open && !gone_) {
    co_await requests_->wait();
    if (gone_)
      break; // end_left() hears of what is left
    messages all;
    all.swap(replies_);
    for (const auto& item : requests_->receive())
      add(item, all);
    before_writing(all);
    if (cut_)
      end_all(all);
    for (auto one = all.begin(); one != all.end() && open && !gone_ && !requests_->overflowed(); ++one) {
      account_->waits();
      open = co_await stream_.write(*one);
      account_->wrote(one->size());
    }
    if (replies_.empty())
      reply_bytes_ = 0;
    after_writing();
    room_.cancel();
    requests_->written();
    requests_->resume_if_drained();
    if (requests_->overflowed()) {
      stream_.set_pending_close(websocket_stream::close_code::try_again_later);
      open = false;
    }
    if (draining_ && is_idle() && replies_.empty()) {
      stream_.set_pending_close(websocket_stream::close_code::going_away);
      open = false;
    }
  }
  co_await stream_.close_handshake(farewell_time, context_.live.get()->idle_timeout);
  // After the peer's close frame the reader waits for the peer to hang up. This bounds the wait.
  if (gone_ && !reader_done_) {
    boost::system::error_code ec;
    room_.expires_after(farewell_time);
    co_await room_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  }
  stream_.close();
}

void socket_session::send(std::string message) {
  reply_bytes_ += message.size();
  replies_.push_back(std::move(message));
  requests_->poke();
}

} // namespace troupe
