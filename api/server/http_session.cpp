#include "api/server/http_session.hpp"

#include "api/server/connection.hpp"
#include "api/server/generation_exchange.hpp"
#include "api/server/generation_jobs.hpp"
#include "api/server/request_checks.hpp"
#include "api/server/websocket_session.hpp"

#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/websocket/rfc6455.hpp>

#include <new>
#include <optional>

namespace troupe {

namespace http = boost::beast::http;

namespace {

using request_parser = http::request_parser<budgeted_body>;
using request_head = http::request<budgeted_body>;

/// Bodies up to this size are read and dropped after a refusal, so that the connection can be kept.
constexpr std::uint64_t droppable_body = 64 << 10;
/// For the only request of a connection that came while the server was draining, or just before.
constexpr std::chrono::milliseconds late_timeout{2000};

reply no_proxy() {
  auto result = refusal(405, "this server is no proxy: CONNECT is not possible");
  result.headers.emplace_back("Allow", "GET, HEAD, POST, DELETE, OPTIONS");
  return result;
}

class http_session : public session, public std::enable_shared_from_this<http_session> {
public:
  http_session(server_context& context, byte_stream bytes)
    : context_(context),
      strand_(bytes.get_executor()),
      late_(context.draining),
      address_(bytes.peer_address()),
      link_(std::make_shared<connection>(std::move(bytes), context)) {
    context_.counted.connection_opened();
  }

  ~http_session() override {
    context_.counted.connection_closed();
    context_.log->write(log_level::debug, "connection closed");
    context_.remove_session(this);
  }

  void drain() override;
  void cut() override;
  void abort() override;
  void give_way() override;
  asio::awaitable<void> run();

private:
  asio::awaitable<bool> serve_and_record();
  asio::awaitable<bool> serve_one();
  request_record& begin_record(const request_head& head, std::string_view target);
  asio::awaitable<bool> await_request();
  asio::awaitable<bool> refuse_unread(boost::system::error_code ec);
  asio::awaitable<bool> refuse_and_close(const reply& why, answer_form form);
  asio::awaitable<bool> refuse(request_parser& parser, const reply& why, answer_form form);
  asio::awaitable<bool> read_body(request_parser& parser);
  asio::awaitable<bool> dispatch(const route& to, held_text body, answer_form form);
  asio::awaitable<bool> send_answer(const route& to, held_text body, answer_form form);
  asio::awaitable<bool> upgrade(const request_head& head, answer_form form);

  answer_form form_of(const request_parser& parser) const;

  server_context& context_;
  asio::any_io_executor strand_;
  const bool late_;           // came while the server was draining
  const std::string address_; // of the client
  std::shared_ptr<connection> link_;
  std::shared_ptr<session> websocket_;   // once upgraded
  std::optional<request_scope> request_; // the one being answered
  key_ring::owner caller_;               // of the request being answered
  bool idle_ = true;
  bool fresh_ = true; // nothing was received yet: its first request may be under way
  bool draining_ = false;
  bool cut_ = false;
};

void http_session::drain() {
  asio::post(strand_, [self = shared_from_this()] {
    self->draining_ = true;
    if (self->websocket_)
      self->websocket_->drain();
    else if (self->idle_ && self->fresh_)
      self->link_->set_deadline(late_timeout);
    else if (self->idle_)
      self->link_->close();
  });
}

void http_session::cut() {
  asio::post(strand_, [self = shared_from_this()] {
    self->draining_ = self->cut_ = true;
    if (self->websocket_)
      self->websocket_->cut();
    else if (self->request_)
      self->request_->cut(server_stops());
    else
      self->link_->close();
  });
}

void http_session::abort() {
  asio::post(strand_, [self = shared_from_this()] {
    if (self->websocket_)
      self->websocket_->abort();
    self->link_->close();
  });
}

void http_session::give_way() {
  asio::post(strand_, [self = shared_from_this()] {
    if (self->idle_ && !self->websocket_)
      self->link_->close();
  });
}

asio::awaitable<void> http_session::run() {
  bool more = true;
  while (more) {
    more = co_await serve_and_record();
    // The drain began behind this request: what the client sends by then must not reset the answer.
    if (more && !link_->keeps_alive()) {
      co_await link_->linger();
      more = false;
    }
  }
  link_->close();
}

asio::awaitable<bool> http_session::serve_and_record() {
  bool more = false;
  try {
    more = co_await serve_one();
  } catch (const std::exception&) {
    // The client is gone or does not read.
  }
  link_->end_record();
  co_return more;
}

request_record& http_session::begin_record(const request_head& head, std::string_view target) {
  auto id = accepted_request_id(view(head["X-Request-Id"]));
  const auto path = target.substr(0, target.find_first_of("?#"));
  auto& record = link_->begin_record(id.empty() ? context_.next_request_id() : std::move(id),
                                     std::string(view(head.method_string())) + ' ' + std::string(path));
  record.set_origin({address_, std::string(view(head["X-Forwarded-For"])), {}, {}});
  return record;
}

asio::awaitable<bool> http_session::await_request() {
  auto& buffer = link_->buffer();
  if (cut_)
    co_return false;
  if (buffer.size() > 0)
    co_return true;
  idle_ = true;
  const bool draining = context_.draining;
  if (late_ ? std::exchange(draining_, true) : draining && !fresh_)
    co_return false;
  link_->set_deadline(late_ || draining ? late_timeout : context_.options.idle_timeout);
  context_.set_idle(this, true);
  boost::system::error_code ec;
  const auto room = buffer.prepare(4096);
  const auto count = co_await link_->bytes().async_read_some(room, asio::redirect_error(asio::use_awaitable, ec));
  link_->clear_deadline();
  context_.set_idle(this, false);
  buffer.commit(count);
  idle_ = fresh_ = false;
  co_return !ec;
}

answer_form http_session::form_of(const request_parser& parser) const {
  const auto& head = parser.get();
  answer_form form;
  form.version = head.version();
  form.head = head.method() == http::verb::head;
  form.keep_alive = parser.keep_alive() && !draining_ && !context_.draining;
  form.headers = cors_headers(head, context_.options);
  return form;
}

asio::awaitable<bool> http_session::refuse_unread(boost::system::error_code ec) {
  auto why = reply_to_unreadable(ec, context_.options.max_body_bytes);
  if (ec == boost::system::errc::not_enough_memory)
    why = reply::of({errc::unavailable,
                     "the bodies of other requests already take the " + std::to_string(context_.bodies.most()) +
                       " bytes allowed for all of them",
                     {}});
  if (link_->timed_out())
    why = refusal(408, "the request did not arrive in time");
  if (!why)
    co_return false;
  co_return co_await refuse_and_close(*why, {});
}

/// For requests whose end is unknown, so that no other can follow on the connection.
asio::awaitable<bool> http_session::refuse_and_close(const reply& why, answer_form form) {
  if (!link_->has_record())
    link_->begin_record(context_.next_request_id(), "unread").set_origin({address_, {}, {}, {}});
  form.keep_alive = false;
  co_await link_->send(why, form);
  co_await link_->linger();
  co_return false;
}

asio::awaitable<bool> http_session::refuse(request_parser& parser, const reply& why, answer_form form) {
  const auto length = parser.content_length();
  const bool waits = parser.get()[http::field::expect].size() > 0; // for a 100 Continue
  const bool droppable = parser.is_done() || (length && *length <= droppable_body && !waits);
  if (droppable && !parser.is_done()) {
    const bool whole = co_await read_body(parser);
    if (!whole)
      co_return false;
  }
  if (!droppable)
    co_return co_await refuse_and_close(why, form);
  co_await link_->send(why, form);
  co_return form.keep_alive;
}

asio::awaitable<bool> http_session::read_body(request_parser& parser) {
  if (parser.is_done())
    co_return true;
  if (boost::beast::iequals(parser.get()[http::field::expect], "100-continue"))
    co_await link_->send_continue();
  link_->set_deadline(context_.options.body_timeout);
  boost::system::error_code ec;
  std::optional<error> no_memory;
  try {
    co_await http::async_read(link_->bytes(), link_->buffer(), parser, asio::redirect_error(asio::use_awaitable, ec));
  } catch (const std::bad_alloc&) {
    no_memory = caught_error();
  }
  link_->clear_deadline();
  if (no_memory) {
    parser.get().body() = {}; // what has arrived takes memory that the answer needs
    co_return co_await refuse_and_close(reply::of(*no_memory), {});
  }
  if (!ec)
    co_return true;
  co_return co_await refuse_unread(ec);
}

asio::awaitable<bool> http_session::serve_one() {
  const bool arrived = co_await await_request();
  if (!arrived)
    co_return false;
  request_parser parser;
  parser.get().body().share = byte_budget::share(context_.bodies);
  parser.header_limit(static_cast<std::uint32_t>(context_.options.max_header_bytes));
  parser.body_limit(context_.options.max_body_bytes);
  link_->set_deadline(context_.options.header_timeout);
  boost::system::error_code ec;
  co_await http::async_read_header(link_->bytes(), link_->buffer(), parser,
                                   asio::redirect_error(asio::use_awaitable, ec));
  link_->clear_deadline();
  if (ec)
    co_return co_await refuse_unread(ec);

  auto form = form_of(parser);
  request_target target;
  std::optional<reply> ambiguous;
  try {
    if (parser.get().method() != http::verb::connect)
      target = read_target(parser.get());
    else
      ambiguous = no_proxy();
  } catch (const failure& f) {
    ambiguous = reply::of(f.what_failed());
  }
  form.short_errors = target.path.starts_with("/api/"); // Ollama's
  auto& record = begin_record(parser.get(), ambiguous ? view(parser.get().target()) : std::string_view(target.path));
  if (ambiguous)
    co_return co_await refuse_and_close(*ambiguous, form);
  const auto found = find_route(view(parser.get().method_string()), target.path);
  if (is_probe(found))
    record.set_minor();
  const auto verdict = check_header(parser.get(), target, found, context_.options, context_.hosts, context_.keys);
  caller_ = verdict.caller;
  record.set_key(caller_.name);
  if (verdict.answer)
    co_return co_await refuse(parser, *verdict.answer, form);
  const bool whole = co_await read_body(parser);
  if (!whole)
    co_return false;
  const auto to = std::get<route>(found);
  if (context_.draining && (late_ || to.to == endpoint::health))
    if (const auto why = reply_while_draining(to)) {
      co_await link_->send(*why, form);
      co_return false;
    }
  if (to.to == endpoint::websocket)
    co_return co_await upgrade(parser.get(), form);
  co_return co_await dispatch(to, std::move(parser.get().body()), form);
}

asio::awaitable<bool> http_session::dispatch(const route& to, held_text body, answer_form form) {
  if (!body.text.empty())
    context_.trim_memory_later();
  request_.emplace(caller_.number);
  struct reset_at_end {
    std::optional<request_scope>& request;
    ~reset_at_end() { request.reset(); }
  } const ends{request_};
  bool reusable = false;
  if (makes_jobs(to.to)) {
    reusable = co_await exchange_generation(context_, *link_, *request_, to.to, std::move(body), form);
  } else if (to.to == endpoint::tokenize || to.to == endpoint::detokenize || to.to == endpoint::load_adapter ||
             to.to == endpoint::unload_adapter || to.to == endpoint::detect_watermark ||
             to.to == endpoint::count_response) {
    reusable = co_await link_->attend(*request_, form.version, send_answer(to, std::move(body), form));
  } else {
    reusable = co_await send_answer(to, std::move(body), form);
  }
  co_return reusable;
}

asio::awaitable<bool> http_session::send_answer(const route& to, held_text body, answer_form form) {
  auto make = [this, &to, &body, stop = request_->token()] {
    try {
      check(stop); // it may have waited in the lane for long
      if (is_stored_response(to.to))
        return answer_stored(to, context_.responses, caller_.number);
      if (to.to == endpoint::count_response)
        return answer_count(body.text, context_.engine, context_.responses, caller_.number, stop);
      return answer(to, body.text, context_.engine, context_.counted, stop);
    } catch (...) {
      return reply::of(caught_error());
    }
  };
  reply result;
  try {
    switch (to.to) {
      case endpoint::tokenize:
      case endpoint::count_response:
      case endpoint::detokenize:
      case endpoint::detect_watermark:
      case endpoint::ollama_show: result = co_await context_.lane_for(body.text.size()).run(make); break;
      case endpoint::load_adapter:
      case endpoint::unload_adapter: result = co_await context_.arduous.run(make); break;
      case endpoint::metrics: result = co_await context_.reports.run(make); break;
      default: result = make(); // answered at once, even while every worker is busy
    }
  } catch (...) { // the lane is full, or memory
    result = reply::of(caught_error());
  }
  { const auto released = std::move(body); }
  result.body.shrink_to_fit(); // it grew by doubling, and may wait for its reader
  if (request_->why_cut()) {
    result = reply::of(*request_->why_cut());
    form.keep_alive = false;
  }
  co_await link_->send(result, form);
  co_return form.keep_alive;
}

asio::awaitable<bool> http_session::upgrade(const request_head& head, answer_form form) {
  if (!boost::beast::websocket::is_upgrade(head) || link_->buffer().size() > 0) {
    auto why_not = refusal(426, "this endpoint is for WebSockets only");
    why_not.headers.emplace_back("Upgrade", "websocket");
    co_await link_->send(why_not, form);
    co_return form.keep_alive;
  }
  context_.counted.answered(101);
  auto socket = make_websocket_session(context_, std::move(link_->bytes()));
  websocket_ = socket;
  if (draining_)
    socket->drain();
  link_->record().answered(101);
  const auto id = link_->record().id();
  const auto from = link_->record().from();
  link_->end_record();
  co_await socket->run(head, id, caller_, from);
  co_return false;
}

} // namespace

void start_http_session(server_context& context, byte_stream bytes) {
  const auto strand = bytes.get_executor();
  const auto address = bytes.peer();
  const auto started = std::make_shared<http_session>(context, std::move(bytes));
  context.add_session(started, address);
  asio::co_spawn(
    strand, [started]() -> asio::awaitable<void> { co_await started->run(); }, asio::detached);
}

} // namespace troupe
