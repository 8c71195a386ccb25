// Parts of the machine of scheduler_machine.hpp: groups of sequences, guesses, states of recurrent layers.
#pragma once

#include "runtime/scheduling/blocks/block_manager.hpp"
#include "tests/runtime/scheduling/machine_history.hpp"

#include <doctest/doctest.h>

#include <cstring>
#include <deque>
#include <map>
#include <random>

namespace troupe::testing {

/// Sequences judged together: their children are the `width` best by a hash of their whole history. Those of a search
/// often begin anew, from wherever any has been.
class test_group {
public:
  explicit test_group(const sampling_params& p)
    : width_(static_cast<std::uint64_t>(p.width())),
      length_(p.max_tokens),
      searches_(p.group().value_or(group_kind{}).goes_back) {}

  std::vector<group_child> judge(const std::vector<std::uint64_t>& histories) {
    std::vector<std::tuple<std::uint64_t, std::uint32_t, token_id>> all;
    for (std::uint32_t m = 0; m < histories.size(); ++m)
      for (std::uint64_t k = 0; k < 3; ++k) {
        const auto h = mix(histories[m], 77 + k);
        all.emplace_back(mix(h, 1), m, static_cast<token_id>(10 + h % 90));
      }
    std::ranges::sort(all);
    // At times fewer than there may be, so that groups shrink and grow.
    all.resize(std::min(all.size(), static_cast<std::size_t>(1 + mix(histories[0], 5) % width_)));
    std::vector<group_child> children;
    std::vector<std::vector<token_id>> next;
    for (auto& [_, parent, token] : all) {
      children.push_back({parent, token});
      next.push_back(tokens[parent]);
      next.back().push_back(token);
    }
    if (searches_)
      for (std::size_t i = 0; i < children.size(); ++i)
        begin_anew(std::get<0>(all[i]), children[i], next[i]);
    tokens = std::move(next);
    ++judged_;
    if (searches_ ? judged_ == 2 * length_ || length_ == 1 : judged_ == length_)
      children.clear();
    return children;
  }

  std::vector<std::vector<token_id>> tokens{{}}; // generated, of each member

private:
  void begin_anew(std::uint64_t h, group_child& child, std::vector<token_id>& answer) {
    const bool too_long = static_cast<int>(answer.size()) >= length_;
    if (mix(h, 9) % 3 == 0 || too_long) {
      const auto& other = seen_.empty() ? answer : seen_[mix(h, 10) % seen_.size()];
      const auto most = std::min<std::size_t>(other.size(), static_cast<std::size_t>(std::max(length_ - 2, 0)));
      child.anew.assign(other.begin(), other.begin() + static_cast<std::ptrdiff_t>(mix(h, 11) % (most + 1)));
      child.anew.push_back(child.token);
      answer = child.anew;
    }
    seen_.push_back(answer);
  }

  std::uint64_t width_;
  int length_;
  bool searches_;
  int judged_ = 0;
  std::vector<std::vector<token_id>> seen_;
};

inline std::vector<std::vector<token_id>> solo_group(const submission& a) {
  test_group g(a.sampling);
  for (;;) {
    std::vector<std::uint64_t> histories;
    for (auto& generated : g.tokens) {
      auto all = a.prompt;
      all.insert(all.end(), generated.begin(), generated.end());
      histories.push_back(history_of(all, a.sampling.seed));
    }
    if (g.judge(histories).empty())
      return g.tokens;
  }
}

/// Guesses that are right with a given probability, wrong or missing else, in lines and in trees; now and then a
/// guess_model is asked, and replies later.
class test_guesser : public guesser {
public:
  test_guesser(unsigned seed, double right) : rng_(seed), right_(right) {}

  void begin(sequence_id id, std::shared_ptr<const sampling_params> params, std::span<const token_id> known,
             std::size_t prompt_tokens, std::span<const token_id>) override {
    submission a;
    a.prompt.assign(known.begin(), known.begin() + std::ptrdiff_t(prompt_tokens));
    a.sampling = *params;
    auto all = a.prompt;
    const auto answer = solo(a, id.index);
    all.insert(all.end(), answer.begin(), answer.end());
    CHECK(known_.insert_or_assign(id, state{std::move(all), known.size()}).second);
  }
  void end(sequence_id id) override { CHECK(known_.erase(id) == 1); }
  bool waits(const plain_step& step, std::span<const decoding_sequence> decoding) override {
    REQUIRE(step.sequences == static_cast<int>(decoding.size()));
    return rng_() % 3 > 0;
  }
  std::optional<guess_request> collect(const plain_step&, std::span<const decoding_sequence>, int) override {
    if (asked_ || rng_() % 3 > 0)
      return std::nullopt;
    asked_ = true;
    return guess_request{};
  }
  bool asked() const override { return asked_; }
  void deliver(const guess_reply&) override { asked_ = false; }
  bool reply() { return std::exchange(asked_, false); }

  std::vector<guess_run> propose(const plain_step&, std::span<const decoding_sequence> decoding, int) override {
    REQUIRE(!asked_);
    std::vector<guess_run> all;
    for (auto& d : decoding) {
      REQUIRE(d.most >= 0);
      auto& s = known_.at(d.id);
      s.proposed = rng_() % 2 == 0 ? line(s) : tree(s);
      all.push_back(s.proposed);
    }
    return all;
  }

  std::size_t judged(sequence_id id, std::span<const token_id> choices) override {
    auto& s = known_.at(id);
    REQUIRE(choices.size() <= s.proposed.tokens.size() + 1);
    std::size_t right = 1;
    CHECK(choices[0] == s.all.at(s.known++));
    auto token = choices[0];
    for (std::int32_t guess = 0, after = -1; guess + 1 < std::ssize(choices); ++guess) {
      const auto place = static_cast<std::size_t>(guess);
      const auto& parents = s.proposed.parents;
      if ((parents.empty() ? guess - 1 : parents[place]) != after || s.proposed.tokens[place] != token ||
          choices[place + 1] < 0)
        continue;
      branched += after >= 0 && guess != after + 1;
      after = guess;
      token = choices[place + 1];
      CHECK(token == s.all.at(s.known++));
      ++right;
    }
    accepted += static_cast<int>(right) - 1;
    rejected += static_cast<int>(choices.size() - right);
    return right - 1;
  }
  void append(sequence_id id, std::span<const token_id> tokens) override {
    auto& s = known_.at(id);
    for (auto token : tokens)
      REQUIRE(s.all.at(s.known++) == token);
  }
  void finished(const finished_step& step) override {
    CHECK(step.plain.rows > 0);
    REQUIRE_FALSE(plain_rows.empty());
    CHECK(step.plain.rows == plain_rows.front());
    CHECK(step.added_ms >= -1e-9);
    plain_rows.pop_front();
  }

  std::size_t sequences() const { return known_.size(); }

  int accepted = 0, rejected = 0;
  int branched = 0;           // right guesses that are not in the line of the guess before
  std::deque<int> plain_rows; // of the steps in flight, without their guesses

private:
  struct state {
    std::vector<token_id> all;
    std::size_t known = 0;
    guess_run proposed = {};
  };

  /// A guess of the token `ahead` places behind the next one.
  token_id guess(const state& s, std::size_t ahead) {
    const bool right = std::uniform_real_distribution<>()(rng_) < right_ && s.known + ahead < s.all.size();
    return right ? s.all[s.known + ahead] : token_id(5000 + rng_() % 3);
  }
  guess_run line(const state& s) {
    guess_run run;
    for (std::size_t i = 0, n = rng_() % 6; i < n; ++i) // now and then more than there is room for
      run.tokens.push_back(guess(s, i));
    return run;
  }
  guess_run tree(const state& s) {
    guess_run run;
    std::vector<std::size_t> depths;
    for (std::size_t i = 0, n = rng_() % 20; i < n; ++i) {
      const auto parent = rng_() % 3 > 0 ? std::int32_t(i) - 1 : std::int32_t(rng_() % (i + 1)) - 1;
      depths.push_back(parent < 0 ? 0 : depths[std::size_t(parent)] + 1);
      run.parents.push_back(parent);
      run.tokens.push_back(guess(s, depths.back()));
    }
    return run;
  }
  std::map<sequence_id, state> known_;
  std::mt19937 rng_;
  double right_;
  bool asked_ = false;
};

/// The states of sequences and snapshots, and what is pending behind them.
class test_states : public kernels::state_cache {
public:
  test_states(int running, int snapshots, int pending)
    : state_cache({.layers = 1, .slots = running + snapshots, .running = running, .pending = pending}),
      hashes_(static_cast<std::size_t>(running + snapshots)),
      logs_(hashes_.size()) {}

  void copy(const block_move& m) {
    const kernels::state_copy one{m.from, m.to};
    copied({&one, 1});
    hashes_.at(static_cast<std::size_t>(m.to)) = hashes_.at(static_cast<std::size_t>(m.from));
  }

  /// To an image, and from one.
  void save(const block_move& m) const {
    const kernels::state_export one{m.from, nullptr};
    expect_settled({&one, 1});
    std::memcpy(m.image->bytes.data(), &hashes_.at(static_cast<std::size_t>(m.from)), sizeof(std::uint64_t));
  }
  void load(const block_move& m) {
    const kernels::state_import one{nullptr, m.to, m.image->position()};
    imported({&one, 1});
    std::memcpy(&hashes_.at(static_cast<std::size_t>(m.to)), m.image->bytes.data(), sizeof(std::uint64_t));
  }

  /// Computes the rows of a sequence; `give` receives the state behind each.
  template <class Token, class By, class Give>
  void compute(const run& r, const Token& token, const By& by, const Give& give) {
    auto& state = hashes_.at(static_cast<std::size_t>(r.slot));
    auto& log = logs_.at(static_cast<std::size_t>(r.slot));
    if (r.fresh)
      state = 0;
    auto now = state;
    for (std::size_t i = 0; i < log.size(); ++i)
      if (r.replayed >> i & 1)
        now = advanced(now, log[i].first, log[i].second);
    REQUIRE(r.logged == (r.branch ? static_cast<int>(log.size()) : 0));
    if (!r.branch) {
      state = now;
      log.clear();
    }
    for (int i = 0; i < r.rows; ++i) {
      now = advanced(now, token(i), by(i));
      give(i, now);
      if (i < r.rows - r.pending)
        state = now;
      else
        log.emplace_back(token(i), by(i));
      for (const auto& save : r.saves)
        if (save.rows == i + 1)
          hashes_.at(static_cast<std::size_t>(save.slot)) = now;
    }
  }

private:
  std::vector<std::uint64_t> hashes_;
  std::vector<std::vector<std::pair<token_id, std::uint64_t>>> logs_;
};

} // namespace troupe::testing
