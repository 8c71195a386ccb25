#include "actors/engine.hpp"

#include "actors/executor.hpp"
#include "actors/faults.hpp"
#include "actors/kv_block_manager.hpp"
#include "actors/request.hpp"
#include "actors/sampler.hpp"
#include "actors/scheduler.hpp"
#include "actors/spawn.hpp"
#include "runtime/engine/restart_policy.hpp"

#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include <atomic>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace troupe {

namespace {

/// The company that runs one loaded model.
struct company {
  kv_block_manager_actor blocks;
  sampler_actor sampler;
  executor_actor executor;
  scheduler_actor scheduler;
};

/// A request that has asked for the way in.
struct guest {
  request_actor request;
  std::uint64_t arrival = 0;
  bool waits = false; // for a company
};

class engine_state {
public:
  static constexpr const char* name = "engine";

  engine_state(engine_actor::pointer self, engine_options options, engine_listener on_status, model_loader loader)
    : self_(self), on_status_(std::move(on_status)) {
    self_->set_down_handler([this](caf::down_msg& down) { went_down(down); });
    self_->set_exit_handler([this](caf::exit_msg& exit) { stop(exit.reason); });
    try {
      load(std::move(options), std::move(loader));
    } catch (...) {
      lost(std::current_exception());
    }
  }

  // However this actor ends, its company does not stay behind. Requests learn it from the scheduler's end.
  ~engine_state() {
    *abandoned_ = true;
    end_children();
  }

  engine_actor::behavior_type make_behavior() {
    return {
      [this](submit_atom, std::uint64_t id, const generation_ptr& what, const client_actor& client) {
        return submit(id, what, client);
      },
      [this](admit_atom, const request_actor& request) { admit(request); },
      [this](loaded_atom, const loaded_model_ptr& model) { loaded(model); },
      [this](loaded_atom, const error& why) { fail(why); },
      [this](stats_atom) { return stats(); },
    };
  }

  // Whoever waits for the model hears of the end.
  void lost(const std::exception_ptr& thrown) noexcept {
    try {
      fail(error_of(thrown));
    } catch (...) {
      try {
        fail({errc::out_of_memory, "out of memory", {}}); // too short to need any
      } catch (...) {                                     // nobody can be told
      }
    }
  }

private:
  // -- loading --------------------------------------------------------------------------------------------------------

  void load(engine_options options, model_loader loader) {
    auto work = [engine = engine_actor(self_), options = std::move(options), load = std::move(loader),
                 tell = on_status_, abandoned = abandoned_](caf::event_based_actor* self) {
      const auto progress = [&](const load_status& s) {
        if (*abandoned)
          throw failure(errc::cancelled, "the engine was stopped while it loaded");
        tell(s, nullptr);
      };
      try {
        self->send(engine, loaded_atom::value, load(options, progress));
      } catch (const failure& f) {
        self->send(engine, loaded_atom::value, f.what_failed());
      } catch (const std::bad_alloc&) {
        self->send(engine, loaded_atom::value,
                   error{errc::out_of_memory, "there is not enough memory to load the model", {}});
      } catch (...) {
        self->send(engine, loaded_atom::value, error_of(std::current_exception()));
      }
    };
    expect_threads(1);
    loader_ = self_->spawn<caf::detached + caf::monitored>(work).address();
  }

  void loaded(const loaded_model_ptr& model) {
    if (stopping_)
      return;
    model_ = model;
    start({});
  }

  void fail(const error& why) {
    if (stopping_)
      return;
    failed_ = why;
    load_status status;
    status.now = load_status::stage::failed;
    status.why = why;
    on_status_(status, nullptr);
    for (auto& [_, g] : requests_)
      if (std::exchange(g.waits, false))
        self_->send(g.request, std::make_shared<const welcome>(welcome{.why = why}));
  }

  // -- requests -------------------------------------------------------------------------------------------------------

  // Whatever is wrong with one request, the engine goes on for the others.
  caf::result<request_actor> submit(std::uint64_t id, const generation_ptr& what, const client_actor& client) {
    client_line line(
      [client, id](event e) { caf::anon_send(client, id, std::make_shared<const event>(std::move(e))); });
    try {
      return spawn_request(self_->system(), self_, what, std::move(line));
    } catch (const std::bad_alloc&) {
      line.close(std::current_exception());
      return caf::make_error(caf::sec::runtime_error);
    }
  }

  void admit(const request_actor& request) {
    try {
      let_in(request);
    } catch (const std::bad_alloc&) {
      self_->send(request, std::make_shared<const welcome>(welcome{.why = error_of(std::current_exception())}));
    }
  }

  void let_in(const request_actor& request) {
    auto known = requests_.find(request.address());
    if (auto why = refusal(known == requests_.end())) {
      self_->send(request, std::make_shared<const welcome>(welcome{.why = std::move(*why)}));
      return;
    }
    if (known == requests_.end()) {
      self_->monitor(request);
      known = requests_.emplace(request.address(), guest{request, ++arrivals_}).first;
    }
    show_in(known->second);
  }

  std::optional<error> refusal(bool is_new) const {
    if (failed_)
      return failed_;
    if (stopping_)
      return error{errc::unavailable, "the engine is stopping", {}};
    if (!model_)
      return error{errc::unavailable, "the model is still loading", {}};
    const auto room = static_cast<std::size_t>(model_->limits.max_queue + model_->limits.max_sequences);
    if (!company_ && is_new && requests_.size() >= room)
      return error{
        errc::overloaded, "the queue is full: " + std::to_string(requests_.size()) + " requests wait already", {}};
    return std::nullopt;
  }

  // Without a company, a request learns of the model, so that its deadline runs, and waits for another welcome.
  void show_in(guest& g) {
    welcome w{.model = model_, .arrival = g.arrival};
    if (company_) {
      w.scheduler = company_->scheduler;
      w.number = ++last_number_;
    }
    g.waits = !company_;
    self_->send(g.request, std::make_shared<const welcome>(std::move(w)));
  }

  caf::result<engine_stats> stats() {
    auto promise = self_->make_response_promise<engine_stats>();
    if (!company_) {
      promise.deliver(caf::make_error(caf::sec::unexpected_message, "there is no model"));
      return promise;
    }
    const auto give_up = [promise](caf::error& e) mutable { promise.deliver(std::move(e)); };
    self_->request(company_->scheduler, stats_deadline, stats_atom::value)
      .then(
        [this, promise, give_up, blocks = company_->blocks](const scheduler_counters& s) {
          self_->request(blocks, stats_deadline, stats_atom::value)
            .then([this, promise, s](const block_counters& b) mutable { promise.deliver(merge(s, b)); }, give_up);
        },
        give_up);
    return promise;
  }

  engine_stats merge(const scheduler_counters& s, const block_counters& b) const {
    engine_stats e;
    e.restarts = restarts_;
    e.running = s.running, e.waiting = s.waiting, e.paused = s.paused;
    e.blocks_total = b.total, e.blocks_in_use = b.in_use, e.blocks_cached = b.cached;
    e.prompt_tokens = b.looked_up_tokens, e.cached_tokens = b.found_tokens, e.generated_tokens = s.generated_tokens;
    e.steps = s.steps, e.prefill_rows = s.prefill_rows, e.decode_rows = s.decode_rows;
    e.discarded_rows = s.discarded_rows, e.preemptions = s.preemptions;
    e.copied_blocks = b.copied, e.evicted_blocks = b.evicted;
    e.host_blocks_total = b.host_total, e.host_blocks_in_use = b.host_in_use;
    e.swapped_out_blocks = b.swapped_out, e.swapped_in_blocks = b.swapped_in;
    return e;
  }

  // -- supervision ----------------------------------------------------------------------------------------------------

  /// `line`: for a person, what this start is about.
  void start(std::string line) {
    try {
      company_ = spawn_company();
    } catch (...) {
      end_children();
      return lost(std::current_exception());
    }
    load_status ready;
    ready.now = load_status::stage::ready;
    ready.line = std::move(line);
    on_status_(ready, model_);
    for (auto& [_, g] : requests_)
      if (g.waits)
        show_in(g);
  }

  company spawn_company() {
    auto& system = self_->system();
    company c;
    watch(c.blocks = spawn_kv_block_manager(system, model_->blocks, model_->prefix_cache, model_->host_blocks));
    watch(c.sampler = spawn_sampler(system, model_));
    watch(c.executor = spawn_executor(system, model_, c.sampler));
    watch(c.scheduler = spawn_scheduler(system, model_->limits, c.blocks, c.executor, c.sampler, model_->swap));
    self_->send(c.sampler, attach_atom::value, c.scheduler);
    return c;
  }

  template <class Handle>
  void watch(const Handle& child) {
    children_.emplace(child.address(),
                      caf::actor_cast<caf::actor>(child)); // first: who is known is ended, whatever happens
    self_->monitor(child);
  }

  void went_down(const caf::down_msg& down) {
    requests_.erase(down.source);
    if (down.source == loader_) {
      loader_ = {};
      if (!model_ && !failed_ && !stopping_) // it could not even say why
        fail(fault_of(down.reason, self_->system()).why);
    }
    if (children_.erase(down.source) > 0 && !stopping_) {
      if (company_)
        lose_company(fault_of(down.reason, self_->system()));
      // Only then is the memory free that the next company's KV cache will take.
      if (children_.empty() && mending_)
        start(*std::exchange(mending_, std::nullopt));
    }
    if (stopping_)
      leave_when_alone();
  }

  // The rest of the company is of no use without one of its members. Requests learn it from the scheduler's end, and ask
  // where to go from there.
  void lose_company(const fault& f) {
    company_.reset();
    end_children();
    auto why = f.why;
    if (!f.recoverable) {
      why.message = "the device is lost: " + why.message;
      return fail(why);
    }
    if (!restart_policy_.restart(self_->clock().now())) {
      why.message = "a part of the engine failed again after " + std::to_string(restart_policy_.restarts()) +
        " restarts within " + std::to_string(restart_policy_.within().count()) + " s: " + why.message;
      return fail(why);
    }
    ++restarts_;
    mending_ = "a part of the engine failed and was started anew: " + why.message;
  }

  void stop(const caf::error& reason) {
    if (stopping_)
      return;
    stopping_ = reason;
    *abandoned_ = true;
    for (auto& [_, g] : requests_)
      self_->send(g.request, cancel_atom::value);
    leave_when_alone();
  }

  // Requests first, so that each client hears the end of its own; then the company. A loader notices by itself, and must
  // not report progress to somebody who has been told that all is over.
  void leave_when_alone() {
    if (!requests_.empty() || loader_)
      return;
    company_.reset();
    if (!children_.empty())
      return end_children();
    load_status status;
    status.now = load_status::stage::stopped;
    on_status_(status, nullptr);
    self_->quit(*stopping_);
  }

  void end_children() {
    for (auto& [_, child] : children_)
      caf::anon_send_exit(child, caf::exit_reason::user_shutdown);
  }

  static constexpr auto stats_deadline = std::chrono::seconds(5);

  engine_actor::pointer self_;
  engine_listener on_status_;
  std::shared_ptr<std::atomic<bool>> abandoned_ = std::make_shared<std::atomic<bool>>(
    false); // nobody waits for the load
  loaded_model_ptr model_;
  std::optional<company> company_;
  caf::actor_addr loader_; // while it loads
  std::map<caf::actor_addr, caf::actor> children_;
  std::map<caf::actor_addr, guest> requests_;
  std::uint64_t arrivals_ = 0, last_number_ = 0, restarts_ = 0;
  restart_policy restart_policy_;
  std::optional<std::string> mending_; // another company is to be started; why, for a person
  std::optional<error> failed_;
  std::optional<caf::error> stopping_;
};

} // namespace

engine_actor spawn_engine(caf::actor_system& system, engine_options options, engine_listener on_status,
                          model_loader loader) {
  return spawn_state<engine_actor, engine_state>(system, std::move(options), std::move(on_status), std::move(loader));
}

} // namespace troupe
