#include "actors/engine.hpp"

#include "actors/executor.hpp"
#include "actors/kv_block_manager.hpp"
#include "actors/request.hpp"
#include "actors/sampler.hpp"
#include "actors/scheduler.hpp"
#include "actors/spawn.hpp"
#include "runtime/loader.hpp"

#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>

#include <atomic>
#include <map>
#include <optional>

namespace troupe {

namespace {

/// The company that runs one loaded model.
struct company {
  kv_block_manager_actor blocks;
  sampler_actor sampler;
  executor_actor executor;
  scheduler_actor scheduler;
};

class engine_state {
public:
  static constexpr const char* name = "engine";

  engine_state(engine_actor::pointer self, engine_options options, engine_listener on_status)
    : self_(self), on_status_(std::move(on_status)) {
    self_->set_down_handler([this](caf::down_msg& down) { went_down(down); });
    self_->set_exit_handler([this](caf::exit_msg& exit) { stop(exit.reason); });
    load(std::move(options));
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
      [this](admit_atom, const request_actor& request) { return admit(request); },
      [this](loaded_atom, const loaded_model_ptr& model) { start(model); },
      [this](loaded_atom, const error& why) { fail(why); },
      [this](stats_atom) { return stats(); },
    };
  }

private:
  // -- loading --------------------------------------------------------------------------------------------------------

  void load(engine_options options) {
    auto loader = [engine = engine_actor(self_), options = std::move(options), tell = on_status_,
                   abandoned = abandoned_](caf::event_based_actor* self) {
      const auto progress = [&](const load_status& s) {
        if (*abandoned)
          throw failure(errc::cancelled, "the engine was stopped while it loaded");
        tell(s, nullptr);
      };
      try {
        self->send(engine, loaded_atom::value, load_model(options, progress));
      } catch (const failure& f) {
        self->send(engine, loaded_atom::value, f.what_failed());
      } catch (const std::bad_alloc&) {
        self->send(engine, loaded_atom::value, error{errc::out_of_memory, "there is not enough memory to load the model", {}});
      } catch (const std::exception& e) {
        self->send(engine, loaded_atom::value, error{errc::internal, std::string("loading failed: ") + e.what(), {}});
      }
    };
    loader_ = self_->spawn<caf::detached + caf::monitored>(loader).address();
  }

  void start(const loaded_model_ptr& model) {
    if (stopping_)
      return;
    auto& system = self_->system();
    company c;
    c.blocks = spawn_kv_block_manager(system, model->blocks, model->prefix_cache);
    c.sampler = spawn_sampler(system, model->info.defaults.stops);
    c.executor = spawn_executor(system, model, c.sampler);
    c.scheduler = spawn_scheduler(system, model->limits, c.blocks, c.executor, c.sampler);
    self_->send(c.sampler, attach_atom::value, c.scheduler);
    watch(c.blocks), watch(c.sampler), watch(c.executor), watch(c.scheduler);
    company_ = std::move(c);
    model_ = model;
    load_status ready;
    ready.now = load_status::stage::ready;
    on_status_(ready, model_);
  }

  void fail(const error& why) {
    if (stopping_)
      return;
    failed_ = why;
    load_status status;
    status.now = load_status::stage::failed;
    status.why = why;
    on_status_(status, nullptr);
  }

  // -- requests -------------------------------------------------------------------------------------------------------

  request_actor submit(std::uint64_t id, const generation_ptr& what, const client_actor& client) {
    auto sink = std::make_shared<const event_sink>(
      [client, id](event e) { caf::anon_send(client, id, std::make_shared<const event>(std::move(e))); });
    return spawn_request(self_->system(), self_, --last_id_, what, std::move(sink));
  }

  welcome_ptr admit(const request_actor& request) {
    if (company_ && !stopping_) {
      self_->monitor(request);
      requests_.emplace(request.address(), request);
      return std::make_shared<const welcome>(welcome{model_, company_->scheduler, {}});
    }
    auto why = failed_.value_or(error{errc::unavailable, stopping_ ? "the engine is stopping" : "the model is still loading", {}});
    return std::make_shared<const welcome>(welcome{nullptr, {}, std::move(why)});
  }

  caf::result<engine_stats> stats() {
    auto promise = self_->make_response_promise<engine_stats>();
    if (!company_) {
      promise.deliver(caf::make_error(caf::sec::unexpected_message, "there is no model"));
      return promise;
    }
    const auto give_up = [promise](caf::error& e) mutable { promise.deliver(std::move(e)); };
    self_->request(company_->scheduler, stats_deadline, stats_atom::value)
      .then([this, promise, give_up, blocks = company_->blocks](const scheduler_counters& s) {
        self_->request(blocks, stats_deadline, stats_atom::value)
          .then([promise, s](const block_counters& b) mutable { promise.deliver(merge(s, b)); }, give_up);
      }, give_up);
    return promise;
  }

  static engine_stats merge(const scheduler_counters& s, const block_counters& b) {
    engine_stats e;
    e.running = s.running, e.waiting = s.waiting, e.paused = s.paused;
    e.blocks_total = b.total, e.blocks_in_use = b.in_use, e.blocks_cached = b.cached;
    e.prompt_tokens = b.looked_up_tokens, e.cached_tokens = b.found_tokens, e.generated_tokens = s.generated_tokens;
    e.steps = s.steps, e.prefill_rows = s.prefill_rows, e.decode_rows = s.decode_rows;
    e.discarded_rows = s.discarded_rows, e.preemptions = s.preemptions;
    e.copied_blocks = b.copied, e.evicted_blocks = b.evicted;
    return e;
  }

  // -- supervision ----------------------------------------------------------------------------------------------------

  template <class Handle>
  void watch(const Handle& child) {
    self_->monitor(child);
    children_.emplace(child.address(), caf::actor_cast<caf::actor>(child));
  }

  void went_down(const caf::down_msg& down) {
    requests_.erase(down.source);
    if (down.source == loader_)
      loader_ = {};
    if (children_.erase(down.source) > 0 && !stopping_ && !failed_) {
      // Requests watch the scheduler: they tell their clients. The rest of the company is of no use without one of them.
      fail({errc::device, "a part of the engine failed: " + self_->system().render(down.reason), {}});
      company_.reset();
      end_children();
    }
    if (stopping_)
      leave_when_alone();
  }

  void stop(const caf::error& reason) {
    if (stopping_)
      return;
    stopping_ = reason;
    *abandoned_ = true;
    for (auto& [_, request] : requests_)
      self_->send(request, cancel_atom::value);
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
  std::shared_ptr<std::atomic<bool>> abandoned_ = std::make_shared<std::atomic<bool>>(false); // nobody waits for the load
  loaded_model_ptr model_;
  std::optional<company> company_;
  caf::actor_addr loader_;                               // while it loads
  std::map<caf::actor_addr, caf::actor> children_;
  std::map<caf::actor_addr, request_actor> requests_;
  std::optional<error> failed_;
  std::optional<caf::error> stopping_;
  std::uint64_t last_id_ = 0; // counts down from the top; the facade's count up
};

} // namespace

engine_actor spawn_engine(caf::actor_system& system, engine_options options, engine_listener on_status) {
  return spawn_state<engine_actor, engine_state>(system, std::move(options), std::move(on_status));
}

} // namespace troupe
