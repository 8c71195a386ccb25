// The scheduler and the block manager against a machine whose K/V entries are the history itself: a slot of the cache
// holds the hash of all tokens up to its position, so a wrong table, a missed copy, a block handed out too early or a
// placeholder filled wrongly changes what is drawn.
#include "runtime/block_manager.hpp"
#include "runtime/scheduler.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>

using namespace troupe;

namespace {

std::uint64_t mix(std::uint64_t h, std::uint64_t x) {
  h ^= x + 0x9e3779b97f4a7c15 + (h << 6) + (h >> 2);
  return h * 0xff51afd7ed558ccd;
}

token_id draw(std::uint64_t history, std::uint32_t index) {
  return static_cast<token_id>(mix(history, index) % 1000);
}

std::vector<token_id> solo(const admission& a, std::uint32_t index) {
  std::uint64_t h = 0;
  for (auto t : *a.prompt)
    h = mix(h, static_cast<std::uint64_t>(t));
  std::vector<token_id> out;
  for (int i = 0; i < a.params->max_tokens; ++i) {
    out.push_back(draw(h, index));
    if (out.back() < 10)
      break; // these end a sequence, as an EOS would
    h = mix(h, static_cast<std::uint64_t>(out.back()));
  }
  return out;
}

class machine {
public:
  machine(int blocks, bool cache, scheduler_limits limits)
    : manager(blocks, cache), sched(limits), budget_(limits.step_tokens),
      kv_(static_cast<std::size_t>(blocks) * kernels::block_tokens), slots_(static_cast<std::size_t>(limits.max_sequences)) {}

  bool plan() {
    if (!sched.wants_step())
      return false;
    scheduler::next n = sched.begin_step();
    int rounds = 0;
    while (auto* request = std::get_if<block_request>(&n)) {
      REQUIRE(++rounds < 1000);
      if (on_round)
        on_round();
      auto grant = manager.serve(*request);
      n = sched.granted(grant);
    }
    if (auto* p = std::get_if<std::shared_ptr<const step_plan>>(&n))
      plans_.push_back(*p);
    return true;
  }

  bool execute() {
    if (plans_.empty())
      return false;
    auto plan = plans_.front();
    plans_.pop_front();
    REQUIRE(plan->after_tokens_of < plan->step);
    REQUIRE(plan->tokens.size() <= static_cast<std::size_t>(budget_));
    for (auto copy : plan->copies)
      std::copy_n(kv_.begin() + copy.from * kernels::block_tokens, kernels::block_tokens,
                  kv_.begin() + copy.to * kernels::block_tokens);
    std::vector<std::uint64_t> rows(plan->tokens.size());
    for (auto& s : plan->sequences)
      for (int i = 0; i < s.rows; ++i) {
        auto r = static_cast<std::size_t>(s.first_row + i);
        if (plan->tokens[r] < 0)
          REQUIRE(plan->after_tokens_of > 0);
        auto token = plan->tokens[r] < 0 ? slots_.at(static_cast<std::size_t>(slot_of(plan->tokens[r]))) : plan->tokens[r];
        auto p = s.first_position + i;
        auto before = p == 0 ? 0 : at(*plan, s, p - 1);
        at(*plan, s, p) = rows[r] = mix(before, static_cast<std::uint64_t>(token));
      }
    step_result result;
    result.step = plan->step;
    for (auto& d : plan->samples) {
      auto history = rows[static_cast<std::size_t>(plan->logit_rows[static_cast<std::size_t>(d.logit_row)])];
      sampled_token token;
      token.id = draw(history, d.sequence.index);
      if (d.start)
        emitted_[d.sequence] = d.start->emitted.size();
      else if (!emitted_.contains(d.sequence))
        continue;
      auto& out = transcripts[d.sequence];
      auto position = emitted_[d.sequence]++;
      REQUIRE(position == out.size());
      out.push_back(token.id);
      slots_[static_cast<std::size_t>(d.slot)] = token.id;
      if (token.id < 10)
        token.finish = sampled_token::finish::eos;
      else if (static_cast<int>(out.size()) == max_tokens.at(d.sequence.request))
        token.finish = sampled_token::finish::length;
      if (token.finish != sampled_token::finish::none)
        emitted_.erase(d.sequence);
      result.drawn.push_back({d.sequence, d.slot, token});
    }
    for (auto id : plan->ended)
      emitted_.erase(id);
    results_.push_back(result);
    return true;
  }

  bool book() {
    if (results_.empty())
      return false;
    sched.finished(results_.front());
    results_.pop_front();
    return true;
  }

  void drain() {
    for (int i = 0; i < 200000; ++i) {
      bool busy = plan();
      busy = execute() || busy;
      busy = book() || busy;
      if (!busy)
        return;
    }
    FAIL("never became idle");
  }

  std::size_t sampling_states() const { return emitted_.size(); }

  block_manager manager;
  scheduler sched;
  std::map<sequence_id, std::vector<token_id>> transcripts;
  std::map<std::uint64_t, int> max_tokens;
  std::function<void()> on_round;

private:
  std::uint64_t& at(const step_plan& plan, const kernels::sequence_rows& s, int p) {
    auto block = plan.block_tables.at(static_cast<std::size_t>(s.first_block + p / kernels::block_tokens));
    return kv_.at(static_cast<std::size_t>(block * kernels::block_tokens + p % kernels::block_tokens));
  }

  int budget_;
  std::vector<std::uint64_t> kv_;
  std::vector<token_id> slots_;
  std::map<sequence_id, std::size_t> emitted_;
  std::deque<std::shared_ptr<const step_plan>> plans_;
  std::deque<step_result> results_;
};

admission make(std::uint64_t id, std::vector<token_id> prompt, int max_tokens, int n = 1, int priority = 0) {
  sampling_params p;
  p.max_tokens = max_tokens;
  p.n = n;
  return {id, std::make_shared<const std::vector<token_id>>(std::move(prompt)),
          std::make_shared<const sampling_params>(std::move(p)), priority};
}

void submit(machine& m, const admission& a) {
  m.max_tokens[a.request] = a.params->max_tokens;
  REQUIRE_FALSE(m.sched.submit(a).has_value());
}

void check_transcripts(machine& m, const admission& a) {
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(a.params->n); ++i) {
    CAPTURE(a.request);
    CAPTURE(i);
    CHECK(m.transcripts[{a.request, i}] == solo(a, i));
  }
}

} // namespace

TEST_CASE("random workloads draw what each sequence draws alone, and leave no block in use") {
  for (unsigned seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    std::mt19937 rng(seed);
    auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
    scheduler_limits limits{pick(0, 4) == 0 ? 1 : pick(1, 100), pick(0, 4) == 0 ? 1 : pick(1, 12), 1000, pick(1, 3)};
    const int longest = 150; // the pool holds at least one such sequence, and may hold no more
    machine m((longest + kernels::block_tokens - 1) / kernels::block_tokens + pick(0, 1) * pick(0, 30), pick(0, 1) == 1,
              limits);
    std::vector<admission> all;
    std::set<std::uint64_t> cancelled, paused;
    std::set<sequence_id> ended;
    // What clients do comes between any two messages, also while blocks are asked for.
    std::size_t submitted = 0;
    const auto client = [&] {
      if (submitted == 0)
        return;
      auto id = static_cast<std::uint64_t>(pick(1, static_cast<int>(submitted)));
      switch (pick(0, 30)) {
        case 0:
          cancelled.insert(id);
          m.sched.cancel(id);
          break;
        case 1: { // a stop string: tokens have been heard of
          sequence_id sequence{id, static_cast<std::uint32_t>(pick(0, 3))};
          if (m.transcripts.contains(sequence)) {
            ended.insert(sequence);
            m.sched.finish(sequence);
          }
          break;
        }
        case 2: case 3: case 4:
          paused.insert(id);
          m.sched.pause(id, true);
          break;
        case 5: case 6: case 7: case 8:
          paused.erase(id);
          m.sched.pause(id, false);
          break;
        default: break;
      }
    };
    m.on_round = client;
    for (int i = 0, n = pick(1, 25); i < n; ++i) {
      std::vector<token_id> prompt(static_cast<std::size_t>(pick(1, 100)));
      auto family = pick(0, 2);
      for (std::size_t k = 0; k < prompt.size(); ++k)
        prompt[k] = 10 + (k > 40 ? pick(0, 50) : family);
      all.push_back(make(static_cast<std::uint64_t>(i + 1), prompt, pick(1, 50), pick(1, std::min(4, limits.max_sequences)),
                         pick(0, 3) == 0 ? pick(-1, 1) : 0));
    }
    for (int i = 0; submitted < all.size() || i < 500; ++i) {
      switch (pick(0, 6)) {
        case 0:
          if (submitted < all.size())
            submit(m, all[submitted++]);
          break;
        case 1: m.plan(); break;
        case 2: m.plan(); [[fallthrough]];
        case 3: m.execute(); break;
        case 4: m.book(); break;
        case 5: client(); break;
        default: m.execute(); m.book();
      }
    }
    m.on_round = nullptr;
    const auto check_done = [&] {
      for (auto& a : all)
        if (!cancelled.contains(a.request) && !paused.contains(a.request))
          for (std::uint32_t k = 0; k < static_cast<std::uint32_t>(a.params->n); ++k)
            if (!ended.contains({a.request, k})) {
              CAPTURE(a.request);
              CAPTURE(k);
              CHECK(m.transcripts[{a.request, k}] == solo(a, k));
            }
    };
    m.drain();
    check_done(); // no matter who is paused
    for (auto id : std::exchange(paused, {}))
      m.sched.pause(id, false);
    m.drain();
    check_done();
    submit(m, make(1000, {10}, 1)); // the next plan tells the sampler of those that have ended
    m.drain();
    CHECK(m.sampling_states() == 0);
    auto c = m.sched.counters();
    CHECK(c.running + c.waiting + c.paused == 0);
    CHECK(m.manager.counters().in_use == 0);
  }
}

TEST_CASE("a cancellation between question and answer leaks nothing") {
  machine m(20, true, {64, 4, 10, 2});
  submit(m, make(1, std::vector<token_id>(40, 11), 10));
  submit(m, make(2, std::vector<token_id>(40, 12), 10));
  m.on_round = [&] { m.sched.cancel(2); };
  m.drain();
  CHECK(m.manager.counters().in_use == 0);
  check_transcripts(m, make(1, std::vector<token_id>(40, 11), 10));
}

TEST_CASE("too few blocks lead to preemption, not to another result") {
  machine m(12, false, {64, 8, 100, 2});
  std::vector<admission> all;
  for (std::uint64_t i = 1; i <= 8; ++i)
    all.push_back(make(i, std::vector<token_id>(20, static_cast<token_id>(10 + i)), 100));
  for (auto& a : all)
    submit(m, a);
  m.drain();
  for (auto& a : all)
    check_transcripts(m, a);
  CHECK(m.sched.counters().preemptions > 0);
  CHECK(m.manager.counters().in_use == 0);
}

TEST_CASE("decoding goes on in every step while a long prompt is under way") {
  machine m(100, true, {32, 4, 10, 1});
  submit(m, make(1, {20}, 30));
  m.plan(), m.execute(), m.book();
  submit(m, make(2, std::vector<token_id>(300, 33), 1));
  for (int step = 0; step < 8; ++step) {
    auto before = m.transcripts[{1, 0}].size();
    if (solo(make(1, {20}, 30), 0).size() == before)
      break;
    m.plan(), m.execute(), m.book();
    CHECK(m.transcripts[{1, 0}].size() == before + 1);
  }
  m.drain();
  CHECK(m.transcripts[{2, 0}].size() == 1);
}

TEST_CASE("n sequences compute their prompt once") {
  machine m(100, false, {512, 8, 10, 2});
  auto a = make(1, std::vector<token_id>(100, 17), 5, 8);
  submit(m, a);
  m.drain();
  check_transcripts(m, a);
  CHECK(m.sched.counters().prefill_rows == 100);
  CHECK(m.manager.counters().copied == 7);
}

TEST_CASE("a second request with the same prompt computes only what is not cached") {
  machine m(100, true, {512, 8, 10, 2});
  submit(m, make(1, std::vector<token_id>(100, 17), 5));
  m.drain();
  m.sched.take_started();
  submit(m, make(2, std::vector<token_id>(100, 17), 5));
  m.drain();
  CHECK(m.sched.counters().prefill_rows == 104);
  auto started = m.sched.take_started();
  REQUIRE(started.size() == 1);
  CHECK(started[0].cached_tokens == 96);
}

TEST_CASE("requests of one priority start in their order, higher priorities before them") {
  machine m(100, true, {512, 1, 10, 1});
  submit(m, make(1, {20}, 3));
  submit(m, make(2, {20}, 3));
  submit(m, make(3, {20}, 3, 1, 5));
  std::vector<std::uint64_t> order;
  for (int i = 0; i < 50; ++i) {
    m.plan(), m.execute(), m.book();
    for (auto s : m.sched.take_started())
      order.push_back(s.request);
  }
  CHECK(order == std::vector<std::uint64_t>{3, 1, 2});
}

TEST_CASE("a more important request takes the place of a less important one") {
  machine m(100, true, {512, 1, 10, 1});
  submit(m, make(1, {20}, 40));
  m.plan(), m.execute(), m.book();
  submit(m, make(2, {21}, 2, 1, 1));
  m.drain();
  CHECK(m.sched.counters().preemptions == 1);
  check_transcripts(m, make(1, {20}, 40));
  check_transcripts(m, make(2, {21}, 2));
}

TEST_CASE("a full queue and an impossible n are refused with a sentence") {
  scheduler s({512, 4, 2, 2});
  for (std::uint64_t i = 1; i <= 6; ++i) // four could run, two may wait
    CHECK_FALSE(s.submit(make(i, {1}, 1)).has_value());
  auto full = s.submit(make(7, {1}, 1));
  REQUIRE(full.has_value());
  CHECK(full->code == errc::overloaded);
  auto wide = s.submit(make(8, {1}, 1, 5));
  REQUIRE(wide.has_value());
  CHECK(wide->param == "n");
}

TEST_CASE("a paused request gets no rows, holds nobody up and gives its blocks first") {
  machine m(12, false, {64, 4, 10, 2});
  auto one = make(1, std::vector<token_id>(100, 21), 40), two = make(2, std::vector<token_id>(100, 22), 40);
  submit(m, one);
  m.plan(), m.execute(), m.book(), m.plan(), m.execute(), m.book(), m.plan(), m.execute(), m.book();
  auto before = m.transcripts[{1, 0}].size();
  m.sched.pause(1, true);
  submit(m, two);
  m.drain();
  CHECK(m.transcripts[{1, 0}].size() <= before + 1);
  check_transcripts(m, two);
  m.sched.pause(1, false);
  m.drain();
  check_transcripts(m, one);
}

TEST_CASE("whoever waits runs after a cancellation that comes while blocks are asked for") {
  machine m(20, true, {64, 1, 10, 2});
  submit(m, make(1, std::vector<token_id>(40, 11), 10));
  submit(m, make(2, {12}, 10));
  m.on_round = [&] { m.sched.cancel(1); };
  m.drain();
  check_transcripts(m, make(2, {12}, 10));
  CHECK(m.manager.counters().in_use == 0);
}

TEST_CASE("paused requests give their places to whoever waits") {
  machine m(100, true, {64, 4, 10, 2});
  auto paused = make(1, {21}, 40, 2), slow = make(2, {22}, 40, 2), wide = make(3, {23}, 5, 4);
  submit(m, paused);
  submit(m, slow);
  m.plan(), m.execute(), m.book(), m.plan(), m.execute(), m.book();
  m.sched.pause(1, true);
  m.sched.pause(2, true);
  submit(m, wide);
  m.drain();
  check_transcripts(m, wide);
  m.sched.pause(1, false);
  m.sched.pause(2, false);
  m.drain();
  check_transcripts(m, paused);
  check_transcripts(m, slow);
}

TEST_CASE("no more give way than has to") {
  machine m(14, false, {512, 8, 100, 1});
  std::vector<admission> all;
  for (int i = 1; i <= 8; ++i) // seven of one block each, and the youngest of seven: what all others want next
    all.push_back(make(static_cast<std::uint64_t>(i), std::vector<token_id>(i < 8 ? 16 : 112, 10 + i), 10));
  for (auto& a : all)
    submit(m, a);
  for (int step = 0; step < 2; ++step)
    m.plan(), m.execute(), m.book();
  CHECK(m.sched.counters().preemptions == 1);
  CHECK(m.sched.counters().waiting == 1);
  m.drain();
  for (auto& a : all)
    check_transcripts(m, a);
}
