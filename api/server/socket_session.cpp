#include "api/server/socket_session.hpp"

#include "api/http/request_scope.hpp"
#include "api/openai/object_id.hpp"
#include "runtime/support/json/json_object.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

/// Limit of the closing handshake.
constexpr auto farewell_time = std::chrono::seconds(2);

/// Told first to a client that may come back, each time.
std::string session_frame(std::string_view id, std::chrono::milliseconds window) {
  return json_object().text("type", "session").text("session", id).number("resume_ms", window.count()).str();
}

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
  if (!journal_)
    return;
  context_.streams.close(journal_);
  context_.sockets.remove(journal_->request_id());
}

std::optional<error> socket_session::why_not_wait(const std::stop_token& stop) const {
  if (ended_ || cut_)
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

// What it is given is kept here, not in the frame of a coroutine, which would have it twice for as long as the connection.
asio::awaitable<void> socket_session::run(std::unique_ptr<const boost::beast::http::request<budgeted_body>> head,
                                          std::string id, key_ring::owner caller, std::string client,
                                          request_record::origin from) {
  id_ = std::move(id);
  caller_ = std::move(caller);
  client_ = std::move(client);
  from_ = std::move(from);
  account_ = std::make_shared<answer_budget::account>(context_.answers, [weak = weak_from_this(), strand = strand_] {
    asio::post(strand, [weak] {
      if (const auto self = weak.lock())
        self->stream_.close();
    });
  });
  requests_ = std::make_shared<request_set>(strand_, context_.engine, context_.counted, context_.options.sink_bytes,
                                            account_);
  account_->speak_for(client_);
  requests_->speak_for(client_, context_.rates);
  return serve(std::move(head));
}

asio::awaitable<void> socket_session::serve(std::unique_ptr<const boost::beast::http::request<budgeted_body>> head) {
  bool accepted = co_await accept(*head, id_);
  if (!accepted)
    co_return;
  head.reset();
  if (outlives_connection())
    begin_journal();
  for (;;) {
    if (accepted) {
      begin_reading();
      co_await write_messages();
      co_await reader_ends();
    }
    const bool returned = co_await await_return();
    if (!returned)
      break;
    accepted = co_await accept_returned();
  }
  give_up();
  co_await end_left();
}

asio::awaitable<bool> socket_session::accept(const boost::beast::http::request<budgeted_body>& head, std::string id) {
  const auto live = context_.live.get();
  return stream_.accept(head, std::move(id), live->header_timeout, live->idle_timeout, [this] { leave(true); });
}

asio::awaitable<bool> socket_session::accept_returned() {
  const auto client = std::exchange(returned_, nullptr);
  stream_ = websocket_stream(std::move(client->bytes));
  gone_ = reader_done_ = false;
  const bool accepted = co_await accept(*client->head, client->id);
  if (accepted)
    attach(client->after);
  co_return accepted;
}

void socket_session::leave(bool closed) {
  gone_ = true;
  closed_ = closed_ || closed;
  client_leaves();
  if (!may_return())
    give_up();
  room_.cancel();
  requests_->poke();
}

void socket_session::give_up() {
  ended_ = true;
  stop_parsing();
  requests_->cancel_all();
}

// -- clients that come back ---------------------------------------------------------------------------------------------

bool socket_session::may_return() const {
  return journal_ && !closed_ && !stream_.pending_close() && !draining_ && !cut_ && !ended_ && !requests_->overflowed();
}

void socket_session::begin_journal() {
  back_ = std::make_shared<strand_signal>(strand_);
  journal_ = std::make_shared<stream_journal>(
    stream_journal::origin{object_id("ws_"), {}, caller_.number, client_, true},
    stream_journal::bounds{.ahead = context_.options.sink_bytes}, context_.streams.memory,
    [strand = strand_, back = std::weak_ptr(back_), requests = std::weak_ptr(requests_)] {
      asio::post(strand, [back, requests] {
        if (const auto one = back.lock())
          one->notify_here();
        if (const auto one = requests.lock())
          one->poke();
      });
    });
  context_.streams.open(journal_);
  context_.sockets.add(journal_->request_id(), weak_from_this());
  attach(0);
}

void socket_session::attach(std::uint64_t after) {
  try {
    reader_ = journal_->attach(after, [] {});
  } catch (const failure&) { // the time was too long
    journal_->drop();
  }
}

void socket_session::come_back(returning_client client) {
  asio::post(strand_, [self = shared_from_this(), client = std::make_shared<returning_client>(std::move(client))] {
    if (self->ended_)
      return;
    self->returned_ = client;
    if (!self->gone_)
      self->stream_.close(); // the old connection only seems alive
    self->back_->notify_here();
    self->requests_->poke();
  });
}

/// Gathers what the requests yield until the client comes back. False if it does not, or cannot.
asio::awaitable<bool> socket_session::await_return() {
  if (!may_return())
    co_return false;
  const auto until = asio::steady_timer::clock_type::now() + context_.options.resume_window;
  journal_->leave(reader_);
  asio::steady_timer end(strand_, until);
  end.async_wait([back = back_, requests = requests_](boost::system::error_code cancelled) {
    if (cancelled)
      return;
    back->notify_here();
    requests->poke();
  });
  while (!returned_ && may_return() && !journal_->is_dropped() && asio::steady_timer::clock_type::now() < until) {
    if (!context_.streams.keep(journal_))
      co_return false;
    if (!journal_->has_room()) {
      if (!journal_->lacks_memory() || !context_.streams.drop_ended(client_))
        co_await back_->wait(std::min(until, asio::steady_timer::clock_type::now() + stream_journal::between_tries));
      continue;
    }
    co_await requests_->wait();
    messages all;
    gather(all);
    keep_frames(all);
    requests_->written();
    requests_->resume_if_drained();
  }
  co_return returned_&& may_return() && !journal_->is_dropped();
}

void socket_session::gather(messages& all) {
  all.swap(replies_);
  for (const auto& item : requests_->receive())
    add(item, all);
}

/// What is told from now on by their numbers.
void socket_session::keep_frames(messages& all) {
  for (const auto& one : all)
    journal_->append_frame(one);
  all.clear();
}

asio::awaitable<bool> socket_session::write(std::string_view message) {
  account_->waits();
  const bool open = co_await stream_.write(message);
  account_->wrote(message.size());
  co_return open;
}

// Not `reading && writing`: what that waits with takes more memory than both.
void socket_session::begin_reading() {
  asio::co_spawn(
    strand_, [self = shared_from_this()] { return self->read_messages(); }, asio::detached);
}

asio::awaitable<void> socket_session::reader_ends() {
  while (!reader_done_) {
    boost::system::error_code ec;
    room_.expires_at(asio::steady_timer::time_point::max());
    co_await room_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  }
}

asio::awaitable<void> socket_session::read_messages() {
  try {
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
  } catch (const std::exception&) { // there is no memory for what it says
    give_up();
  }
  leave(false);
  reader_done_ = true;
  room_.cancel();
}

asio::awaitable<void> socket_session::write_messages() {
  try {
    co_await write_until_end();
  } catch (const std::exception&) { // there is no memory for what it is told
    give_up();
  }
  gone_ = true;
  stream_.close();
}

asio::awaitable<void> socket_session::write_until_end() {
  bool open = !journal_ || co_await write(session_frame(journal_->request_id(), context_.options.resume_window));
  if (journal_)
    requests_->poke(); // what was missed
  while (open && !gone_) {
    co_await requests_->wait();
    if (gone_)
      break; // end_left() or await_return() hears of what is left
    messages all;
    gather(all);
    if (cut_)
      end_all(all);
    if (journal_)
      keep_frames(all);
    before_writing(all);
    for (auto one = all.begin(); one != all.end() && open && !gone_ && !requests_->overflowed(); ++one)
      open = co_await write(*one);
    for (bool more = journal_ != nullptr; more && open && !gone_;) {
      const auto part = journal_->read(reader_, 1);
      more = !part.text.empty();
      if (part.replaced)
        open = false; // what it missed is not kept any more
      else if (more)
        open = co_await write(part.text);
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
      using why = websocket_stream::close_code;
      stream_.set_pending_close(context_.replaced ? why::service_restart : why::going_away);
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
}

void socket_session::send(std::string message) {
  reply_bytes_ += message.size();
  replies_.push_back(std::move(message));
  requests_->poke();
}

} // namespace troupe
