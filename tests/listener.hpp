// Collects a request's events on the engine's threads; tests wait for them and compare them.
#pragma once

#include "runtime/engine/generation.hpp"
#include "tests/test_data.hpp"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>

namespace troupe::testing {

/// All events of a request. Maps are keyed by the index of the sequence.
struct heard {
  std::map<std::uint32_t, std::vector<token_id>> ids;
  std::map<std::uint32_t, std::string> text;
  std::map<std::uint32_t, std::vector<sampled_token>> tokens;
  std::map<std::uint32_t, finish_reason> finish;
  std::vector<sampled_token> prompt; // its tokens' log-probabilities
  std::optional<done_event> done;
  std::optional<error> failed;
};

/// Collects events and waits for the last one.
class listener {
public:
  std::function<void(event)> sink() {
    return [state = state_](event e) {
      std::lock_guard lock(state->mutex);
      state->add(std::move(e));
      state->changed.notify_all();
    };
  }

  /// Waits for the last event. Returns false after ten minutes, which leaves time for sanitizers.
  bool wait() {
    std::unique_lock lock(state_->mutex);
    return state_->changed.wait_for(lock, std::chrono::minutes(10),
                                    [&] { return state_->what.done || state_->what.failed; });
  }

  /// Waits until sequence 0 has `n` tokens or the request has ended. Returns false after ten minutes.
  bool wait_for_tokens(std::size_t n) {
    std::unique_lock lock(state_->mutex);
    return state_->changed.wait_for(lock, std::chrono::minutes(10), [&] {
      return state_->what.ids[0].size() >= n || state_->what.done || state_->what.failed;
    });
  }

  heard result() {
    std::lock_guard lock(state_->mutex);
    return state_->what;
  }

private:
  struct shared {
    std::mutex mutex;
    std::condition_variable changed;
    heard what;
    bool ended = false;

    void add(event e) {
      if (ended)
        throw std::logic_error("an event after the last one");
      if (auto* t = std::get_if<token_event>(&e)) {
        if (what.finish.contains(t->index))
          throw std::logic_error("a token after its sequence had ended");
        if (!t->token_ids.empty() && t->position != what.ids[t->index].size())
          throw std::logic_error("a token at the wrong position");
        auto& ids = what.ids[t->index];
        ids.insert(ids.end(), t->token_ids.begin(), t->token_ids.end());
        what.text[t->index] += t->text;
        auto& tokens = what.tokens[t->index];
        tokens.insert(tokens.end(), t->logprobs.begin(), t->logprobs.end());
        what.prompt.insert(what.prompt.end(), t->prompt.begin(), t->prompt.end());
        if (t->finish)
          what.finish[t->index] = *t->finish;
      } else {
        ended = true;
        if (auto* d = std::get_if<done_event>(&e))
          what.done = *d;
        else
          what.failed = std::get<error>(e);
      }
    }
  };

  std::shared_ptr<shared> state_ = std::make_shared<shared>();
};

/// Whether two requests had the same tokens, texts, log-probabilities and embeddings. Floats are compared bit for bit.
inline bool same(const heard& a, const heard& b) {
  const auto same_token = [](const sampled_token& x, const sampled_token& y) {
    const auto same_top = [](const token_logprob& p, const token_logprob& q) {
      return p.id == q.id && p.logprob == q.logprob;
    };
    return x.id == y.id && x.logprob == y.logprob && x.finish == y.finish &&
      std::equal(x.top.begin(), x.top.end(), y.top.begin(), y.top.end(), same_top);
  };
  if (a.ids != b.ids || a.text != b.text || a.finish != b.finish || a.tokens.size() != b.tokens.size())
    return false;
  if (!std::equal(a.prompt.begin(), a.prompt.end(), b.prompt.begin(), b.prompt.end(), same_token))
    return false;
  const auto same_rank = [](const choice_summary& x, const choice_summary& y) {
    return x.cumulative_logprob == y.cumulative_logprob && x.score == y.score;
  };
  if (a.done && b.done &&
      !std::equal(a.done->choices.begin(), a.done->choices.end(), b.done->choices.begin(), b.done->choices.end(),
                  same_rank))
    return false;
  if (a.done && b.done && a.done->embedding != b.done->embedding)
    return false;
  for (auto& [index, tokens] : a.tokens) {
    auto other = b.tokens.find(index);
    if (other == b.tokens.end() ||
        !std::equal(tokens.begin(), tokens.end(), other->second.begin(), other->second.end(), same_token))
      return false;
  }
  return true;
}

} // namespace troupe::testing
