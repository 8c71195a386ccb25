#include "actors/model_load.hpp"

#include "actors/actor_hooks.hpp"
#include "actors/faults.hpp"
#include "actors/messages/loading.hpp"
#include "actors/spawn.hpp"

#include <caf/behavior.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <functional>
#include <new>
#include <utility>

namespace troupe {

namespace {

class loader final : public wakeable<caf::event_based_actor> {
public:
  loader(caf::actor_config& config, std::function<void(caf::event_based_actor*)> work)
    : wakeable(config), work_(std::move(work)) {}

protected:
  caf::behavior make_behavior() override {
    work_(this);
    return {};
  }

private:
  std::function<void(caf::event_based_actor*)> work_;
};

} // namespace

model_load::model_load(engine_actor::pointer engine, engine_options options, model_loader loader)
  : engine_(engine), ahead_({std::move(options), std::move(loader)}) {}

void model_load::start(const engine_listener& tell) {
  auto work = [engine = engine_actor(engine_), what = *std::exchange(ahead_, std::nullopt), tell,
               abandoned = abandoned_](caf::event_based_actor* self) {
    const auto progress = [&](const load_status& s) {
      if (*abandoned)
        throw failure(errc::cancelled, "the engine was stopped while it loaded");
      tell(s, nullptr);
    };
    name_thread("loader");
    try {
      self->send(engine, model_loaded{what.load(what.options, progress)});
    } catch (const failure& f) {
      self->send(engine, load_failed{f.what_failed()});
    } catch (const std::bad_alloc&) {
      self->send(engine, load_failed{{errc::out_of_memory, "there is not enough memory to load the model", {}}});
    } catch (...) {
      self->send(engine, load_failed{error_of(std::current_exception())});
    }
  };
  if (actor_hooks::now) {
    loader_ = engine_->spawn<loader, caf::monitored>(std::move(work)).address();
    return;
  }
  expect_threads(1);
  loader_ = engine_->spawn<loader, caf::detached + caf::monitored>(std::move(work)).address();
}

bool model_load::lose(const caf::actor_addr& actor) {
  if (loader_ != actor)
    return false;
  ended();
  return true;
}

} // namespace troupe
