#include "actors/replica_set.hpp"

#include "actors/messages/admission.hpp"
#include "actors/messages/reminders.hpp"

#include <caf/typed_event_based_actor.hpp>

#include <algorithm>
#include <utility>

namespace troupe {

namespace {

constexpr auto flush_deadline = std::chrono::seconds(10);

std::string again_and_again(const replica::pending_restart& its) {
  return " fails again and again, and is started again " + restart_policy::every(its.wait) + ": " + its.why;
}

} // namespace

void replica_set::make(const loaded_model_ptr& model) {
  model_ = model;
  router_ = router(model->strict_roles, role_balance(model->role_idle));
  router_.lengths().load(model->lengths->learned());
  for (std::size_t i = 0; i < model->replicas.size(); ++i)
    replicas_.push_back(std::make_unique<replica>(engine_, static_cast<int>(i), replica_of(model, i)));
}

// -- starts and failures ----------------------------------------------------------------------------------------------

/// `line`: the reason for this start, for a person; empty: it is the first.
replica_set::change replica_set::start(replica& which, std::string line, bool alone) {
  try {
    which.start(has_router() ? ++lives_ : 0);
  } catch (...) {
    const auto why = error_of(std::current_exception());
    if (!line.empty()) {
      if (const auto never = which.put_off(why))
        return give_up(which, *never);
      return restart_when_ended(which, alone);
    }
    which.give_up();
    return give_up(which, why);
  }
  if (alone && !alone_)
    alone_ = which.number();
  if (has_router() && alone_ != which.number())
    open_route(which);
  introduce(which);
  const bool told = !line.empty();
  return {.started = true, .told = told, .line = std::move(line)};
}

replica_set::change replica_set::start_again(int number, bool alone) {
  auto due = restarts_.extract(number);
  return due ? start(at(number), std::move(due.mapped().line), alone) : change();
}

replica* replica_set::lose(const caf::actor_addr& actor) {
  const auto found = std::ranges::find_if(replicas_, [&](auto& each) { return each->lose(actor); });
  return found == replicas_.end() ? nullptr : found->get();
}

void replica_set::close(const replica& failed) {
  router_.stop(failed.number());
  if (alone_ == failed.number())
    alone_.reset();
}

// Requests notice the scheduler's end and ask the engine again.
replica_set::change replica_set::fail(replica& failed, const fault& f, bool alone) {
  if (const auto why = failed.fail(f))
    return give_up(failed, *why);
  return restart_when_ended(failed, alone);
}

replica_set::change replica_set::restart_when_ended(replica& which, bool alone) {
  auto next = which.take_restart();
  if (!next)
    return {};
  if (has_router())
    next->line = "replica " + std::to_string(which.number()) + ": " + next->line;
  if (next->wait.count() == 0)
    return start(which, std::move(next->line), alone);
  engine_->delayed_send(engine_, next->wait, restart_due{which.number()});
  const bool is_long = restart_policy::is_long(next->wait);
  restarts_.insert_or_assign(which.number(), *std::move(next));
  return {.told = is_long};
}

// Others go on, if there are any.
replica_set::change replica_set::give_up(const replica& which, const error& why) {
  const auto left = std::ranges::count_if(replicas_, [](auto& each) { return !each->has_failed(); });
  if (left == 0)
    return {.failed = why};
  lost_ = std::to_string(left) + " of " + std::to_string(replicas_.size()) + " replicas are left: replica " +
    std::to_string(which.number()) + ": " + why.message;
  return {.told = true, .line = lost_};
}

void replica_set::forgive_all() {
  for (auto& each : replicas_)
    each->forgive();
}

void replica_set::end_alone() {
  if (const auto number = std::exchange(alone_, std::nullopt); number && has_router())
    open_route(at(*number));
}

void replica_set::open_route(const replica& to) {
  const auto& plan = model_->replicas.at(static_cast<std::size_t>(to.number()));
  router_.start(to.number(), to.life(),
                {.blocks = plan.blocks,
                 .slots = plan.limits.max_sequences,
                 .queue = plan.limits.max_queue,
                 .step_rows = plan.limits.step_tokens,
                 .role = plan.role,
                 .block_copy_ms = plan.exchange.copy_ms});
}

// Tells the replicas that have roles of each other: each may prefill for another one, sooner or later.
void replica_set::introduce(replica& started) {
  const auto know = [](replica& from, const replica& to) {
    if (from.has_role() && to.has_role() && from.running() && to.running())
      from.know(to);
  };
  for (auto& each : replicas_) {
    if (each.get() == &started)
      continue;
    know(*each, started);
    know(started, *each);
  }
}

// -- requests ---------------------------------------------------------------------------------------------------------

const replica* replica_set::running() const {
  const auto found = std::ranges::find_if(replicas_, [](auto& each) { return each->running() != nullptr; });
  return found == replicas_.end() ? nullptr : found->get();
}

bool replica_set::is_open() const {
  return std::ranges::any_of(replicas_, [this](auto& each) { return each->running() && alone_ != each->number(); });
}

void replica_set::admit_to(const replica& to, std::uint64_t number, admit_reply& reply) const {
  reply.scheduler = to.running()->scheduler;
  reply.constraints = to.running()->constraints;
  reply.replica = to.number();
  reply.number = number;
}

bool replica_set::choose(const route_query* asked, admit_reply& reply) {
  ++last_number_;
  const replica* to = nullptr;
  if (reply.tried && alone_) {
    to = &at(*alone_);
  } else if (!has_router()) {
    to = alone_ ? nullptr : running();
  } else if (const auto route = router_.choose(last_number_, *asked)) {
    reply.expected_cached = route->cached_tokens;
    reply.moves_to = route->moves_to;
    to = &at(route->replica);
  }
  if (to)
    admit_to(*to, last_number_, reply);
  return to != nullptr;
}

bool replica_set::move(int from, int to, std::uint64_t was, const route_query& asked, admit_reply& reply) {
  const auto choice = router_.move(from, to, was, ++last_number_, asked);
  auto& counted = at(from).moves();
  switch (choice.why) {
    case move_choice::reason::gone: ++counted.gone; return false;
    case move_choice::reason::dearer: ++counted.dearer; return false;
    case move_choice::reason::moves: ++counted.moved; break;
  }
  reply.expected_cached = choice.to->cached_tokens;
  admit_to(at(to), last_number_, reply);
  return true;
}

std::optional<std::string> replica_set::yield_roles(std::chrono::steady_clock::time_point now) {
  const auto change = router_.yield_roles(now);
  if (!change)
    return std::nullopt;
  at(change->replica).count_role_change();
  return change->line(model_->role_idle);
}

// -- what all are told, and asked -------------------------------------------------------------------------------------

void replica_set::judge_by(const judge_actor& judge) {
  for (auto& each : replicas_)
    each->judge_by(judge);
}

void replica_set::watch_steps(bool watched) {
  for (auto& each : replicas_)
    each->watch_steps(watched);
}

void replica_set::count(const std::function<void(std::vector<replica_stats>)>& then) {
  const auto counted = std::make_shared<std::vector<replica_stats>>();
  for (auto& each : replicas_)
    each->count([then, counted, all = replicas_.size()](const replica_stats& its) {
      counted->push_back(its);
      if (counted->size() < all)
        return;
      std::ranges::sort(*counted, {}, &replica_stats::number);
      then(std::move(*counted));
    });
}

void replica_set::look(const std::function<void(std::vector<replica_snapshot>)>& then) {
  const auto seen = std::make_shared<std::vector<replica_snapshot>>();
  if (replicas_.empty())
    then({});
  for (auto& each : replicas_)
    each->look([this, then, seen, all = replicas_.size()](replica_snapshot its) {
      its.role = router_.role_of(its.number);
      seen->push_back(std::move(its));
      if (seen->size() < all)
        return;
      std::ranges::sort(*seen, {}, &replica_snapshot::number);
      then(std::move(*seen));
    });
}

std::string replica_set::why_unable() const {
  const replica::pending_restart* longest = nullptr;
  for (const auto& each : replicas_) {
    if (each->has_failed())
      continue;
    const auto waits = restarts_.find(each->number());
    if (waits == restarts_.end() || !restart_policy::is_long(waits->second.wait))
      return {};
    if (!longest || waits->second.wait > longest->wait)
      longest = &waits->second;
  }
  return longest ? "the engine is not able to run: a part of it" + again_and_again(*longest) : std::string();
}

std::vector<std::string> replica_set::troubles() const {
  std::vector<std::string> all{lost_, why_unable()};
  if (all[1].empty())
    for (const auto& [number, its] : restarts_)
      if (restart_policy::is_long(its.wait))
        all.push_back("replica " + std::to_string(number) + again_and_again(its));
  std::erase(all, "");
  return all;
}

// -- the end ----------------------------------------------------------------------------------------------------------

bool replica_set::is_flushed(const std::function<void()>& then) {
  if (std::exchange(flush_begun_, true) || !model_ || !model_->kv_disk)
    return flushing_ == 0;
  const auto done = [this, then] {
    --flushing_;
    then();
  };
  for (auto& each : replicas_)
    if (const auto* running = each->running()) {
      ++flushing_;
      engine_->request(running->blocks, flush_deadline, flush_atom::value)
        .then([done](bool) { done(); }, [done](caf::error&) { done(); });
    }
  return flushing_ == 0;
}

bool replica_set::end() {
  bool ended = true;
  for (auto& each : replicas_) {
    each->end();
    ended = ended && each->has_ended();
  }
  return ended;
}

} // namespace troupe
