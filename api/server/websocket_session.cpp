#include "api/server/websocket_session.hpp"

#include "api/http/request_scope.hpp"
#include "api/http/until_given_up.hpp"
#include "api/openai/openai_response.hpp"
#include "api/server/generation_exchange.hpp"
#include "api/server/socket_session.hpp"
#include "api/server/wire/watch_frames.hpp"
#include "api/server/wire/websocket_frames.hpp"

#include <boost/asio/detached.hpp>
#include <boost/asio/redirect_error.hpp>

#include <algorithm>
#include <deque>
#include <optional>
#include <set>
#include <variant>

namespace troupe {

namespace {

class websocket_session : public socket_session {
public:
  websocket_session(server_context& context, byte_stream bytes, std::string watched)
    : socket_session(context, std::move(bytes)), watched_(std::move(watched)), watch_timer_(strand_) {}

private:
  struct running {
    std::uint64_t key = 0;
    request_record record;
    bool cancelled = false;  // before it was submitted
    std::stop_source stop{}; // stops its parsing
    recorder::request_ptr recorded = {};
  };
  struct submitted {
    std::string id;
    std::shared_ptr<const served_model> model;
    bool ranked = false;                               // choices have scores
    std::vector<std::string> notes;                    // on what of it is left out
    std::size_t scored = 0;                            // tokens of the prompt whose log-probabilities were sent
    std::shared_ptr<const chat_output> output = {};    // null: the text is content
    output_filter filter = {};                         // of each choice
    std::size_t choices = 1;                           // that it will have
    std::map<std::size_t, choice_parser> parsers = {}; // by choice
    std::map<std::size_t, std::size_t> tokens = {};    // that were generated, by choice, up to a banned text
    std::set<std::size_t> ended = {};                  // choices
    usage used = {};                                   // but for what the end tells

    std::string frame_of(const token_event& e);
    std::vector<choice_end> ends() const;
    /// Whether the filter ended it: nothing that it still says is told.
    bool is_filtered() const;
  };

  /// A client that watches the engine's steps. A slow reader loses steps; neither the engine nor its requests wait for
  /// it.
  struct watching {
    std::string id;
    std::string model; // empty: the first
    std::chrono::milliseconds interval{};
    std::shared_ptr<step_ring> steps;
    std::shared_ptr<const void> by_engine; // records are made as long as this lives
    std::shared_ptr<const void> place;     // among the server's watchers
  };

  asio::awaitable<void> handle(held_text message) override;
  void refuse_binary() override { send(error_frame({}, {errc::bad_request, "frames must be text, not binary", {}})); }
  bool outlives_connection() const override { return context_.options.resume_window.count() > 0; }
  void stop_parsing() override;
  void client_leaves() override { end_watch(); }
  void add(const request_set::item& item, messages& frames) override;
  void end_all(messages& frames) override;
  asio::awaitable<void> end_left() override;
  bool is_idle() const override { return ids_.empty(); }
  void before_writing(messages& frames) override;
  void after_writing() override;

  std::shared_ptr<websocket_session> self() { return std::static_pointer_cast<websocket_session>(shared_from_this()); }
  void watch(const client_frame& frame);
  asio::awaitable<void> watch_steps(std::shared_ptr<const watching> what);
  void end_watch();
  asio::awaitable<void> begin(client_frame frame, std::uint64_t key);
  std::optional<error> objection(const client_frame& frame) const;
  void generate(client_frame frame, byte_budget::share memory, std::string_view text);
  request_record record_of(const std::string& id) const;
  void refuse(const std::string& id, request_record record, const error& why);
  /// The error frame of a request that it ends.
  static std::string last_frame(const std::string& id, const running& one, const error& why);
  void end(running& one, unsigned status);
  void cancel(const std::string& id);
  void forget(std::uint64_t key, const std::string& id);

  const std::string watched_; // model
  asio::steady_timer watch_timer_;
  std::map<std::string, running> ids_;
  std::map<std::uint64_t, submitted> by_key_;
  std::shared_ptr<const watching> watch_;
  std::string watch_frame_;     // the next to be written
  std::size_t written_now_ = 0; // of a watch's frame
  bool watch_busy_ = false;     // a frame is being made or written
};

std::string websocket_session::submitted::frame_of(const token_event& e) {
  auto& parser = parsers.try_emplace(e.index, output, filter).first->second;
  if (parser.filtered())
    return {};
  const auto deltas = parser.feed(e.text, e.finish.has_value());
  tokens[e.index] += e.token_ids.size();
  used.reasoning_tokens += parser.reasons() ? e.token_ids.size() : 0;
  if (e.finish || parser.filtered())
    ended.insert(e.index);
  if (!parser.filtered())
    return token_frame(id, e, deltas, *model);
  auto last = e;
  last.token_ids.clear(); // its tokens are not told
  last.logprobs.clear();
  return token_frame(id, last, deltas, *model);
}

/// How each choice has ended, by its number.
std::vector<choice_end> websocket_session::submitted::ends() const {
  std::vector<choice_end> result;
  for (const auto& [index, parser] : parsers) {
    result.resize(index + 1);
    result.back() = {parser.calls(), parser.filtered(), tokens.at(index)};
  }
  return result;
}

bool websocket_session::submitted::is_filtered() const {
  return ended.size() == choices && std::ranges::any_of(parsers, [](const auto& one) { return one.second.filtered(); });
}

void websocket_session::stop_parsing() {
  for (auto& [id, one] : ids_)
    one.stop.request_stop();
}

/// Ends every request with an error frame.
void websocket_session::end_all(messages& frames) {
  for (auto& [id, one] : ids_) {
    frames.push_back(last_frame(id, one, server_stops()));
    one.record.see(server_stops());
    end(one, status_of(server_stops().code));
  }
  ids_.clear();
  by_key_.clear();
  requests_->close();
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

asio::awaitable<void> websocket_session::handle(held_text message) {
  context_.trim_memory_later();
  auto read = co_await parsed<bad_frame>(message.text, parse_frame);
  if (const auto* bad = std::get_if<bad_frame>(&read))
    refuse(bad->id, record_of(bad->id), bad->why);
  else if (auto& frame = std::get<client_frame>(read); frame.type == client_frame::kind::cancel)
    cancel(frame.id);
  else if (frame.type == client_frame::kind::watch)
    watch(frame);
  else
    generate(std::move(frame), std::move(message.share), message.text);
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

request_record websocket_session::record_of(const std::string& id) const {
  request_record result(id_, "WS /v1/ws");
  result.set_origin(from_);
  result.set_frame(id);
  return result;
}

void websocket_session::end(running& one, unsigned status) {
  one.record.answered(status);
  one.record.write(*context_.log, context_.counted);
  recorder::end(one.recorded, status);
}

std::string websocket_session::last_frame(const std::string& id, const running& one, const error& why) {
  one.record.times()->end(); // so that the log says the same
  return error_frame(id, why, one.record.times()->seen().spent);
}

/// A frame that began no request.
void websocket_session::refuse(const std::string& id, request_record record, const error& why) {
  send(error_frame(id, why));
  record.see(why);
  record.answered(status_of(why.code));
  record.write(*context_.log, context_.counted);
}

void websocket_session::generate(client_frame frame, byte_budget::share memory, std::string_view text) {
  if (const auto why_not = objection(frame)) {
    context_.counted.refused();
    return refuse(frame.id, record_of(frame.id), *why_not);
  }
  const auto key = next_key_++;
  auto& mine = ids_.emplace(frame.id, running{key, record_of(frame.id)}).first->second;
  if (context_.options.record)
    mine.recorded = context_.options.record->begin(frame.id, "/v1/ws", client_, text);
  asio::co_spawn(
    strand_,
    [self = self(), frame = std::move(frame), memory = std::move(memory), key]() mutable -> asio::awaitable<void> {
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
    output_filter filter;
    std::optional<error> wrong;
    std::shared_ptr<model_wait> waits = {}; // for its model, and is to be parsed again then
  };
  if (ended_ || cut_)
    co_return;
  const auto stop = ids_.at(frame.id).stop.get_token();
  const auto parse = [this, &frame, &stop] {
    outcome result;
    try {
      check(stop); // it may have waited in the lane for long
      result.model = context_.models.named_in(field_reader(frame.body->root()));
      result.request = until_given_up(stop, [&] { return parse_frame_body(frame, *result.model, stop); });
      result.filter = context_.follow_policy(caller_.name, client_, *result.model, result.request.prompts.front());
      context_.engine.keep(result.model->id, {});
    } catch (must_wait& model) {
      result.waits = std::move(model.what);
    } catch (...) {
      result.wrong = caught_error();
    }
    return result;
  };
  const auto times = ids_.at(frame.id).record.times();
  outcome parsed;
  std::shared_ptr<const void> quotas;
  try {
    auto first = acquire_quotas(1); // who may have none is not read either
    parsed = co_await parsed_with_model(parse, frame.bytes, stop, *times);
    first.reset();
    if (!parsed.wrong)
      quotas = acquire_quotas(as_size(parsed.request.prompts.front().sampling.width()));
  } catch (...) { // the lane is full, or memory
    parsed.wrong = caught_error();
  }
  if (ended_ || cut_)
    co_return;
  auto& mine = ids_.at(frame.id);
  mine.record.set_user(requested_user(field_reader(frame.body->root())));
  if (parsed.wrong) {
    context_.counted.refused();
    send(last_frame(frame.id, mine, *parsed.wrong));
    mine.record.see(*parsed.wrong);
    end(mine, status_of(parsed.wrong->code));
    ids_.erase(frame.id);
    co_return;
  }
  auto& request = parsed.request.prompts.front();
  mine.record.parsed(request);
  log_notes(*context_.log, id_, parsed.request.notes, frame.id);
  by_key_[key] = {.id = frame.id,
                  .model = unheld(parsed.model),
                  .ranked = request.sampling.ranked(),
                  .notes = std::move(parsed.request.notes),
                  .output = parsed.request.output,
                  .filter = std::move(parsed.filter),
                  .choices = as_size(request.sampling.n)};
  mine.record.times()->submitted(requests_->submit(key, std::move(request), std::move(quotas), mine.recorded).ledger());
  if (mine.cancelled)
    requests_->cancel(key);
}

void websocket_session::watch(const client_frame& frame) {
  try {
    if (auto why_not = objection(frame))
      throw failure(why_not->code, why_not->message, why_not->param);
    if (watch_)
      throw failure(errc::bad_request, "this connection watches already", "type");
    const auto place = context_.place_to_watch(client_);
    watching made{frame.id,
                  watched_model(frame).value_or(watched_),
                  watch_interval(frame),
                  std::make_shared<step_ring>(most_watched_steps),
                  nullptr,
                  place};
    made.by_engine = context_.engine.watch_model(
      made.model, [steps = made.steps](const step_ring::record_ptr& record) { steps->add(record); });
    if (!made.by_engine)
      throw failure(errc::unsupported, "this server's steps leave no records", "type");
    watch_ = std::make_shared<const watching>(std::move(made));
  } catch (...) {
    return refuse(frame.id, record_of(frame.id), caught_error());
  }
  asio::co_spawn(
    strand_, [self = self(), what = watch_] { return self->watch_steps(what); }, asio::detached);
}

asio::awaitable<void> websocket_session::watch_steps(std::shared_ptr<const watching> what) {
  // Named, for GCC 12 destroys what a temporary lambda of a co_await owns twice.
  const auto make = [&engine = context_.engine, what] {
    const auto now = engine.look_at(what->model);
    return watch_frame(what->id, what->steps->take(), now);
  };
  const auto goes_on = [&] { return watch_ == what && !gone_ && !cut_; };
  while (goes_on()) {
    if (!watch_busy_) {
      watch_busy_ = true;
      std::string frame;
      try {
        frame = co_await context_.reports.run(client_, make);
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
    return send(watch_done_frame(id));
  }
  const auto found = ids_.find(id);
  if (found == ids_.end()) {
    send(error_frame(id, {errc::not_found, "no request with this `id` is running", "id"}));
    return;
  }
  found->second.cancelled = true;
  requests_->cancel(found->second.key);
}

void websocket_session::forget(std::uint64_t key, const std::string& id) {
  ids_.erase(id);
  by_key_.erase(key);
}

void websocket_session::add(const request_set::item& item, messages& frames) {
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
    if (its.is_filtered()) {
      mine.record.filtered();
      requests_->cancel(item.key);
    }
    return;
  }
  const auto* done = std::get_if<done_event>(&item.what);
  frames.push_back(done ? done_frame(id, *done, its.ranked, its.ends(), its.used, its.notes)
                        : last_frame(id, mine, std::get<error>(item.what)));
  end(mine, done ? 200 : status_of(std::get<error>(item.what).code));
  forget(item.key, std::string(id));
}

void websocket_session::before_writing(messages& frames) {
  written_now_ = watch_frame_.size();
  if (written_now_ > 0)
    frames.insert(frames.begin(), std::exchange(watch_frame_, {}));
}

void websocket_session::after_writing() {
  if (written_now_ == 0)
    return;
  account_->release(std::exchange(written_now_, 0));
  watch_busy_ = false;
}

} // namespace

std::shared_ptr<websocket_endpoint> make_websocket_session(server_context& context, byte_stream bytes,
                                                           std::string watched) {
  return std::make_shared<websocket_session>(context, std::move(bytes), std::move(watched));
}

} // namespace troupe
