// A machine to test scheduler and block manager against: its K/V entries are hashes of the history. As in attention,
// the result for a position depends on its token and on the entries of all earlier positions. So a wrong table, a
// missing or misplaced move, a block granted too early or a wrongly filled placeholder changes the sampled tokens. With
// recurrent layers, a sequence has a state beside them, a hash of its tokens, on which the results depend, too.
#pragma once

#include "runtime/scheduling/blocks/block_manager.hpp"
#include "runtime/scheduling/cost/step_times.hpp"
#include "runtime/scheduling/planning/scheduler.hpp"
#include "tests/runtime/scheduling/machine_parts.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>

namespace troupe::testing {

class machine {
public:
  /// `snapshots`: of states, where limits.recurrent.
  machine(int blocks, bool cache, scheduler_limits limits, int host_blocks = 0,
          std::shared_ptr<test_guesser> guesses = nullptr, int snapshots = 8)
    : manager(blocks, cache, host_blocks),
      sched(limits, guesses),
      guesses_(std::move(guesses)),
      budget_(limits.step_tokens),
      stages_(static_cast<std::size_t>(limits.stages),
              {std::vector<std::uint64_t>(static_cast<std::size_t>(blocks) * kernels::block_tokens),
               std::vector<std::uint64_t>(static_cast<std::size_t>(host_blocks) * kernels::block_tokens),
               {},
               {limits.max_sequences, snapshots, limits.most_guesses}}),
      slots_(static_cast<std::size_t>(limits.max_sequences)) {
    REQUIRE(limits.recurrent == recurrent_layers);
    if (limits.recurrent)
      manager.keep_snapshots(state_snapshots(limits.max_sequences, snapshots));
  }

  bool plan() {
    if (sched.collect_guess_request())
      return true;
    if (!sched.wants_step()) {
      if (!guesses_ || !guesses_->reply())
        return false;
      sched.replied();
      return true;
    }
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

  /// Any stage that can goes on.
  bool execute() {
    const auto first = stages_.size() > 1 ? rng_() % stages_.size() : 0;
    for (std::size_t i = 0; i < stages_.size(); ++i)
      if (execute((first + i) % stages_.size()))
        return true;
    return false;
  }

  /// Runs the oldest plan of a stage on the stage's own K/V, and passes it on, or samples.
  bool execute(std::size_t number) {
    auto& stage = stages_.at(number);
    if (stage.plans.empty())
      return false;
    auto [plan, tokens] = stage.plans.front();
    if (number == 0 && plan->after_tokens_of > tokens_known_of_)
      return false;
    stage.plans.pop_front();
    REQUIRE(plan->after_tokens_of < plan->step);
    REQUIRE(plan->tokens.size() <= static_cast<std::size_t>(budget_));
    const bool last = number + 1 == stages_.size();
    for (const auto& move : plan->moves) {
      using kind = block_move::kind;
      if (move.what == kind::copy_state) {
        REQUIRE(recurrent_layers);
        stage.states.copy(move);
        continue;
      }
      if (move.image && move.image->state) {
        REQUIRE(recurrent_layers);
        if (last || move.what == kind::load)
          travel(stage.states, move);
        continue;
      }
      if (move.what == kind::save || move.what == kind::load) {
        if (last || move.what == kind::load)
          travel(stage.kv, move);
        continue;
      }
      std::copy_n((move.what == kind::swap_in ? stage.host : stage.kv).begin() + move.from * kernels::block_tokens,
                  kernels::block_tokens,
                  (move.what == kind::swap_out ? stage.host : stage.kv).begin() + move.to * kernels::block_tokens);
    }
    if (number == 0)
      for (auto t : plan->tokens) {
        if (t < 0)
          REQUIRE(plan->after_tokens_of > 0);
        tokens.push_back(t < 0 ? slots_.at(static_cast<std::size_t>(slot_of(t))) : t);
      }
    std::vector<std::uint64_t> rows(plan->tokens.size()), steered_by(plan->tokens.size());
    for (const auto& each : plan->featured)
      if (const auto* by = each.features->used.find(numbered_technique)) {
        const auto& its = plan->sequences[static_cast<std::size_t>(each.place)];
        for (int i = 0; i < its.rows; ++i)
          steered_by.at(static_cast<std::size_t>(its.first_row + i)) = by->salt();
      }
    std::vector<std::uint64_t> behind(rows.size()); // the states
    if (recurrent_layers) {
      stage.states.begin(plan->sequences, plan->states, plan->saves);
      for (std::size_t i = 0; i < plan->sequences.size(); ++i) {
        const auto& s = plan->sequences[i];
        const auto row = [&](int of) { return static_cast<std::size_t>(s.first_row + of); };
        stage.states.compute(
          stage.states.runs()[i], [&](int of) { return tokens[row(of)]; },
          [&](int of) { return steered_by[row(of)] + rotation_of(s.length); },
          [&](int of, std::uint64_t state) { behind[row(of)] = state; });
      }
      stage.states.end();
    }
    for (auto& s : plan->sequences) {
      for (const auto& copy : plan->common) // those of lines before
        stage.kv[place_of(copy.to, copy.place)] = stage.kv[place_of(copy.from, copy.place)];
      for (int i = 0; i < s.rows; ++i) {
        auto r = static_cast<std::size_t>(s.first_row + i);
        auto p = s.first_position + i;
        std::uint64_t seen = 0;
        for (int before = 0; before < p; ++before)
          seen += attended(at(stage.kv, *plan, s, before), before);
        at(stage.kv, *plan, s, p) = rows[r] = seen_with(
          mix(seen + steered_by[r] + rotation_of(s.length), static_cast<std::uint64_t>(tokens[r])), behind[r]);
      }
    }
    trees += !plan->common.empty();
    for (const auto& each : plan->featured)
      featured_lines += plan->states[static_cast<std::size_t>(each.place)].branch;
    overlapped += number > 0 && !stages_[number - 1].plans.empty();
    if (!last)
      stages_[number + 1].plans.push_back({plan, std::move(tokens)});
    else if (!plan->tokens.empty())
      sample(*plan, rows);
    return true;
  }

  void sample(const step_plan& plan, const std::vector<std::uint64_t>& rows) {
    step_result result;
    result.step = plan.step;
    const auto history = [&](std::int32_t logit_row) {
      return rows[static_cast<std::size_t>(plan.logit_rows[static_cast<std::size_t>(logit_row)])];
    };
    result.ms = time ? time(plan) : 0;
    for (std::size_t i = 0; stages_.size() > 1 && i < stages_.size(); ++i)
      result.stage_ms.push_back(result.ms * static_cast<double>(1 + rng_() % 8) / 10 /
                                static_cast<double>(stages_.size()));
    check_layered(plan);
    for (auto& d : plan.samples) {
      if (d.start)
        emitted_[d.sequence] = d.start->emitted.size();
      else if (!emitted_.contains(d.sequence))
        continue;
      REQUIRE(d.constrained == (guided.contains(d.sequence.request)));
      if (d.constrained && rng_() % 4 == 0) {
        late_.push_back({d, history(d.logit_row)});
        result.deferred.push_back(d.sequence);
        continue;
      }
      if (d.constrained && d.guesses == 0) {
        take_forced(d, history(d.logit_row), result);
        continue;
      }
      const auto draw = [&](std::int32_t i) { return this->draw(d, history(d.logit_row + i)); };
      if (!take_tokens(plan, d, draw, result))
        emitted_.erase(d.sequence);
    }
    for (auto& d : plan.groups) {
      if (d.start)
        groups_.insert_or_assign(d.request, test_group(d.start->asked->sampling));
      auto found = groups_.find(d.request);
      if (found == groups_.end())
        continue;
      std::vector<std::uint64_t> histories;
      for (auto row : d.logit_rows)
        histories.push_back(history(row));
      if (guided.contains(d.request) && rng_() % 4 == 0) {
        late_groups_.emplace_back(d.request, std::move(histories));
        result.deferred.push_back({d.request, 0});
        continue;
      }
      judge(d.request, histories, result);
    }
    CHECK(plan.logit_rows.size() <= slots_.size() + extra_logit_rows);
    for (auto& d : plan.scores)
      for (std::int32_t i = 0; i < d.tokens; ++i)
        scores[d.request][d.position + i] = history(d.logit_row + i);
    for (auto& d : plan.embeds) {
      REQUIRE(d.tokens > 0);
      for (std::int32_t i = 0; i < d.tokens; ++i) {
        const auto row = plan.hidden_rows.at(static_cast<std::size_t>(d.hidden_row + i));
        REQUIRE(!embedded[d.request].contains(d.position + i));
        embedded[d.request][d.position + i] = rows.at(static_cast<std::size_t>(row));
      }
      if (d.complete)
        ++completed[d.request];
    }
    for (auto id : plan.ended) {
      emitted_.erase(id);
      groups_.erase(id.request);
    }
    results_.push_back(result);
    tokens_known_of_ = plan.step;
  }

  /// Content that is kept outside, by key; of all machines that share it.
  using shelf = std::map<block_key, std::vector<std::byte>>;

  void keep_on(std::shared_ptr<shelf> outside, std::size_t images, int most_saves) {
    outside_ = std::move(outside);
    arriving_ = image_pool(image_bytes, images);
    manager.keep_outside({keys(), std::make_shared<const image_pool>(image_bytes, images), most_saves,
                          recurrent_layers ? std::make_shared<const image_pool>(sizeof(std::uint64_t), 2) : nullptr});
  }

  static block_keys keys() {
    block_keys::secret secret{};
    secret[5] = std::byte{3};
    return {secret, {7, 7}};
  }

  /// Moves what is still to be saved.
  void keep_rest() {
    while (aside({}).unsaved || !stages_.front().plans.empty())
      execute();
    drain();
  }

  /// Adopts what the shelf has of a prompt, or its beginning; blocks may be missing and come late.
  void bring(const submission& a) {
    block_request look;
    const auto salt = a.features ? a.features->salt : 0;
    const auto prompt = std::make_shared<const std::vector<token_id>>(a.prompt);
    look.lookups.push_back({{a.request, 0}, prompt, salt});
    const auto found = aside(look).found.at(0);
    block_arrival arrival{prompt, salt, found.blocks, {}};
    auto key = found.key;
    REQUIRE(found.reached <= found.blocks);
    for (auto i = static_cast<std::size_t>(found.reached); (i + 1) * kernels::block_tokens < a.prompt.size(); ++i) {
      key = keys().next(key, std::span(a.prompt).subspan(i * kernels::block_tokens, kernels::block_tokens));
      if (recurrent_layers)
        bring_state(arrival, key, static_cast<std::int32_t>(i));
      if (std::cmp_less(i, found.blocks))
        continue;
      const auto kept = outside_->find(key);
      auto image = kept != outside_->end() && rng_() % 8 > 0 ? arriving_.take() : nullptr;
      if (!image)
        break;
      std::ranges::copy(kept->second, image->bytes.begin());
      arrival.images.push_back(std::move(image));
      ++brought;
    }
    block_request arrive;
    arrive.arrivals.push_back(std::move(arrival));
    aside(arrive);
  }

  bool book() {
    if (results_.empty())
      return false;
    const auto step = step_times_.finished(results_.front(), {});
    if (step && step->ms > 0)
      sched.observe(step->shape, step->ms);
    if (step && step->ms > 0 && gap)
      sched.finished(results_.front(), step->ms + gap(unbooked_.front().ahead), step->ms);
    else
      sched.finished(results_.front());
    results_.pop_front();
    unbooked_.pop_front();
    return true;
  }

  /// What was deferred first.
  bool late() {
    if (!results_.empty()) // which may defer it
      return false;
    step_result result;
    if (!late_.empty()) {
      const auto [d, history] = late_.front();
      late_.pop_front();
      if (emitted_.contains(d.sequence))
        take_forced(d, history, result);
    } else if (!late_groups_.empty()) {
      const auto [request, histories] = late_groups_.front();
      late_groups_.pop_front();
      if (groups_.contains(request))
        judge(request, histories, result);
    } else {
      return false;
    }
    sched.finished_late(result);
    return true;
  }

  void drain() {
    for (int i = 0; i < 200000; ++i) {
      bool busy = plan();
      busy = execute() || busy;
      busy = book() || busy;
      const bool waits = !late_.empty() || !late_groups_.empty();
      busy = (waits && rng_() % 3 > 0) || late() || waits || busy;
      if (!busy)
        return;
    }
    FAIL("never became idle");
  }

  std::size_t sampling_states() const { return emitted_.size() + groups_.size(); }

  block_manager manager;
  scheduler sched;
  std::map<sequence_id, std::vector<token_id>> transcripts;
  std::map<std::uint64_t, std::vector<std::vector<token_id>>> group_results;
  std::map<std::uint64_t, std::map<std::int32_t, std::uint64_t>> scores;   // request, position -> history before it
  std::map<std::uint64_t, std::map<std::int32_t, std::uint64_t>> embedded; // request, position -> its hidden state
  std::map<std::uint64_t, int> completed;                                  // embeddings, by request
  std::map<std::uint64_t, int> max_tokens;
  int brought = 0; // blocks from outside
  int brought_states = 0;
  std::set<std::uint64_t> guided;  // requests
  std::set<std::uint64_t> layered; // requests that are contrasted with inner layers
  std::function<void()> on_round;
  std::function<swap_decision()> swap;
  std::function<double(const step_plan&)> time; // that a step takes, in ms
  std::function<double(bool ahead)> gap;        // ms that pass before it
  int trees = 0;                                // steps with guesses that branch, at a stage
  int featured_lines = 0;                       // further lines of trees of sequences with features, at a stage
  int overlapped = 0;                           // steps in a stage while the one before it had another
  int ahead_of_guides = 0;                      // plans made while sequences with guides, or groups, were in flight

private:
  sampled_token draw(const sample_demand& d, std::uint64_t history) {
    auto& out = transcripts[d.sequence];
    sampled_token token;
    token.id = choose(history, d.sequence.index, out, d.constrained);
    const auto position = emitted_[d.sequence]++;
    REQUIRE(position == out.size());
    out.push_back(token.id);
    if (!d.constrained) // whose tokens no placeholder stands for; a late one's slot may be another's by now
      slots_[static_cast<std::size_t>(d.slot)] = token.id;
    if (token.id < 10)
      token.finish = sampled_token::finish::eos;
    else if (static_cast<int>(out.size()) == max_tokens.at(d.sequence.request))
      token.finish = sampled_token::finish::length;
    return token;
  }

  // A token, and those that it forces.
  void take_forced(const sample_demand& d, std::uint64_t history, step_result& result) {
    for (;;) {
      const auto token = draw(d, history);
      const bool goes_on = token.finish == sampled_token::finish::none;
      const bool more = goes_on && is_forcing(token.id) && rng_() % 8 > 0;
      result.sampled.push_back({d.sequence, d.slot, token, more});
      if (!goes_on)
        emitted_.erase(d.sequence);
      if (!more)
        return;
    }
  }

  void judge(std::uint64_t request, const std::vector<std::uint64_t>& histories, step_result& result) {
    const auto found = groups_.find(request);
    result.groups.push_back({request, found->second.judge(histories)});
    if (result.groups.back().children.empty()) {
      group_results[request] = found->second.tokens;
      groups_.erase(found);
    }
  }

  /// The state behind a block, if the shelf has it and the block is not the last thing that is brought.
  void bring_state(block_arrival& arrival, const block_key& behind, std::int32_t place) {
    const auto kept = outside_->find(keys().of_state(behind));
    auto image = kept != outside_->end() && rng_() % 4 > 0 ? arriving_states_.take() : nullptr;
    if (!image)
      return;
    std::ranges::copy(kept->second, image->bytes.begin());
    image->place = place;
    image->state = true;
    arrival.states.push_back(std::move(image));
    ++brought_states;
  }

  /// Outside of a step: its moves follow those of all grants before.
  block_grant aside(const block_request& request) {
    auto grant = manager.serve(request);
    auto plan = std::make_shared<step_plan>();
    plan->step = 1; // of moves alone, it is of no matter
    plan->moves = sched.take_moves();
    plan->moves.insert(plan->moves.end(), grant.moves.begin(), grant.moves.end());
    if (!plan->moves.empty())
      stages_.front().plans.push_back({std::move(plan), {}});
    return grant;
  }

  void travel(test_states& states, const block_move& move) {
    if (move.what == block_move::kind::load)
      return states.load(move);
    states.save(move);
    outside_->insert_or_assign(move.image->key,
                               std::vector<std::byte>(move.image->bytes.begin(), move.image->bytes.end()));
  }

  void travel(std::vector<std::uint64_t>& kv, const block_move& move) {
    const bool saves = move.what == block_move::kind::save;
    auto* entries = &kv.at(static_cast<std::size_t>((saves ? move.from : move.to) * kernels::block_tokens));
    if (!saves)
      std::memcpy(entries, move.image->bytes.data(), image_bytes);
    else if (const auto* bytes = reinterpret_cast<const std::byte*>(entries); true)
      outside_->insert_or_assign(move.image->key, std::vector<std::byte>(bytes, bytes + image_bytes));
  }

  void send(const std::shared_ptr<const step_plan>& plan) {
    step_times_.planned(*plan, {});
    stages_.front().plans.push_back({plan, {}});
    ahead_of_guides += std::ranges::any_of(unbooked_, &unbooked::guides);
    unbooked_.push_back(
      {.ahead = !unbooked_.empty(),
       .guides = !plan->groups.empty() || std::ranges::any_of(plan->samples, &sample_demand::constrained)});
    if (!guesses_)
      return;
    auto rows = static_cast<int>(plan->tokens.size());
    for (const auto& d : plan->samples)
      rows -= d.guesses;
    guesses_->plain_rows.push_back(rows);
  }

  /// What is to be contrasted with inner layers: the rows that sequences of such requests sample from, each once.
  void check_layered(const step_plan& plan) const {
    std::vector<std::int32_t> wanted, found;
    for (const auto& d : plan.samples)
      if (layered.contains(d.sequence.request))
        for (std::int32_t i = 0; i <= d.guesses; ++i)
          wanted.push_back(d.logit_row + i);
    for (const auto& l : layered_logits_of(plan))
      for (std::int32_t i = 0; i < l.rows; ++i)
        found.push_back(l.logit_row + i);
    std::ranges::sort(wanted);
    const auto siblings = std::ranges::unique(wanted); // share the row of their prompt
    wanted.erase(siblings.begin(), siblings.end());
    std::ranges::sort(found);
    REQUIRE(found == wanted);
  }

  static std::size_t place_of(std::int32_t block, std::int32_t place) {
    return static_cast<std::size_t>(block * kernels::block_tokens + place);
  }

  static std::uint64_t& at(std::vector<std::uint64_t>& kv, const step_plan& plan, const kernels::sequence_rows& s,
                           int p) {
    auto block = plan.block_tables.at(static_cast<std::size_t>(s.first_block + p / kernels::block_tokens));
    return kv.at(place_of(block, p % kernels::block_tokens));
  }

  /// All stages compute the same, each from K/V that it alone has.
  struct stage {
    std::vector<std::uint64_t> kv, host;
    std::deque<std::pair<std::shared_ptr<const step_plan>, std::vector<token_id>>> plans; // with the tokens of rows
    test_states states;
  };

  struct unbooked {
    bool ahead = false, guides = false;
  };

  std::shared_ptr<test_guesser> guesses_;
  int budget_;
  std::vector<stage> stages_;
  std::uint64_t tokens_known_of_ = 0; // the last step
  std::vector<token_id> slots_;
  std::map<sequence_id, std::size_t> emitted_;
  std::map<std::uint64_t, test_group> groups_;
  std::deque<step_result> results_;
  std::deque<unbooked> unbooked_;                            // steps in flight
  std::deque<std::pair<sample_demand, std::uint64_t>> late_; // deferred, with their histories
  std::deque<std::pair<std::uint64_t, std::vector<std::uint64_t>>> late_groups_;
  std::mt19937 rng_{1};
  step_times step_times_;
  static constexpr std::size_t image_bytes = kernels::block_tokens * sizeof(std::uint64_t);
  std::shared_ptr<shelf> outside_;
  image_pool arriving_{image_bytes, 0}, arriving_states_{sizeof(std::uint64_t), 8};
};

inline submission make(std::uint64_t id, std::vector<token_id> prompt, int max_tokens, int n = 1, int priority = 0) {
  submission a;
  a.request = id;
  a.prompt = std::move(prompt);
  a.sampling.max_tokens = max_tokens;
  a.sampling.n = n;
  a.priority = priority;
  return a;
}

inline void submit(machine& m, submission a) {
  m.max_tokens[a.request] = a.sampling.max_tokens;
  if (a.follows)
    m.guided.insert(a.request);
  if (a.sampling.techniques.contrast()) {
    m.layered.insert(a.request);
    row_features features = a.features ? *a.features : row_features();
    for (const auto& use : a.sampling.techniques)
      features.used.set(use);
    a.features = std::make_shared<const row_features>(std::move(features));
  }
  REQUIRE_FALSE(m.sched.submit(a).has_value());
}

inline void check_transcripts(machine& m, const submission& a) {
  for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(a.sampling.n); ++i) {
    CAPTURE(a.request);
    CAPTURE(i);
    CHECK(m.transcripts[{a.request, i}] == solo(a, i));
  }
}

/// So many different tokens, of which none acts as EOS.
inline std::vector<token_id> numbered_tokens(int count, token_id first = 11) {
  std::vector<token_id> result(static_cast<std::size_t>(count));
  std::iota(result.begin(), result.end(), first);
  return result;
}

/// Runs a request and returns how much of its prompt was cached.
inline int cached_of(machine& m, std::uint64_t id, std::vector<token_id> prompt, int answer = 1) {
  const auto a = make(id, std::move(prompt), answer);
  submit(m, a);
  m.drain();
  check_transcripts(m, a);
  const auto started = m.sched.collect_started();
  REQUIRE(started.size() == 1);
  return started.front().cached_tokens;
}

} // namespace troupe::testing
