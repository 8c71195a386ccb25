#include "tests/simulation/clients.hpp"

#include "actors/client_line.hpp"
#include "actors/messages/endings.hpp"
#include "actors/request.hpp"
#include "actors/unwoken.hpp"
#include "runtime/scheduling/step_record.hpp"
#include "tests/actors/failing_memory.hpp"

#include <caf/event_based_actor.hpp>
#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <functional>
#include <stdexcept>
#include <utility>

namespace troupe::simulation {

namespace {

/// A program's own actor, which CAF would lose if it had no memory to wake it: this is not about those.
class simulated_client final : public wakeable<client_actor::base> {
public:
  using body = std::function<behavior_type(client_actor::pointer)>;
  simulated_client(caf::actor_config& config, body of) : wakeable(config), of_(std::move(of)) {}

protected:
  behavior_type make_behavior() override { return of_(this); }

private:
  body of_;
};

} // namespace

void client::begin(caf::actor_system& system, const engine_actor& engine) {
  begun = true;
  system_ = &system;
  asked_at = system.clock().now();
  const auto me = shared_from_this();
  if (!plan.is_actor) {
    try {
      request = spawn_request(system, engine, asked, client_line([me](event e) {
                                ::operator delete(::operator new(1)); // a server's queues need some
                                me->take(e);
                              }));
      request_id = request.id();
    } catch (const std::bad_alloc&) {
      refused = true;
    }
    return;
  }
  actor = system.spawn<simulated_client>([me, engine](client_actor::pointer self) -> client_actor::behavior_type {
    self->request(engine, caf::infinite, submit_atom::value, std::uint64_t(7), me->asked, client_actor(self))
      .then(
        [me](const request_actor& taken) {
          me->request = taken;
          me->request_id = taken.id();
          if (me->paused)
            caf::anon_send(taken, pause_atom::value, true);
          if (me->cancelled)
            caf::anon_send(taken, cancel_atom::value);
          if (me->finished)
            caf::anon_send(taken, finish_wanted{});
        },
        [me](const caf::error&) { me->refused = true; });
    return {[me](event_atom, std::uint64_t, const event_ptr& e) { me->take(*e); }};
  });
}

void client::take(const event& e) {
  const test::no_failing_allocation memory; // is the client's own affair
  heard.take(e);
  ended_at = system_->clock().now();
  if (++events == plan.throws_at && std::holds_alternative<token_event>(e)) {
    threw = true;
    throw std::runtime_error("the client's function throws");
  }
}

void client::pause(bool now) {
  paused = now;
  if (request && !ended())
    caf::anon_send(request, pause_atom::value, now);
}

std::string client::act(int now, bool at_once) {
  if (!begun || next_deed >= plan.deeds.size() || (!at_once && plan.deeds[next_deed].at > now))
    return {};
  switch (plan.deeds[next_deed++].what) {
    case client_deed::kind::pause: pause(true); return "pauses";
    case client_deed::kind::go_on: pause(false); return "goes on";
    case client_deed::kind::cancel:
      cancelled = true;
      if (request)
        caf::anon_send(request, cancel_atom::value);
      return "cancels";
    case client_deed::kind::finish:
      finished = true;
      if (request)
        caf::anon_send(request, finish_wanted{});
      return "has heard enough";
    case client_deed::kind::leave:
      if (!actor) {
        cancelled = true;
        if (request)
          caf::anon_send(request, cancel_atom::value);
        return "cancels";
      }
      left = true;
      caf::anon_send_exit(actor, caf::exit_reason::user_shutdown);
      return "leaves";
  }
  return {};
}

void observer::shared::take(const engine_stats& s) {
  for_each_statistic(s.total, [this](const statistic_info& about, std::uint64_t value) {
    auto& known = counted[about.name];
    if (about.what == statistic_info::kind::counter && value < known && trouble.empty())
      trouble = std::string(about.name) + " went back from " + std::to_string(known) + " to " + std::to_string(value);
    known = value;
  });
  last = s;
}

observer::observer(caf::actor_system& system, engine_actor engine, bool watches) : engine_(std::move(engine)) {
  asker_ = system.spawn([state = state_, engine = engine_](caf::event_based_actor* self) -> caf::behavior {
    return {
      [=](stats_atom) {
        self->request(engine, caf::infinite, stats_atom::value)
          .then([=](const engine_stats& s) { --state->open, state->take(s); },
                [=](const caf::error&) { --state->open; });
      },
      [=](look_atom) {
        self->request(engine, caf::infinite, look_atom::value)
          .then([=](const engine_snapshot_ptr&) { --state->open; }, [=](const caf::error&) { --state->open; });
      },
    };
  });
  if (!watches)
    return;
  watcher_ = system.spawn([](step_watcher_actor::pointer) -> step_watcher_actor::behavior_type {
    return {[](record_atom, const step_record_ptr&) {}};
  });
}

// One at a time: answers to two may come in another order, each as of its time.
void observer::ask() {
  if (waits())
    return;
  switch (watcher_ ? turn_++ % 4 : 0) {
    case 1:
      ++state_->open;
      caf::anon_send(asker_, look_atom::value);
      break;
    case 2: caf::anon_send(engine_, watch_atom::value, watcher_); break;
    case 3: caf::anon_send(engine_, unwatch_atom::value, watcher_); break;
    default: ++state_->open; caf::anon_send(asker_, stats_atom::value);
  }
}

void observer::end() {
  caf::anon_send_exit(asker_, caf::exit_reason::user_shutdown);
  if (watcher_)
    caf::anon_send_exit(watcher_, caf::exit_reason::user_shutdown);
  asker_ = caf::actor();
  watcher_ = step_watcher_actor();
  engine_ = engine_actor();
}

} // namespace troupe::simulation
