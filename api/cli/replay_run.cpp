#include "api/cli/replay_run.hpp"

#include "api/cli/terminal/console.hpp"
#include "api/openai/openai_response.hpp"
#include "api/openai/responses/response_store.hpp"
#include "api/record/recorder.hpp"
#include "api/server/endpoint.hpp"
#include "api/server/wire/websocket_frames.hpp"
#include "runtime/sampling/philox.hpp"
#include "runtime/support/json/json_object.hpp"
#include "runtime/support/text/number_text.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

namespace troupe::cli {

namespace {

using clock = std::chrono::steady_clock;

/// What was heard of the requests, shared with the sinks, which may outlive the run.
struct heard_queue {
  struct item {
    std::size_t request = 0, prompt = 0;
    clock::time_point at;
    event what;
  };
  std::mutex lock;
  std::vector<item> items;
};

/// Wakes a console at a time.
class alarm_clock {
public:
  explicit alarm_clock(console& whom) : thread_([this, &whom](const std::stop_token& stop) { run(whom, stop); }) {}

  void set(clock::time_point when) {
    const std::lock_guard lock(mutex_);
    due_ = when;
    wake_.notify_one();
  }

private:
  void run(console& whom, const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    while (!stop.stop_requested()) {
      if (!due_) {
        wake_.wait(lock, stop, [this] { return due_.has_value(); });
        continue;
      }
      const auto due = *due_;
      if (wake_.wait_until(lock, stop, due, [&] { return due_ != due; }) || stop.stop_requested())
        continue;
      due_.reset();
      whom.post(done_event{});
    }
  }

  std::mutex mutex_; // guards what follows
  std::condition_variable_any wake_;
  std::optional<clock::time_point> due_;
  std::jthread thread_;
};

/// Makes up a prompt that is not recorded, with as many tokens as it had: the same for the same request.
generation made_up(const recorded_prompt& was, std::uint64_t request, const served_model& model) {
  generation made;
  made.model = model.id;
  const auto most = static_cast<std::uint64_t>(std::max(model.vocab_size, 2));
  for (std::size_t i = 0; i < std::max<std::size_t>(was.tokens, 1); ++i)
    made.prompt.push_back(static_cast<token_id>(1 + random_bits(request, i, 0) % (most - 1)));
  made.sampling.n = static_cast<int>(std::max<std::size_t>(was.answers.size(), 1));
  made.sampling.max_tokens = 1;
  for (const auto& each : was.answers)
    made.sampling.max_tokens = std::max(made.sampling.max_tokens, static_cast<int>(each.tokens));
  made.sampling.ignore_eos = true;
  made.sampling.seed = was.seed;
  return made;
}

class replayer {
public:
  replayer(record_reader& record, service& models, const replay_rules& rules, console& terminal,
           const std::function<void(std::size_t)>& tell)
    : record_(record),
      models_(models),
      rules_(rules),
      terminal_(terminal),
      tell_(tell),
      alarm_(terminal),
      size_(rules.limit > 0 ? std::min(rules.limit, record.size()) : record.size()) {}

  replay_report run() {
    begun_ = clock::now();
    for (;;) {
      submit_due();
      if (running_.empty() && next_ == size_)
        break;
      if (running_.empty() && !waits_)
        continue;
      if (!terminal_.next_event()) {
        report_.interrupted = true;
        break;
      }
      take_events();
    }
    report_.now.seconds = std::chrono::duration<double>(last_end_ - begun_).count();
    report_.then.seconds = std::chrono::duration<double>(then_last_ - record_.arrival(0)).count();
    return std::move(report_);
  }

private:
  struct open_request {
    recorded_begin begin;
    std::optional<recorded_end> was;
    clock::time_point submitted;
    std::optional<clock::time_point> first = {};
    heard_answers answers = {};
    std::vector<std::uint64_t> seeds = {};
    std::vector<request_handle> handles = {};
    std::size_t open = 0, sequences = 0, tokens = 0;
    bool made_up = false;
    std::optional<error> failed = {};
  };

  void submit_due() {
    waits_ = false;
    while (next_ < size_) {
      if (rules_.speed > 0) {
        const std::chrono::duration<double, std::micro> since = std::chrono::duration<double, std::micro>(
                                                                  record_.arrival(next_) - record_.arrival(0)) /
          rules_.speed;
        constexpr std::chrono::duration<double, std::micro> longest = std::chrono::hours(24 * 3650);
        const auto due = begun_ + std::chrono::duration_cast<clock::duration>(std::min(since, longest));
        if (clock::now() < due) {
          alarm_.set(due);
          waits_ = true;
          return;
        }
      } else if (sequences_ >= rules_.most) {
        return;
      }
      const auto number = next_++;
      try {
        begin(number);
      } catch (const failure& f) {
        ++report_.refused[f.what()];
        tell_(++ended_);
      }
    }
  }

  void begin(std::size_t number) {
    open_request one{record_.begin(number), record_.end(number), {}};
    std::vector<generation> prompts;
    if (one.was && one.was->status != 200) {
      ++report_.refused_then;
      tell_(++ended_);
      return;
    }
    if (one.begin.body.empty() && one.was) {
      one.made_up = true;
      const auto model = named(one.was->model);
      for (const auto& each : one.was->prompts)
        prompts.push_back(made_up(each, one.begin.number, *model));
    } else {
      prompts = parse(one.begin);
      for (std::size_t i = 0; i < prompts.size(); ++i) {
        if (one.was && i < one.was->prompts.size()) {
          prompts[i].sampling.seed = one.was->prompts[i].seed;
          prompts[i].sampling.max_tokens = one.was->prompts[i].max_tokens;
        }
        prompts[i].sampling.logprobs = std::max(prompts[i].sampling.logprobs, 0);
      }
    }
    one.open = prompts.size();
    for (const auto& each : prompts)
      one.sequences += static_cast<std::size_t>(each.sampling.width());
    sequences_ += one.sequences;
    one.submitted = clock::now();
    auto& open = running_.emplace(number, std::move(one)).first->second;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      prompts[i].client = open.begin.client;
      open.handles.push_back(
        models_.submit(std::move(prompts[i]), [queue = heard_, number, i, &terminal = terminal_](event e) {
          bool first = false;
          {
            const std::scoped_lock hold(queue->lock);
            first = queue->items.empty();
            queue->items.push_back({number, i, clock::now(), std::move(e)});
          }
          if (first)
            terminal.post(done_event{}); // wakes it
        }));
    }
    if (open.open == 0)
      end(number, open, open.submitted);
  }

  std::shared_ptr<const served_model> named(const std::string& name) const {
    auto model = models_.find(name);
    return model ? model : models_.find({});
  }

  std::vector<generation> parse(const recorded_begin& what) {
    std::vector<generation> prompts;
    std::shared_ptr<const served_model> model;
    if (what.endpoint == "/v1/ws") {
      client_frame frame;
      try {
        frame = parse_frame(what.body);
      } catch (const bad_frame& bad) {
        throw failure(bad.why.code, bad.why.message, bad.why.param);
      }
      model = named(std::string(field_reader(frame.body->root()).text("model").value_or("")));
      auto made = parse_frame_body(frame, *model);
      prompts = std::move(made.prompts);
    } else {
      const auto found = find_endpoint("POST", what.endpoint);
      const auto* to = std::get_if<found_endpoint>(&found);
      const auto* makes = to ? std::get_if<generated>(&to->row->what) : nullptr;
      if (!makes)
        throw failure(errc::unsupported, "nothing is generated at " + what.endpoint);
      const auto document = json::document::parse(what.body, "the body", errc::bad_request);
      const field_reader body(document.root());
      model = named(std::string(body.text("model").value_or("")));
      prompts = std::move(makes->parsed_by({body, model, stored_, 0, what.client}).prompts);
    }
    for (auto& each : prompts)
      if (!rules_.policy.is_empty())
        apply_policy(rules_.policy.of({}), *model, each);
    return prompts;
  }

  void take_events() {
    std::vector<heard_queue::item> items;
    {
      const std::scoped_lock hold(heard_->lock);
      items.swap(heard_->items);
    }
    for (auto& [number, prompt, at, what] : items) {
      const auto found = running_.find(number);
      if (found == running_.end())
        continue;
      auto& one = found->second;
      one.answers.hear(prompt, what);
      if (const auto* token = std::get_if<token_event>(&what)) {
        one.tokens += token->token_ids.size();
        if (!one.first && !token->token_ids.empty())
          one.first = at;
        continue;
      }
      if (auto* why = std::get_if<error>(&what); why && !one.failed) {
        one.failed = std::move(*why);
        for (auto& handle : one.handles)
          handle.cancel();
      }
      if (--one.open == 0)
        end(number, one, at);
    }
  }

  void end(std::size_t number, open_request& one, clock::time_point at) {
    last_end_ = std::max(last_end_, at);
    sequences_ -= one.sequences;
    if (one.failed) {
      ++report_.refused[one.failed->message];
    } else {
      ++report_.replayed;
      compare_with_record(number, one);
      if (one.was)
        measure(number, one, at);
    }
    running_.erase(number);
    tell_(++ended_);
  }

  void compare_with_record(std::size_t number, const open_request& one) {
    if (one.made_up || !one.was) {
      ++report_.not_compared;
      return;
    }
    const auto found = compare(one.was->prompts, one.answers.prompts(true));
    report_.tokens += found.tokens;
    report_.largest = std::max(report_.largest, found.largest);
    if (!found.first) {
      ++report_.equal;
      return;
    }
    ++report_.differing;
    if (report_.first && report_.first->request <= number + 1)
      return;
    const auto model = named(one.was->model);
    const auto shown = [&](const std::optional<token_id>& id) {
      return id && model->decode ? model->decode(std::vector{*id}, false) : std::string();
    };
    report_.first = {
      number + 1, one.begin.id, one.begin.endpoint, *found.first, shown(found.first->was), shown(found.first->is)};
  }

  void measure(std::size_t number, const open_request& one, clock::time_point at) {
    const auto add = [&](replay_times& to, double ttft, double whole, std::size_t tokens) {
      const auto tpot = tokens > 1 ? (whole - ttft) / static_cast<double>(tokens - 1) : 0;
      to.ttft.push_back(ttft);
      if (tokens > 1)
        to.tpot.push_back(tpot);
      to.tokens += tokens;
      to.good += ttft <= rules_.ttft_goal_ms && tpot <= rules_.tpot_goal_ms;
    };
    std::size_t then_tokens = 0;
    for (const auto& prompt : one.was->prompts)
      for (const auto& answer : prompt.answers)
        then_tokens += answer.tokens;
    const auto then_first = one.was->first.count() > 0 ? one.was->first : one.was->at;
    const std::chrono::duration<double, std::milli> was_ttft = then_first - one.begin.at,
                                                    was = one.was->at - one.begin.at;
    add(report_.then, was_ttft.count(), was.count(), then_tokens);
    then_last_ = std::max(then_last_, record_.arrival(number) + (one.was->at - one.begin.at));
    const std::chrono::duration<double, std::milli> ttft = one.first.value_or(at) - one.submitted,
                                                    whole = at - one.submitted;
    add(report_.now, ttft.count(), whole.count(), one.tokens);
  }

  record_reader& record_;
  service& models_;
  const replay_rules& rules_;
  console& terminal_;
  const std::function<void(std::size_t)>& tell_;
  response_store stored_{0, 0};
  std::shared_ptr<heard_queue> heard_ = std::make_shared<heard_queue>();
  alarm_clock alarm_;
  std::map<std::size_t, open_request> running_;
  const std::size_t size_;
  std::size_t next_ = 0, ended_ = 0, sequences_ = 0;
  bool waits_ = false; // for the time of the next one
  clock::time_point begun_, last_end_;
  record_time then_last_{};
  replay_report report_;
};

double quantile(std::vector<double> values, double q) {
  if (values.empty())
    return 0;
  std::ranges::sort(values);
  return values[std::min(values.size() - 1, static_cast<std::size_t>(q * static_cast<double>(values.size())))];
}

std::string what_differs(const replay_report::first_difference& first) {
  using kind = record_difference::kind;
  const auto& d = first.what;
  const auto where = "prompt " + std::to_string(d.prompt) + ", answer " + std::to_string(d.answer);
  const auto token = [](const std::optional<token_id>& id, const std::string& text, float logprob) {
    return id ? std::to_string(*id) + " " + json_text(text) + " (log-probability " + to_general(logprob, 9) + ")"
              : std::string("the end");
  };
  switch (d.what) {
    case kind::prompts: return "prompt " + std::to_string(d.prompt) + " has other tokens";
    case kind::values:
      return "prompt " + std::to_string(d.prompt) + " has an embedding or log-probabilities of other bits";
    default:
      return where + ", token " + std::to_string(d.token) + ": recorded " + token(d.was, first.was, d.was_logprob) +
        ", now " + token(d.is, first.is, d.is_logprob);
  }
}

} // namespace

replay_report replay(record_reader& record, service& models, const replay_rules& rules, console& terminal,
                     const std::function<void(std::size_t)>& tell) {
  return replayer(record, models, rules, terminal, tell).run();
}

std::string text_of(const replay_report& r, const replay_rules& rules) {
  std::string text = std::to_string(r.replayed) + " requests answered: " + std::to_string(r.equal) + " as recorded (" +
    std::to_string(r.tokens) + " tokens and the bits of their log-probabilities)";
  const auto add = [&](std::size_t count, const char* what) {
    if (count > 0)
      text += ", " + std::to_string(count) + what;
  };
  add(r.differing, " otherwise");
  add(r.not_compared, " not compared, as what they said is not recorded");
  add(r.refused_then, " left out, as they were refused or broken off then");
  text += "\n";
  for (const auto& [why, count] : r.refused)
    text += std::to_string(count) + " refused now: " + why + "\n";
  if (r.first)
    text += "The first that differs is request " + std::to_string(r.first->request) + " (" + r.first->id + ", " +
      r.first->endpoint + "): " + what_differs(*r.first) + "\n";
  if (r.differing > 0)
    text += "Log-probabilities of tokens that were the same differ by at most " + to_general(r.largest, 3) + "\n";
  const auto row = [&](const char* what, const std::vector<double>& then, const std::vector<double>& now) {
    for (const auto& [name, q] : {std::pair("p50", 0.5), std::pair("p99", 0.99)})
      text += std::string(what) + " " + name + ": " + to_fixed(quantile(now, q), 1) + " ms (recorded " +
        to_fixed(quantile(then, q), 1) + ")\n";
  };
  if (r.now.ttft.empty())
    return text;
  row("Time to first token", r.then.ttft, r.now.ttft);
  row("Time between tokens", r.then.tpot, r.now.tpot);
  const auto rate = [](const replay_times& of, std::size_t count) {
    return of.seconds > 0 ? static_cast<double>(count) / of.seconds : 0;
  };
  text += "Tokens a second: " + to_fixed(rate(r.now, r.now.tokens), 1) + " (recorded " +
    to_fixed(rate(r.then, r.then.tokens), 1) + ")\n";
  text += "Goodput, first token within " + to_general(rules.ttft_goal_ms) + " ms and " +
    to_general(rules.tpot_goal_ms) + " ms between tokens: " + to_fixed(rate(r.now, r.now.good), 2) +
    " requests a second (recorded " + to_fixed(rate(r.then, r.then.good), 2) + ")\n";
  return text;
}

std::string json_of(const replay_report& r) {
  json_object o;
  o.number("answered", r.replayed).number("equal", r.equal).number("differing", r.differing);
  o.number("not_compared", r.not_compared).number("refused_then", r.refused_then).number("tokens", r.tokens);
  o.number("largest_difference", r.largest);
  json_object refused;
  for (const auto& [why, count] : r.refused)
    refused.number(why, count);
  o.object("refused", refused);
  if (r.first)
    o.object("first",
             json_object()
               .number("request", r.first->request)
               .text("id", r.first->id)
               .text("endpoint", r.first->endpoint)
               .number("prompt", r.first->what.prompt)
               .number("answer", r.first->what.answer)
               .number("token", r.first->what.token)
               .text("difference", what_differs(*r.first)));
  for (const auto& [name, of] : {std::pair("recorded", &r.then), std::pair("now", &r.now)})
    o.object(name,
             json_object()
               .number("ttft_ms_p50", quantile(of->ttft, 0.5))
               .number("ttft_ms_p99", quantile(of->ttft, 0.99))
               .number("tpot_ms_p50", quantile(of->tpot, 0.5))
               .number("tpot_ms_p99", quantile(of->tpot, 0.99))
               .number("seconds", of->seconds)
               .number("tokens", of->tokens)
               .number("good", of->good));
  return o.str();
}

} // namespace troupe::cli
