#include "actors/request.hpp"

#include "actors/spawn.hpp"
#include "runtime/loader.hpp"
#include "runtime/transcript.hpp"

#include <algorithm>
#include <chrono>

namespace troupe {

namespace {

using clock = std::chrono::steady_clock;

double milliseconds(clock::duration d) {
  return std::chrono::duration<double, std::milli>(d).count();
}

class request_state {
public:
  static constexpr const char* name = "request";

  request_state(request_actor::pointer self, engine_actor engine, std::uint64_t id, generation_ptr what,
                event_sink_ptr sink)
    : self_(self), id_(id), what_(std::move(what)), sink_(std::move(sink)), submitted_(self->clock().now()) {
    self_->set_down_handler([this](caf::down_msg&) {
      fail({errc::unavailable, "the engine stopped before this request was finished", {}});
    });
    self_->request(engine, caf::infinite, admit_atom::value, request_actor(self_))
      .then([this](const welcome_ptr& w) { begin(*w); },
            [this](caf::error&) { fail({errc::unavailable, "the engine has stopped", {}}); });
  }

  request_actor::behavior_type make_behavior() {
    return {
      [this](started_atom, std::int32_t cached) { started(cached); },
      [this](const sequence_id& id, const sampled_token& token) { take(id.index, token); },
      [this](const error& why) { fail(why); },
      [this](pause_atom, bool paused) { pause(paused); },
      [this](cancel_atom) { cancel(); },
      [this](timeout_atom) { time_out(); },
    };
  }

private:
  void begin(const welcome& w) {
    if (ended_)
      return;
    if (!w.model)
      return fail(w.why);
    auto& model = *w.model;
    auto params = what_->sampling;
    const auto room = model.info.max_context - std::ssize(what_->prompt);
    try {
      check_prompt(model);
      params.validate(static_cast<std::size_t>(model.info.vocab_size));
    } catch (const failure& f) {
      return fail(f.what_failed());
    }
    params.max_tokens = static_cast<int>(std::min<std::ptrdiff_t>(params.max_tokens, room));
    for (int i = 0; i < params.n; ++i)
      sequences_.emplace_back(static_cast<std::uint32_t>(i), model.info.tokenizer, *what_);
    if (cancelled_)
      return finish_all(finish_reason::cancelled);
    if (params.max_tokens == 0)
      return finish_all(finish_reason::length);
    timeout_ = what_->timeout.count() > 0 ? what_->timeout : model.request_timeout;
    if (timeout_.count() > 0)
      wait_for(timeout_);

    scheduler_ = w.scheduler;
    self_->monitor(scheduler_);
    admission a;
    a.request = id_;
    a.prompt = token_list(what_, &what_->prompt);
    a.params = std::make_shared<const sampling_params>(std::move(params));
    a.priority = what_->priority;
    self_->send(scheduler_, submit_atom::value, std::make_shared<const admission>(std::move(a)), request_actor(self_));
    if (paused_)
      self_->send(scheduler_, pause_atom::value, id_, true);
  }

  void check_prompt(const loaded_model& model) const {
    const auto& prompt = what_->prompt;
    if (prompt.empty())
      throw failure(errc::bad_request, "the prompt must have at least one token", "prompt");
    for (auto t : prompt)
      if (t < 0 || t >= model.info.vocab_size)
        throw failure(errc::bad_request, "the prompt names token " + std::to_string(t) + ", but the vocabulary has " +
                      std::to_string(model.info.vocab_size), "prompt");
    // Nothing is generated where max_tokens is 0, so the prompt alone has to fit.
    const auto least = std::ssize(prompt) + (what_->sampling.max_tokens > 0 ? 1 : 0);
    if (least > model.info.max_context)
      throw failure(errc::bad_request, "the prompt has " + std::to_string(prompt.size()) + " tokens, but the context of " +
                    std::to_string(model.info.max_context) + " must hold it and the answer", "prompt");
  }

  void started(std::int32_t cached) {
    started_ = self_->clock().now();
    cached_tokens_ = static_cast<std::uint32_t>(cached);
  }

  void take(std::uint32_t index, const sampled_token& token) {
    if (ended_ || index >= sequences_.size())
      return;
    last_token_ = self_->clock().now();
    if (!first_token_)
      first_token_ = last_token_;
    auto& sequence = sequences_[index];
    const bool was_running = !sequence.finished();
    if (auto event = sequence.push(token))
      (*sink_)(std::move(*event));
    if (was_running && sequence.stopped_by_text())
      self_->send(scheduler_, finish_atom::value, sequence_id{id_, index});
    if (std::all_of(sequences_.begin(), sequences_.end(), [](auto& s) { return s.finished(); }))
      done();
  }

  void pause(bool paused) {
    paused_ = paused;
    if (scheduler_)
      self_->send(scheduler_, pause_atom::value, id_, paused);
  }

  void cancel() {
    if (sequences_.empty())
      cancelled_ = true; // once it is known that the request makes sense
    else if (!ended_)
      finish_all(finish_reason::cancelled);
  }

  // CAF keeps an actor until the last message delayed for it is due. In short steps, what has ended does not stay for long.
  void wait_for(clock::duration left) {
    self_->delayed_send(self_, std::min<clock::duration>(left, std::chrono::seconds(10)), timeout_atom::value);
  }

  void time_out() {
    if (const auto left = submitted_ + timeout_ - self_->clock().now(); left.count() > 0)
      return wait_for(left);
    fail({errc::timeout, "the request was not finished within " + std::to_string(timeout_.count()) + " ms", "timeout"});
  }

  void finish_all(finish_reason why) {
    for (auto& s : sequences_)
      if (!s.finished())
        (*sink_)(s.cut(why));
    done();
  }

  void done() {
    const auto now = self_->clock().now();
    done_event e;
    for (auto& s : sequences_) {
      e.choices.push_back(s.summary());
      e.completion_tokens += e.choices.back().tokens;
    }
    e.prompt_tokens = static_cast<std::uint32_t>(what_->prompt.size());
    e.cached_tokens = cached_tokens_;
    const auto started = started_.value_or(first_token_.value_or(now));
    const auto first = first_token_.value_or(now);
    e.queue_ms = milliseconds(started - submitted_);
    e.prefill_ms = milliseconds(first - started);
    e.decode_ms = milliseconds(last_token_.value_or(first) - first);
    end(std::move(e));
  }

  void fail(error why) {
    if (!ended_)
      end(std::move(why));
  }

  void end(event last) {
    ended_ = true;
    (*sink_)(std::move(last));
    self_->quit();
  }

  request_actor::pointer self_;
  std::uint64_t id_;
  generation_ptr what_;
  event_sink_ptr sink_;
  scheduler_actor scheduler_;
  std::vector<transcript> sequences_;
  bool paused_ = false;
  bool cancelled_ = false; // before it was admitted
  bool ended_ = false;
  std::uint32_t cached_tokens_ = 0;
  std::chrono::milliseconds timeout_{0};
  clock::time_point submitted_;
  std::optional<clock::time_point> started_, first_token_, last_token_;
};

} // namespace

request_actor spawn_request(caf::actor_system& system, engine_actor engine, std::uint64_t id, generation_ptr what,
                            event_sink_ptr sink) {
  return spawn_state<request_actor, request_state>(system, std::move(engine), id, std::move(what), std::move(sink));
}

} // namespace troupe
