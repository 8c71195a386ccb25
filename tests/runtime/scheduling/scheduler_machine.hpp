// A machine to test scheduler and block manager against: its K/V entries are hashes of the history. As in attention,
// the result for a position depends on its token and on the entries of all earlier positions. So a wrong table, a
// missing or misplaced move, a block granted too early or a wrongly filled placeholder changes the sampled tokens.
#pragma once

#include "runtime/scheduling/block_manager.hpp"
#include "runtime/scheduling/scheduler.hpp"
#include "runtime/scheduling/step_times.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <set>

namespace troupe::testing {

inline std::uint64_t mix(std::uint64_t h, std::uint64_t x) {
  h ^= x + 0x9e3779b97f4a7c15 + (h << 6) + (h >> 2);
  return h * 0xff51afd7ed558ccd;
}

inline token_id sample(std::uint64_t history, std::uint32_t index) {
  return static_cast<token_id>(mix(history, index) % 1000);
}

inline std::uint64_t attended(std::uint64_t entry, int position) {
  return mix(entry, static_cast<std::uint64_t>(position));
}

inline std::vector<token_id> solo(const admission& a, std::uint32_t index) {
  std::uint64_t h = 0, seen = 0;
  int position = 0;
  const auto compute = [&](token_id t) {
    h = mix(seen, static_cast<std::uint64_t>(t));
    seen += attended(h, position++);
  };
  for (auto t : *a.prompt)
    compute(t);
  std::vector<token_id> out;
  for (int i = 0; i < a.params->max_tokens; ++i) {
    out.push_back(sample(h, index));
    if (out.back() < 10)
      break; // ids below 10 act as EOS
    compute(out.back());
  }
  return out;
}

class machine {
public:
  machine(int blocks, bool cache, scheduler_limits limits, int host_blocks = 0)
    : manager(blocks, cache, host_blocks),
      sched(limits),
      budget_(limits.step_tokens),
      kv_(static_cast<std::size_t>(blocks) * kernels::block_tokens),
      host_(static_cast<std::size_t>(host_blocks) * kernels::block_tokens),
      slots_(static_cast<std::size_t>(limits.max_sequences)) {}

  bool plan() {
    if (!sched.wants_step())
      return false;
    scheduler::next n = sched.begin_step();
    int rounds = 0;
    while (auto* request = std::get_if<block_request>(&n)) {
      REQUIRE(++rounds < 1000);
      if (on_round)
        on_round();
      request->swap = swap ? swap() : swap_decision{true, true};
      auto grant = manager.serve(*request);
      n = sched.granted(grant);
    }
    if (auto* p = std::get_if<std::shared_ptr<const step_plan>>(&n))
      send(*p);
    return true;
  }

  bool execute() {
    if (plans_.empty())
      return false;
    auto plan = plans_.front();
    plans_.pop_front();
    REQUIRE(plan->after_tokens_of < plan->step);
    REQUIRE(plan->tokens.size() <= static_cast<std::size_t>(budget_));
    for (const auto& move : plan->moves) {
      using kind = block_move::kind;
      std::copy_n((move.what == kind::swap_in ? host_ : kv_).begin() + move.from * kernels::block_tokens,
                  kernels::block_tokens,
                  (move.what == kind::swap_out ? host_ : kv_).begin() + move.to * kernels::block_tokens);
    }
    std::vector<std::uint64_t> rows(plan->tokens.size());
    for (auto& s : plan->sequences)
      for (int i = 0; i < s.rows; ++i) {
        auto r = static_cast<std::size_t>(s.first_row + i);
        if (plan->tokens[r] < 0)
          REQUIRE(plan->after_tokens_of > 0);
        auto token = plan->tokens[r] < 0 ? slots_.at(static_cast<std::size_t>(slot_of(plan->tokens[r])))
                                         : plan->tokens[r];
        auto p = s.first_position + i;
        std::uint64_t seen = 0;
        for (int before = 0; before < p; ++before)
          seen += attended(at(*plan, s, before), before);
        at(*plan, s, p) = rows[r] = mix(seen, static_cast<std::uint64_t>(token));
      }
    step_result result;
    result.step = plan->step;
    result.ms = time ? time(*plan) : 0;
    for (auto& d : plan->samples) {
      auto history = rows[static_cast<std::size_t>(plan->logit_rows[static_cast<std::size_t>(d.logit_row)])];
      sampled_token token;
      token.id = sample(history, d.sequence.index);
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
      result.sampled.push_back({d.sequence, d.slot, token});
    }
    for (auto id : plan->ended)
      emitted_.erase(id);
    results_.push_back(result);
    return true;
  }

  bool book() {
    if (results_.empty())
      return false;
    if (const auto step = step_times_.finished(results_.front(), {}); step && step->ms > 0)
      sched.observe(step->shape, step->ms);
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
  std::function<swap_decision()> swap;
  std::function<double(const step_plan&)> time; // that a step takes, in ms

private:
  void send(const std::shared_ptr<const step_plan>& plan) {
    step_times_.planned(*plan, {});
    plans_.push_back(plan);
  }

  std::uint64_t& at(const step_plan& plan, const kernels::sequence_rows& s, int p) {
    auto block = plan.block_tables.at(static_cast<std::size_t>(s.first_block + p / kernels::block_tokens));
    return kv_.at(static_cast<std::size_t>(block * kernels::block_tokens + p % kernels::block_tokens));
  }

  int budget_;
  std::vector<std::uint64_t> kv_, host_;
  std::vector<token_id> slots_;
  std::map<sequence_id, std::size_t> emitted_;
  std::deque<std::shared_ptr<const step_plan>> plans_;
  std::deque<step_result> results_;
  step_times step_times_;
};

inline admission make(std::uint64_t id, std::vector<token_id> prompt, int max_tokens, int n = 1, int priority = 0) {
  sampling_params p;
  p.max_tokens = max_tokens;
  p.n = n;
  admission a;
  a.request = id;
  a.prompt = std::make_shared<const std::vector<token_id>>(std::move(prompt));
  a.params = std::make_shared<const sampling_params>(std::move(p));
  a.priority = priority;
  return a;
}

inline void submit(machine& m, const admission& a) {
  m.max_tokens[a.request] = a.params->max_tokens;
  REQUIRE_FALSE(m.sched.submit(a).has_value());
}

inline void check_transcripts(machine& m, const admission& a) {
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(a.params->n); ++i) {
    CAPTURE(a.request);
    CAPTURE(i);
    CHECK(m.transcripts[{a.request, i}] == solo(a, i));
  }
}

} // namespace troupe::testing
