#include "api/server/responses_socket.hpp"

#include "api/http/request_scope.hpp"
#include "api/openai/openai_response.hpp"
#include "api/openai/responses/response_answer.hpp"
#include "api/server/generation_exchange.hpp"
#include "api/server/socket_session.hpp"
#include "api/server/wire/responses_events.hpp"

#include <boost/asio/detached.hpp>

#include <atomic>
#include <deque>
#include <optional>
#include <variant>

namespace troupe {

namespace {

/// An owner of stored responses that no key is.
std::size_t next_connection_owner() {
  static std::atomic<std::size_t> last = 0;
  return (std::size_t{1} << 62) + ++last;
}

class responses_socket : public socket_session {
public:
  responses_socket(server_context& context, byte_stream bytes)
    : socket_session(context, std::move(bytes)), own_responses_(next_connection_owner()) {}

  ~responses_socket() override { context_.responses.forget(own_responses_); }

private:
  struct asked {
    response_create what;
    std::size_t bytes = 0;
    byte_budget::share memory;
  };
  /// What runs on a lane, and what waits there.
  struct lane {
    std::uint64_t key = 0;
    std::optional<std::string> stream_id;
    std::optional<std::string> previous;
    std::optional<request_record> record;
    std::unique_ptr<answer_writer> writer; // once it has been submitted
    std::vector<std::string> notes;        // that no event has told yet
    std::stop_source stop;                 // of its parsing
    std::deque<asked> waiting;
  };

  asio::awaitable<void> handle(held_text message) override;
  void refuse_binary() override { refuse({errc::bad_request, "messages must be text, not binary", {}}, std::nullopt); }
  void stop_parsing() override;
  void add(const request_set::item& item, messages& events) override;
  void end_all(messages& events) override;
  asio::awaitable<void> end_left() override;
  bool is_idle() const override { return lanes_.empty(); }

  std::shared_ptr<responses_socket> self() { return std::static_pointer_cast<responses_socket>(shared_from_this()); }
  void enqueue(asked one);
  void start_next(const std::string& name);
  asio::awaitable<void> begin(asked one, std::string name);
  void finish(const std::string& name, unsigned status);
  void refuse(const error& why, const std::optional<std::string>& stream_id);
  request_record record_of(const std::optional<std::string>& stream_id) const;
  void evict(const lane& of, const error& why);
  response_shelf shelf() { return {context_.responses, caller_.number, client_, own_responses_}; }

  const std::size_t own_responses_;
  std::map<std::string, lane> lanes_; // that have something, by "" or 's' and the stream_id
  std::map<std::uint64_t, std::string> by_key_;
  std::size_t open_ = 0; // running and waiting
};

void responses_socket::stop_parsing() {
  for (auto& [name, one] : lanes_)
    one.stop.request_stop();
}

/// Ends every response with an error.
void responses_socket::end_all(messages& events) {
  for (auto& [name, one] : lanes_) {
    if (one.writer)
      for (auto& event : events_of_stream(one.writer->fail(server_stops()), one.stream_id, one.notes))
        events.push_back(std::move(event));
    else if (one.record)
      events.push_back(response_error_event(server_stops(), one.stream_id));
    for (const auto& waiting : one.waiting)
      events.push_back(response_error_event(server_stops(), waiting.what.stream_id));
    if (one.record) {
      one.record->see(server_stops());
      one.record->answered(status_of(server_stops().code));
      one.record->write(*context_.log, context_.counted);
    }
  }
  lanes_.clear();
  by_key_.clear();
  open_ = 0;
  requests_->close();
}

/// Records the responses whose client has left.
asio::awaitable<void> responses_socket::end_left() {
  const auto ends = co_await requests_->end_all(cancelling_time);
  for (const auto& item : ends)
    if (const auto found = by_key_.find(item.key); found != by_key_.end())
      if (auto& its = lanes_.at(found->second); its.record)
        its.record->see(item.what);
  for (auto& [name, one] : lanes_)
    if (one.record) {
      one.record->answered(client_left);
      one.record->write(*context_.log, context_.counted);
    }
  lanes_.clear();
  by_key_.clear();
  requests_->close();
}

asio::awaitable<void> responses_socket::handle(held_text message) {
  context_.trim_memory_later();
  auto read = co_await parsed<bad_response_event>(message.text, parse_response_event);
  if (const auto* bad = std::get_if<bad_response_event>(&read))
    refuse(bad->why, bad->stream_id);
  else
    enqueue({std::move(std::get<response_create>(read)), message.text.size(), std::move(message.share)});
}

void responses_socket::enqueue(asked one) {
  const auto& stream_id = one.what.stream_id;
  if (open_ >= context_.options.max_requests_per_socket)
    return refuse({errc::overloaded,
                   "at most " + std::to_string(context_.options.max_requests_per_socket) +
                     " responses may run or wait on one connection",
                   {}},
                  stream_id);
  if (draining_)
    return refuse(server_stops(), stream_id);
  const auto name = stream_id ? 's' + *stream_id : std::string();
  ++open_;
  auto& its = lanes_[name];
  its.waiting.push_back(std::move(one));
  if (!its.record)
    start_next(name);
}

/// Begins with the next that waits on a lane where nothing runs.
void responses_socket::start_next(const std::string& name) {
  auto& its = lanes_.at(name);
  if (its.waiting.empty() || gone_ || cut_) {
    if (its.waiting.empty())
      lanes_.erase(name);
    return;
  }
  auto one = std::move(its.waiting.front());
  its.waiting.pop_front();
  its.key = next_key_++;
  its.stream_id = one.what.stream_id;
  its.previous = one.what.previous;
  its.record = record_of(its.stream_id);
  its.stop = {};
  by_key_[its.key] = name;
  asio::co_spawn(
    strand_,
    [self = self(), one = std::move(one), name]() mutable -> asio::awaitable<void> {
      try {
        co_await self->begin(std::move(one), name);
      } catch (const std::exception&) { // out of memory even for an error: close the connection
        self->stream_.close();
      }
    },
    asio::detached);
}

asio::awaitable<void> responses_socket::begin(asked one, std::string name) {
  struct outcome {
    generation_job job;
    std::shared_ptr<const void> quota;
    std::optional<error> wrong;
    std::shared_ptr<const served_model> model = {}; // which stays loaded until it is submitted
    std::shared_ptr<model_wait> waits = {};         // for it, and is to be parsed again then
  };
  if (gone_ || cut_)
    co_return;
  const auto key = lanes_.at(name).key;
  const auto stop = lanes_.at(name).stop.get_token();
  const auto parse = [this, &one, &stop] {
    outcome result;
    try {
      check(stop); // it may have waited in the lane for long
      const field_reader body(one.what.body->root());
      result.model = context_.models.named_in(body);
      result.job = response_job(body, unheld(result.model), shelf(), stop);
      context_.follow_policy(caller_.name, client_, *result.model, result.job);
      context_.engine.keep(result.model->id, {});
    } catch (must_wait& model) {
      result.waits = std::move(model.what);
    } catch (...) {
      result.wrong = caught_error();
    }
    return result;
  };
  const auto times = lanes_.at(name).record->times();
  outcome parsed;
  try {
    auto first = one.what.generates ? acquire_quotas(1) : nullptr; // who may have none is not read either
    parsed = co_await parsed_with_model(parse, one.bytes, stop, *times);
    first.reset();
    if (!parsed.wrong && one.what.generates)
      parsed.quota = acquire_quotas(as_size(parsed.job.prompts.front().sampling.width()));
  } catch (...) { // the lane is full, or memory
    parsed.wrong = caught_error();
  }
  const auto found = lanes_.find(name);
  if (gone_ || cut_ || found == lanes_.end() || found->second.key != key)
    co_return;
  auto& its = found->second;
  its.record->set_user(requested_user(field_reader(one.what.body->root())));
  if (parsed.wrong) {
    context_.counted.refused();
    send(response_error_event(*parsed.wrong, its.stream_id));
    its.record->see(*parsed.wrong);
    evict(its, *parsed.wrong);
    finish(name, status_of(parsed.wrong->code));
    co_return;
  }
  its.writer = std::move(parsed.job.writer);
  its.notes = std::move(parsed.job.notes);
  log_notes(*context_.log, id_, its.notes, its.stream_id.value_or(""));
  if (!one.what.generates) { // what would follow the prompt is nothing
    for (auto& event : events_of_stream(its.writer->take(0, done_event{}), its.stream_id, its.notes))
      send(std::move(event));
    finish(name, 200);
    co_return;
  }
  its.record->parsed(parsed.job.prompts.front());
  const auto running = requests_->submit(key, std::move(parsed.job.prompts.front()), std::move(parsed.quota));
  its.record->times()->submitted(running.ledger());
}

/// A response that could not be continued is not continued again on this connection.
void responses_socket::evict(const lane& of, const error& why) {
  if (of.previous && code_of(why) != "previous_response_not_found")
    context_.responses.remove(own_responses_, *of.previous);
}

void responses_socket::finish(const std::string& name, unsigned status) {
  auto& its = lanes_.at(name);
  its.record->answered(status);
  its.record->write(*context_.log, context_.counted);
  its.record.reset();
  its.writer.reset();
  by_key_.erase(its.key);
  --open_;
  start_next(name);
}

void responses_socket::add(const request_set::item& item, messages& events) {
  const auto found = by_key_.find(item.key);
  if (found == by_key_.end())
    return;
  const auto name = found->second;
  auto& its = lanes_.at(name);
  its.record->see(item.what);
  const auto tell = [&](const std::string& stream) {
    for (auto& event : events_of_stream(stream, its.stream_id, its.notes))
      events.push_back(std::move(event));
  };
  if (const auto* token = std::get_if<token_event>(&item.what)) {
    tell(its.writer->take(0, *token));
    if (its.writer->is_filtered(0)) {
      its.record->filtered();
      requests_->cancel(item.key);
    }
    return;
  }
  std::optional<error> failed;
  if (const auto* done = std::get_if<done_event>(&item.what)) {
    failed = interruption(*done, its.writer->is_filtered(0));
    if (!failed)
      tell(its.writer->take(0, *done));
  } else {
    failed = std::get<error>(item.what);
  }
  if (failed) {
    tell(its.writer->fail(*failed));
    evict(its, *failed);
  }
  finish(name, failed ? status_of(failed->code) : 200);
}

request_record responses_socket::record_of(const std::optional<std::string>& stream_id) const {
  request_record result(id_, "WS /v1/responses");
  result.set_origin(from_);
  result.set_frame(stream_id.value_or(""));
  return result;
}

void responses_socket::refuse(const error& why, const std::optional<std::string>& stream_id) {
  context_.counted.refused();
  send(response_error_event(why, stream_id));
  auto record = record_of(stream_id);
  record.see(why);
  record.answered(status_of(why.code));
  record.write(*context_.log, context_.counted);
}

} // namespace

std::shared_ptr<websocket_endpoint> make_responses_socket(server_context& context, byte_stream bytes) {
  return std::make_shared<responses_socket>(context, std::move(bytes));
}

} // namespace troupe
