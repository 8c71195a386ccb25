#include "api/embed/engine_caf.hpp"

#include "actors/actor_counts.hpp"
#include "actors/engine.hpp"
#include "actors/faults.hpp"
#include "actors/messages/endings.hpp"
#include "actors/request.hpp"
#include "actors/unwoken.hpp"
#include "api/embed/callbacks.hpp"
#include "api/embed/engine_internals.hpp"
#include "api/embed/gpu.hpp"
#include "runtime/engine/loading/loader.hpp"
#include "runtime/support/machine/threads.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/logger.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <caf/thread_hook.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace troupe {

namespace {

/// Written by the engine actor, read by any thread. Outlives the engine and its actor.
struct shared_status {
  std::mutex mutex;
  std::condition_variable changed;
  load_status status;
  loaded_model_ptr model;
  std::chrono::steady_clock::time_point told_of_blocking{};
};

/// Between two lines about functions of the program that block.
constexpr auto between_complaints = std::chrono::seconds(10);

/// The longest time for which generate() waits, so that no time overflows.
constexpr auto longest_wait = std::chrono::hours(24 * 365);

/// CAF remembers on each thread the logger of the actor system that it last used there, and the end of a system waits
/// for those who still have its logger. A thread of the program forgets it again, else an engine that ends before that
/// thread would never have ended. Threads of CAF keep theirs.
class visit {
public:
  visit() = default;
  visit(const visit&) = delete;
  visit& operator=(const visit&) = delete;
  ~visit() {
    if (foreign_)
      caf::logger::set_current_actor_system(nullptr);
  }

private:
  const bool foreign_ = caf::logger::current_logger() == nullptr;
};

/// Waiting for the engine on one of its threads would wait for ever.
void refuse_in_callback(const char* what) {
  if (is_in_callback())
    throw failure(errc::bad_request,
                  std::string(what) +
                    " waits for the engine, so it cannot be called from a sink or a progress function");
}

/// Destroying an actor system waits for its threads, so none of them may do it.
struct destroy_elsewhere {
  template <class T>
  void operator()(T* all) const noexcept {
    if (!is_in_callback()) {
      destroy(all);
      return;
    }
    all->started.stop(); // does not wait
    try {
      std::thread([all] {
        name_thread("end");
        destroy(all);
      }).detach();
    } catch (const std::system_error&) { // no thread is left: its memory is lost
    }
  }

private:
  /// A request that came when the engine had stopped may have ended since, without memory to tell its sink.
  template <class T>
  static void destroy(T* all) noexcept {
    const auto status = all->started.status;
    delete all;
    unwoken::forget(status.get());
  }
};

/// CAF's threads, in an actor system of our own. A detached actor names its thread itself.
class named_threads final : public caf::thread_hook {
public:
  void init(caf::actor_system&) override {}
  void thread_started() override { name_thread("actors"); }
  void thread_terminates() override {}
};

class own_system_config : public caf::actor_system_config {
public:
  own_system_config() {
    engine::configure(*this);
    add_thread_hook<named_threads>();
    // The event-based actors do little work; more workers would only compete with the executor for cores.
    set("scheduler.max-threads", std::size_t(2));
    expect_threads(4); // two workers, the clock and the printer
  }
};

/// Connects a request_handle to its request actor.
class actor_control final : public request_control {
public:
  void cancel() override { caf::anon_send(actor, cancel_atom::value); }
  void pause(bool paused) override { caf::anon_send(actor, pause_atom::value, paused); }
  void finish() override { caf::anon_send(actor, finish_wanted{}); }
  void end_reasoning() override { caf::anon_send(actor, finish_wanted{true}); }
  void hand_over() override { caf::anon_send(actor, finish_wanted{.hands_over = true}); }
  std::shared_ptr<const request_ledger> ledger() const override { return account; }

  request_actor actor;
  std::shared_ptr<request_ledger> account;
};

} // namespace

struct engine::impl {
  impl(caf::actor_system& in, engine_options options, progress_sink progress, engine_internals internals = {})
    : system(in) {
    const visit visiting;
    std::optional<callback<const load_status&>> told;
    if (progress)
      told.emplace(std::move(progress));
    auto listener = [status = status, told](const load_status& s, const loaded_model_ptr& model) {
      {
        std::lock_guard lock(status->mutex);
        // The loader may still report after the stop. News leave the reason of the last restart in place.
        if (status->status.now != load_status::stage::stopped && s.news.empty())
          status->status = s;
        if (model)
          status->model = model;
      }
      status->changed.notify_all();
      if (told)
        (*told)(s);
    };
    if (!options.open_gpu)
      options.open_gpu = open_gpu_plugin;
    actor = spawn_engine(system, std::move(options), std::move(listener), loader_with(std::move(internals)));
  }

  ~impl() { stop(); }

  /// On a thread of an engine, the actors end behind it; else this waits for them.
  void stop() {
    if (is_in_callback()) {
      caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
      return;
    }
    std::lock_guard once(stopping);
    const visit visiting;
    caf::scoped_actor self{system};
    self->monitor(actor);
    self->send_exit(actor, caf::exit_reason::user_shutdown);
    self->receive([](const caf::down_msg&) {});
    unwoken::forget(status.get());
    std::lock_guard lock(status->mutex);
    status->status.now = load_status::stage::stopped;
    status->changed.notify_all();
  }

  void wait_while_loading(const std::stop_token& stop, std::chrono::steady_clock::time_point until) {
    const std::stop_callback at_stop(stop, [this] {
      const std::lock_guard lock(status->mutex);
      status->changed.notify_all();
    });
    std::unique_lock lock(status->mutex);
    status->changed.wait_until(
      lock, until, [&] { return stop.stop_requested() || status->status.now != load_status::stage::loading; });
  }

  request_handle submit(generation request, client_line line) {
    const visit visiting;
    try {
      // Allocated first: a request must not run without a handle that can cancel it.
      auto control = std::make_shared<actor_control>();
      control->account = std::make_shared<request_ledger>(system.clock().now());
      control->actor = spawn_request(system, actor, std::make_shared<const generation>(std::move(request)),
                                     std::move(line), control->account);
      return request_handle(std::move(control));
    } catch (const std::bad_alloc&) {
      line.close(std::current_exception());
      return {};
    }
  }

  request_handle submit(generation request, event_sink&& sink) {
    std::optional<callback<event>> guarded;
    try {
      guarded.emplace(std::move(sink), [status = status, actor = actor](std::chrono::milliseconds took) {
        complain(*status, actor, took);
      });
      return submit(std::move(request), client_line(event_sink(*guarded), status.get()));
    } catch (const std::bad_alloc&) {
      const auto why = error_of(std::current_exception());
      try {
        guarded ? (*guarded)(why) : sink(why);
      } catch (...) { // there is no one left to tell
      }
      return {};
    }
  }

  static void complain(shared_status& status, const engine_actor& actor, std::chrono::milliseconds took) {
    const auto now = std::chrono::steady_clock::now();
    {
      const std::lock_guard lock(status.mutex);
      if (now - status.told_of_blocking < between_complaints)
        return;
      status.told_of_blocking = now;
    }
    caf::anon_send(actor, news_atom::value,
                   "a sink of this program took " + std::to_string(took.count()) +
                     " ms: sinks run on the engine's threads, where other requests waited for it");
  }

  caf::actor_system& system;
  std::shared_ptr<shared_status> status = std::make_shared<shared_status>();
  engine_actor actor;
  std::mutex stopping;
};

void engine::configure(caf::actor_system_config& config) { config.set("scheduler.policy", caf::atom("sharing")); }

engine engine::start(caf::actor_system& system, engine_options options, progress_sink progress) {
  engine e;
  e.impl_ = std::make_shared<impl>(system, std::move(options), std::move(progress));
  return e;
}

engine engine::start(engine_options options, progress_sink progress) {
  return start_with({}, std::move(options), std::move(progress));
}

engine start_with(engine_internals internals, engine_options options, progress_sink progress) {
  struct with_system {
    own_system_config config;
    caf::actor_system system{config};
    engine::impl started;
    with_system(engine_options options, progress_sink progress, engine_internals internals)
      : started(system, std::move(options), std::move(progress), std::move(internals)) {}
  };
  const visit visiting;
  const std::shared_ptr<with_system> all(new with_system(std::move(options), std::move(progress), std::move(internals)),
                                         destroy_elsewhere());
  engine e;
  e.impl_ = std::shared_ptr<engine::impl>(all, &all->started);
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
  if (status().now == load_status::stage::loading)
    refuse_in_callback("wait_until_ready()");
  std::unique_lock lock(shared.mutex);
  shared.changed.wait(lock, [&] { return shared.status.now != load_status::stage::loading; });
  if (shared.status.now == load_status::stage::failed)
    throw failure(shared.status.why->code, shared.status.why->message, shared.status.why->param);
  if (shared.status.now == load_status::stage::stopped)
    throw failure(errc::unavailable, "the engine was stopped");
  return {shared.model, &shared.model->info};
}

request_handle engine::submit(generation request, event_sink sink) const {
  return impl_->submit(std::move(request), std::move(sink));
}

engine_stats engine::stats() const {
  const visit visiting;
  caf::scoped_actor self{impl_->system};
  std::optional<engine_stats> stats;
  self->request(impl_->actor, std::chrono::seconds(5), stats_atom::value)
    .receive([&](const engine_stats& s) { stats = s; }, [](const caf::error&) {});
  if (!stats)
    throw failure(errc::unavailable, "the engine has no model at the moment");
  return *stats;
}

std::shared_ptr<const void> engine::watch(step_sink sink) const {
  struct watching {
    engine_actor of;
    step_watcher_actor by;
    watching(caf::actor_system& system, engine_actor engine, step_sink sink) : of(std::move(engine)) {
      const visit visiting;
      const callback<const step_record_ptr&> told(std::move(sink));
      by = system.spawn([told](step_watcher_actor::pointer) -> step_watcher_actor::behavior_type {
        return {[told](record_atom, const step_record_ptr& record) { told(record); }};
      });
      actor_counts::begin_watch();
      caf::anon_send(of, watch_atom::value, by);
    }
    ~watching() {
      actor_counts::end_watch();
      caf::anon_send(of, unwatch_atom::value, by);
      caf::anon_send_exit(by, caf::exit_reason::user_shutdown);
    }
  };
  return std::make_shared<const watching>(impl_->system, impl_->actor, std::move(sink));
}

engine_snapshot engine::look() const {
  const visit visiting;
  caf::scoped_actor self{impl_->system};
  engine_snapshot_ptr seen;
  self->request(impl_->actor, std::chrono::seconds(5), look_atom::value)
    .receive([&](const engine_snapshot_ptr& s) { seen = s; }, [](const caf::error&) {});
  if (!seen)
    throw failure(errc::unavailable, "the engine does not answer at the moment");
  return *seen;
}

full_answer engine::generate(const question& asked, const std::function<void(std::string_view)>& on_text,
                             std::stop_token stop) const {
  refuse_in_callback("generate()");
  const auto limit = std::min<std::chrono::milliseconds>(asked.timeout, longest_wait);
  const auto until = std::chrono::steady_clock::now() + (limit.count() > 0 ? limit : longest_wait);
  impl_->wait_while_loading(stop, until);
  if (stop.stop_requested()) {
    full_answer nothing;
    nothing.finish = finish_reason::cancelled;
    return nothing;
  }
  if (status().now == load_status::stage::loading)
    throw failure(errc::timeout, "the model was still loading when the question's time was over");
  auto prepared = prepare(*wait_until_ready(), asked);
  if (prepared.request.timeout.count() > 0) // of which loading has taken its part
    prepared.request.timeout = std::max(
      std::chrono::milliseconds(1),
      std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now()));
  struct outcome {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<event> events;
  };
  // Events wait for this thread, so that on_text may take its time.
  const auto heard = std::make_shared<outcome>();
  const auto request = submit(prepared.request, [heard](event e) {
    const std::lock_guard lock(heard->mutex);
    heard->events.push_back(std::move(e));
    heard->changed.notify_one();
  });
  struct cancelled_at_end { // if on_text throws
    const request_handle& request;
    ~cancelled_at_end() { request.cancel(); }
  } const at_end{request};
  const std::stop_callback at_stop(stop, [&request] { request.cancel(); });
  answer_reader reader(prepared);
  for (;;) {
    std::vector<event> events;
    {
      std::unique_lock lock(heard->mutex);
      heard->changed.wait(lock, [&] { return !heard->events.empty(); });
      events.swap(heard->events);
    }
    for (const auto& e : events) {
      if (const auto* why = std::get_if<error>(&e))
        throw failure(why->code, why->message, why->param);
      if (const auto* done = std::get_if<done_event>(&e))
        return std::move(reader).finish(*done);
      const auto text = reader.add(std::get<token_event>(e));
      if (on_text && !text.empty())
        on_text(text);
    }
  }
}

void engine::stop() const { impl_->stop(); }

engine_actor handle_of(const engine& engine) { return engine.self().actor; }

request_handle submit(const engine& engine, generation request, std::uint64_t id, const client_actor& client) {
  return engine.self().submit(std::move(request), client_line(client, id));
}

} // namespace troupe
