#include "runtime/execution/constrained_text.hpp"

#include "runtime/sampling/vector_passes.hpp"

#include <algorithm>
#include <limits>
#include <mutex>
#include <new>
#include <utility>

namespace troupe {

namespace {

constexpr std::size_t most_forced = 64; // tokens appended at once
constexpr std::uint64_t slice = 50'000; // steps, half a millisecond
constexpr int most_slices = 200;

void set(std::vector<std::uint64_t>& bits, token_id id) {
  if (const auto i = static_cast<std::size_t>(id); id >= 0 && i / 64 < bits.size())
    bits[i / 64] |= std::uint64_t(1) << (i % 64);
}

void clear(std::vector<std::uint64_t>& bits, token_id id) {
  if (const auto i = static_cast<std::size_t>(id); id >= 0 && i / 64 < bits.size())
    bits[i / 64] &= ~(std::uint64_t(1) << (i % 64));
}

/// The exception that is being handled, in few words if there is no memory for more: on the threads that make masks,
/// another exception would end the process.
error why_there_is_no_mask() noexcept {
  try {
    throw;
  } catch (const std::exception& e) {
    try {
      if (const auto* f = dynamic_cast<const failure*>(&e))
        return f->what_failed();
      if (dynamic_cast<const std::bad_alloc*>(&e))
        return {errc::out_of_memory, "there is not enough memory to follow the guide", {}};
      return {errc::internal, e.what(), {}};
    } catch (const std::bad_alloc&) {
      return {errc::out_of_memory, "out of memory", {}};
    }
  }
}

} // namespace

void next_tokens::apply(std::span<const float> logits, std::vector<float>& row) const {
  row.resize(logits.size());
  if (!forced.empty()) {
    std::ranges::fill(row, -std::numeric_limits<float>::infinity());
    if (const auto id = static_cast<std::size_t>(forced.front()); id < row.size())
      row[id] = logits[id];
    return;
  }
  sampling::keep_allowed(logits.data(), logits.size(), allowed.data(), allowed.size(), row.data());
}

struct constrained_text::rules {
  std::shared_ptr<const constraint> follows;
  std::vector<token_id> ends;         // EOS and stop ids
  std::vector<token_id> allowed_ends; // those with which it may end
  std::size_t min_tokens = 0;

  bool is_end(token_id id) const { return std::ranges::find(ends, id) != ends.end(); }
};

/// Only jobs touch it.
struct constrained_text::text {
  std::unique_ptr<constraint_state> state; // null: of a fork that has not been made
  std::size_t emitted = 0;
  std::size_t appended = 0; // times

  text fork() const { return {state->clone(), emitted, appended}; }

  void append(std::span<const token_id> tokens, const rules& r) {
    ++appended;
    for (const auto t : tokens) {
      if (r.is_end(t) || !state->advance(t))
        throw failure(errc::internal, "the answer does not follow its guide");
      ++emitted;
    }
  }

  void find_forced(const rules& r, std::vector<token_id>& forced) const {
    const auto ahead = state->clone();
    while (forced.size() < most_forced) {
      const auto token = ahead->forced();
      if (!token || r.is_end(*token) || !ahead->advance(*token))
        return;
      forced.push_back(*token);
    }
  }

  void find_next(const rules& r, next_tokens& next) {
    if (state->forced()) {
      find_forced(r, next.forced);
      if (!next.forced.empty())
        return;
    }
    next.allowed.resize(std::max(state->words(), words_of(r)));
    state->mask(std::span(next.allowed).first(state->words()), &next.withheld);
    for (const auto id : r.ends)
      clear(next.allowed, id);
    const bool only_end = std::ranges::all_of(next.allowed, [](auto word) { return word == 0; });
    if (only_end && !state->can_end())
      throw failure(errc::bad_request,
                    next.withheld.empty() ? "none of the model's tokens can continue the answer as its guide demands"
                                          : "only texts that this server's policy bans can continue the answer");
    if (state->can_end() && (only_end || emitted >= r.min_tokens))
      for (const auto id : r.allowed_ends)
        set(next.allowed, id);
  }

  // A model may have ids, and end with them, that its tokenizer lacks.
  static std::size_t words_of(const rules& r) {
    const auto last = std::ranges::max_element(r.ends);
    return last == r.ends.end() ? 0 : static_cast<std::size_t>(std::max(*last, 0)) / 64 + 1;
  }
};

struct constrained_text::result {
  std::mutex mutex;
  bool made = false;
  next_tokens what; // constant once made
  std::function<void()> tell;

  const next_tokens* if_made() {
    const std::lock_guard hold(mutex);
    return made ? &what : nullptr;
  }

  bool is_lacking(const std::function<void()>& told) {
    const std::lock_guard hold(mutex);
    if (!made)
      tell = told;
    return !made;
  }

  void finish(next_tokens found) {
    std::function<void()> told;
    {
      const std::lock_guard hold(mutex);
      what = std::move(found);
      made = true;
      told = std::move(tell);
    }
    if (told)
      told();
  }
};

constrained_text::constrained_text(std::shared_ptr<mask_workers> workers, std::shared_ptr<const rules> r)
  : workers_(std::move(workers)), rules_(std::move(r)) {}

constrained_text::constrained_text(std::shared_ptr<mask_workers> workers, const sampling_start& start,
                                   std::span<const token_id> eos_ids)
  : workers_(std::move(workers)) {
  auto r = std::make_shared<rules>();
  const auto& params = start.asked->sampling;
  r->follows = start.asked->follows;
  r->ends.assign(eos_ids.begin(), eos_ids.end());
  r->ends.insert(r->ends.end(), params.stop_token_ids.begin(), params.stop_token_ids.end());
  // Where the constraint says how an answer ends, it must be able to.
  const bool ignores = params.ignore_eos && r->follows->is_free();
  r->allowed_ends.assign(r->ends.begin() + (ignores ? std::ssize(eos_ids) : 0), r->ends.end());
  r->min_tokens = static_cast<std::size_t>(params.min_tokens);
  rules_ = std::move(r);
  text_ = std::make_shared<text>(text{rules_->follows->begin(rules_->follows, params)});
  append(start.emitted);
  prepare(*workers_, rules_, text_, most_slices);
}

/// Has the constraint made a part of what later masks need, and again, behind what the texts that follow it wait for, until
/// this one has a first token: while its prompt is computed.
void constrained_text::prepare(mask_workers& workers, std::shared_ptr<const rules> r, std::weak_ptr<text> of,
                               int slices) {
  const auto* lane = r->follows.get();
  workers.post(lane, [&workers, r = std::move(r), of = std::move(of), slices] {
    const auto alive = of.lock();
    if (!alive || alive->appended > 1)
      return;
    try {
      if (r->follows->prepare(slice) && slices > 1)
        prepare(workers, r, of, slices - 1);
    } catch (const std::exception&) {
      // What has not been made is made when it is needed.
    }
  });
}

// Makes what may follow the text that `make` leads to. A text that has been dropped is of no interest.
std::shared_ptr<constrained_text::result> constrained_text::begin(std::function<void(text&, next_tokens&)> make) const {
  auto made = std::make_shared<result>();
  workers_->post(rules_->follows.get(), [made, make = std::move(make), of = std::weak_ptr(text_)] {
    next_tokens next;
    try {
      if (const auto alive = of.lock())
        make(*alive, next);
    } catch (...) {
      next.why = why_there_is_no_mask();
    }
    made->finish(std::move(next));
  });
  return made;
}

void constrained_text::append(std::span<const token_id> tokens) {
  after_guesses_.clear();
  next_ = begin([r = rules_, more = std::vector(tokens.begin(), tokens.end())](text& t, next_tokens& next) {
    t.append(more, *r);
    t.find_next(*r, next);
  });
}

void constrained_text::guess(std::span<const token_id> tokens, std::span<const std::int32_t> parents) {
  after_guesses_.clear();
  std::vector<std::vector<token_id>> lines; // that lead to each guess
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto parent = parents.empty() ? static_cast<std::int32_t>(i) - 1 : parents[i];
    auto& line = lines.emplace_back(parent < 0 ? std::vector<token_id>() : lines[static_cast<std::size_t>(parent)]);
    line.push_back(tokens[i]);
    after_guesses_.push_back(begin([r = rules_, more = line](text& t, next_tokens& next) {
      auto ahead = t.fork();
      ahead.append(more, *r); // fails where a guess is wrong: its row is never reached
      ahead.find_next(*r, next);
    }));
  }
}

constrained_text constrained_text::fork(token_id token) const {
  constrained_text child(workers_, rules_);
  child.text_ = std::make_shared<text>();
  child.next_ = child.begin([r = rules_, from = text_, token](text& t, next_tokens& next) {
    t = from->fork();
    t.append(std::span(&token, 1), *r);
    t.find_next(*r, next);
  });
  return child;
}

const next_tokens* constrained_text::next() const { return next_->if_made(); }

const next_tokens* constrained_text::after_guess(std::size_t i) const {
  return i < after_guesses_.size() ? after_guesses_[i]->if_made() : nullptr;
}

bool constrained_text::lacks_any(const std::function<void()>& tell) const {
  bool lacks = next_->is_lacking(tell);
  for (const auto& one : after_guesses_)
    lacks |= one->is_lacking(tell);
  return lacks;
}

} // namespace troupe
