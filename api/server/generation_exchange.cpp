#include "api/server/generation_exchange.hpp"

#include "api/http/until_given_up.hpp"
#include "api/openai/fields/known_fields.hpp"
#include "api/openai/openai_response.hpp"
#include "api/server/model_waiting.hpp"
#include "api/server/request_set.hpp"
#include "api/server/resumable_stream.hpp"
#include "runtime/support/text/number_text.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

namespace troupe {

namespace {

/// What is known of a request that may move to another process, or has come from one.
struct progress : moving_progress {
  held_text body = {};
  answer_form form = {};
  bool may_move = false;
  bool resumes = false; // tokens of it come from elsewhere, or the head of its answer does
};

template <class F>
std::string drawn(request_draws& by, F work) {
  const drawing_for its(by);
  return work();
}

/// Where the time of what has begun elsewhere is limited, what is left of it.
void resume_job(const progress& its, std::vector<generation>& prompts) {
  for (auto& one : prompts) {
    one.begun = its.tokens;
    for (auto* limit : {&one.timeout, &one.ttft_timeout})
      if (limit->count() > 0)
        *limit = std::max(*limit - its.spent, std::chrono::milliseconds(1));
  }
}

struct parsed_request {
  generation_job job;
  std::shared_ptr<const void> quota; // held from the API key's quota
  std::string user, named;           // by whom, and its model, as the request says
  std::optional<error> wrong;
  std::shared_ptr<const served_model> model; // which stays loaded until it is submitted
  std::shared_ptr<model_wait> waits;         // for its model, and is to be parsed again then
  bool tells = false;                        // it is a stream in which comments may say how far that is
};

parsed_request parse(server_context& context, generated how, const request_scope& scope, const std::string& key,
                     const std::string& body, request_draws& draws, const std::stop_token& stop) {
  parsed_request result;
  try {
    draws.next = 0;
    const drawing_for its(draws);
    check(stop);                  // it may have waited in the lane for long
    context.models.require_any(); // nothing is read before there is a model
    const auto document = json::document::parse(body, "the body", errc::bad_request);
    const field_reader fields(document.root());
    result.user = requested_user(fields);
    const auto asks_for_stream = json::find(fields.body(), "stream");
    result.tells = !how.as_lines && asks_for_stream && asks_for_stream->is_bool() && bool(*asks_for_stream);
    if (how.without_model)
      if (auto job = how.without_model(fields); job.writer && context.models.names_one_away(fields)) {
        result.job = std::move(job);
        return result;
      }
    result.model = context.models.named_in(fields);
    if (const auto given = json::find(fields.body(), "model"); given && given->is_string())
      result.named = std::string_view(*given);
    result.job = until_given_up(stop, [&] {
      return how.parsed_by({fields, unheld(result.model), context.responses, scope.key(), scope.client(), stop});
    });
    context.follow_policy(key, scope.client(), *result.model, result.job);
    context.engine.keep(result.model->id, result.job.keep_alive);
  } catch (must_wait& model) {
    result.waits = std::move(model.what);
  } catch (...) {
    result.wrong = caught_error();
  }
  return result;
}

std::size_t count_sequences(const std::vector<generation>& prompts) {
  std::size_t result = 0;
  for (const auto& one : prompts)
    result += as_size(one.sampling.width());
  return result;
}

asio::awaitable<parsed_request> parse_on_lane(server_context& context, generated how, const std::string& body,
                                              const request_scope& scope, const std::string& key,
                                              request_draws& draws) {
  parsed_request result;
  const auto work = [&, stop = scope.token()] { return parse(context, how, scope, key, body, draws, stop); };
  try {
    auto first = context.acquire_quota(key, scope.client(), 1); // who may have none is not read either
    result = co_await context.lane_for(body.size()).run(scope.client(), work);
    if (result.waits)
      result.quota = std::move(first);
    first.reset();
    if (!result.wrong && !result.waits)
      result.quota = context.acquire_quota(key, scope.client(), count_sequences(result.job.prompts));
  } catch (...) { // the lane or the quota is full, or memory
    result.wrong = caught_error();
  }
  co_return result;
}

// What has become long is written on a lane, as what comes is parsed there: it may take as long as hundreds of
// requests.
asio::awaitable<reply> whole_answer(server_context& context, const std::string& client, answer_writer& writer,
                                    request_draws& draws, std::size_t bytes) {
  const auto write = [&writer, &draws] {
    const drawing_for its(draws);
    auto whole = reply::json(writer.body());
    whole.body.shrink_to_fit(); // it grew by doubling, and may wait for its reader
    return whole;
  };
  reply result;
  try {
    if (bytes > context.options.brief_bytes) // not by ?:, where GCC 12 destroys what co_await gives twice
      result = co_await context.lengthy.run(client, write);
    else
      result = write();
  } catch (...) { // the lane is full, or memory
    result = reply::of(caught_error());
  }
  co_return result;
}

/// Parses a request, and again once the model is loaded that it had to wait for. A stream that waits for long is begun,
/// with comments that say how far the load is.
asio::awaitable<parsed_request> parse_with_model(server_context& context, connection& link, generated how,
                                                 const std::string& body, const request_scope& scope, answer_form& form,
                                                 request_draws& draws, bool& started) {
  const auto begun = std::chrono::steady_clock::now();
  const auto key = link.record().from().key;
  auto parsed = co_await parse_on_lane(context, how, body, scope, key, draws);
  if (!parsed.waits)
    co_return parsed;
  const wait_cut cut = [&scope] { return scope.why_cut(); };
  const wait_teller nobody;
  const wait_teller tell = [&link, &form, &started](std::string line) -> asio::awaitable<void> {
    if (form.version < 11)
      form.keep_alive = false;
    if (!std::exchange(started, true))
      co_await link.start_stream("text/event-stream", form);
    co_await link.stream(": " + line + "\n\n", form);
  };
  struct loading {
    request_times& times;
    explicit loading(request_times& of) : times(of) { times.loads(true); }
    ~loading() { times.loads(false); }
  };
  while (parsed.waits && !parsed.wrong) {
    const auto waits = std::move(parsed.waits); // until it is parsed: the model is kept for it
    {
      const loading now(*link.record().times());
      parsed.wrong = co_await wait_for_model(*waits, cut, parsed.tells ? tell : nobody);
    }
    if (parsed.wrong)
      break;
    parsed = {};
    parsed = co_await parse_on_lane(context, how, body, scope, key, draws);
  }
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begun;
  form.headers.emplace_back("X-Troupe-Load-Seconds", to_fixed(waited.count(), 3));
  co_return parsed;
}

asio::awaitable<bool> generate_answer(server_context& context, connection& link, request_scope& scope,
                                      request_set& requests, std::shared_ptr<request_entry>& entry,
                                      const recorder::request_ptr& recorded, generated how, held_text body,
                                      answer_form form, progress& its) {
  auto& started = its.head_sent;
  const bool resumes = its.resumes;
  auto parsed = co_await parse_with_model(context, link, how, body.text, scope, form, its.draws, started);
  link.record().set_user(std::move(parsed.user));
  if (scope.why_cut())
    parsed.wrong = scope.why_cut();
  if (parsed.wrong && started) {
    context.counted.refused();
    link.record().failed(code_of(*parsed.wrong), parsed.wrong->param, parsed.wrong->message);
    co_await link.stream(failed_event(*parsed.wrong, form, link.record().id()), form);
    co_await link.end_stream(form);
    co_return false;
  }
  if (parsed.wrong) {
    context.counted.refused();
    form.keep_alive = form.keep_alive && !scope.why_cut();
    co_await link.send(reply::of(*parsed.wrong), form);
    co_return form.keep_alive;
  }
  auto& job = parsed.job;
  auto& writer = *job.writer;
  // Long bodies leave room for those that come.
  const bool light = body.text.size() <= held_text::free_bytes || context.bodies.taken() <= context.bodies.most() / 2;
  its.may_move = its.may_move && light && link.bytes().is_movable() && is_movable(job, body.text);
  if (its.may_move)
    its.body = std::move(body); // as long as it may move
  { const auto released = std::move(body); }
  const bool stream = job.stream;
  if (stream && form.version < 11)
    form.keep_alive = false;
  auto open = job.prompts.size();
  for (const auto& one : job.prompts)
    link.record().parsed(one);
  if (resumes)
    resume_job(its, job.prompts);
  if (resumes && started)
    link.continue_stream(writer.stream_type(), form);
  log_notes(*context.log, link.record().id(), job.notes);
  if (!job.notes.empty() && !resumes)
    form.headers.emplace_back("X-Troupe-Warning", header_of_notes(job.notes));
  entry->parsed(job.prompts, writer.id());
  if (may_resume(context, job) && !resumes) {
    const auto journal = start_resumable(context, link.bytes().get_executor(),
                                         {std::move(job), std::move(parsed.quota), std::exchange(entry, nullptr),
                                          link.lend_record(), scope.key(), scope.client(), recorded});
    parsed.model = nullptr;
    co_return co_await send_stream(link, scope, journal, 0, std::move(form), started);
  }
  for (std::size_t i = 0; i < job.prompts.size(); ++i)
    entry->submitted(requests.submit(i, std::move(job.prompts[i]), parsed.quota, recorded, i));
  parsed.quota = nullptr;
  if (parsed.model)
    parsed.model = unheld(parsed.model); // the requests hold it now: its client may be slow to read what they said
  while (open > 0) {
    if (const auto next = context.next();
        next && std::exchange(its.may_move, false) && next->has(*parsed.model, parsed.named))
      requests.hand_over_all();
    co_await requests.wait();
    std::string out;
    auto failed = write_events(requests, writer, link.record(), open, out, &its);
    if (!failed && open > 0)
      failed = scope.why_cut();
    if (!failed && requests.overflowed())
      failed = answers_full(context.answers);
    if (failed)
      requests.close(); // its events are not needed
    if (failed && !started) {
      form.keep_alive = form.keep_alive && !scope.why_cut();
      co_await link.send(reply::of(*failed), form);
      co_return form.keep_alive;
    }
    if (failed) {
      link.record().failed(code_of(*failed), failed->param, failed->message);
      co_await link.stream(out + writer.fail(*failed), form);
      co_await link.end_stream(form);
      co_return false;
    }
    if (!out.empty() && !started)
      co_await link.start_stream(writer.stream_type(), form);
    started = started || !out.empty();
    if (!out.empty())
      co_await link.stream(out, form);
    if (its.moved) {
      its.form = std::move(form);
      link.moves();
      co_return false;
    }
    if (stream) // else the writer has them
      requests.written();
    requests.resume_if_drained();
  }
  if (!stream) {
    const auto whole = co_await whole_answer(context, scope.client(), writer, its.draws, requests.in_hand());
    job.writer.reset();
    requests.written();
    co_await link.send(whole, form);
    co_return form.keep_alive;
  }
  if (!started)
    co_await link.start_stream(writer.stream_type(), form);
  const auto last = drawn(its.draws, [&] { return writer.end(); });
  co_await link.stream(last, form);
  co_await link.end_stream(form);
  co_return form.keep_alive;
}

/// False if the other process does not take it.
bool give_away(const server_context& context, connection& link, const progress& its) {
  auto& record = link.record();
  moving_request one{record.id(), record.route(), record.from(), its.body.text, its.draws, its.tokens};
  one.version = its.form.version;
  one.keep_alive = its.head_sent ? link.keeps_alive() : its.form.keep_alive;
  one.head_sent = its.head_sent;
  one.headers = its.form.headers;
  const auto ahead = link.buffer().cdata();
  one.read_ahead.assign(static_cast<const char*>(ahead.data()), ahead.size());
  one.spent_ms = its.spent.count();
  if (!context.next()->line->send(to_message(one), link.bytes().native_handle()))
    return false;
  record.failed(request_record::moved, {}, "it goes on in the process that takes this one's place");
  if (!its.head_sent)
    record.answered(200);
  link.let_go();
  return true;
}

/// "/v1/completions", of "POST /v1/completions".
std::string_view endpoint_of(std::string_view route) { return route.substr(route.find(' ') + 1); }

struct close_at_end {
  request_set& requests;
  request_scope& scope;
  server_context& context;
  const request_record& record;
  const std::shared_ptr<request_entry>& entry; // null: it goes on without the connection
  const recorder::request_ptr recorded;
  ~close_at_end() {
    scope.on_cut(nullptr);
    requests.close();
    if (!entry)
      return;
    entry->end(record.status(), record.code());
    recorder::end(recorded, record.status());
    context.requests.close(entry);
  }
};

} // namespace

std::optional<error> write_events(request_set& requests, answer_writer& writer, request_record& record,
                                  std::size_t& open, std::string& out, moving_progress* its) {
  std::optional<drawing_for> draws;
  if (its)
    draws.emplace(its->draws);
  for (auto& [key, what] : requests.receive()) {
    std::optional<error> failed;
    record.see(what);
    if (const auto* token = std::get_if<token_event>(&what)) {
      const auto text = writer.take(key, *token);
      if (!token->replayed)
        out += text;
      if (writer.is_filtered(key)) {
        record.filtered();
        requests.cancel(key);
      }
    } else if (const auto* done = std::get_if<done_event>(&what)) {
      --open;
      if (done->begun && its) {
        its->moved = true;
        its->tokens = done->begun;
        continue;
      }
      failed = interruption(*done, writer.is_filtered(key));
      if (!failed)
        out += writer.take(key, *done);
    } else {
      failed = std::get<error>(what);
    }
    if (failed)
      return failed;
  }
  return std::nullopt;
}

std::string failed_event(const error& why, const answer_form& form, std::string_view id) {
  const auto refused = reply::of(why);
  return form.error_format ? "event: error\n" + sse(form.error_format(refused, id)) : sse(error_body(why));
}

std::optional<error> interruption(const done_event& done, bool filtered) {
  for (const auto& choice : done.choices)
    if (choice.reason == finish_reason::cancelled && !filtered)
      return error{errc::unavailable, "the request was cancelled by the server", {}};
  return std::nullopt;
}

std::string requested_user(const field_reader& body) {
  constexpr std::size_t longest = 64;
  for (const auto* key : {"user", "safety_identifier"})
    if (const auto found = json::find(body.body(), key); found && found->is_string())
      return std::string(std::string_view(*found).substr(0, longest));
  // Anthropic's
  if (const auto about = json::find(body.body(), "metadata"); about && about->is_object())
    if (const auto found = json::find(*about, "user_id"); found && found->is_string())
      return std::string(std::string_view(*found).substr(0, longest));
  return {};
}

asio::awaitable<bool> exchange_generation(server_context& context, connection& link, request_scope& scope,
                                          generated how, held_text body, answer_form form,
                                          std::unique_ptr<moving_request> begun) {
  const auto begun_at = std::chrono::steady_clock::now();
  progress its;
  its.may_move = context.options.movable;
  if (begun) {
    its.resumes = true;
    its.draws = std::move(begun->draws);
    its.tokens = std::move(begun->tokens);
    its.head_sent = begun->head_sent;
    its.spent = std::chrono::milliseconds(begun->spent_ms);
  }
  const auto requests = std::make_shared<request_set>(link.bytes().get_executor(), context.engine, context.counted,
                                                      context.options.sink_bytes, link.account());
  requests->speak_for(scope.client(), context.rates);
  const auto& record = link.record();
  auto entry = std::make_shared<request_entry>(request_entry::origin{record.id(), record.route(), scope.key()},
                                               record.times(), link.bytes().get_executor(), scope);
  context.requests.open(entry);
  const auto recorded = context.options.record && !its.resumes // else it began elsewhere
    ? context.options.record->begin(record.id(), endpoint_of(record.route()), scope.client(), body.text)
    : nullptr;
  const close_at_end closing{*requests, scope, context, record, entry, recorded};
  scope.on_cut([&requests = *requests] { requests.poke(); });
  const auto version = form.version;
  bool reusable = co_await link.attend(
    scope, version,
    generate_answer(context, link, scope, *requests, entry, recorded, how, std::move(body), std::move(form), its));
  if (its.moved) {
    its.spent += std::chrono::floor<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begun_at);
    if (give_away(context, link, its))
      co_return false;
    link.stays(); // and goes on here
    its.resumes = true;
    its.moved = false;
    reusable = co_await link.attend(scope, version,
                                    generate_answer(context, link, scope, *requests, entry, nullptr, how,
                                                    std::move(its.body), std::move(its.form), its));
  }
  scope.on_cut(nullptr);
  const auto ends = co_await requests->end_all(cancelling_time); // of a client that has left
  for (const auto& one : ends)
    link.record().see(one.what);
  co_return reusable;
}

} // namespace troupe
