#include "actors/engine.hpp"

#include "actors/admissions.hpp"
#include "actors/engine_status.hpp"
#include "actors/faults.hpp"
#include "actors/kept_judge.hpp"
#include "actors/messages/endings.hpp"
#include "actors/messages/judging.hpp"
#include "actors/messages/loading.hpp"
#include "actors/messages/reminders.hpp"
#include "actors/messages/roles.hpp"
#include "actors/model_load.hpp"
#include "actors/open_questions.hpp"
#include "actors/request.hpp"
#include "actors/spawn.hpp"
#include "actors/step_watchers.hpp"
#include "runtime/engine/engine_snapshot.hpp"
#include "runtime/engine/restart_policy.hpp"
#include "runtime/scheduling/cost/load_report.hpp"
#include "runtime/scheduling/step_record.hpp"

#include <caf/send.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace troupe {

namespace {

class engine_state {
public:
  static constexpr const char* name = "engine";

  engine_state(engine_actor::pointer self, engine_options options, engine_listener on_status, model_loader loader,
               model_loader judge_loader)
    : self_(self), status_(std::move(on_status)), loading_(self_, std::move(options), std::move(loader)) {
    self_->set_down_handler([this](caf::down_msg& down) { child_ended(down); });
    self_->set_exit_handler([this](caf::exit_msg& exit) { stop(exit.reason); });
    try {
      if (!judge_of(loading_.waits()->techniques)) {
        loading_.start(status_.listener());
      } else {
        judge_.emplace(self_, *loading_.waits(), std::move(judge_loader));
        judge_->start([tell = status_.listener()](const load_status& s) { tell(s, nullptr); });
      }
    } catch (...) {
      on_exception(std::current_exception());
    }
  }

  // Replicas and the judge never outlive the engine. Requests notice its end.
  ~engine_state() {
    loading_.abandon();
    if (stopping_ || failed_)
      return;
    for (const auto* why : {"the supervisor of the engine was ended from outside", "out of memory"}) // needs none
      try {
        status_.failed({errc::internal, why, {}});
        return;
      } catch (...) {
        // The listener cannot be told.
      }
  }

  engine_actor::behavior_type make_behavior() {
    return {
      [this](submit_atom, std::uint64_t id, const generation_ptr& what, const client_actor& client) {
        return submit(id, what, client);
      },
      [this](const admission_wanted& wanted) { requests_.admit(wanted), yield_roles(); },
      [this](const trial_ended& its) { requests_.end_trial(its.request, its.tokens); },
      [this](const move_wanted& its) { requests_.move(its.request, its.number, *its.query); },
      [this](load_atom, const load_report_ptr& report) { replicas_.take(*report), yield_roles(); },
      [this](const deadline_set& wanted) { requests_.set_deadline(wanted.ms, wanted.request); },
      [this](deadlines_due) { requests_.tell_late(); },
      [this](const restart_due& due) { due.replica < 0 ? load_judge() : restart(due.replica); },
      [this](const model_loaded& its) { loader_ends(), finish_loading(its.model); },
      [this](const load_failed& failed) { loader_ends(), fail(failed.why); },
      [this](judge_ready) { judge_loaded(); },
      [this](const judge_failed& failed) { judge_ended(failed.why); },
      [this](answer_valued) { judge_->count(); },
      [this](record_atom, const step_record_ptr& record) { take(*record), watchers_.pass_on(record); },
      [this](watch_atom, const step_watcher_actor& watcher) { watchers_.add(watcher); },
      [this](unwatch_atom, const step_watcher_actor& watcher) { watchers_.dismiss(watcher); },
      [this](look_atom) { return look(); },
      [this](news_atom, std::string& line) { tell(warning(std::move(line))); },
      [this](stats_atom) { return stats(); },
    };
  }

  // Reports the end to the listener and to requests that wait.
  void on_exception(const std::exception_ptr& thrown) noexcept {
    try {
      fail(error_of(thrown));
    } catch (...) {
      try {
        fail({errc::out_of_memory, "out of memory", {}}); // too short to need any
      } catch (...) {
        // The listener cannot be told.
      }
    }
  }

private:
  // -- loading --------------------------------------------------------------------------------------------------------

  // It is loaded first, as it takes a known part of the memory, of which the model's KV cache takes what there is.
  void judge_loaded() {
    if (auto line = judge_->ready(); !line.empty() && model_)
      report_ready(std::move(line));
    if (!loading_.waits() || failed_ || stopping_)
      return;
    try {
      loading_.start(status_.listener());
    } catch (...) {
      on_exception(std::current_exception());
    }
  }

  void judge_ended(const error& why) {
    if (loading_.waits())
      fail(why);
  }

  void loader_ends() {
    loading_.ended();
    if (stopping_)
      quit_when_done();
  }

  void finish_loading(const loaded_model_ptr& model) {
    if (stopping_)
      return;
    model_ = model;
    replicas_.make(model_);
    requests_.open(model_);
    tell_who_judges();
    watchers_.tell_replicas();
    for (int i = 0; i < replicas_.size(); ++i)
      take(replicas_.start_first(i, requests_.closed()));
    if (!failed_)
      report_ready({});
  }

  // -- requests -------------------------------------------------------------------------------------------------------

  // A failure to take one request must not end the engine.
  caf::result<request_actor> submit(std::uint64_t id, const generation_ptr& what, const client_actor& client) {
    client_line line(client, id);
    try {
      return spawn_request(self_->system(), self_, what, std::move(line));
    } catch (const std::bad_alloc&) {
      line.close(std::current_exception());
      return caf::make_error(caf::sec::runtime_error);
    }
  }

  void yield_roles() {
    if (auto line = replicas_.yield_roles(self_->clock().now()))
      tell(*std::move(line));
  }

  // -- replicas -------------------------------------------------------------------------------------------------------

  void take(replica_set::change its) {
    if (its.failed)
      return fail(*its.failed);
    if (its.told)
      report_ready(std::move(its.line));
    if (its.started)
      requests_.go_on();
  }

  void replica_lost(replica& which, const fault& f) {
    replicas_.close(which);
    if (which.running() && f.at_work)
      requests_.suspect_all_in(which, f.why);
    take(replicas_.fail(which, f, requests_.closed()));
  }

  void restart(int number) {
    if (!stopping_)
      take(replicas_.start_again(number, requests_.closed()));
  }

  /// Why not all of it serves; empty: it does.
  std::string degraded() const {
    auto all = replicas_.troubles();
    all.push_back(judge_ ? judge_->trouble() : std::string());
    std::string text;
    for (const auto& each : all)
      text += (text.empty() || each.empty() ? "" : "; ") + each;
    return text;
  }

  // -- the judge ------------------------------------------------------------------------------------------------------

  // All goes on without it, except the searches that it would judge.
  void judge_lost(const fault& f) {
    if (stopping_ || failed_)
      return;
    if (loading_.waits())
      return fail(f.why);
    const auto wait = judge_->wait_after(f);
    tell_who_judges();
    if (wait.count() == 0)
      return load_judge();
    self_->delayed_send(self_, wait, restart_due{-1});
    if (model_ && restart_policy::is_long(wait))
      report_ready({});
  }

  void load_judge() {
    if (stopping_ || failed_)
      return;
    std::string line;
    try {
      line = judge_->load_again();
    } catch (...) {
      return judge_lost({error_of(std::current_exception())});
    }
    tell_who_judges();
    if (model_)
      report_ready(std::move(line));
  }

  void tell_who_judges() {
    if (judge_)
      replicas_.judge_by(judge_->now());
  }

  // -- what is seen of it ---------------------------------------------------------------------------------------------

  void take(const step_record& record) {
    if (!record.remark.empty())
      tell(record.remark);
  }

  caf::result<engine_snapshot_ptr> look() {
    const auto asked = asked_.take<engine_snapshot_ptr>(self_);
    replicas_.look([this, asked = asked.number, actors = actor_counts::all()](std::vector<replica_snapshot> seen) {
      asked_.answer(asked, std::make_shared<const engine_snapshot>(engine_snapshot{std::move(seen), actors}));
    });
    return asked.promise;
  }

  // -- status ---------------------------------------------------------------------------------------------------------

  void report_ready(std::string line) { status_.ready(std::move(line), degraded(), model_); }

  void tell(log_line line) {
    if (replicas_.running() && !stopping_)
      status_.news(std::move(line));
  }

  void fail(const error& why) {
    if (stopping_)
      return;
    failed_ = why;
    status_.failed(why);
    requests_.refuse_all(why, true);
  }

  caf::result<engine_stats> stats() {
    if (!replicas_.running())
      return caf::make_error(caf::sec::unexpected_message, "there is no model");
    const auto asked = asked_.take<engine_stats>(self_);
    replicas_.count([this, asked = asked.number](std::vector<replica_stats> replicas) {
      if (judge_)
        judge_->add_to(replicas.front()); // what is counted of it, is so there
      asked_.answer(asked, in_all(std::move(replicas)));
    });
    return asked.promise;
  }

  // -- the end, of others and of its own ------------------------------------------------------------------------------

  void child_ended(const caf::down_msg& down) {
    requests_.gone(down.source);
    watchers_.remove(down.source);
    if (loading_.lose(down.source) && !model_ && !failed_ && !stopping_) // it had no memory to report why
      fail(fault_of(down.reason, self_->system()).why);
    if (judge_ && judge_->lose(down.source))
      judge_lost(fault_of(down.reason, self_->system()));
    if (auto* replica = replicas_.lose(down.source); replica && !stopping_)
      replica_lost(*replica, fault_of(down.reason, self_->system()));
    if (stopping_)
      quit_when_done();
  }

  void stop(const caf::error& reason) {
    if (stopping_)
      return;
    stopping_ = reason;
    until_ended_ = engine_actor(self_);
    loading_.abandon();
    if (!failed_)
      requests_.refuse_all({errc::unavailable, "the engine is stopping", {}}, false);
    requests_.cancel_all();
    quit_when_done();
  }

  // Requests first, so that each client receives its last event; then replicas. The load reports no progress after that.
  void quit_when_done() {
    if (!requests_.empty() || loading_.runs() || !replicas_.is_flushed([this] { quit_when_done(); }) ||
        !replicas_.end())
      return;
    if (judge_ && judge_->now())
      return judge_->end();
    if (model_)
      model_->lengths->keep(replicas_.lengths());
    status_.stopped(model_ ? model_->lengths->write() : std::string());
    self_->quit(*stopping_);
  }

  engine_actor::pointer self_;
  engine_status status_;
  model_load loading_;
  loaded_model_ptr model_;
  replica_set replicas_{self_};
  admissions requests_{self_, replicas_};
  std::optional<kept_judge> judge_; // if somebody values answers
  step_watchers watchers_{self_, replicas_};
  open_questions asked_;
  std::optional<error> failed_;
  std::optional<caf::error> stopping_;
  engine_actor until_ended_; // itself, once it stops: who holds it no more is told of its end all the same
};

} // namespace

model_loader loader_with(engine_internals internals) {
  return [internals = std::move(internals)](const engine_options& options, const progress_sink& progress) {
    return load_model(options, progress, internals);
  };
}

engine_actor spawn_engine(caf::actor_system& system, engine_options options, engine_listener on_status,
                          model_loader loader, model_loader judge_loader) {
  return spawn_state<engine_actor, engine_state>(system, std::move(options), std::move(on_status), std::move(loader),
                                                 std::move(judge_loader));
}

} // namespace troupe
