#include "api/server/http_session.hpp"

#include "api/http/query.hpp"
#include "api/http/until_given_up.hpp"
#include "api/openai/fields/known_fields.hpp"
#include "api/server/connection.hpp"
#include "api/server/endpoint.hpp"
#include "api/server/generation_exchange.hpp"
#include "api/server/model_waiting.hpp"
#include "api/server/request_checks.hpp"
#include "api/server/resumable_stream.hpp"
#include "api/server/step_trace.hpp"
#include "api/server/websocket_upgrade.hpp"

#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/beast/http.hpp>

#include <memory>
#include <new>
#include <optional>
#include <utility>

namespace troupe {

namespace http = boost::beast::http;

namespace {

using request_parser = http::request_parser<budgeted_body>;
using request_head = http::request<budgeted_body>;

/// Bodies up to this size are read and dropped after a refusal, so that the connection can be kept.
constexpr std::uint64_t droppable_body = 64 << 10;
/// How long the server waits for the only request of a connection that came while it was draining, or just before.
constexpr std::chrono::milliseconds late_timeout{2000};

reply no_proxy() {
  auto result = refusal(405, "this server is no proxy: CONNECT is not possible");
  result.headers.emplace_back("Allow", allowed_methods("*"));
  return result;
}

class http_session : public session, public std::enable_shared_from_this<http_session> {
public:
  http_session(server_context& context, byte_stream bytes, std::unique_ptr<moving_request> first)
    : context_(context),
      strand_(bytes.get_executor()),
      first_(std::move(first)),
      late_(context.draining && !context.replaced),
      greets_(bytes.has_tls()),
      address_(bytes.peer_address()),
      link_(std::make_shared<connection>(std::move(bytes), context)),
      websocket_(context) {
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
  asio::awaitable<bool> shake_hands();
  asio::awaitable<bool> serve_and_record();
  asio::awaitable<bool> serve_one();
  asio::awaitable<bool> continue_first(moving_request its);
  request_record& begin_record(const request_head& head, std::string_view target);
  struct request_at_hand {
    std::optional<request_scope>& what;
    ~request_at_hand() { what.reset(); }
  };
  /// The request is `request_` until what this returns is destroyed.
  [[nodiscard]] request_at_hand begin_request() {
    request_.emplace(caller_.number, context_.client_of(caller_, link_->bytes()));
    link_->account()->speak_for(request_->client());
    return {request_};
  }
  asio::awaitable<bool> await_request();
  void give_away();
  asio::awaitable<bool> refuse_unread(boost::system::error_code ec, answer_form form);
  asio::awaitable<bool> refuse_and_close(const reply& why, answer_form form);
  asio::awaitable<bool> refuse(request_parser& parser, const reply& why, answer_form form);
  asio::awaitable<bool> read_body(request_parser& parser, const answer_form& form);
  asio::awaitable<bool> dispatch(const found_endpoint& to, held_text body, answer_form form);
  asio::awaitable<bool> send_answer(const found_endpoint& to, answered how, held_text body, answer_form form);
  worker_lane* lane_of(thread_of where, std::size_t bytes);

  answer_form form_of(const request_parser& parser) const;

  server_context& context_;
  asio::any_io_executor strand_;
  std::unique_ptr<moving_request> first_; // which another process has begun to answer; null: none
  const bool late_;                       // came while the server was draining
  bool greets_;                           // TLS has not begun
  bool as_anthropic_ = false;             // the request's client speaks Anthropic's API
  const std::string address_;             // of the client
  std::shared_ptr<connection> link_;      // null while a WebSocket is served
  websocket_upgrade websocket_;
  std::optional<request_scope> request_; // the one being answered
  key_ring::owner caller_;               // of the request being answered
  bool idle_ = true;
  bool fresh_ = true; // nothing was received yet: its first request may be under way
  bool draining_ = false;
  bool cut_ = false;
};

void http_session::drain() {
  asio::post(strand_, [self = shared_from_this()] {
    const bool moves = self->link_ && self->context_.next() && self->link_->bytes().is_movable();
    self->draining_ = !moves;
    if (auto* socket = self->websocket_.socket())
      socket->drain();
    else if (self->idle_ && moves)
      self->link_->bytes().cancel(); // await_request() gives it away, unless something has come
    else if (self->request_)
      self->request_->poke();
    else if (self->idle_ && self->fresh_)
      self->link_->set_deadline(late_timeout);
    else if (self->idle_)
      self->link_->close();
  });
}

void http_session::cut() {
  asio::post(strand_, [self = shared_from_this()] {
    self->draining_ = self->cut_ = true;
    if (auto* socket = self->websocket_.socket())
      socket->cut();
    else if (self->request_)
      self->request_->cut(server_stops());
    else
      self->link_->close();
  });
}

void http_session::abort() {
  asio::post(strand_, [self = shared_from_this()] {
    if (auto* socket = self->websocket_.socket())
      socket->abort();
    if (self->link_)
      self->link_->close();
  });
}

void http_session::give_way() {
  asio::post(strand_, [self = shared_from_this()] {
    if (self->idle_ && !self->websocket_.socket())
      self->link_->close();
  });
}

/// False if the client is gone, or does not speak TLS.
asio::awaitable<bool> http_session::shake_hands() {
  link_->set_deadline(context_.live.get()->header_timeout);
  boost::system::error_code ec;
  {
    const auto place = context_.begin_handshake(this, link_->bytes().peer());
    context_.set_idle(this, true);
    co_await link_->bytes().async_handshake(asio::redirect_error(asio::use_awaitable, ec));
  }
  link_->clear_deadline();
  if (!ec)
    co_return true;
  if (ec == boost::system::errc::wrong_protocol_type) {
    link_->bytes().leave_tls();
    const auto why = refusal(400, "this port speaks TLS alone: the URL begins with https://");
    const answer_form form;
    co_return co_await refuse_and_close(why, form);
  }
  // At debug, as whoever looks for open ports does the same.
  const auto trouble = link_->bytes().tls_trouble();
  context_.log->write(log_level::debug, "no TLS",
                      {{"client", address_}, {"why", trouble.empty() ? ec.message() : std::string(trouble)}});
  co_return false;
}

asio::awaitable<void> http_session::run() {
  bool more = !(first_ || greets_) || co_await serve_and_record();
  while (more) {
    more = co_await serve_and_record();
    // The drain began behind this request: what the client sends by then must not reset the answer.
    if (more && !link_->keeps_alive()) {
      co_await link_->linger();
      more = false;
    }
  }
  if (!websocket_.is_due()) {
    co_await link_->say_end();
    link_->close();
    co_return;
  }
  link_.reset();
  try {
    co_await websocket_.run(caller_);
  } catch (const std::exception&) {
    // The client is gone.
  }
}

asio::awaitable<bool> http_session::serve_and_record() {
  bool more = false;
  try {
    if (const auto first = std::move(first_))
      more = co_await continue_first(std::move(*first));
    else if (std::exchange(greets_, false))
      more = co_await shake_hands();
    else
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

/// An idle connection, to the process that takes this one's place.
void http_session::give_away() {
  link_->clear_deadline();
  if (context_.next()->line->send(connection_message(), link_->bytes().native_handle()))
    link_->let_go();
}

asio::awaitable<bool> http_session::await_request() {
  auto& buffer = link_->buffer();
  if (cut_)
    co_return false;
  if (buffer.size() > 0)
    co_return true;
  idle_ = true;
  if (context_.next() && link_->bytes().is_movable()) {
    give_away();
    co_return false;
  }
  const bool draining = context_.draining;
  if (late_ ? std::exchange(draining_, true) : draining && !fresh_)
    co_return false;
  link_->set_deadline(late_ || draining ? late_timeout : context_.live.get()->idle_timeout);
  context_.set_idle(this, true);
  boost::system::error_code ec;
  const auto room = buffer.prepare(4096);
  const auto count = co_await link_->bytes().async_read_some(room, asio::redirect_error(asio::use_awaitable, ec));
  link_->clear_deadline();
  context_.set_idle(this, false);
  buffer.commit(count);
  idle_ = fresh_ = false;
  if (ec == asio::error::operation_aborted && count == 0 && context_.next() && link_->bytes().is_movable())
    give_away();
  co_return !ec;
}

answer_form http_session::form_of(const request_parser& parser) const {
  const auto& head = parser.get();
  answer_form form;
  form.version = head.version();
  form.head = head.method() == http::verb::head;
  form.keep_alive = parser.keep_alive() && !draining_ && !link_->closes();
  form.headers = cors_headers(head, *context_.live.get());
  form.accept = view(head[http::field::accept]);
  form.last_event_id = view(head["Last-Event-ID"]);
  return form;
}

asio::awaitable<bool> http_session::refuse_unread(boost::system::error_code ec, answer_form form) {
  auto why = reply_to_unreadable(ec, context_.options.max_body_bytes);
  if (ec == boost::system::errc::not_enough_memory)
    why = reply::of({errc::unavailable,
                     "the bodies of other requests already take the " + std::to_string(context_.bodies.most()) +
                       " bytes allowed for all of them, or those of the same client half of that",
                     {}});
  if (link_->timed_out())
    why = refusal(408, "the request did not arrive in time");
  if (!why)
    co_return false;
  co_return co_await refuse_and_close(*why, std::move(form));
}

/// Refuses a request whose end is unknown. No other can follow it on the connection.
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
    const bool whole = co_await read_body(parser, form);
    if (!whole)
      co_return false;
  }
  if (!droppable)
    co_return co_await refuse_and_close(why, form);
  co_await link_->send(why, form);
  co_return form.keep_alive;
}

asio::awaitable<bool> http_session::read_body(request_parser& parser, const answer_form& form) {
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
    co_return co_await refuse_and_close(reply::of(*no_memory), form);
  }
  if (!ec)
    co_return true;
  co_return co_await refuse_unread(ec, form);
}

asio::awaitable<bool> http_session::serve_one() {
  const bool arrived = co_await await_request();
  if (!arrived)
    co_return false;
  request_parser parser;
  parser.header_limit(static_cast<std::uint32_t>(context_.options.max_header_bytes));
  parser.body_limit(context_.options.max_body_bytes);
  link_->set_deadline(context_.live.get()->header_timeout);
  boost::system::error_code ec;
  co_await http::async_read_header(link_->bytes(), link_->buffer(), parser,
                                   asio::redirect_error(asio::use_awaitable, ec));
  link_->clear_deadline();
  if (ec) {
    answer_form form; // in the API's format, if it is known by now which one that is
    form.error_format = error_format_at(view(parser.get().target()));
    co_return co_await refuse_unread(ec, std::move(form));
  }

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
  form.error_format = error_format_at(target.path);
  auto& record = begin_record(parser.get(), ambiguous ? view(parser.get().target()) : std::string_view(target.path));
  if (ambiguous)
    co_return co_await refuse_and_close(*ambiguous, form);
  const auto found = find_endpoint(view(parser.get().method_string()), target.path);
  const auto* to = std::get_if<found_endpoint>(&found);
  if (to && to->row->probe)
    record.set_minor();
  using anthropic = endpoint::anthropic;
  as_anthropic_ = to &&
    (to->row->speaks_anthropic == anthropic::always ||
     (to->row->speaks_anthropic == anthropic::if_asked && !view(parser.get()["anthropic-version"]).empty()));
  if (as_anthropic_) {
    form.error_format = as_anthropic;
    form.headers.emplace_back("request-id", record.id());
  }
  const auto verdict = check_header(parser.get(), target, found, *context_.live.get(), context_.keys);
  caller_ = verdict.caller;
  record.set_key(caller_.name);
  parser.get().body().share = byte_budget::share(context_.bodies, context_.client_of(caller_, link_->bytes()));
  if (verdict.answer)
    co_return co_await refuse(parser, *verdict.answer, form);
  const bool whole = co_await read_body(parser, form);
  if (!whole)
    co_return false;
  if (context_.draining && late_ && !to->row->probe) {
    co_await link_->send(reply::of(server_stops()), form);
    co_return false;
  }
  if (std::holds_alternative<upgraded>(to->row->what))
    co_return co_await websocket_.answer(*link_, caller_, parser, std::get<upgraded>(to->row->what), to->query, form,
                                         draining_ || context_.draining);
  co_return co_await dispatch(*to, std::move(parser.get().body()), form);
}

/// Goes on with a request that another process has begun to answer. Its connection may serve others behind it.
asio::awaitable<bool> http_session::continue_first(moving_request its) {
  idle_ = fresh_ = false;
  const auto blank = its.route.find(' ');
  const auto path = its.route.substr(std::min(blank, its.route.size() - 1) + 1);
  const auto found = find_endpoint(its.route.substr(0, blank), path);
  const auto* to = std::get_if<found_endpoint>(&found);
  const auto* made = to ? std::get_if<generated>(&to->row->what) : nullptr;
  caller_ = context_.keys.named(its.from.key);
  auto& record = link_->begin_record(its.id, its.route);
  record.set_origin(its.from);
  if (!made)
    throw failure(errc::unavailable, "what was handed over is nothing that this server has");
  auto& buffer = link_->buffer();
  buffer.commit(asio::buffer_copy(buffer.prepare(its.read_ahead.size()), asio::buffer(its.read_ahead)));
  answer_form form;
  form.version = its.version;
  form.keep_alive = its.keep_alive;
  form.headers = its.headers;
  form.error_format = error_format_at(path);
  const auto ends = begin_request();
  held_text body{std::move(its.body), byte_budget::share(context_.bodies, request_->client())};
  auto begun = std::make_unique<moving_request>(std::move(its));
  co_return co_await exchange_generation(context_, *link_, *request_, *made, std::move(body), std::move(form),
                                         std::move(begun));
}

asio::awaitable<bool> http_session::dispatch(const found_endpoint& to, held_text body, answer_form form) {
  if (!body.text.empty())
    context_.trim_memory_later();
  const auto ends = begin_request();
  bool reusable = false;
  if (const auto* made = std::get_if<generated>(&to.row->what)) {
    reusable = co_await exchange_generation(context_, *link_, *request_, *made, std::move(body), form, nullptr);
    co_return reusable;
  }
  if (std::holds_alternative<traced>(to.row->what)) {
    reusable = co_await link_->attend(*request_, form.version,
                                      trace_steps(context_, *link_, *request_, to.query, form));
    co_return reusable;
  }
  const auto* stream = std::get_if<resumed>(&to.row->what);
  if (stream && (!stream->otherwise || query_parameter(to.query, "stream") == "true")) {
    reusable = co_await link_->attend(*request_, form.version,
                                      resume_stream(context_, *link_, *request_, to.id, to.query, form));
    co_return reusable;
  }
  const auto how = stream ? answered{stream->otherwise} : std::get<answered>(to.row->what);
  if (how.on == thread_of::parsing || how.on == thread_of::files)
    reusable = co_await link_->attend(*request_, form.version, send_answer(to, how, std::move(body), form));
  else
    reusable = co_await send_answer(to, how, std::move(body), form);
  co_return reusable;
}

/// Null: none.
worker_lane* http_session::lane_of(thread_of where, std::size_t bytes) {
  switch (where) {
    case thread_of::parsing: return &context_.lane_for(bytes);
    case thread_of::files: return &context_.arduous;
    case thread_of::reports: return &context_.reports;
    case thread_of::strand: break;
  }
  return nullptr;
}

asio::awaitable<bool> http_session::send_answer(const found_endpoint& to, answered how, held_text body,
                                                answer_form form) {
  std::shared_ptr<model_wait> waits;
  bool waited = false;
  auto make = [this, &to, how, &body, &form, &waits, &waited, stop = request_->token()] {
    try {
      check(stop); // it may have waited in the lane for long
      const call asked{.body = body.text,
                       .id = to.id,
                       .query = to.query,
                       .accept = form.accept,
                       .page = context_.options.page,
                       .fault_injection = context_.options.fault_injection,
                       .engine = context_.engine,
                       .models = context_.models,
                       .counted = context_.counted,
                       .stored = context_.responses,
                       .requests = context_.requests,
                       .owner = caller_.number,
                       .client = request_->client(),
                       .draining = context_.draining,
                       .as_anthropic = as_anthropic_,
                       .waited = waited,
                       .stop = stop};
      return how.on == thread_of::parsing ? until_given_up(stop, [&] { return how.by(asked); }) : how.by(asked);
    } catch (must_wait& model) {
      waits = std::move(model.what);
      return reply();
    } catch (...) {
      return reply::of(caught_error());
    }
  };
  const wait_cut cut = [this] { return request_->why_cut(); };
  const wait_teller nobody;
  reply result;
  for (;;) {
    const auto held = std::move(waits); // until it is made again: the model is kept for it
    waits = nullptr;
    try {
      if (auto* lane = lane_of(how.on, body.text.size()))
        result = co_await lane->run(request_->client(), make);
      else
        result = make();
    } catch (...) { // the lane is full, or memory
      result = reply::of(caught_error());
    }
    if (!waits)
      break;
    const auto why = co_await wait_for_model(*waits, cut, nobody);
    if (why) {
      result = reply::of(*why);
      break;
    }
    waited = true;
  }
  { const auto released = std::move(body); }
  result.body.shrink_to_fit(); // it grew by doubling, and may wait for its reader
  log_notes(*context_.log, link_->record().id(), result.notes);
  if (!result.notes.empty())
    result.headers.emplace_back("X-Troupe-Warning", header_of_notes(result.notes));
  if (request_->why_cut()) {
    result = reply::of(*request_->why_cut());
    form.keep_alive = false;
  }
  co_await link_->send(result, form);
  co_return form.keep_alive;
}

} // namespace

void start_http_session(server_context& context, byte_stream bytes, std::unique_ptr<moving_request> first) {
  const auto strand = bytes.get_executor();
  const auto address = bytes.peer();
  const auto started = std::make_shared<http_session>(context, std::move(bytes), std::move(first));
  context.add_session(started, address);
  asio::co_spawn(
    strand, [started]() -> asio::awaitable<void> { co_await started->run(); }, asio::detached);
}

} // namespace troupe
