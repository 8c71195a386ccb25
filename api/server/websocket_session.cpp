#include "api/server/websocket_session.hpp"

#include "api/http/request_scope.hpp"
#include "api/openai/openai_response.hpp"
#include "api/server/generation_exchange.hpp"
#include "api/server/request_record.hpp"
#include "api/server/request_set.hpp"
#include "api/server/watch_frames.hpp"
#include "api/server/websocket_frames.hpp"
#include "api/server/websocket_stream.hpp"

#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>

#include <deque>
#include <optional>
#include <variant>

namespace troupe {

namespace {

/// Frames up to this size are parsed on the strand, longer ones by a worker.
constexpr std::size_t parsed_in_place = 8 << 10;
/// Limit of the closing handshake.
constexpr auto farewell_time = std::chrono::seconds(2);

class websocket_session : public websocket_endpoint, public std::enable_shared_from_this<websocket_session> {
public:
  websocket_session(server_context& context, byte_stream bytes)
    : context_(context),
      strand_(bytes.get_executor()),
      peer_(bytes.peer()),
      stream_(std::move(bytes)),
      room_(strand_),
      watch_timer_(strand_),
      quota_("one connection", context.options.max_requests_per_socket) {}

  /// Sinks that outlive the connection must not count in an account whose server is gone.
  ~websocket_session() override {
    if (requests_)
      requests_->close();
  }

  void drain() override;
  void cut() override;
  void abort() override;
  asio::awaitable<void> run(const boost::beast::http::request<budgeted_body>& head, std::string id,
                            key_ring::owner caller, request_record::origin from) override;

private:
  struct running {
    std::uint64_t key = 0;
    request_record record;
    bool cancelled = false;  // before it was submitted
    std::stop_source stop{}; // stops its parsing
  };
  struct submitted {
    std::string id;
    std::shared_ptr<const served_model> model;
    bool ranked = false;                               // choices have scores
    std::vector<std::string> notes;                    // on what of it is left out
    std::size_t scored = 0;                            // tokens of the prompt whose log-probabilities were sent
    std::shared_ptr<const chat_output> output = {};    // null: the text is content
    std::map<std::size_t, choice_parser> parsers = {}; // by choice, if `output`
    usage used = {};                                   // but for what the end tells

    std::string frame_of(const token_event& e);
    std::vector<std::size_t> calls() const;
  };

  /// Of the engine's steps. A reader that is slow loses steps; neither the engine nor its requests wait.
  struct watching {
    std::string id;
    std::chrono::milliseconds interval{};
    std::shared_ptr<step_ring> steps;
    std::shared_ptr<const void> by_engine; // records are made as long as this lives
    std::shared_ptr<const void> place;     // among the server's watchers
  };

  void leave();
  void watch(const client_frame& frame);
  asio::awaitable<void> watch_steps(std::shared_ptr<const watching> what);
  void end_watch();
  asio::awaitable<void> end_left();
  void stop_parsing();
  void end_all(std::deque<std::string>& frames);
  asio::awaitable<void> read_frames();
  asio::awaitable<void> handle_frame(held_text message);
  asio::awaitable<void> begin(client_frame frame, std::uint64_t key);
  asio::awaitable<void> write_frames();
  void add_frames(const request_set::item& item, std::deque<std::string>& frames);
  std::optional<error> objection(const client_frame& frame) const;
  void generate(client_frame frame, byte_budget::share memory);
  std::shared_ptr<const void> acquire_quotas(std::size_t sequences);
  request_record record_of(const std::string& id) const;
  void refuse(const std::string& id, request_record record, const error& why);
  void end(running& one, unsigned status);
  void cancel(const std::string& id);
  void forget(std::uint64_t key, const std::string& id);
  void send_reply(std::string frame);

  server_context& context_;
  asio::any_io_executor strand_;
  const std::string peer_;
  websocket_stream stream_;
  asio::steady_timer room_; // cancelled when replies_ have been written
  asio::steady_timer watch_timer_;
  std::shared_ptr<answer_budget::account> account_;
  std::shared_ptr<request_set> requests_; // both from run() on
  std::string id_;                        // of the upgrade request
  key_ring::owner caller_;
  request_record::origin from_;
  request_quota quota_;
  std::map<std::string, running> ids_;
  std::map<std::uint64_t, submitted> by_key_;
  std::shared_ptr<const watching> watch_;
  std::string watch_frame_;         // the next to be written
  bool watch_busy_ = false;         // a frame is being made or written
  std::deque<std::string> replies_; // error frames, written ahead of tokens
  std::size_t reply_bytes_ = 0;
  std::uint64_t next_key_ = 0;
  bool gone_ = false; // nothing more is read or written
  bool reader_done_ = false;
  bool draining_ = false;
  bool cut_ = false; // nothing more is submitted
};

std::string websocket_session::submitted::frame_of(const token_event& e) {
  if (!output)
    return token_frame(id, e, *model);
  auto& parser = parsers.try_emplace(e.index, output).first->second;
  const auto deltas = parser.feed(e.text, e.finish.has_value());
  used.reasoning_tokens += parser.reasons() ? e.token_ids.size() : 0;
  return token_frame(id, e, deltas, *model);
}

/// By choice.
std::vector<std::size_t> websocket_session::submitted::calls() const {
  std::vector<std::size_t> result;
  for (const auto& [index, parser] : parsers) {
    result.resize(index + 1);
    result.back() = parser.calls();
  }
  return result;
}

void websocket_session::drain() {
  asio::post(strand_, [self = shared_from_this()] {
    self->draining_ = true;
    if (self->requests_)
      self->requests_->poke();
  });
}

void websocket_session::cut() {
  asio::post(strand_, [self = shared_from_this()] {
    self->draining_ = self->cut_ = true;
    self->stop_parsing();
    if (self->requests_)
      self->requests_->poke();
  });
}

void websocket_session::abort() {
  asio::post(strand_, [self = shared_from_this()] { self->stream_.close(); });
}

asio::awaitable<void> websocket_session::run(const boost::beast::http::request<budgeted_body>& head, std::string id,
                                             key_ring::owner caller, request_record::origin from) {
  using namespace asio::experimental::awaitable_operators;
  id_ = std::move(id);
  caller_ = std::move(caller);
  from_ = std::move(from);
  const auto& options = context_.options;
  account_ = std::make_shared<answer_budget::account>(context_.answers, [weak = weak_from_this(), strand = strand_] {
    asio::post(strand, [weak] {
      if (const auto self = weak.lock())
        self->stream_.close();
    });
  });
  requests_ = std::make_shared<request_set>(strand_, context_.engine, context_.counted, options.sink_bytes, account_);
  requests_->speak_for(context_.client_of(caller_.number, peer_));
  const bool accepted = co_await stream_.accept(head, id_, options.header_timeout, options.idle_timeout,
                                                [this] { leave(); });
  if (!accepted)
    co_return;
  co_await (read_frames() && write_frames());
  co_await end_left();
}

void websocket_session::stop_parsing() {
  for (auto& [id, one] : ids_)
    one.stop.request_stop();
}

/// Ends every request with an error frame.
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
  end_watch();
  stop_parsing();
  requests_->cancel_all();
  room_.cancel();
  requests_->poke();
}

/// Records the requests whose client has left.
asio::awaitable<void> websocket_session::end_left() {
  const auto ends = co_await requests_->end_all(cancelling_time);
  for (const auto& item : ends)
    if (const auto found = by_key_.find(item.key); found != by_key_.end())
      ids_.at(found->second.id).record.see(item.what);
  for (auto& [id, one] : ids_)
    end(one, client_left);
  ids_.clear();
  by_key_.clear();
  requests_->close();
}

asio::awaitable<void> websocket_session::read_frames() {
  while (auto message = co_await stream_.read(context_.options.max_frame_bytes, context_.bodies)) {
    if (message->text)
      co_await handle_frame(std::move(message->held));
    else
      send_reply(error_frame({}, {errc::bad_request, "frames must be text, not binary", {}}));
    // A client that sends invalid frames without reading the errors is not read further until it reads.
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

asio::awaitable<void> websocket_session::handle_frame(held_text message) {
  context_.trim_memory_later();
  using outcome = std::variant<client_frame, bad_frame>;
  const auto& text = message.text;
  auto parse = [&text]() -> outcome {
    try {
      return parse_frame(text);
    } catch (const bad_frame& bad) {
      return bad;
    } catch (...) { // out of memory
      return bad_frame{{}, caught_error()};
    }
  };
  outcome parsed;
  if (text.size() <= parsed_in_place) {
    parsed = parse();
  } else {
    try {
      parsed = co_await context_.lane_for(text.size()).run(parse);
    } catch (...) { // the lane is full, or memory
      parsed = bad_frame{{}, caught_error()};
    }
  }
  if (const auto* bad = std::get_if<bad_frame>(&parsed))
    refuse(bad->id, record_of(bad->id), bad->why);
  else if (auto& frame = std::get<client_frame>(parsed); frame.type == client_frame::kind::cancel)
    cancel(frame.id);
  else if (frame.type == client_frame::kind::watch)
    watch(frame);
  else
    generate(std::move(frame), std::move(message.share));
}

std::optional<error> websocket_session::objection(const client_frame& frame) const {
  if (ids_.contains(frame.id) || (watch_ && watch_->id == frame.id))
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

/// From the quotas of this connection and of its API key.
std::shared_ptr<const void> websocket_session::acquire_quotas(std::size_t sequences) {
  using both = std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>;
  return std::make_shared<both>(quota_.acquire(0, sequences), context_.quotas.acquire(caller_.number, sequences));
}

request_record websocket_session::record_of(const std::string& id) const {
  request_record result(id_, "WS /v1/ws");
  result.set_origin(from_);
  result.set_frame(id);
  return result;
}

void websocket_session::end(running& one, unsigned status) {
  one.record.answered(status);
  one.record.write(*context_.log, context_.counted);
}

void websocket_session::refuse(const std::string& id, request_record record, const error& why) {
  send_reply(error_frame(id, why));
  record.see(why);
  record.answered(status_of(why.code));
  record.write(*context_.log, context_.counted);
}

void websocket_session::generate(client_frame frame, byte_budget::share memory) {
  if (const auto why_not = objection(frame)) {
    context_.counted.refused();
    return refuse(frame.id, record_of(frame.id), *why_not);
  }
  const auto key = next_key_++;
  ids_.emplace(frame.id, running{key, record_of(frame.id)});
  asio::co_spawn(
    strand_,
    [self = shared_from_this(), frame = std::move(frame), memory = std::move(memory),
     key]() mutable -> asio::awaitable<void> {
      try {
        co_await self->begin(std::move(frame), key);
      } catch (const std::exception&) { // out of memory even for an error: close the connection
        self->stream_.close();
      }
    },
    asio::detached);
}

asio::awaitable<void> websocket_session::begin(client_frame frame, std::uint64_t key) {
  struct outcome {
    generation_request request;
    std::shared_ptr<const served_model> model;
    std::optional<error> wrong;
  };
  if (gone_ || cut_)
    co_return;
  auto parse = [this, &frame, stop = ids_.at(frame.id).stop.get_token()] {
    outcome result;
    try {
      check(stop); // it may have waited in the lane for long
      result.model = context_.models.named_in(field_reader(frame.body->root()));
      result.request = parse_frame_body(frame, *result.model, stop);
      context_.follow_policy(caller_.name, *result.model, result.request.prompts.front());
    } catch (...) {
      result.wrong = caught_error();
    }
    return result;
  };
  outcome parsed;
  std::shared_ptr<const void> quotas;
  try {
    parsed = co_await context_.lane_for(frame.bytes).run(parse);
    if (!parsed.wrong)
      quotas = acquire_quotas(as_size(parsed.request.prompts.front().sampling.width()));
  } catch (...) { // the lane is full, or memory
    parsed.wrong = caught_error();
  }
  if (gone_ || cut_)
    co_return;
  auto& mine = ids_.at(frame.id);
  mine.record.set_user(requested_user(field_reader(frame.body->root())));
  if (parsed.wrong) {
    context_.counted.refused();
    refuse(frame.id, std::move(mine.record), *parsed.wrong);
    ids_.erase(frame.id);
    co_return;
  }
  auto& request = parsed.request.prompts.front();
  mine.record.parsed(request);
  log_notes(*context_.log, id_, parsed.request.notes, frame.id);
  by_key_[key] = {
    frame.id, parsed.model, request.sampling.ranked(), std::move(parsed.request.notes), 0, parsed.request.output, {},
    {}};
  requests_->submit(key, std::move(request), std::move(quotas));
  if (mine.cancelled)
    requests_->cancel(key);
}

void websocket_session::watch(const client_frame& frame) {
  constexpr int most_watchers = 32;
  try {
    if (auto why_not = objection(frame))
      throw failure(why_not->code, why_not->message, why_not->param);
    if (watch_)
      throw failure(errc::bad_request, "this connection watches already", "type");
    const auto place = std::shared_ptr<const void>(&context_.watchers,
                                                   [&watchers = context_.watchers](const void*) { --watchers; });
    if (++context_.watchers > most_watchers)
      throw failure(errc::overloaded, "at most " + std::to_string(most_watchers) + " connections may watch");
    watching made{frame.id, watch_interval(frame), std::make_shared<step_ring>(most_watched_steps), nullptr, place};
    made.by_engine = context_.engine.watch(
      [steps = made.steps](const step_ring::record_ptr& record) { steps->add(record); });
    if (!made.by_engine)
      throw failure(errc::unsupported, "this server's steps leave no records", "type");
    watch_ = std::make_shared<const watching>(std::move(made));
  } catch (...) {
    return refuse(frame.id, record_of(frame.id), caught_error());
  }
  asio::co_spawn(
    strand_, [self = shared_from_this(), what = watch_] { return self->watch_steps(what); }, asio::detached);
}

asio::awaitable<void> websocket_session::watch_steps(std::shared_ptr<const watching> what) {
  // Named, for GCC 12 destroys what a temporary lambda of a co_await owns twice.
  const auto make = [&engine = context_.engine, what] {
    const auto now = engine.look();
    return watch_frame(what->id, what->steps->take(), now);
  };
  const auto goes_on = [&] { return watch_ == what && !gone_ && !cut_; };
  while (goes_on()) {
    if (!watch_busy_) {
      watch_busy_ = true;
      std::string frame;
      try {
        frame = co_await context_.reports.run(make);
      } catch (...) { // the engine is starting again, or memory is short: perhaps the next time
      }
      watch_busy_ = goes_on() && !frame.empty() && account_->add(frame.size());
      if (watch_busy_) {
        watch_frame_ = std::move(frame);
        requests_->poke();
      }
    }
    if (!goes_on())
      co_return;
    boost::system::error_code ec;
    watch_timer_.expires_after(what->interval);
    co_await watch_timer_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  }
}

/// A frame that waits is still written, and counted until then.
void websocket_session::end_watch() {
  watch_.reset();
  watch_timer_.cancel();
}

void websocket_session::cancel(const std::string& id) {
  if (watch_ && watch_->id == id) {
    end_watch();
    return send_reply(watch_done_frame(id));
  }
  const auto found = ids_.find(id);
  if (found == ids_.end()) {
    send_reply(error_frame(id, {errc::not_found, "no request with this `id` is running", "id"}));
    return;
  }
  found->second.cancelled = true;
  requests_->cancel(found->second.key);
}

void websocket_session::send_reply(std::string frame) {
  reply_bytes_ += frame.size();
  replies_.push_back(std::move(frame));
  requests_->poke();
}

void websocket_session::forget(std::uint64_t key, const std::string& id) {
  ids_.erase(id);
  by_key_.erase(key);
}

void websocket_session::add_frames(const request_set::item& item, std::deque<std::string>& frames) {
  auto& its = by_key_.at(item.key);
  const auto& id = its.id;
  auto& mine = ids_.at(id);
  mine.record.see(item.what);
  if (const auto* token = std::get_if<token_event>(&item.what)) {
    if (!token->prompt.empty())
      frames.push_back(prompt_frame(id, its.scored, token->prompt, *its.model));
    its.scored += token->prompt.size();
    if (auto frame = its.frame_of(*token); !frame.empty())
      frames.push_back(std::move(frame));
    return;
  }
  const auto* done = std::get_if<done_event>(&item.what);
  frames.push_back(done ? done_frame(id, *done, its.ranked, its.calls(), its.used, its.notes)
                        : error_frame(id, std::get<error>(item.what)));
  end(mine, done ? 200 : status_of(std::get<error>(item.what).code));
  forget(item.key, std::string(id));
}

asio::awaitable<void> websocket_session::write_frames() {
  bool open = true;
  while (open && !gone_) {
    co_await requests_->wait();
    if (gone_)
      break; // end_left() hears of what is left
    std::deque<std::string> frames;
    frames.swap(replies_);
    for (const auto& item : requests_->receive())
      add_frames(item, frames);
    const auto watched = watch_frame_.size();
    if (watched > 0)
      frames.push_front(std::exchange(watch_frame_, {}));
    if (cut_)
      end_all(frames);
    for (auto frame = frames.begin(); frame != frames.end() && open && !gone_ && !requests_->overflowed(); ++frame) {
      account_->waits();
      open = co_await stream_.write(*frame);
      account_->wrote(frame->size());
    }
    if (replies_.empty())
      reply_bytes_ = 0;
    if (watched > 0) {
      account_->release(watched);
      watch_busy_ = false;
    }
    room_.cancel();
    requests_->written();
    requests_->resume_if_drained();
    if (requests_->overflowed()) {
      stream_.set_pending_close(websocket_stream::close_code::try_again_later);
      open = false;
    }
    if (draining_ && ids_.empty() && replies_.empty()) {
      stream_.set_pending_close(websocket_stream::close_code::going_away);
      open = false;
    }
  }
  co_await stream_.close_handshake(farewell_time, context_.options.idle_timeout);
  // After the peer's close frame the reader waits for the peer to hang up. This bounds the wait.
  if (gone_ && !reader_done_) {
    boost::system::error_code ec;
    room_.expires_after(farewell_time);
    co_await room_.async_wait(asio::redirect_error(asio::use_awaitable, ec));
  }
  stream_.close();
}

} // namespace

std::shared_ptr<websocket_endpoint> make_websocket_session(server_context& context, byte_stream bytes) {
  return std::make_shared<websocket_session>(context, std::move(bytes));
}

} // namespace troupe
