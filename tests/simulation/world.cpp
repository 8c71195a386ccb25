#include "tests/simulation/world.hpp"

#include "actors/engine.hpp"
#include "actors/unwoken.hpp"
#include "runtime/techniques/technique.hpp"
#include "tests/simulation/clients.hpp"
#include "tests/simulation/dice.hpp"
#include "tests/simulation/disk_faults.hpp"
#include "tests/simulation/faults.hpp"
#include "tests/simulation/judgement.hpp"
#include "tests/simulation/templates.hpp"
#include "tests/simulation/variants.hpp"

#include <caf/actor_registry.hpp>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <unistd.h>
#include <utility>
#include <vector>

namespace troupe::simulation {

namespace {

struct simulated_config : caf::actor_system_config {
  simulated_config() { set("scheduler.policy", caf::atom("testing")); }
};

constexpr std::uint64_t most_jobs = 300'000;
constexpr auto longest_silence = std::chrono::minutes(3); // until a client hears something, of virtual time

class world {
public:
  world(const scenario& s, bool traced)
    : s_(s),
      faults_(s, traced),
      disk_(folder_, s.disk_refused_every, s.seed),
      dice_(s.seed + 1),
      system_(std::make_unique<caf::actor_system>(config_)),
      coordinator_(dynamic_cast<caf::scheduler::test_coordinator&>(system_->scheduler())),
      own_actors_(system_->registry().running()) {
    broken_promise::first.clear();
    unwoken::tries = 0;
    for (const auto& plan : s.clients) {
      clients_.push_back(std::make_shared<client>());
      clients_.back()->plan = plan;
      clients_.back()->asked = std::make_shared<const generation>(generation_of(plan));
      has_variants_ = has_variants_ || wants_variants(*clients_.back()->asked);
    }
    for (const auto* name : adapter_names)
      adapters_.push_back({name, s.first_version});
  }

  ~world() {
    if (s_.disk) {
      std::error_code ignored;
      std::filesystem::remove_all(folder_, ignored);
    }
    if (!sound_) { // what does not end by itself would be waited for
      system_->await_actors_before_shutdown(false);
      static_cast<void>(system_.release());
    }
  }

  outcome run() {
    start();
    while (trouble_.empty() && !all_ended())
      turn();
    if (trouble_.empty())
      finish();
    for (auto& each : clients_)
      if (trouble_.empty() && !each->left)
        if (auto wrong = judge(*each, s_, faults_.seen); !wrong.empty())
          trouble_ = "client " + number_of(*each) + ": " + wrong;
    outcome result;
    result.trouble = trouble_;
    result.jobs = jobs_;
    result.messages = faults_.seen.messages;
    result.deaths = static_cast<std::uint64_t>(faults_.seen.exceptions + faults_.seen.kills);
    for (const auto& each : clients_)
      result.answers += each->heard.what().done.has_value();
    if (!clients_.empty())
      result.first = clients_.front()->heard.what();
    sound_ = trouble_.empty();
    return result;
  }

  const coverage& covered() const { return faults_.covered; }

private:
  void start() {
    engine_options options;
    options.max_context = longest_context;
    auto load = [this](const engine_options& with, const progress_sink&) -> loaded_model_ptr {
      faults_.begin_load(false);
      auto model = model_of(s_, work_, &runners_, folder_);
      model->info.judge = troupe::judge_of(with.techniques);
      model_ = model;
      return model;
    };
    auto listen = [this](const load_status& status, const loaded_model_ptr&) {
      faults_.loaded = faults_.seen.ready = faults_.loaded || status.now == load_status::stage::ready;
      ends_ += status.now == load_status::stage::stopped || status.now == load_status::stage::failed;
      if (faults_.traced())
        faults_.say("   engine says: " + status.line + status.news + (status.why ? status.why->message : "") +
                    status.degraded);
    };
    auto load_judge = [this](const engine_options&, const progress_sink&) -> loaded_model_ptr {
      faults_.begin_load(true);
      return judge_of(work_, &runners_);
    };
    if (s_.judge)
      options.techniques["reward_model"] = {"hashes"};
    engine_ = spawn_engine(*system_, std::move(options), listen, load, load_judge);
    if (s_.observed)
      observer_.emplace(*system_, engine_, true);
    while (trouble_.empty() && !faults_.loaded && run_job())
      ;
  }

  bool all_ended() const {
    return std::ranges::all_of(clients_, [](const auto& c) { return c->begun && c->ended(); });
  }

  /// Something happens.
  void turn() {
    for (auto& each : clients_)
      if (!each->begun && each->plan.at <= now())
        begin(*each);
      else if (const auto what = each->act(now(), false); !what.empty())
        note(*each, what);
    faults_.perhaps_kill();
    if (observer_ && dice_.one_in(60))
      observer_->ask();
    swap_adapters();
    if (s_.disk_trouble_every > 0 && dice_.one_in(s_.disk_trouble_every))
      if (const auto what = disk_.strike(); !what.empty() && faults_.traced())
        faults_.say("!! the disk: " + what);
    if (faults_.has_late() && dice_.one_in(40) && faults_.deliver_late())
      return;
    if (run_outside(3) || run_job() || run_outside(1))
      return;
    if (hasten() || pass_time())
      return;
    trouble_ = "nothing can happen any more, and " + unanswered() + " waits";
  }

  /// One is unloaded, or loaded from its next file.
  void swap_adapters() {
    const auto model = s_.swap_every > 0 && dice_.one_in(s_.swap_every) ? model_.lock() : nullptr;
    if (!model || !has_variants_)
      return;
    auto& its = adapters_.at(dice_.next() % adapters_.size());
    if (its.loaded)
      unload_adapter(*model, its.name);
    else
      load_adapter(*model, its.name, its.version = (its.version + 1) % adapter_versions);
    its.loaded = !its.loaded;
    if (faults_.traced())
      faults_.say(std::string("-- adapter ") + its.name + (its.loaded ? " is loaded anew" : " is unloaded"));
  }

  int now() const { return static_cast<int>(jobs_); }
  std::string number_of(const client& c) const {
    return std::to_string(std::ranges::find_if(clients_, [&](const auto& each) { return each.get() == &c; }) -
                          clients_.begin());
  }
  void note(const client& c, const std::string& what) const {
    if (faults_.traced())
      faults_.say("-- client " + number_of(c) + " " + what);
  }
  std::string unanswered() const {
    const auto found = std::ranges::find_if(clients_, [](const auto& c) { return !c->begun || !c->ended(); });
    return found == clients_.end() ? "nobody" : "client " + number_of(**found);
  }

  void begin(client& c) {
    note(c, "asks: " + describe(*c.asked));
    c.begin(*system_, engine_);
  }

  /// Nothing else goes on: the next deed of a client comes sooner.
  bool hasten() {
    client* next = nullptr;
    int least = 0;
    for (auto& each : clients_) {
      const bool may_act = !each->begun || (!each->ended() && each->next_deed < each->plan.deeds.size());
      if (!may_act)
        continue;
      const auto at = !each->begun ? each->plan.at : each->plan.deeds[each->next_deed].at;
      if (!next || at < least)
        next = each.get(), least = at;
    }
    if (!next)
      return false;
    if (!next->begun)
      begin(*next);
    else
      note(*next, next->act(now(), true));
    return true;
  }

  bool pass_time() {
    auto& clock = coordinator_.clock();
    const auto events = heard();
    if (std::exchange(heard_, events) != events)
      since_ = clock.now();
    if (clock.now() - since_ > longest_silence) {
      trouble_ = "nobody has heard anything for minutes, and " + unanswered() + " waits";
      return true;
    }
    const bool passed = clock.trigger_timeout();
    if (passed && faults_.traced())
      faults_.say("-- " +
                  std::to_string(std::chrono::duration<double, std::milli>(clock.now().time_since_epoch()).count()) +
                  " ms");
    return passed;
  }

  int heard() const {
    int all = 0;
    for (const auto& each : clients_)
      all += each->events + (each->begun && each->ended() ? 1 : 0);
    return all;
  }

  /// Masks and samples that other threads would make.
  bool run_outside(int rarely) {
    auto& work = *work_;
    if ((work.masks.empty() && work.device.empty()) || !dice_.one_in(rarely))
      return false;
    auto& from = work.device.empty() || (!work.masks.empty() && dice_.one_in(2)) ? work.masks : work.device;
    const auto job = std::move(from.front());
    from.pop_front();
    if (&from == &work.masks)
      faults_.perhaps_refuse(10);
    try {
      job();
    } catch (const std::exception& e) {
      trouble_ = std::string("a thread beside the actors ends with the process: ") + e.what();
    }
    faults_.calm_down();
    return true;
  }

  bool run_job() {
    auto& jobs = coordinator_.jobs;
    if (jobs.empty())
      return false;
    std::swap(jobs.front(), jobs[choose()]);
    if (++jobs_ > most_jobs) {
      trouble_ = "it does not end";
      return true;
    }
    coordinator_.run_once();
    faults_.calm_down();
    unwoken::wake();
    if (std::exchange(refusals_, faults_.seen.refusals) != faults_.seen.refusals)
      mend_clock();
    if (dice_.one_in(3))
      coordinator_.advance_time(std::chrono::microseconds(dice_.pick(1, 400)));
    if (trouble_.empty())
      trouble_ = !faults_.trouble.empty()            ? faults_.trouble
        : !broken_promise::first.empty()             ? broken_promise::first
        : observer_ && !observer_->trouble().empty() ? observer_->trouble()
                                                     : std::string();
    return true;
  }

  /// Only the clock of CAF's test coordinator allocates on the threads of actors, and it forgets to link an entry that
  /// had no memory for its index.
  void mend_clock() {
    auto& index = const_cast<caf::detail::test_actor_clock::actor_lookup_map&>(coordinator_.clock().actor_lookup());
    for (const auto& [_, entry] : coordinator_.clock().schedule())
      if (entry->backlink == caf::detail::test_actor_clock::actor_lookup_map::iterator())
        entry->backlink = index.end();
  }

  std::size_t choose() {
    auto& jobs = coordinator_.jobs;
    const auto any = static_cast<std::size_t>(dice_.next() % jobs.size());
    switch (s_.how) {
      case picking::any: return any;
      case picking::newest: return dice_.one_in(4) ? any : jobs.size() - 1;
      case picking::oldest: return dice_.one_in(8) ? any : 0;
      case picking::starve:
        if (const auto* who = dynamic_cast<const caf::local_actor*>(jobs[any]); who && s_.starved == who->name())
          return static_cast<std::size_t>(dice_.next() % jobs.size());
        return any;
    }
    return any;
  }

  /// Once all have their answers: all comes to rest, nothing is held, and the engine stops.
  void finish() {
    faults_.relent();
    settle(std::chrono::seconds(30));
    if (trouble_.empty() && observer_ && observer_->waits())
      trouble_ = "the engine has not answered a question";
    if (trouble_.empty() && !faults_.seen.engine_died)
      check_nothing_held();
    faults_.stopping = true;
    for (auto& each : clients_) {
      if (each->actor)
        caf::anon_send_exit(each->actor, caf::exit_reason::user_shutdown);
      each->request = request_actor();
      each->actor = client_actor();
    }
    if (observer_)
      observer_->end();
    caf::anon_send_exit(engine_, caf::exit_reason::user_shutdown);
    engine_ = engine_actor();
    settle(std::chrono::seconds(60));
    if (!trouble_.empty())
      return;
    if (const auto left = system_->registry().running() - own_actors_; left != 0)
      trouble_ = std::to_string(left) + " actors are left:" + faults_.who_is_left();
    else if (runners_ != 0)
      trouble_ = std::to_string(runners_) + " KV caches are left";
    else if (ends_ == 0)
      trouble_ = "the listener was not told of the end";
  }

  /// Runs all there is to run, for so long of virtual time.
  void settle(std::chrono::seconds most) {
    const auto until = coordinator_.clock().now() + most;
    while (trouble_.empty() &&
           (run_outside(1) || run_job() || faults_.deliver_late() ||
            (coordinator_.clock().now() < until && coordinator_.clock().trigger_timeout())))
      ;
  }

  void check_nothing_held() {
    observer asked(*system_, engine_, false);
    asked.ask();
    settle(std::chrono::seconds(0));
    asked.end();
    settle(std::chrono::seconds(0));
    if (!trouble_.empty() || !asked.last())
      return;
    std::uint64_t restarts = 0;
    for (const auto& each : asked.last()->replicas) {
      restarts += each.restarts;
      const auto& s = each.scheduler;
      const auto& b = each.blocks;
      const auto who = "replica " + std::to_string(each.number) + " ";
      if (s.running + s.waiting + s.paused > 0)
        trouble_ = who + "still has " + std::to_string(s.running + s.waiting + s.paused) + " sequences";
      else if (b.in_use > 0)
        trouble_ = who + "still has " + std::to_string(b.in_use) + " blocks in use";
    }
    const auto& seen = faults_.seen; // whatever else an actor dies of is healed, too, and would not be noticed
    if (trouble_.empty() && restarts > static_cast<std::uint64_t>(seen.exceptions + seen.kills + seen.refusals))
      trouble_ = std::to_string(restarts) + " restarts, and not so many reasons";
  }

  /// An adapter of the engine.
  struct swapped {
    const char* name;
    int version;
    bool loaded = true;
  };

  const scenario& s_;
  const std::string folder_ = "/dev/shm/troupe_simulation_" + std::to_string(getpid()) + "_" + std::to_string(s_.seed);
  troublemaker faults_;
  disk_faults disk_;
  dice dice_;
  simulated_config config_;
  std::shared_ptr<outside_work> work_ = std::make_shared<outside_work>();
  int runners_ = 0, ends_ = 0;
  std::weak_ptr<const loaded_model> model_;
  bool has_variants_ = false;
  std::vector<swapped> adapters_;
  std::vector<std::shared_ptr<client>> clients_;
  std::unique_ptr<caf::actor_system> system_;
  caf::scheduler::test_coordinator& coordinator_;
  std::size_t own_actors_;
  engine_actor engine_;
  std::optional<observer> observer_;
  std::uint64_t jobs_ = 0;
  std::string trouble_;
  int heard_ = 0, refusals_ = 0;
  caf::actor_clock::time_point since_{};
  bool sound_ = false;
};

} // namespace

outcome simulate(const scenario& s, bool traced, coverage* covered) {
  world w(s, traced);
  auto result = w.run();
  if (covered)
    covered->add(w.covered());
  return result;
}

} // namespace troupe::simulation
