#include "runtime/guide/guide.hpp"

#include "runtime/guide/compile.hpp"
#include "runtime/guide/grammar/automaton.hpp"
#include "runtime/guide/matching/masks.hpp"

#include <atomic>
#include <mutex>
#include <optional>

namespace troupe::guides {

struct guide::parts {
  const grammar rules;
  const std::shared_ptr<const guide_vocabulary> vocabulary;

  std::mutex lock; // of what follows
  std::optional<automaton> states;
  std::optional<token_masks> masks;
  std::uint64_t generation = 0;

  std::atomic<std::size_t> memory = 0; // bytes

  void renew() {
    masks.reset();
    states.reset();
    states.emplace(rules);
    masks.emplace(*states, *vocabulary);
    ++generation;
  }
};

guide::guide(std::unique_ptr<parts> p) : parts_(std::move(p)) {}
guide::~guide() = default;
const guide_vocabulary& guide::vocabulary() const { return *parts_->vocabulary; }
std::size_t guide::memory() const { return parts_->memory; }

std::shared_ptr<const guide> compile_guide(const guide_source& source,
                                           std::shared_ptr<const guide_vocabulary> vocabulary,
                                           const guide_limits& limits) {
  auto parts = std::unique_ptr<guide::parts>(
    new guide::parts{compile_grammar(source, limits), std::move(vocabulary), {}, {}, {}, 0, 0});
  parts->memory = parts->rules.memory();
  return std::make_shared<guide>(std::move(parts));
}

guide_state::guide_state(std::shared_ptr<const guide> g) : guide_(std::move(g)) {}

template <class F>
auto guide_state::with_automaton(F use) {
  auto& parts = *guide_->parts_;
  const std::scoped_lock hold(parts.lock);
  const auto run = [&] {
    if (generation_ != parts.generation) { // follow the text from its start
      auto s = parts.states->start();
      for (const unsigned char b : text_)
        s = parts.states->next(s, b);
      state_ = s;
      generation_ = parts.generation;
    }
    const auto result = use(*parts.states, *parts.masks);
    parts.memory = parts.states->memory() + parts.masks->memory();
    return result;
  };
  bool empty = false;
  if (!parts.states || parts.masks->memory() > parts.rules.limits().memory) {
    parts.renew();
    empty = true;
  }
  try {
    return run();
  } catch (const failure&) {
    // The automaton is full, maybe because of other texts: only what fails in an empty one is at fault itself.
    if (empty) {
      parts.states.reset();
      throw;
    }
  }
  parts.renew();
  try {
    return run();
  } catch (const failure&) {
    parts.states.reset();
    throw;
  }
}

bool guide_state::advance(token_id token) {
  if (ended_)
    return false;
  if (guide_->vocabulary().is_end(token)) {
    ended_ = can_end();
    return ended_;
  }
  const auto bytes = guide_->vocabulary().bytes(token);
  return !bytes.empty() && advance(bytes);
}

bool guide_state::advance(std::string_view bytes, std::size_t* taken) {
  if (ended_)
    return false;
  return with_automaton([&](automaton& states, token_masks&) {
    auto s = state_;
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      s = states.next(s, static_cast<unsigned char>(bytes[i]));
      if (s == dead_state) {
        if (taken)
          *taken = i;
        return false;
      }
    }
    if (taken)
      *taken = bytes.size();
    text_ += bytes;
    state_ = s;
    return true;
  });
}

bool guide_state::can_end() {
  return !ended_ && with_automaton([&](automaton& states, token_masks&) { return states.can_end(state_); });
}

bool guide_state::is_finished() {
  return ended_ || with_automaton([&](automaton& states, token_masks&) {
           return states.can_end(state_) && states.live(state_).empty();
         });
}

void guide_state::mask(std::span<std::uint64_t> out) {
  if (ended_) {
    for (auto& w : out)
      w = 0;
    return;
  }
  with_automaton([&](automaton&, token_masks& masks) {
    masks.write(state_, out);
    return true;
  });
}

std::string guide_state::forced(std::size_t most) {
  if (ended_)
    return {};
  return with_automaton([&](automaton& states, token_masks&) {
    std::string result;
    for (auto s = state_; result.size() < most && !states.can_end(s);) {
      const auto& live = states.live(s);
      if (live.count() != 1)
        break;
      result += static_cast<char>(live.first());
      s = states.next(s, static_cast<unsigned char>(result.back()));
    }
    return result;
  });
}

} // namespace troupe::guides
