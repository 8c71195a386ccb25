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
  const std::size_t rules_memory; // bytes
  const std::shared_ptr<const guide_vocabulary> vocabulary;

  std::mutex lock; // of what follows
  meter used;      // of the automaton and its masks
  std::optional<automaton> states;
  std::optional<token_masks> masks;
  std::uint64_t generation = 0;

  const std::shared_ptr<guide_pool> pool; // may be null
  std::atomic<std::size_t> memory = 0;    // bytes

  parts(grammar g, std::size_t bytes, std::shared_ptr<const guide_vocabulary> v, std::shared_ptr<guide_pool> p)
    : rules(std::move(g)),
      rules_memory(bytes),
      vocabulary(std::move(v)),
      used({rules.limits().memory, rules.limits().following}),
      pool(std::move(p)) {
    if (pool)
      pool->enter();
    count();
  }
  ~parts() {
    if (pool)
      pool->leave(memory);
  }

  void count() {
    const auto now = rules_memory + used.bytes();
    const auto before = memory.exchange(now);
    if (pool)
      pool->change(before, now);
  }
  void drop() {
    masks.reset();
    states.reset();
    used.reset();
    count();
  }
  void renew() {
    drop();
    within(used, [&] {
      states.emplace(rules);
      masks.emplace(*states, *vocabulary);
    });
    ++generation;
  }
};

guide::guide(std::unique_ptr<parts> p) : parts_(std::move(p)) {}
guide::~guide() = default;
const guide_vocabulary& guide::vocabulary() const { return *parts_->vocabulary; }
std::size_t guide::memory() const { return parts_->memory; }

bool guide::prepare(std::uint64_t steps) const {
  auto& parts = *parts_;
  const std::scoped_lock hold(parts.lock);
  if ((parts.pool && parts.pool->is_full()) || parts.used.steps() > parts.used.most().steps / 4)
    return false;
  try {
    if (!parts.states)
      parts.renew();
    const bool more = within(parts.used, [&] { return parts.states->prepare(steps); });
    parts.count();
    return more;
  } catch (const std::exception&) { // the limits, or the machine's memory: it is built anew when it is needed
    parts.drop();
    return false;
  }
}

std::shared_ptr<const guide> compile_guide(const guide_source& source,
                                           std::shared_ptr<const guide_vocabulary> vocabulary,
                                           const guide_limits& limits, std::shared_ptr<guide_pool> pool) {
  meter cost({limits.compiling, limits.work});
  auto rules = within(cost, [&] { return compile_grammar(source, limits); });
  return std::make_shared<guide>(
    std::make_unique<guide::parts>(std::move(rules), cost.bytes(), std::move(vocabulary), std::move(pool)));
}

namespace {

struct way {
  automaton_state state;
  std::size_t taken;     // bytes
  std::size_t begin = 0; // of JSON whose values are told apart, if it begins among these bytes
};

/// Where these bytes lead from a state, as far as they may follow.
way followed(automaton& states, told_apart& apart, automaton_state s, std::string_view bytes, seen_values seen) {
  way w{s, 0};
  const bool tells_apart = states.tells_values_apart();
  for (const unsigned char b : bytes) {
    const auto next = tells_apart ? apart.next(w.state, b, seen) : states.next(w.state, b);
    if (next == dead_state)
      return w;
    w.state = next;
    ++w.taken;
    if (states.begins_values(next))
      w.begin = w.taken;
  }
  if (tells_apart && !bytes.empty() && apart.runs_out(w.state, seen))
    --w.taken;
  return w;
}

} // namespace

guide_state::guide_state(std::shared_ptr<const guide> g) : guide_(std::move(g)) {}

// What `use` returns, and all else that outlives it, must not take memory: that would be the guide's for ever.
template <class F>
auto guide_state::with_automaton(F use) {
  auto& parts = *guide_->parts_;
  const std::scoped_lock hold(parts.lock);
  const auto run = [&] {
    const auto result = within(parts.used, [&] {
      if (generation_ != parts.generation) { // follow the text from its start
        state_ = followed(*parts.states, parts.masks->apart(), parts.states->start(), text_, {}).state;
        generation_ = parts.generation;
      }
      return use(*parts.states, *parts.masks);
    });
    parts.count();
    if (parts.pool && parts.pool->is_full() && parts.used.bytes() > parts.pool->share())
      parts.drop();
    return result;
  };
  try {
    if (parts.states)
      try {
        return run();
      } catch (const failure&) {
        // The automaton is full, maybe because of other texts: only what fails in an empty one is at fault itself.
      }
    parts.renew();
    return run();
  } catch (...) {
    parts.drop();
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
  const auto to = with_automaton(
    [&](automaton& states, token_masks& masks) { return followed(states, masks.apart(), state_, bytes, seen_); });
  if (taken)
    *taken = to.taken;
  if (to.taken < bytes.size())
    return false;
  text_ += bytes;
  state_ = to.state;
  if (guide_->parts_->rules.tells_values_apart()) {
    if (to.begin > 0)
      seen_ = {};
    for (const unsigned char b : bytes.substr(to.begin))
      seen_.take(b);
  }
  return true;
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
    masks.write(state_, seen_, out);
    return true;
  });
}

std::string guide_state::forced(std::size_t most) {
  if (ended_)
    return {};
  std::string result;
  result.reserve(most);
  with_automaton([&](automaton& states, token_masks&) {
    result.clear();
    for (auto s = state_; result.size() < most && !states.can_end(s);) {
      const auto& live = states.live(s);
      if (live.count() != 1)
        break;
      const auto byte = live.first(); // `live` does not outlive a state that is added
      const auto next = states.next(s, byte);
      if (states.tells_apart(next)) // what was there may forbid it
        break;
      result += static_cast<char>(byte);
      s = next;
    }
    return true;
  });
  return result;
}

} // namespace troupe::guides
