// A service driven by the test: requests wait here, and the test sends their events. Every byte is a token of its
// model.
#pragma once

#include "api/service/chat_input.hpp"
#include "api/service/service.hpp"
#include "runtime/chat/chat_template.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <stdexcept>
#include <utility>

namespace troupe::test {

inline constexpr auto patience = std::chrono::seconds(300);
inline constexpr token_id bos = 256; // decodes to <s>, or to nothing without special tokens

inline std::shared_ptr<served_model> byte_model(int max_context = 200) {
  auto model = std::make_shared<served_model>();
  model->id = "org/bytes";
  model->vocab_size = 257;
  model->max_context = max_context;
  model->bos_token = "<s>";
  model->hidden = 4;
  model->encode = [](std::string_view text, bool special) {
    std::vector<token_id> ids;
    if (special)
      ids.push_back(bos);
    for (const unsigned char c : text)
      ids.push_back(c);
    return ids;
  };
  model->encode_cut = [encode = model->encode](std::string_view text, std::size_t most) {
    return encode(text.substr(0, most - 1), true);
  };
  model->encode_plain = [](std::string_view text) { return std::vector<token_id>(text.begin(), text.end()); };
  model->decode = [](std::span<const token_id> ids, bool skip_special) {
    std::string text;
    for (const auto id : ids)
      text += id != bos ? std::string(1, static_cast<char>(id)) : skip_special ? "" : "<s>";
    return text;
  };
  model->token_bytes = [](token_id id) { return id == bos ? "<s>" : std::string(1, static_cast<char>(id)); };
  model->render = [](const chat_input& chat) {
    const auto member = [](const jinja::value& of, std::string_view key) {
      const auto* found = of.map().find(key);
      return found ? *found : jinja::value();
    };
    std::string prompt;
    if (!chat.tools.is_none())
      for (const auto& tool : chat.tools.seq().items)
        prompt += "tool " + member(member(tool, "function"), "name").str() + '\n';
    for (const auto& [name, value] : chat.variables.entries())
      prompt += name.str() + '\n';
    for (const auto& message : chat.messages.seq().items) {
      const auto role = member(message, "role").str();
      const auto content = member(message, "content");
      if (content.is_string() && content.str() == "raise")
        throw failure(errc::bad_request, "`messages`: the template raises", "messages");
      prompt += role + ": " + (content.is_string() ? content.str() : "") + '\n';
    }
    return chat.add_generation_prompt ? prompt + "assistant:" : prompt;
  };
  return model;
}

/// One submitted request, from the engine's side.
class fake_request {
public:
  fake_request(generation asked, service::event_sink sink) : asked(std::move(asked)), sink_(std::move(sink)) {}

  const generation asked;
  const std::shared_ptr<request_ledger> ledger = std::make_shared<request_ledger>(std::chrono::steady_clock::now());

  void send(event e) {
    if (!std::holds_alternative<token_event>(e))
      ledger->close(std::chrono::steady_clock::now());
    sink_(std::move(e));
  }
  void text(std::string text, std::uint32_t index = 0) {
    token_event e;
    e.index = index;
    e.position = position_[index];
    for (const unsigned char c : text)
      e.token_ids.push_back(c);
    position_[index] += static_cast<std::uint32_t>(text.size());
    ledger->generated(text.size());
    e.text = std::move(text);
    send(std::move(e));
  }
  /// Two events with the prompt's log-probabilities and as many alternatives as were asked for.
  void score_prompt() {
    const auto half = asked.prompt.size() / 2;
    for (const auto& [first, end] : {std::pair(std::size_t(0), half), std::pair(half, asked.prompt.size())}) {
      token_event e;
      for (auto i = first; i < end; ++i) {
        auto& token = e.prompt.emplace_back(sampled_token{asked.prompt[i], i == 0 ? 0.f : -1.5f});
        for (int k = 0; i > 0 && k < asked.sampling.prompt_logprobs; ++k)
          token.top.push_back({static_cast<token_id>(k), -0.5f - static_cast<float>(k)});
      }
      if (end == asked.prompt.size() && asked.sampling.scores_only())
        e.finish = finish_reason::length;
      if (!e.prompt.empty())
        send(std::move(e));
    }
  }
  void finish(finish_reason reason = finish_reason::stop, std::uint32_t index = 0) {
    token_event e;
    e.index = index;
    e.position = position_[index];
    e.finish = reason;
    send(std::move(e));
  }
  void done(finish_reason reason = finish_reason::stop) {
    done_event e;
    for (int i = 0; i < asked.sampling.n; ++i) {
      const auto index = static_cast<std::uint32_t>(i);
      e.choices.push_back({index, reason, position_[index]});
      e.completion_tokens += position_[index];
    }
    e.prompt_tokens = static_cast<std::uint32_t>(asked.prompt.size());
    e.cached_tokens = 1;
    e.queue_ms = 0.5;
    e.prefill_ms = 2;
    e.decode_ms = 4.25;
    e.total_ms = 6.75;
    e.spent[wait_cause::queue] = 0.5, e.spent[wait_cause::prefill] = 2, e.spent[wait_cause::decode] = 4.25;
    e.accepted_guesses = 3;
    e.rejected_guesses = 2;
    send(std::move(e));
  }

  bool wait_cancelled() {
    return wait([this] { return cancelled_; });
  }
  bool wait_finished() {
    return wait([this] { return finished_; });
  }
  bool wait_paused() {
    return wait([this] { return paused_; });
  }
  bool wait_resumed() {
    return wait([this] { return !paused_; });
  }
  bool cancelled() {
    return check([this] { return cancelled_; });
  }
  bool paused() {
    return check([this] { return paused_; });
  }

  std::atomic<bool> no_memory_to_pause = false;

private:
  friend class fake_control;
  template <class F>
  bool wait(F condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, condition);
  }
  template <class F>
  bool check(F condition) {
    const std::lock_guard lock(mutex_);
    return condition();
  }
  void set(bool& flag, bool value) {
    const std::lock_guard lock(mutex_);
    flag = value;
    changed_.notify_all();
  }

  service::event_sink sink_;
  std::map<std::uint32_t, std::uint32_t> position_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool cancelled_ = false, paused_ = false, finished_ = false;
};

class fake_control : public request_control {
public:
  explicit fake_control(std::shared_ptr<fake_request> request) : request_(std::move(request)) {}
  void cancel() override { request_->set(request_->cancelled_, true); }
  void finish() override { request_->set(request_->finished_, true); }
  std::shared_ptr<const request_ledger> ledger() const override { return request_->ledger; }
  void pause(bool paused) override {
    request_->set(request_->paused_, paused);
    if (request_->no_memory_to_pause)
      throw std::bad_alloc();
  }

private:
  std::shared_ptr<fake_request> request_;
};

class fake_service : public service {
public:
  std::shared_ptr<served_model> served = byte_model();
  std::size_t replicas = 1; // that stats() tells of

  void set_loading() { set_status({false, "loading", 2, 8, "reading weights"}); }
  void set_failed() { set_status({false, "failed", 8, 8, "the device is lost"}); }
  service_status status() const override {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  std::vector<std::shared_ptr<const served_model>> models() const override {
    if (!status().ready)
      return {};
    return {served};
  }
  request_handle submit(generation request, event_sink sink) override {
    const std::lock_guard lock(mutex_);
    if (std::exchange(short_of_memory_, false))
      throw std::bad_alloc();
    auto made = std::make_shared<fake_request>(std::move(request), std::move(sink));
    submitted_.push_back(made);
    arrived_.notify_all();
    return request_handle(std::make_shared<fake_control>(made));
  }
  engine_stats stats() const override {
    if (!status().ready)
      throw failure(errc::unavailable, "still loading");
    replica_stats one;
    auto& s = one.scheduler;
    s.running = 3, s.prompt_tokens = 10, s.step_rows = 96;
    s.cost.steps = 12, s.cost.knot_ms[0] = 62.5, s.cost.knot_ms[6] = 250;
    s.cost.logit_row_ms = 125, s.cost.attended_ms = 31.25, s.cost.read_ms = 15.625, s.cost.error = 0.125;
    s.guess_runs = 11, s.guessed_tokens = 44, s.accepted_tokens = 33;
    auto& b = one.blocks;
    b.looked_up_tokens = 10, b.found_tokens = 4;
    b.host_total = 8, b.host_in_use = 7, b.swapped_out = 6, b.swapped_in = 5;
    std::vector<replica_stats> all(replicas, one);
    for (std::size_t i = 0; i < replicas; ++i)
      all[i].number = static_cast<int>(i);
    return in_all(std::move(all));
  }

  std::string map;                               // of the blocks that look() tells of
  std::shared_ptr<const step_record> first_step; // told to whoever begins to watch, if there is one

  std::shared_ptr<const void> watch(step_sink sink) const override {
    const auto made = std::make_shared<const step_sink>(std::move(sink));
    if (first_step)
      (*made)(first_step);
    const std::lock_guard lock(mutex_);
    watchers_.push_back(made);
    return made;
  }
  std::shared_ptr<const void> watch_model(std::string_view name, step_sink sink) const override {
    if (!name.empty() && name != served->id)
      throw failure(errc::not_found, "the model `" + std::string(name) + "` does not exist", "model");
    return watch(std::move(sink));
  }
  engine_snapshot look() const override { return {{{0, 0, map.size(), map}}, {}}; }
  engine_snapshot look_at(std::string_view name) const override {
    auto result = look();
    result.replicas.front().number = name.empty() ? 0 : 7;
    return result;
  }
  std::size_t watchers() const {
    const std::lock_guard lock(mutex_);
    return static_cast<std::size_t>(std::ranges::count_if(watchers_, [](const auto& each) { return !each.expired(); }));
  }
  void tell_step(const std::shared_ptr<const step_record>& record) {
    const std::lock_guard lock(mutex_);
    for (const auto& each : watchers_)
      if (const auto sink = each.lock())
        (*sink)(record);
  }

  /// Makes the next submission fail.
  void run_short_of_memory() {
    const std::lock_guard lock(mutex_);
    short_of_memory_ = true;
  }

  /// The next submitted request, in order.
  std::shared_ptr<fake_request> next() {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, patience, [this] { return !submitted_.empty(); }))
      throw std::runtime_error("nothing was submitted");
    auto result = submitted_.front();
    submitted_.pop_front();
    return result;
  }
  bool nothing_submitted() {
    const std::lock_guard lock(mutex_);
    return submitted_.empty();
  }

private:
  void set_status(service_status to) {
    const std::lock_guard lock(mutex_);
    status_ = std::move(to);
  }

  mutable std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::shared_ptr<fake_request>> submitted_;
  bool short_of_memory_ = false;
  mutable std::vector<std::weak_ptr<const step_sink>> watchers_;
  service_status status_{true, "ready", 8, 8, ""};
};

} // namespace troupe::test
