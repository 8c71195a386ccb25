#include "actors/replica.hpp"

#include "actors/constraint_compiler.hpp"
#include "actors/executor.hpp"
#include "actors/fault_door.hpp"
#include "actors/guess_worker.hpp"
#include "actors/kv_block_manager.hpp"
#include "actors/kv_mover.hpp"
#include "actors/messages/introductions.hpp"
#include "actors/sampler.hpp"
#include "actors/scheduler.hpp"

#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <utility>

namespace troupe {

// Shorter than what those who ask the engine wait (api/embed).
constexpr auto stats_deadline = std::chrono::seconds(3);

replica::replica(engine_actor::pointer engine, int number, model_replica what)
  : engine_(engine), number_(number), what_(std::move(what)) {
  seen_.number = number;
}

void replica::start(std::uint64_t life) {
  try {
    workers_ = spawn(life);
    started_ = engine_->clock().now();
    life_ = life;
  } catch (...) {
    end();
    throw;
  }
}

replica::workers replica::spawn(std::uint64_t life) {
  auto& system = engine_->system();
  const auto& [model, plan] = what_;
  const spawning_in here({number_});
  const auto make = [&](const auto& spawn) { return child::add(children_, engine_, spawn); };
  workers w;
  const auto engine = caf::actor_cast<caf::weak_actor_ptr>(engine_);
  const auto& disk = model->kv_disk;
  w.blocks = make([&] {
    return spawn_kv_block_manager(
      system, plan.blocks, model->prefix_cache, plan.host_blocks, former_blocks_,
      disk ? std::optional(disk->keeping()) : std::nullopt, plan.sending(),
      plan.limits.recurrent ? std::optional(state_snapshots(plan.limits.max_sequences, plan.snapshots)) : std::nullopt);
  });
  kv_mover_actor reader, writer;
  if (disk)
    for (auto* mover : {&reader, &writer})
      *mover = make([&] { return spawn_kv_mover(system, model, w.blocks, engine); });
  w.sampler = make([&] { return spawn_sampler(system, what_); });
  std::vector<executor_actor> stages; // from the last to the first
  for (auto i = plan.stages.size(); i-- > 0;) {
    const spawning_in its_stage({number_, static_cast<int>(i)});
    const auto peers = stages.empty() ? stage_peers{{}, w.sampler, writer} : stage_peers{stages.back()};
    stages.push_back(make([&] { return spawn_executor(system, what_, i, peers); }));
  }
  w.executor = stages.back();
  w.last = stages.front();
  if (model->constraints)
    w.constraints = make([&] { return spawn_constraint_compiler(system, model); });
  guess_worker_actor guess_worker;
  if (model->guesses.make_model)
    guess_worker = make([&] { return spawn_guess_worker(system, what_); });
  w.scheduler = make([&] {
    return spawn_scheduler(system, plan.limits, {w.blocks, w.executor, w.sampler, guess_worker, reader}, plan.swap,
                           model->guesses.make,
                           {.engine = engine,
                            .replica = number_,
                            .life = life,
                            .blocks = plan.blocks,
                            .former = former_schedulers_,
                            .sends = has_role(),
                            .lengths = model->lengths});
  });
  engine_->send(w.sampler, scheduler_known{w.scheduler});
  engine_->send(stages.front(), scheduler_known{w.scheduler});
  if (judge_)
    engine_->send(w.sampler, judge_known{judge_});
  if (steps_watched_)
    engine_->send(w.scheduler, watch_atom::value, true);
  return w;
}

// What former lives counted is read ahead of the answer: whoever answers is none of them.
template <class Handle, class Counters>
void replica::ask(const Handle& who, const former_lives<Counters>& former, Counters replica_stats::*what,
                  const std::function<void()>& answered) {
  engine_->request(who, stats_deadline, stats_atom::value)
    .then(
      [this, what, answered, past = former.counted()](const Counters& counted) {
        seen_.*what = counted;
        add_former(seen_.*what, past);
        answered();
      },
      [answered](const caf::error&) { answered(); });
}

void replica::count(const std::function<void(const replica_stats&)>& then) {
  if (number_ == 0) {
    seen_.model = what_.model->counted();
    if (const auto& disk = what_.model->kv_disk)
      seen_.kept = disk->store->counters();
  }
  if (!workers_) {
    if (has_ended()) {
      seen_.scheduler = former_schedulers_->counted();
      seen_.blocks = former_blocks_->counted();
    }
    return then(seen_);
  }
  const auto answered = [this, then, missing = std::make_shared<int>(2)] {
    if (--*missing == 0)
      then(seen_);
  };
  ask(workers_->scheduler, *former_schedulers_, &replica_stats::scheduler, answered);
  ask(workers_->blocks, *former_blocks_, &replica_stats::blocks, answered);
}

void replica::look(const std::function<void(replica_snapshot)>& then) {
  replica_snapshot seen{number_, seen_.restarts,
                        static_cast<std::uint64_t>(what_.model->replicas.at(static_cast<std::size_t>(number_)).blocks)};
  if (!workers_)
    return then(std::move(seen));
  engine_->request(workers_->blocks, stats_deadline, look_atom::value)
    .then(
      [then, seen](std::string& map) mutable {
        seen.map = std::move(map);
        then(std::move(seen));
      },
      [then, seen](const caf::error&) { then(seen); });
}

void replica::know(const replica& other) {
  const auto& there = *other.running();
  const replica_known known{.number = other.number(), .blocks = there.blocks, .scheduler = there.scheduler};
  engine_->send(workers_->blocks, known);
  engine_->send(workers_->last, known);
}

void replica::watch_steps(bool watched) {
  if (std::exchange(steps_watched_, watched) != watched && workers_)
    engine_->send(workers_->scheduler, watch_atom::value, watched);
}

void replica::judge_by(const judge_actor& judge) {
  judge_ = judge;
  if (workers_)
    engine_->send(workers_->sampler, judge_known{judge_});
}

void replica::end() noexcept {
  workers_.reset();
  for (auto& each : children_)
    each.end();
}

std::optional<error> replica::fail(const fault& f) {
  if (!workers_)
    return std::nullopt; // it is ending already
  end();
  if (!f.recoverable) {
    failed_ = true;
    auto why = f.why;
    why.message = "the device is lost: " + why.message;
    return why;
  }
  const auto life = engine_->clock().now() - started_;
  const auto wait = policy_.after(life);
  has_run_ = has_run_ || life >= restart_policy::least_life || f.at_work;
  if (f.starting && never_ran_for(wait)) {
    failed_ = true;
    return f.why;
  }
  ++seen_.restarts;
  restarting_ = {"a part of the engine failed and was restarted: " + f.why.message, f.why.message, wait};
  return std::nullopt;
}

std::optional<error> replica::put_off(const error& why) {
  const auto wait = policy_.after({});
  if (never_ran_for(wait)) {
    failed_ = true;
    return why;
  }
  restarting_ = {"a part of the engine could not be started, and then was: " + why.message, why.message, wait};
  return std::nullopt;
}

// Here it never will, and requests wait for it.
bool replica::never_ran_for(std::chrono::milliseconds wait) const { return !has_run_ && restart_policy::is_long(wait); }

std::optional<replica::pending_restart> replica::take_restart() {
  return children_.empty() ? std::exchange(restarting_, std::nullopt) : std::nullopt;
}

} // namespace troupe
