#include "api/server/resumable_stream.hpp"

#include "api/http/query.hpp"
#include "api/openai/openai_response.hpp"
#include "api/server/endpoint.hpp"
#include "api/server/generation_exchange.hpp"
#include "api/server/request_set.hpp"
#include "api/server/resume/strand_signal.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <charconv>
#include <chrono>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t sent_at_once = 64 << 10; // bytes

class stream_maker {
public:
  stream_maker(server_context& context, asio::any_io_executor strand, stream_start what)
    : context_(context),
      strand_(strand),
      what_(std::move(what)),
      scope_(what_.owner, what_.client),
      signal_(std::make_shared<strand_signal>(strand)),
      account_(std::make_shared<answer_budget::account>(context.answers, [] {})),
      requests_(
        std::make_shared<request_set>(strand, context.engine, context.counted, context.options.sink_bytes, account_)),
      journal_(std::make_shared<stream_journal>(
        stream_journal::origin{what_.record.id(), std::string(what_.job.writer->id()), what_.owner, what_.client},
        stream_journal::bounds{.ahead = context.options.sink_bytes}, context.streams.memory,
        [strand, signal = std::weak_ptr(signal_), requests = std::weak_ptr(requests_)] {
          asio::post(strand, [signal, requests] {
            if (const auto one = signal.lock())
              one->notify_here();
            if (const auto one = requests.lock())
              one->poke();
          });
        })) {
    account_->speak_for(what_.client);
    requests_->speak_for(what_.client, context.rates);
    scope_.on_cut([signal = signal_, requests = requests_] {
      signal->notify_here();
      requests->poke();
    });
    what_.entry->follow(scope_);
    context_.streams.open(journal_);
  }
  ~stream_maker() {
    if (what_.entry)
      end(); // the server ends
    context_.streams.close(journal_);
  }
  stream_maker(const stream_maker&) = delete;
  stream_maker& operator=(const stream_maker&) = delete;

  const std::shared_ptr<stream_journal>& journal() const { return journal_; }

  /// On the strand, at once: as for other requests, what is refused is refused before the first wait.
  void submit() {
    auto& job = what_.job;
    open_ = job.prompts.size();
    for (std::size_t i = 0; i < job.prompts.size(); ++i)
      what_.entry->submitted(requests_->submit(i, std::move(job.prompts[i]), what_.quota, what_.recorded, i));
    what_.quota = nullptr;
  }

  asio::awaitable<void> run() {
    try {
      co_await make();
    } catch (const std::exception&) { // no memory
      fail(caught_error());
    }
    end();
    const auto until = clock::now() + context_.options.resume_window;
    while (context_.streams.keep(journal_) && !given_up_ && !context_.draining && !journal_->is_dropped() &&
           clock::now() < until)
      co_await signal_->wait(until);
  }

private:
  using clock = std::chrono::steady_clock;

  /// Whether nobody will read it: its client has not come back in time, or cannot.
  bool is_given_up() {
    if (const auto why = journal_->cut_short(); why && !scope_.why_cut())
      scope_.cut(*why);
    const auto since = journal_->unread_since();
    if (!since)
      kept_ = false;
    else if (!given_up_)
      given_up_ = context_.draining || journal_->is_dropped() ||
        clock::now() >= *since + context_.options.resume_window || !(kept_ = kept_ || context_.streams.keep(journal_));
    if (since && !given_up_)
      wake_at(*since + context_.options.resume_window);
    return given_up_;
  }

  void wake_at(clock::time_point time) {
    if (std::exchange(wakes_at_, time) == time)
      return;
    window_.expires_at(time);
    window_.async_wait([signal = signal_, requests = requests_](boost::system::error_code cancelled) {
      if (cancelled)
        return;
      signal->notify_here();
      requests->poke();
    });
  }

  asio::awaitable<void> make() {
    auto& writer = *what_.job.writer;
    while (open_ > 0) {
      while (!is_given_up() && !scope_.why_cut() && !journal_->has_room())
        if (!journal_->lacks_memory() || !context_.streams.drop_ended(what_.client))
          co_await signal_->wait(clock::now() + stream_journal::between_tries);
      if (!given_up_)
        co_await requests_->wait();
      if (is_given_up())
        co_return co_await give_up();
      std::string out;
      auto failed = write_events(*requests_, writer, what_.record, open_, out);
      if (!failed && open_ > 0)
        failed = scope_.why_cut();
      if (!failed && requests_->overflowed())
        failed = answers_full(context_.answers);
      if (!out.empty()) {
        what_.record.answered(200);
        journal_->append(out);
        begun_ = true;
      }
      if (failed) {
        requests_->close(); // its events are not needed
        co_return fail(*failed);
      }
      requests_->written();
      requests_->resume_if_drained();
    }
    what_.record.answered(200);
    journal_->append(writer.end());
  }

  asio::awaitable<void> give_up() {
    what_.record.answered(client_left);
    const auto ends = co_await requests_->end_all(cancelling_time);
    for (const auto& one : ends)
      what_.record.see(one.what);
    journal_->drop();
  }

  void fail(const error& why) {
    what_.record.failed(code_of(why), why.param, why.message);
    if (begun_)
      return journal_->append(what_.job.writer->fail(why));
    what_.record.answered(status_of(why.code));
    journal_->refuse(why);
  }

  void end() {
    scope_.on_cut(nullptr);
    window_.cancel();
    requests_->close();
    what_.entry->end(what_.record.status(), what_.record.code());
    context_.requests.close(std::exchange(what_.entry, nullptr));
    what_.record.write(*context_.log, context_.counted);
    what_.job.writer.reset();
    journal_->end();
  }

  server_context& context_;
  asio::any_io_executor strand_;
  stream_start what_;
  request_scope scope_;
  std::shared_ptr<strand_signal> signal_;
  std::shared_ptr<answer_budget::account> account_;
  std::shared_ptr<request_set> requests_;
  std::shared_ptr<stream_journal> journal_;
  asio::steady_timer window_{strand_};
  clock::time_point wakes_at_{};
  std::size_t open_ = 0; // requests that have not ended
  bool begun_ = false, kept_ = false, given_up_ = false;
};

/// What a connection reads of a journal, until it is gone.
struct reading {
  const std::shared_ptr<stream_journal> from;
  const std::uint64_t number;
  reading(std::shared_ptr<stream_journal> journal, std::uint64_t after, const std::shared_ptr<strand_signal>& signal)
    : from(std::move(journal)), number(from->attach(after, [weak = std::weak_ptr(signal)] {
        if (const auto one = weak.lock())
          one->notify();
      })) {}
  ~reading() { from->leave(number); }
  reading(const reading&) = delete;
  reading& operator=(const reading&) = delete;
};

asio::awaitable<bool> send_parts(connection& link, request_scope& scope, reading& mine, strand_signal& signal,
                                 answer_form form, bool begun) {
  bool told = false;
  for (;;) {
    if (scope.why_cut() && !std::exchange(told, true))
      mine.from->cut(*scope.why_cut());
    auto part = mine.from->read(mine.number, sent_at_once);
    if (part.replaced)
      co_return false;
    form.keep_alive = form.keep_alive && !told;
    if (part.refused && !begun) {
      co_await link.send(reply::of(*part.refused), form);
      co_return form.keep_alive;
    }
    if (part.refused)
      part.text = failed_event(*part.refused, form, mine.from->request_id());
    if ((!part.text.empty() || part.ended) && !std::exchange(begun, true))
      co_await link.start_stream("text/event-stream", form);
    co_await link.stream(part.text, form);
    if (part.ended || part.refused)
      break;
    if (part.text.empty())
      co_await signal.wait();
  }
  co_await link.end_stream(form);
  co_return form.keep_alive;
}

std::uint64_t last_received(std::string_view query, std::string_view header) {
  if (const auto after = query_parameter(query, "starting_after"))
    return event_number(*after, "starting_after") + 1; // they count from 0
  if (!header.empty())
    return event_number(header, "Last-Event-ID");
  const auto after = query_parameter(query, "after");
  return after ? event_number(*after, "after") : 0;
}

} // namespace

std::uint64_t event_number(std::string_view text, const char* field) {
  std::uint64_t result = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), result);
  if (text.empty() || text.size() > 18 || wrong != std::errc() || end != text.data() + text.size())
    refuse_field(field, "must be the number of an event");
  return result;
}

bool may_resume(const server_context& context, const generation_job& job) {
  return job.stream && context.options.resume_window.count() > 0 &&
    job.writer->stream_type().starts_with("text/event-stream");
}

std::shared_ptr<stream_journal> start_resumable(server_context& context, asio::any_io_executor strand,
                                                stream_start what) {
  const auto maker = std::make_shared<stream_maker>(context, strand, std::move(what));
  maker->submit();
  asio::co_spawn(
    strand, [maker]() -> asio::awaitable<void> { co_await maker->run(); }, asio::detached);
  return maker->journal();
}

asio::awaitable<bool> send_stream(connection& link, request_scope& scope, std::shared_ptr<stream_journal> journal,
                                  std::uint64_t after, answer_form form, bool begun) {
  const auto signal = std::make_shared<strand_signal>(link.bytes().get_executor());
  scope.on_cut([&signal = *signal] { signal.notify_here(); });
  struct at_end {
    request_scope& scope;
    ~at_end() { scope.on_cut(nullptr); }
  } const ends{scope};
  reading mine(std::move(journal), after, signal);
  co_return co_await send_parts(link, scope, mine, *signal, std::move(form), begun);
}

asio::awaitable<bool> resume_stream(server_context& context, connection& link, request_scope& scope,
                                    std::string_view id, std::string_view query, answer_form form) {
  std::optional<error> refused;
  std::shared_ptr<stream_journal> journal;
  std::uint64_t after = 0;
  if (form.version < 11)
    form.keep_alive = false;
  try {
    if (context.options.resume_window.count() == 0)
      throw failure(errc::not_found, "this server keeps no streams: it was started without --resume-window");
    after = last_received(query, form.last_event_id);
    journal = context.streams.find(scope.key(), scope.client(), id);
    if (form.head) {
      auto nothing = reply::json({});
      nothing.content_type = "text/event-stream";
      co_await link.send(nothing, form);
      co_return form.keep_alive;
    }
    co_return co_await send_stream(link, scope, journal, after, form);
  } catch (const failure& f) {
    refused = f.what_failed();
  }
  co_await link.send(reply::of(*refused), form);
  co_return form.keep_alive;
}

} // namespace troupe
