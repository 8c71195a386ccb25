#include "api/server/metrics.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <chrono>
#include <sstream>

#include <malloc.h>

namespace troupe {

namespace {

using clock = std::chrono::steady_clock;
using buckets = prometheus::Histogram::BucketBoundaries;

const buckets waits{0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300};
const buckets gaps{0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 10};

double seconds(clock::duration d) { return std::chrono::duration<double>(d).count(); }

const char* outcome_of(const done_event& done) {
  const char* result = "stop";
  for (const auto& choice : done.choices) {
    if (choice.reason == finish_reason::cancelled)
      return "cancelled";
    if (choice.reason == finish_reason::length)
      result = "length";
  }
  return result;
}

prometheus::MetricFamily family(const char* name, const char* help, prometheus::MetricType type, double value) {
  prometheus::ClientMetric metric;
  if (type == prometheus::MetricType::Counter)
    metric.counter.value = value;
  else
    metric.gauge.value = value;
  return {name, help, type, {metric}};
}

std::vector<prometheus::MetricFamily> families(const engine_stats& s) {
  std::vector<prometheus::MetricFamily> result;
  auto gauge = [&](const char* name, const char* help, double value) {
    result.push_back(family(name, help, prometheus::MetricType::Gauge, value));
  };
  auto counter = [&](const char* name, const char* help, std::uint64_t value) {
    result.push_back(family(name, help, prometheus::MetricType::Counter, static_cast<double>(value)));
  };
  auto real = [](std::uint64_t v) { return static_cast<double>(v); };
  gauge("troupe_sequences_running", "Sequences that take part in steps.", real(s.running));
  gauge("troupe_sequences_waiting", "Sequences that wait for room.", real(s.waiting));
  gauge("troupe_sequences_paused", "Sequences whose client reads too slowly.", real(s.paused));
  gauge("troupe_kv_blocks", "KV blocks in the pool.", real(s.blocks_total));
  gauge("troupe_kv_blocks_in_use", "KV blocks that sequences refer to.", real(s.blocks_in_use));
  gauge("troupe_kv_blocks_cached", "Unreferenced KV blocks that hold reusable prefixes.", real(s.blocks_cached));
  counter("troupe_prompt_tokens_total", "Prompt tokens admitted.", s.prompt_tokens);
  counter("troupe_prompt_tokens_cached_total", "Prompt tokens found in the prefix cache.", s.cached_tokens);
  gauge("troupe_prefix_cache_hit_rate", "Share of prompt tokens found in the prefix cache since the start.",
        s.prompt_tokens ? real(s.cached_tokens) / real(s.prompt_tokens) : 0);
  counter("troupe_generated_tokens_total", "Tokens sampled.", s.generated_tokens);
  counter("troupe_steps_total", "Steps computed.", s.steps);
  counter("troupe_prefill_rows_total", "Rows of prompts computed.", s.prefill_rows);
  counter("troupe_decode_rows_total", "Rows of generated tokens computed.", s.decode_rows);
  counter("troupe_discarded_rows_total", "Rows computed and discarded.", s.discarded_rows);
  counter("troupe_preemptions_total", "Sequences preempted for lack of blocks.", s.preemptions);
  counter("troupe_kv_blocks_copied_total", "Blocks copied on write.", s.copied_blocks);
  counter("troupe_kv_blocks_evicted_total", "Cached blocks given up for others.", s.evicted_blocks);
  gauge("troupe_host_blocks", "Slots of host memory for evicted blocks.", real(s.host_blocks_total));
  gauge("troupe_host_blocks_in_use", "Slots of host memory that hold a block.", real(s.host_blocks_in_use));
  counter("troupe_kv_blocks_parked_total", "Evicted blocks moved to host memory.", s.swapped_out_blocks);
  counter("troupe_kv_blocks_restored_total", "Blocks brought back from host memory.", s.swapped_in_blocks);
  counter("troupe_spec_decode_num_drafts_total", "Times that guesses of next tokens were checked.", s.drafts);
  counter("troupe_spec_decode_num_draft_tokens_total", "Guesses judged.", s.draft_tokens);
  counter("troupe_spec_decode_num_accepted_tokens_total", "Guesses that were right.", s.accepted_tokens);
  gauge("troupe_step_rows", "Rows that a step may have now.", real(s.step_rows));
  if (!s.step_times.empty()) {
    prometheus::MetricFamily times{"troupe_step_expected_seconds",
                                   "Measured time of a step with this many rows, without context and logits.",
                                   prometheus::MetricType::Gauge,
                                   {}};
    for (const auto& time : s.step_times) {
      prometheus::ClientMetric metric;
      metric.label.push_back({"rows", std::to_string(time.rows)});
      metric.gauge.value = time.ms / 1e3;
      times.metric.push_back(std::move(metric));
    }
    result.push_back(std::move(times));
    gauge("troupe_step_logit_row_seconds", "What each row with logits adds.", s.logit_row_ms / 1e3);
    gauge("troupe_step_attended_position_seconds", "What each position adds that a row attends to.",
          s.attended_position_ms / 1e3);
    gauge("troupe_step_read_position_seconds", "What each position adds whose K and V a sequence reads.",
          s.read_position_ms / 1e3);
    gauge("troupe_step_time_error_ratio", "Mean error of the expected times of recent steps.", s.step_time_error);
  }
  counter("troupe_measured_steps_total", "Steps that the expected times are from.", s.measured_steps);
  counter("troupe_restarts_total", "Times that the engine was restarted after a failure.", s.restarts);
  return result;
}

} // namespace

struct metrics::instruments {
  prometheus::Registry registry;
  prometheus::Histogram& first_token = prometheus::BuildHistogram()
                                         .Name("troupe_time_to_first_token_seconds")
                                         .Help("From submission to the first token.")
                                         .Register(registry)
                                         .Add({}, waits);
  prometheus::Histogram& between_tokens = prometheus::BuildHistogram()
                                            .Name("troupe_inter_token_seconds")
                                            .Help("Between the tokens of one sequence.")
                                            .Register(registry)
                                            .Add({}, gaps);
  prometheus::Histogram& queued = prometheus::BuildHistogram()
                                    .Name("troupe_queue_seconds")
                                    .Help("From submission to the first planned step.")
                                    .Register(registry)
                                    .Add({}, waits);
  prometheus::Histogram& whole = prometheus::BuildHistogram()
                                   .Name("troupe_request_seconds")
                                   .Help("From submission to the end.")
                                   .Register(registry)
                                   .Add({}, waits);
  prometheus::Family<prometheus::Counter>& requests =
    prometheus::BuildCounter().Name("troupe_requests_total").Help("Requests ended, by outcome.").Register(registry);
  prometheus::Family<prometheus::Counter>& of_key = prometheus::BuildCounter()
                                                      .Name("troupe_key_requests_total")
                                                      .Help("Requests ended, by API key and HTTP status.")
                                                      .Register(registry);
  prometheus::Family<prometheus::Counter>& prompt_of_key = prometheus::BuildCounter()
                                                             .Name("troupe_key_prompt_tokens_total")
                                                             .Help("Prompt tokens of requests ended, by API key.")
                                                             .Register(registry);
  prometheus::Family<prometheus::Counter>& answer_of_key = prometheus::BuildCounter()
                                                             .Name("troupe_key_generated_tokens_total")
                                                             .Help("Tokens sent in answers, by API key.")
                                                             .Register(registry);
  prometheus::Family<prometheus::Counter>& responses = prometheus::BuildCounter()
                                                         .Name("troupe_http_responses_total")
                                                         .Help("HTTP responses, by status.")
                                                         .Register(registry);
  prometheus::Gauge& in_flight = prometheus::BuildGauge()
                                   .Name("troupe_requests_in_flight")
                                   .Help("Requests submitted and not ended.")
                                   .Register(registry)
                                   .Add({});
  prometheus::Gauge& connections =
    prometheus::BuildGauge().Name("troupe_connections").Help("Open connections.").Register(registry).Add({});
};

namespace {

/// Measures one request's events. The request counts as in flight until it ends or its sink is dropped.
class stopwatch {
public:
  explicit stopwatch(prometheus::Gauge& in_flight) : in_flight_(in_flight) { in_flight_.Increment(); }
  stopwatch(const stopwatch&) = delete;
  stopwatch& operator=(const stopwatch&) = delete;
  ~stopwatch() { end(); }

  /// Ends the request; false if it had ended before.
  bool end() {
    if (std::exchange(ended_, true))
      return false;
    in_flight_.Decrement();
    return true;
  }

  void see(const token_event& e, prometheus::Histogram& first, prometheus::Histogram& between) {
    if (!e.prompt.empty() && e.token_ids.empty())
      return; // it tells about the prompt alone
    const auto now = clock::now();
    if (last_.empty())
      first.Observe(seconds(now - start_));
    if (e.index >= last_.size())
      last_.resize(e.index + 1);
    auto& last = last_[e.index];
    const auto tokens = static_cast<double>(e.token_ids.size());
    // Tokens that arrive together were still generated one by one, so they share the gap.
    if (last != clock::time_point())
      for (std::size_t i = 0; i < e.token_ids.size(); ++i)
        between.Observe(seconds(now - last) / tokens);
    last = now;
  }
  double elapsed() const { return seconds(clock::now() - start_); }

private:
  prometheus::Gauge& in_flight_;
  bool ended_ = false;
  clock::time_point start_ = clock::now();
  std::vector<clock::time_point> last_; // by sequence
};

} // namespace

metrics::metrics(const service& engine) : engine_(engine), all_(std::make_shared<instruments>()) {
  for (const auto* outcome : {"stop", "length", "cancelled", "refused", "error"})
    all_->requests.Add({{"outcome", outcome}});
}

metrics::~metrics() = default;

service::event_sink metrics::measured(service::event_sink next) {
  return [all = all_, watch = std::make_shared<stopwatch>(all_->in_flight), next = std::move(next)](event e) {
    auto end = [&](const char* outcome) {
      if (!watch->end())
        return;
      all->whole.Observe(watch->elapsed());
      all->requests.Add({{"outcome", outcome}}).Increment();
    };
    if (const auto* token = std::get_if<token_event>(&e)) {
      watch->see(*token, all->first_token, all->between_tokens);
    } else if (const auto* done = std::get_if<done_event>(&e)) {
      all->queued.Observe(done->queue_ms / 1000);
      end(outcome_of(*done));
    } else {
      const auto code = std::get<error>(e).code;
      const bool refused = code == errc::overloaded || code == errc::bad_request || code == errc::unavailable;
      end(code == errc::cancelled ? "cancelled" : refused ? "refused" : "error");
    }
    next(std::move(e));
  };
}

void metrics::refused() { all_->requests.Add({{"outcome", "refused"}}).Increment(); }

void metrics::ended(const std::string& key, const key_usage& used) {
  all_->of_key.Add({{"key", key}, {"status", std::to_string(used.status)}}).Increment();
  all_->prompt_of_key.Add({{"key", key}}).Increment(static_cast<double>(used.prompt_tokens));
  all_->answer_of_key.Add({{"key", key}}).Increment(static_cast<double>(used.completion_tokens));
}

std::size_t metrics::in_flight() const { return static_cast<std::size_t>(all_->in_flight.Value()); }

void metrics::connection_opened() { all_->connections.Increment(); }

void metrics::connection_closed() { all_->connections.Decrement(); }

void metrics::answered(unsigned status) { all_->responses.Add({{"status", std::to_string(status)}}).Increment(); }

std::string metrics::text() const {
  auto all = all_->registry.Collect();
  all.push_back(family("troupe_ready", "1 once the model is loaded.", prometheus::MetricType::Gauge,
                       engine_.status().ready ? 1 : 0));
  const auto heap = ::mallinfo2();
  all.push_back(family("troupe_heap_bytes", "Memory allocated and not freed: the same before and after any request.",
                       prometheus::MetricType::Gauge, static_cast<double>(heap.uordblks + heap.hblkhd)));
  try {
    const auto engine = families(engine_.stats());
    all.insert(all.end(), engine.begin(), engine.end());
  } catch (const failure&) {
    // There are no counters before the model is loaded.
  }
  std::ostringstream out;
  prometheus::TextSerializer().Serialize(out, all);
  return out.str();
}

} // namespace troupe
