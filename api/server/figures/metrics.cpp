#include "api/server/figures/metrics.hpp"

#include "api/server/figures/process_metrics.hpp"
#include "runtime/support/text/number_text.hpp"
#include "runtime/support/text/utf8.hpp"
#include "runtime/techniques/technique.hpp"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <utility>
#include <vector>

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
    if (choice.reason == finish_reason::length || choice.reason == finish_reason::timeout)
      result = choice.reason == finish_reason::length ? "length" : "timeout";
  }
  return result;
}

prometheus::MetricFamily gauge_family(const char* name, const std::string& help, double value) {
  prometheus::ClientMetric metric;
  metric.gauge.value = value;
  return {name, help, prometheus::MetricType::Gauge, {metric}};
}

/// What is served, as labels to join others with.
prometheus::MetricFamily model_family(const service& engine) {
  prometheus::MetricFamily family{
    "troupe_model_info", "1 for each model that is loaded.", prometheus::MetricType::Gauge, {}};
  for (const auto& model : engine.models()) {
    prometheus::ClientMetric metric;
    metric.gauge.value = 1;
    metric.label = {
      {"model", to_utf8(model->id)}, {"family", model->family}, {"weights", model->weights}, {"device", model->device}};
    family.metric.push_back(std::move(metric));
  }
  return family;
}

/// Adds which of several models are loaded, and what they take.
void add_known(const service& engine, std::vector<prometheus::MetricFamily>& to) {
  prometheus::MetricFamily loaded{
    "troupe_model_loaded", "1 for each model that is loaded, 0 for the others.", prometheus::MetricType::Gauge, {}};
  prometheus::MetricFamily bytes{"troupe_model_memory_bytes",
                                 "Memory of each model that is loaded, for its weights and its KV cache.",
                                 prometheus::MetricType::Gauge,
                                 {}};
  const auto add = [](prometheus::MetricFamily& family, double value,
                      std::vector<prometheus::ClientMetric::Label> labels) {
    prometheus::ClientMetric metric;
    metric.gauge.value = value;
    metric.label = std::move(labels);
    family.metric.push_back(std::move(metric));
  };
  for (const auto& one : engine.known()) {
    const auto name = to_utf8(one.name);
    add(loaded, one.model ? 1 : 0, {{"model", name}});
    if (!one.model)
      continue;
    add(bytes, static_cast<double>(one.model->weight_bytes), {{"model", name}, {"kind", "weights"}});
    add(bytes, static_cast<double>(one.model->kv_cache_bytes), {{"model", name}, {"kind", "kv_cache"}});
  }
  to.push_back(std::move(loaded));
  if (!bytes.metric.empty())
    to.push_back(std::move(bytes));
}

/// What the replicas of engines count: each number under its name, once for each replica.
class replica_families {
public:
  /// `model`: empty where there is one.
  void add(const engine_stats& all, const std::string& model) {
    several_ = all.replicas.size() > 1;
    model_ = model;
    for (const auto& each : all.replicas)
      add(each);
  }

  std::vector<prometheus::MetricFamily> collect() { return std::move(families_); }

private:
  void add(const replica_stats& of) {
    replica_ = std::to_string(of.number);
    for_each_statistic(
      of, [this](const statistic_info& about, std::uint64_t value) { add(about, static_cast<double>(value)); });
    const auto looked_up = static_cast<double>(of.blocks.looked_up_tokens);
    add_gauge("troupe_prefix_cache_hit_rate",
              "Share of the tokens looked up that the prefix cache had, since the start.",
              looked_up > 0 ? static_cast<double>(of.blocks.found_tokens) / looked_up : 0);
    add(of.scheduler.cost);
  }

  void add(const step_cost_summary& cost) {
    add_gauge("troupe_measured_steps", "Steps that the expected times are from.", static_cast<double>(cost.steps));
    if (cost.steps == 0)
      return;
    for (std::size_t i = 0; i < cost.knots.size(); ++i)
      add_gauge("troupe_step_expected_seconds",
                "Measured time of a step with this many rows, without context and logits.", cost.knot_ms[i] / 1e3,
                {{"rows", std::to_string(cost.knots[i])}});
    add_gauge("troupe_step_logit_row_seconds", "What each row with logits adds.", cost.logit_row_ms / 1e3);
    add_gauge("troupe_step_attended_position_seconds", "What each position adds that a row attends to.",
              cost.attended_ms / 1e3);
    add_gauge("troupe_step_read_position_seconds", "What each position adds whose K and V a sequence reads.",
              cost.read_ms / 1e3);
    add_gauge("troupe_step_time_error_ratio", "Mean error of the expected times of recent steps.", cost.error);
  }

  void add_gauge(const char* name, const char* help, double value,
                 std::vector<prometheus::ClientMetric::Label> labels = {}) {
    add({statistic_info::kind::gauge, name, help}, value, std::move(labels));
  }

  void add(const statistic_info& about, double value, std::vector<prometheus::ClientMetric::Label> labels = {}) {
    const bool counts = about.what == statistic_info::kind::counter;
    prometheus::ClientMetric metric;
    (counts ? metric.counter.value : metric.gauge.value) = value;
    metric.label = std::move(labels);
    if (!model_.empty())
      metric.label.push_back({"model", model_});
    if (several_)
      metric.label.push_back({"replica", replica_});
    auto known = std::ranges::find(families_, about.name, &prometheus::MetricFamily::name);
    if (known == families_.end())
      known = families_.insert(
        known, {about.name, about.help, counts ? prometheus::MetricType::Counter : prometheus::MetricType::Gauge, {}});
    known->metric.push_back(std::move(metric));
  }

  bool several_ = false;
  std::string model_, replica_; // that are being added
  std::vector<prometheus::MetricFamily> families_;
};

} // namespace

struct metrics::instruments {
  prometheus::Registry registry;
  prometheus::Family<prometheus::Histogram>& first_token = prometheus::BuildHistogram()
                                                             .Name("troupe_time_to_first_token_seconds")
                                                             .Help("From submission to the first token.")
                                                             .Register(registry);
  prometheus::Family<prometheus::Histogram>& between_tokens = prometheus::BuildHistogram()
                                                                .Name("troupe_inter_token_seconds")
                                                                .Help("Between the tokens of one sequence.")
                                                                .Register(registry);
  prometheus::Family<prometheus::Histogram>& queued = prometheus::BuildHistogram()
                                                        .Name("troupe_queue_seconds")
                                                        .Help("From submission to the first planned step.")
                                                        .Register(registry);
  prometheus::Family<prometheus::Histogram>& whole =
    prometheus::BuildHistogram().Name("troupe_request_seconds").Help("From submission to the end.").Register(registry);
  prometheus::Family<prometheus::Histogram>& spent =
    prometheus::BuildHistogram()
      .Name("troupe_request_spent_seconds")
      .Help("Where the time of requests went, from their arrival to the end of the answer, by cause and outcome.")
      .Register(registry);
  prometheus::Family<prometheus::Counter>& requests =
    prometheus::BuildCounter().Name("troupe_requests_total").Help("Requests ended, by outcome.").Register(registry);
  prometheus::Counter& text_bytes = prometheus::BuildCounter()
                                      .Name("troupe_text_bytes_total")
                                      .Help("Bytes of text in answers, whatever the tokenizer.")
                                      .Register(registry)
                                      .Add({});
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
  prometheus::Counter& policy_refusals = prometheus::BuildCounter()
                                           .Name("troupe_policy_refusals_total")
                                           .Help("Requests that asked for more than the server's policy allows.")
                                           .Register(registry)
                                           .Add({});
  prometheus::Counter& policy_hits =
    prometheus::BuildCounter()
      .Name("troupe_policy_withheld_tokens_total")
      .Help("Tokens of answers in whose place the model preferred one that completes a banned text.")
      .Register(registry)
      .Add({});
  prometheus::Counter& policy_filtered =
    prometheus::BuildCounter()
      .Name("troupe_policy_filtered_answers_total")
      .Help("Answers ended because what their client reads as one text would have held a banned one.")
      .Register(registry)
      .Add({});
  prometheus::Gauge& in_flight = prometheus::BuildGauge()
                                   .Name("troupe_requests_in_flight")
                                   .Help("Requests submitted and not ended.")
                                   .Register(registry)
                                   .Add({});
  prometheus::Gauge& connections =
    prometheus::BuildGauge().Name("troupe_connections").Help("Open connections.").Register(registry).Add({});
};

namespace {

using labels = std::map<std::string, std::string>;

/// `more`, and the model where there are several.
labels labels_of(const std::string& model, labels more = {}) {
  if (!model.empty())
    more.emplace("model", model);
  return more;
}

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

metrics::metrics(const service& engine, std::chrono::milliseconds every)
  : engine_(engine), several_(engine.is_plural()), figures_(every), all_(std::make_shared<instruments>()) {
  std::vector<std::string> models{""};
  if (several_) {
    models.clear();
    for (const auto& one : engine.known())
      models.push_back(to_utf8(one.name));
  }
  for (const auto& model : models) {
    for (const auto* outcome : {"stop", "length", "timeout", "cancelled", "refused", "error"})
      all_->requests.Add(labels_of(model, {{"outcome", outcome}}));
    for (auto* family : {&all_->first_token, &all_->queued, &all_->whole})
      family->Add(labels_of(model), waits);
    all_->between_tokens.Add(labels_of(model), gaps);
  }
}

metrics::~metrics() = default;

service::event_sink metrics::measured(service::event_sink next, const std::string& model) {
  const auto of = several_ ? to_utf8(model) : std::string();
  const auto its = labels_of(of);
  struct histograms {
    prometheus::Histogram &first_token, &between_tokens, &queued, &whole;
  };
  const histograms measured{all_->first_token.Add(its, waits), all_->between_tokens.Add(its, gaps),
                            all_->queued.Add(its, waits), all_->whole.Add(its, waits)};
  return
    [all = all_, measured, of, watch = std::make_shared<stopwatch>(all_->in_flight), next = std::move(next)](event e) {
      auto end = [&](const char* outcome) {
        if (!watch->end())
          return;
        measured.whole.Observe(watch->elapsed());
        all->requests.Add(labels_of(of, {{"outcome", outcome}})).Increment();
      };
      if (const auto* token = std::get_if<token_event>(&e)) {
        watch->see(*token, measured.first_token, measured.between_tokens);
        all->text_bytes.Increment(static_cast<double>(token->text.size()));
      } else if (const auto* done = std::get_if<done_event>(&e)) {
        measured.queued.Observe(done->queue_ms / 1000);
        all->policy_hits.Increment(done->withheld_tokens);
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

void metrics::refused_by_policy() { all_->policy_refusals.Increment(); }

std::function<void()> metrics::counter_of_filtered() const {
  return [all = all_] { all->policy_filtered.Increment(); };
}

void metrics::ended(const std::string& key, const key_usage& used) {
  all_->of_key.Add({{"key", key}, {"status", std::to_string(used.status)}}).Increment();
  all_->prompt_of_key.Add({{"key", key}}).Increment(static_cast<double>(used.prompt_tokens));
  all_->answer_of_key.Add({{"key", key}}).Increment(static_cast<double>(used.completion_tokens));
}

void metrics::spent(const std::string& model, const char* outcome, const wait_parts& parts) {
  const auto of = several_ ? to_utf8(model) : std::string();
  for (std::size_t i = 0; i < wait_causes; ++i)
    if (const auto ms = parts.ms[i]; ms > 0)
      all_->spent
        .Add(labels_of(of, {{"cause", std::string(name_of(static_cast<wait_cause>(i)))}, {"outcome", outcome}}), waits)
        .Observe(ms / 1000);
}

std::size_t metrics::in_flight() const { return static_cast<std::size_t>(all_->in_flight.Value()); }

void metrics::connection_opened() { all_->connections.Increment(); }

void metrics::connection_closed() { all_->connections.Decrement(); }

void metrics::answered(unsigned status) { all_->responses.Add({{"status", std::to_string(status)}}).Increment(); }

std::string metrics::text() const {
  auto all = all_->registry.Collect();
  const auto status = engine_.status();
  all.push_back(gauge_family("troupe_ready", "1 once the model is loaded.", status.ready ? 1 : 0));
  all.push_back(gauge_family(
    "troupe_degraded", "1 if a replica or the " + names_of_judges() + " has failed for good, or fails again and again.",
    status.degraded.empty() ? 0 : 1));
  all.push_back(model_family(engine_));
  const auto heap = ::mallinfo2();
  all.push_back(gauge_family("troupe_heap_bytes",
                             "Memory allocated and not freed: the same before and after any request.",
                             static_cast<double>(heap.uordblks + heap.hblkhd)));
  const auto process = process_families();
  all.insert(all.end(), process.begin(), process.end());
  if (several_)
    add_known(engine_, all);
  replica_families counters;
  std::vector<std::string> loaded{""};
  if (several_) {
    loaded.clear();
    for (const auto& one : engine_.models())
      loaded.push_back(one->id);
  }
  for (const auto& model : loaded)
    try {
      counters.add(engine_.stats_of(model), to_utf8(model));
    } catch (const failure&) {
      // There are no counters before the model is loaded.
    }
  const auto engine = counters.collect();
  all.insert(all.end(), engine.begin(), engine.end());
  classic<std::ostringstream> out;
  prometheus::TextSerializer().Serialize(out, all);
  return out.str();
}

bool metrics::keep_figures() {
  if (!engine_.status().ready)
    return false;
  figures_.add(text(), std::chrono::system_clock::now());
  return true;
}

} // namespace troupe
