#include "actors/scheduler.hpp"

#include "actors/messages/disk.hpp"
#include "actors/messages/endings.hpp"
#include "actors/messages/guessing.hpp"
#include "actors/messages/introductions.hpp"
#include "actors/messages/reminders.hpp"
#include "actors/messages/roles.hpp"
#include "actors/messages/sampling.hpp"
#include "actors/spawn.hpp"
#include "runtime/engine/deadlines.hpp"
#include "runtime/scheduling/blocks/block_chain.hpp"
#include "runtime/scheduling/cost/step_times.hpp"
#include "runtime/scheduling/planning/ledger_keeper.hpp"
#include "runtime/scheduling/planning/scheduler.hpp"
#include "runtime/scheduling/planning/step_recorder.hpp"
#include "runtime/scheduling/routing/load_reporter.hpp"
#include "runtime/scheduling/step_record.hpp"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

namespace {

class scheduler_state {
public:
  static constexpr const char* name = "scheduler";
  using accompanies = companion;

  scheduler_state(scheduler_actor::pointer self, scheduler_limits limits, scheduler_peers peers, swap_rates rates,
                  const make_guesser& guesses, scheduler_place place)
    : self_(self),
      guesser_(guesses ? guesses([this](int rows) { return scheduler_.estimate(rows); }) : nullptr),
      scheduler_(limits, guesser_),
      max_wait_(
        std::chrono::duration_cast<clock::duration>(std::chrono::duration<double, std::milli>(limits.max_wait_ms))),
      rope_borders_(std::move(limits.rope_borders)),
      swap_(rates),
      peers_(std::move(peers)),
      place_(std::move(place)) {
    self_->set_down_handler([this](caf::down_msg& down) { cancel(down.source); });
    if (place_.lengths)
      scheduler_.lengths().load(place_.lengths->learned());
    if (place_.life > 0)
      reporter_.emplace(place_.replica, place_.life, place_.blocks);
  }

  ~scheduler_state() {
    if (place_.former)
      place_.former->end(scheduler_.counters());
    if (place_.lengths)
      place_.lengths->keep(scheduler_.lengths());
  }

  scheduler_actor::behavior_type make_behavior() {
    return {
      [this](submit_atom, const admission_ptr& a, const request_actor& client) {
        if (const auto late = scheduler_.too_late(*a, self_->clock().now()))
          self_->send(client, failed_atom::value, a->request, *late);
        else if (!fetch(a, client))
          submit(*a, client);
      },
      [this](finish_atom, const sequence_id& id) { scheduler_.finish(id), plan_step(); },
      [this](const request_paused& now) { pause(now.request, now.paused); },
      [this](const request_left& its) { leave(its.request); },
      [this](const chain_arrived& its) {
        if (const auto client = clients_.find(its.request); client != clients_.end())
          self_->send(client->second, its);
      },
      [this](grant_atom, const block_grant_ptr& grant) { apply_grant(*grant); },
      [this](result_atom, const step_result_ptr& result) { finish_step(*result); },
      [this](const late_tokens_sampled& late) { finish_late(*late.result); },
      [this](const guesses_made& its) { take_guesses(*its.reply); },
      [this](watch_atom, bool watched) { watch(watched); },
      [this](moves_atom, const block_moves_ptr& moves) { move_blocks(*moves); },
      [this](const fetch_done& its) { stop_holding(its.request); },
      [this](const fetch_overdue& late) { stop_holding(late.request); },
      [this](stats_atom) { return counters(); },
    };
  }

  const scheduler& inner() const { return scheduler_; }

private:
  // Holds a request whose prompt may be on the disk, as long as computing it is expected to take.
  bool fetch(const admission_ptr& a, const request_actor& client) {
    constexpr std::size_t most_held = 64;
    constexpr double least_ms = 20, most_ms = 10'000;
    const auto& asked = *a->asked;
    if (!peers_.reader || held_.size() >= most_held || asked.prompt.size() <= kernels::block_tokens ||
        asked.embed != pooling::none || asked.sampling.prompt_logprobs >= 0)
      return false; // of the last two, all rows are computed
    kv_fetch what;
    what.request = a->request;
    what.tokens = prompt_of(a->asked);
    what.salt = chain_root(asked.features ? asked.features->salt : 0,
                           rotation_of(static_cast<std::int32_t>(asked.prompt.size()), rope_borders_));
    what.recompute_ms = recompute_ms(scheduler_.cost(), scheduler_.step_rows());
    const auto blocks = static_cast<double>(asked.prompt.size() / kernels::block_tokens);
    const auto wait = what.recompute_ms > 0 ? std::clamp(what.recompute_ms * blocks, least_ms, most_ms) : most_ms;
    const auto longest = std::chrono::duration_cast<clock::duration>(std::chrono::duration<double, std::milli>(wait));
    what.until = self_->clock().now() + longest;
    self_->monitor(client);
    requests_.emplace(client.address(), a->request);
    held_.emplace(a->request, held_request{a, client});
    ledgers_.held(*a, self_->clock().now());
    self_->send(
      peers_.blocks,
      prefix_wanted{std::make_shared<const kv_fetch>(std::move(what)), peers_.reader, scheduler_actor(self_)});
    self_->delayed_send(self_, longest, fetch_overdue{a->request});
    return true;
  }

  void stop_holding(std::uint64_t request) {
    const auto found = held_.find(request);
    if (found == held_.end())
      return; // the other came first, or it was cancelled
    const auto held = std::move(found->second);
    held_.erase(found);
    submit(*held.what, held.client);
    if (held.paused)
      pause(request, true);
  }

  // In the order in which the block manager makes them.
  void move_blocks(const std::vector<block_move>& more) {
    auto plan = std::make_shared<step_plan>();
    plan->moves = scheduler_.take_moves();
    plan->moves.insert(plan->moves.end(), more.begin(), more.end());
    if (!plan->moves.empty())
      self_->send(peers_.executor, plan_atom::value, step_plan_ptr(std::move(plan)));
  }

  scheduler_counters counters() const {
    auto c = scheduler_.counters();
    c.waiting += held_.size();
    return c;
  }

  void submit(const admission& a, const request_actor& client) {
    if (reporter_)
      reporter_->received(a.request);
    const auto refused = scheduler_.submit(a);
    tell_failed();
    if (refused) {
      self_->send(client, failed_atom::value, a.request, *refused);
      return;
    }
    if (requests_.emplace(client.address(), a.request).second)
      self_->monitor(client);
    clients_.emplace(a.request, client);
    ledgers_.joined(a, self_->clock().now());
    wait_until(a);
    self_->send(peers_.sampler, request_joined{a.request, client});
    plan_step();
  }

  void pause(std::uint64_t request, bool paused) {
    if (const auto held = held_.find(request); held != held_.end()) {
      held->second.paused = paused;
      return;
    }
    for (const auto dropped : scheduler_.pause(request, paused))
      if (auto client = clients_.find(dropped); client != clients_.end())
        self_->send(client->second, failed_atom::value, dropped,
                    error{errc::overloaded, "too many requests are paused, and this one has been for longest", {}});
    ledgers_.stands(request, scheduler_.standing_of(request), self_->clock().now());
    plan_step();
  }

  // A request actor ends when its client has the last event, so no sequence of it need run on.
  void cancel(const caf::actor_addr& client) {
    auto found = requests_.find(client);
    if (found == requests_.end())
      return;
    held_.erase(found->second);
    scheduler_.cancel(found->second);
    clients_.erase(found->second);
    ledgers_.left(found->second);
    stop_waiting(found->second);
    requests_.erase(found);
    plan_step();
    report_load();
  }

  // Its actor lives on, so it must not be watched any longer.
  void leave(std::uint64_t request) {
    const auto held = held_.find(request);
    const auto client = clients_.find(request);
    if (held == held_.end() && client == clients_.end())
      return;
    const auto address = (held != held_.end() ? held->second.client : client->second).address();
    self_->demonitor(address);
    cancel(address);
  }

  void finish_step(const step_result& result) {
    const auto now = self_->clock().now();
    ledgers_.finished(result, now);
    const std::chrono::duration<double, std::milli> since = busy_since_ ? now - *std::exchange(busy_since_, now)
                                                                        : clock::duration(0);
    const auto step = times_.finished(result, now);
    auto remark = step ? scheduler_.observe(step->shape, step->ms) : std::string();
    if (!result.news.empty())
      remark += (remark.empty() ? "" : "; ") + result.news;
    scheduler_.finished(result, since.count(), step ? step->ms : since.count());
    if (recorder_ || !remark.empty())
      record(result, step ? step->ms : 0, std::move(remark));
    if (scheduler_.idle())
      busy_since_.reset();
    plan_step();
  }

  void report_load() {
    auto report = reporter_ ? reporter_->due(scheduler_, self_->clock().now()) : std::nullopt;
    if (!report)
      return;
    if (auto alive = caf::actor_cast<caf::strong_actor_ptr>(place_.engine))
      self_->send(caf::actor_cast<engine_actor>(alive), load_atom::value,
                  std::make_shared<const load_report>(std::move(*report)));
  }

  void tell_failed() {
    for (auto& [request, why] : scheduler_.collect_failed())
      if (auto client = clients_.find(request); client != clients_.end())
        self_->send(client->second, failed_atom::value, request, why);
  }

  void finish_late(const step_result& result) {
    if (recorder_)
      recorder_->finished_late(result);
    scheduler_.finished_late(result);
    plan_step();
  }

  void watch(bool watched) {
    recorder_.reset();
    if (watched)
      recorder_.emplace(scheduler_.counters());
  }

  void record(const step_result& result, double ms, std::string remark) {
    auto made = recorder_ ? recorder_->finished(result, scheduler_.counters()) : std::nullopt;
    if (!made && remark.empty())
      return;
    auto r = std::move(made).value_or(step_record{.step = result.step});
    r.end = self_->clock().now();
    r.replica = place_.replica;
    r.ms = ms;
    r.stage_ms = result.stage_ms;
    if (ms > 0 && r.stage_ms.empty())
      r.stage_ms = {ms};
    r.remark = std::move(remark);
    if (auto alive = caf::actor_cast<caf::strong_actor_ptr>(place_.engine))
      self_->send(caf::actor_cast<engine_actor>(alive), record_atom::value,
                  std::make_shared<const step_record>(std::move(r)));
  }

  void take_guesses(const guess_reply& reply) {
    guesser_->deliver(reply);
    scheduler_.replied();
    plan_step();
  }

  // Notes how long a request may wait for its first rows.
  void wait_until(const admission& a) {
    if (const auto by = std::min(a.first_by, a.all_by); by != clock::time_point::max())
      wanted_until_.set(a.request, by);
    if (max_wait_.count() > 0 && !a.again)
      may_wait_until_.set(a.request, self_->clock().now() + max_wait_);
  }

  void stop_waiting(std::uint64_t request) {
    wanted_until_.erase(request);
    may_wait_until_.erase(request);
  }

  // Before a step is planned: what nobody wants any more has no rows in it.
  void refuse_expired() {
    const auto now = self_->clock().now();
    while (const auto late = wanted_until_.expired(now))
      if (const auto* client = refuse_waiting(*late))
        self_->send(*client, deadline_passed{});
    while (const auto late = may_wait_until_.expired(now))
      if (const auto* client = refuse_waiting(*late))
        self_->send(*client, failed_atom::value, *late, scheduler_.waited_for_long());
  }

  // Its actor, if that has not ended.
  const request_actor* refuse_waiting(std::uint64_t request) {
    stop_waiting(request);
    scheduler_.cancel(request);
    const auto client = clients_.find(request);
    return client == clients_.end() ? nullptr : &client->second;
  }

  void plan_step() {
    refuse_expired();
    if (peers_.guess_worker)
      want_guesses(scheduler_.collect_guess_request());
    if (scheduler_.wants_step())
      request_blocks(scheduler_.begin_step());
  }

  void want_guesses(std::optional<guess_request> request) {
    if (request)
      self_->send(peers_.guess_worker,
                  guesses_wanted{std::make_shared<const guess_request>(std::move(*request)), scheduler_actor(self_)});
  }

  // Sent rather than requested: if the block manager dies, the engine ends the whole group.
  void request_blocks(block_request request) {
    request.swap = decide_swap(swap_, scheduler_.cost(), scheduler_.step_rows());
    self_->send(peers_.blocks, blocks_atom::value, std::make_shared<const block_request>(std::move(request)),
                scheduler_actor(self_));
  }

  void apply_grant(const block_grant& grant) {
    if (recorder_)
      recorder_->granted(grant);
    if (reporter_)
      reporter_->granted(grant);
    ledgers_.granted(grant);
    auto next = scheduler_.granted(grant);
    if (auto* request = std::get_if<block_request>(&next))
      return request_blocks(std::move(*request));
    // Before the plan is sent, so that no token arrives first.
    for (auto& s : scheduler_.collect_started()) {
      stop_waiting(s.request);
      if (auto client = clients_.find(s.request); client != clients_.end())
        self_->send(client->second, started_atom::value, s.request, s.cached_tokens,
                    caf::timespan(self_->clock().now().time_since_epoch()));
    }
    tell_failed();
    if (auto* plan = std::get_if<step_plan_ptr>(&next)) {
      const auto now = self_->clock().now();
      times_.planned(**plan, now);
      ledgers_.planned(
        **plan, scheduler_.cost(), scheduler_.running_lanes(),
        [this](std::uint64_t request) { return scheduler_.standing_of(request); }, now);
      if (recorder_)
        recorder_->planned(**plan, scheduler_.counters(), scheduler_.idle_lanes(most_step_lanes));
      if (!busy_since_)
        busy_since_ = now;
      if (scheduler::wants_masks(**plan))
        self_->send(peers_.sampler, plan_atom::value, *plan);
      self_->send(peers_.executor, plan_atom::value, *plan);
      if (peers_.guess_worker)
        want_guesses(scheduler_.collect_request_ahead());
    } else {
      ledgers_.dropped();
      if (peers_.reader || place_.sends)
        move_blocks({}); // what is to be saved waits for no step
    }
    report_load();
    plan_step();
  }

  using clock = std::chrono::steady_clock;

  struct held_request {
    admission_ptr what;
    request_actor client;
    bool paused = false;
  };

  scheduler_actor::pointer self_;
  std::shared_ptr<guesser> guesser_; // null: none
  scheduler scheduler_;
  step_times times_;
  ledger_keeper ledgers_;
  const clock::duration max_wait_;                         // for the first rows; 0: no limit
  deadlines<std::uint64_t> wanted_until_, may_wait_until_; // of requests that have no rows yet
  std::optional<clock::time_point> busy_since_;            // the end of the last step, or when the next one could begin
  const std::vector<std::int32_t> rope_borders_;
  swap_rates swap_;
  scheduler_peers peers_;
  scheduler_place place_;
  std::optional<step_recorder> recorder_; // while someone watches
  std::optional<load_reporter> reporter_; // beside other replicas
  std::map<std::uint64_t, request_actor> clients_;
  std::map<caf::actor_addr, std::uint64_t> requests_;
  std::map<std::uint64_t, held_request> held_; // until their prompts are read
};

} // namespace

scheduler_actor spawn_scheduler(caf::actor_system& system, scheduler_limits limits, scheduler_peers peers,
                                swap_rates rates, make_guesser guesses, scheduler_place place) {
  return spawn_state<scheduler_actor, scheduler_state>(system, limits, std::move(peers), rates, std::move(guesses),
                                                       std::move(place));
}

} // namespace troupe
