#include "api/server/connection.hpp"

#include "runtime/support/text/number_text.hpp"

#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/beast/core/buffers_suffix.hpp>
#include <boost/beast/http.hpp>

#include <array>
#include <charconv>
#include <ctime>

namespace troupe {

namespace http = boost::beast::http;

namespace {

constexpr std::size_t most_read_ahead = 64 << 10;
constexpr auto linger_time = std::chrono::seconds(2);
constexpr std::chrono::milliseconds first_look{10}, between_probes{5000};
constexpr std::string_view continue_line = "HTTP/1.1 100 Continue\r\n\r\n", comment_chunk = "3\r\n:\n\n\r\n",
                           space_chunk = "1\r\n \r\n";

std::string_view probe_within(std::string_view content_type) {
  return content_type.starts_with("text/event-stream") ? comment_chunk
    : content_type.starts_with("application/x-ndjson") ? space_chunk
                                                       : std::string_view();
}

std::string http_date() {
  const auto now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  return to_date("%a, %d %b %Y %H:%M:%S GMT", parts).value();
}

template <class Body>
http::response<Body> response(unsigned status, std::string_view content_type, const answer_form& form,
                              const std::optional<request_record>& record) {
  http::response<Body> result;
  result.version(form.version);
  result.result(status);
  result.set(http::field::server, "troupe");
  result.set(http::field::date, http_date());
  if (!content_type.empty())
    result.set(http::field::content_type, content_type);
  for (const auto& [name, value] : form.headers)
    result.set(name, value);
  if (record)
    result.set("X-Request-Id", record->id());
  return result;
}

} // namespace

error answers_full(const answer_budget& budget) {
  return {errc::unavailable,
          "the answers under way take the " + std::to_string(budget.most()) +
            " bytes that they may together (--max-answer-memory)",
          {}};
}

connection::connection(byte_stream bytes, server_context& context)
  : bytes_(std::move(bytes)),
    context_(context),
    deadline_(bytes_.get_executor()),
    buffer_(2 * most_read_ahead + context.options.max_header_bytes) {}

const std::shared_ptr<answer_budget::account>& connection::account() {
  if (!account_)
    account_ = std::make_shared<answer_budget::account>(
      context_.answers, [weak = weak_from_this(), strand = bytes_.get_executor()] {
        asio::post(strand, [weak] {
          const auto self = weak.lock();
          if (!self)
            return;
          if (self->record_)
            self->record_->failed(
              "slow_reader", {},
              "the answer lost its place to others': it is read too slowly, or the client has most of all");
          self->bytes_.close();
        });
      });
  return account_;
}

asio::awaitable<void> connection::send(const reply& what, const answer_form& form) {
  struct release_at_end {
    answer_budget::account& account;
    ~release_at_end() { account.release_all(); }
  } const ends{*account()};
  const bool fits = account()->add(what.body.capacity());
  if (fits)
    co_await write_response(what, form);
  else
    co_await write_response(reply::of(answers_full(context_.answers)), form);
}

asio::awaitable<void> connection::write_response(const reply& what, const answer_form& form) {
  auto out = response<http::span_body<const char>>(what.status, what.content_type, form, record_);
  const auto own = form.error_format && !what.complaint.empty()
    ? form.error_format(what, record_ ? record_->id() : std::string())
    : std::string();
  const auto& body = own.empty() ? what.body : own;
  keep_alive_ = form.keep_alive && !last_ && !closes();
  out.keep_alive(keep_alive_);
  for (const auto& [name, value] : what.headers)
    out.set(name, value);
  out.body() = {body.data(), body.size()}; // not a copy
  if (what.status != 204)
    out.prepare_payload();
  context_.counted.answered(what.status);
  if (record_)
    record_->answered(what.status);
  if (record_ && !what.code.empty())
    record_->failed(what.code, what.param, what.complaint);
  http::response_serializer<http::span_body<const char>> serializer(out);
  probe_ = {};
  set_deadline(context_.options.write_timeout);
  if (form.head)
    co_await http::async_write_header(bytes_, serializer, asio::use_awaitable);
  while (!form.head && !serializer.is_done()) {
    set_deadline(context_.options.write_timeout);
    account()->waits();
    account()->wrote(co_await http::async_write_some(bytes_, serializer, asio::use_awaitable));
  }
  clear_deadline();
}

asio::awaitable<void> connection::start_stream(std::string_view content_type, const answer_form& form) {
  auto out = response<http::empty_body>(200, content_type, form, record_);
  keep_alive_ = form.keep_alive && !last_ && !closes();
  out.keep_alive(keep_alive_);
  out.set(http::field::cache_control, "no-cache");
  // Keeps proxies from buffering the stream.
  out.set("X-Accel-Buffering", "no");
  if (form.version >= 11)
    out.chunked(true);
  context_.counted.answered(200);
  if (record_)
    record_->answered(200);
  http::response_serializer<http::empty_body> serializer(out);
  probe_ = {};
  set_deadline(context_.options.write_timeout);
  co_await http::async_write_header(bytes_, serializer, asio::use_awaitable);
  clear_deadline();
  if (form.version >= 11)
    probe_ = probe_within(content_type);
}

void connection::continue_stream(std::string_view content_type, const answer_form& form) {
  keep_alive_ = form.keep_alive;
  if (record_)
    record_->answered(200);
  if (form.version >= 11)
    probe_ = probe_within(content_type);
}

void connection::let_go() {
  clear_deadline();
  bytes_.let_go();
}

asio::awaitable<void> connection::stream(std::string_view data, const answer_form& form) {
  if (data.empty())
    co_return; // an empty chunk would end the body
  if (form.version < 11) {
    co_await write(data);
    co_return;
  }
  char size[16];
  const auto end = std::to_chars(size, size + sizeof size, data.size(), 16).ptr;
  co_await write_all(std::array<asio::const_buffer, 4>{asio::buffer(size, static_cast<std::size_t>(end - size)),
                                                       asio::buffer("\r\n", 2), asio::buffer(data),
                                                       asio::buffer("\r\n", 2)});
}

asio::awaitable<void> connection::end_stream(const answer_form& form) {
  probe_ = {};
  if (form.version >= 11)
    co_await write("0\r\n\r\n");
}

asio::awaitable<void> connection::send_continue() { co_await write(continue_line); }

asio::awaitable<void> connection::write(std::string_view bytes) { co_await write_all(asio::buffer(bytes)); }

template <class Buffers>
asio::awaitable<void> connection::write_all(Buffers buffers) {
  boost::beast::buffers_suffix<Buffers> rest(buffers);
  writing_ = true;
  while (boost::beast::buffer_bytes(rest) > 0) {
    set_deadline(context_.options.write_timeout);
    account()->waits();
    const auto count = co_await bytes_.async_write_some(rest, asio::use_awaitable);
    account()->wrote(count);
    rest.consume(count);
  }
  writing_ = false;
  clear_deadline();
}

asio::awaitable<void> connection::watch() {
  boost::system::error_code ec;
  while (!ec) {
    // Keeps reading when full: a client's end of file comes after all that it sent, which may exceed the kernel's
    // buffers.
    const bool full = buffer_.size() >= most_read_ahead;
    const auto room = buffer_.prepare(4096);
    const auto count = co_await bytes_.async_read_some(room, asio::redirect_error(asio::use_awaitable, ec));
    buffer_.commit(full ? 0 : count);
    last_ = last_ || (full && count > 0);
  }
  if (ec == asio::error::eof && may_probe_) {
    last_ = true;
    co_await wait_until_gone();
  }
}

// A closed socket and one whose sending side was shut down look the same until something is sent: the first answers
// with a reset. 100 Continue is what every client of HTTP/1.1 skips ahead of its answer, any number of times, and a
// comment is what clients of event streams skip. In a stream of JSON lines a space may stand ahead of the next object.
// Within other answers, the answer itself is the probe.
asio::awaitable<void> connection::wait_until_gone() {
  asio::steady_timer timer(bytes_.get_executor());
  for (auto pause = first_look;; pause = std::min(2 * pause, between_probes)) {
    const bool due = pause == first_look || pause == between_probes;
    if (due && !writing_ && !probe_.empty() && !bytes_.send_at_once(probe_))
      co_return;
    boost::system::error_code cancelled;
    timer.expires_after(pause);
    co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
    if (cancelled || bytes_.is_reset())
      co_return;
  }
}

namespace {

asio::awaitable<void> watch_for(connection& link, request_scope& scope) {
  co_await link.watch();
  scope.abandon();
}

/// Turns exceptions into false: after one, operator|| would wait for the other side.
asio::awaitable<bool> without_exceptions(asio::awaitable<bool> work) {
  bool result = false;
  try {
    result = co_await std::move(work);
  } catch (const std::exception&) {
    // The client is gone or does not read, or there is no memory to answer it.
  }
  co_return result;
}

} // namespace

request_record& connection::begin_record(std::string id, std::string route) {
  record_lent_ = false;
  return record_.emplace(std::move(id), std::move(route));
}

void connection::end_record() {
  if (record_ && !record_lent_)
    record_->write(*context_.log, context_.counted);
  record_.reset();
}

request_record connection::lend_record() {
  record_lent_ = true;
  return *record_;
}

asio::awaitable<bool> connection::attend(request_scope& scope, unsigned version, asio::awaitable<bool> work) {
  using namespace asio::experimental::awaitable_operators;
  may_probe_ = version >= 11 && bytes_.is_socket();
  probe_ = continue_line;
  const auto first = co_await (watch_for(*this, scope) || without_exceptions(std::move(work)));
  const auto* result = std::get_if<1>(&first);
  if (result && moves_)
    co_return false;
  if (result && last_)
    co_await linger();
  co_return result&&* result && !last_;
}

bool connection::closes() const { return context_.draining && !(context_.next() && bytes_.is_movable()); }

asio::awaitable<void> connection::say_end() {
  if (!bytes_.has_tls())
    co_return;
  boost::system::error_code ec;
  set_deadline(context_.options.write_timeout); // the client may not have read what comes before
  co_await bytes_.async_say_end(asio::redirect_error(asio::use_awaitable, ec));
  clear_deadline();
}

asio::awaitable<void> connection::linger() {
  co_await say_end();
  boost::system::error_code ec;
  bytes_.shutdown_send();
  set_deadline(linger_time);
  std::vector<char> ignored(16 << 10);
  while (!ec)
    co_await bytes_.async_read_some(asio::buffer(ignored), asio::redirect_error(asio::use_awaitable, ec));
  clear_deadline();
}

void connection::set_deadline(std::chrono::milliseconds limit) {
  const auto epoch = ++epoch_;
  deadline_.expires_after(limit);
  deadline_.async_wait([weak = weak_from_this(), epoch](boost::system::error_code ec) {
    const auto self = weak.lock();
    if (ec || !self || self->epoch_ != epoch)
      return;
    self->timed_out_ = true;
    self->bytes_.cancel();
  });
}

void connection::clear_deadline() {
  ++epoch_;
  deadline_.cancel();
}

void connection::close() {
  clear_deadline();
  bytes_.close();
}

} // namespace troupe
