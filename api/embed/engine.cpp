#include "api/embed/engine_caf.hpp"

#include "actors/engine.hpp"
#include "actors/request.hpp"
#include "api/embed/gpu.hpp"
#include "runtime/engine/loader.hpp"
#include "runtime/support/threads.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>

#include <condition_variable>
#include <mutex>

namespace troupe {

namespace {

/// Written by the engine actor, read by any thread. Outlives the engine and its actor.
struct shared_status {
  std::mutex mutex;
  std::condition_variable changed;
  load_status status;
  loaded_model_ptr model;
};

class own_system_config : public caf::actor_system_config {
public:
  own_system_config() {
    engine::configure(*this);
    expect_threads(4); // two workers, the clock and the printer
  }
};

/// Connects a request_handle to its request actor.
class actor_control final : public request_control {
public:
  void cancel() override { caf::anon_send(actor, cancel_atom::value); }
  void pause(bool paused) override { caf::anon_send(actor, pause_atom::value, paused); }

  request_actor actor;
};

} // namespace

struct engine::impl {
  impl(caf::actor_system& in, engine_options options, progress_sink progress) : system(in) {
    auto listener = [status = status, progress = std::move(progress)](const load_status& s,
                                                                      const loaded_model_ptr& model) {
      {
        std::lock_guard lock(status->mutex);
        // The loader may still report after the stop. News leave the reason of the last restart in place.
        if (status->status.now != load_status::stage::stopped && s.news.empty())
          status->status = s;
        if (model)
          status->model = model;
      }
      status->changed.notify_all();
      if (progress)
        progress(s);
    };
    if (!options.open_gpu)
      options.open_gpu = built_in_gpus();
    actor = spawn_engine(system, std::move(options), std::move(listener));
  }

  ~impl() { stop(); }

  void stop() {
    std::lock_guard once(stopping);
    if (!actor)
      return;
    caf::scoped_actor self{system};
    self->monitor(actor);
    self->send_exit(actor, caf::exit_reason::user_shutdown);
    self->receive([](const caf::down_msg&) {});
    std::lock_guard lock(status->mutex);
    status->status.now = load_status::stage::stopped;
    status->changed.notify_all();
  }

  request_handle submit(generation request, client_line line) {
    try {
      // Allocated first: a request must not run without a handle that can cancel it.
      auto control = std::make_shared<actor_control>();
      control->actor = spawn_request(system, actor, std::make_shared<const generation>(std::move(request)),
                                     std::move(line));
      return request_handle(std::move(control));
    } catch (const std::bad_alloc&) {
      line.close(std::current_exception());
      return {};
    }
  }

  caf::actor_system& system;
  std::shared_ptr<shared_status> status = std::make_shared<shared_status>();
  engine_actor actor;
  std::mutex stopping;
};

void engine::configure(caf::actor_system_config& config) {
  config.set("scheduler.policy", caf::atom("sharing"));
  // The event-based actors do little work; more workers would only compete with the executor for cores.
  config.set("scheduler.max-threads", std::size_t(2));
}

engine engine::start(caf::actor_system& system, engine_options options, progress_sink progress) {
  engine e;
  e.impl_ = std::make_shared<impl>(system, std::move(options), std::move(progress));
  return e;
}

engine engine::start(engine_options options, progress_sink progress) {
  struct with_system {
    own_system_config config;
    caf::actor_system system{config};
    impl engine;
    with_system(engine_options options, progress_sink progress)
      : engine(system, std::move(options), std::move(progress)) {}
  };
  auto all = std::make_shared<with_system>(std::move(options), std::move(progress));
  engine e;
  e.impl_ = std::shared_ptr<impl>(all, &all->engine);
  return e;
}

load_status engine::status() const {
  std::lock_guard lock(impl_->status->mutex);
  return impl_->status->status;
}

std::shared_ptr<const model_info> engine::model() const {
  std::lock_guard lock(impl_->status->mutex);
  auto& model = impl_->status->model;
  return model ? std::shared_ptr<const model_info>(model, &model->info) : nullptr;
}

std::shared_ptr<const model_info> engine::wait_until_ready() const {
  auto& shared = *impl_->status;
  std::unique_lock lock(shared.mutex);
  shared.changed.wait(lock, [&] { return shared.status.now != load_status::stage::loading; });
  if (shared.status.now == load_status::stage::failed)
    throw failure(shared.status.why->code, shared.status.why->message, shared.status.why->param);
  if (shared.status.now == load_status::stage::stopped)
    throw failure(errc::unavailable, "the engine was stopped");
  return {shared.model, &shared.model->info};
}

request_handle engine::submit(generation request, event_sink sink) const {
  return impl_->submit(std::move(request), client_line(std::move(sink)));
}

engine_stats engine::stats() const {
  caf::scoped_actor self{impl_->system};
  std::optional<engine_stats> stats;
  self->request(impl_->actor, std::chrono::seconds(5), stats_atom::value)
    .receive([&](const engine_stats& s) { stats = s; }, [](const caf::error&) {});
  if (!stats)
    throw failure(errc::unavailable, "the engine has no model at the moment");
  return *stats;
}

void engine::stop() const { impl_->stop(); }

engine_actor handle_of(const engine& engine) { return engine.self().actor; }

request_handle submit(const engine& engine, generation request, std::uint64_t id, const client_actor& client) {
  return engine.self().submit(std::move(request), client_line(client, id));
}

} // namespace troupe
