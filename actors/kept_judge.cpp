#include "actors/kept_judge.hpp"

#include "actors/judge.hpp"
#include "runtime/engine/loading/loaded_model.hpp"

#include <caf/typed_event_based_actor.hpp>

#include <memory>
#include <utility>

namespace troupe {

namespace {

/// Loads what it loaded first, or throws failure: answers to one question must not come of two models.
model_loader always_the_same(model_loader load) {
  return [load = std::move(load), files = std::make_shared<std::vector<file_state>>()](const engine_options& options,
                                                                                       const progress_sink& progress) {
    for (const auto& file : *files)
      require_unchanged(file);
    auto model = load(options, progress);
    *files = model->files;
    return model;
  };
}

} // namespace

kept_judge::kept_judge(engine_actor::pointer engine, engine_options options, model_loader loader)
  : engine_(engine), options_(std::move(options)), loader_(always_the_same(std::move(loader))) {}

void kept_judge::start(std::function<void(const load_status&)> progress) {
  now_ = child::add(alive_, engine_,
                    [&] { return spawn_judge(engine_actor(engine_), options_, std::move(progress), loader_); });
}

void kept_judge::end() noexcept {
  for (auto& each : alive_)
    each.end();
}

bool kept_judge::lose(const caf::actor_addr& actor) {
  if (!child::remove(alive_, actor))
    return false;
  now_ = judge_actor();
  return true;
}

std::string kept_judge::ready() {
  ready_ = engine_->clock().now();
  return std::exchange(trouble_, {}).empty() ? "" : "the " + name() + " is loaded again";
}

std::chrono::milliseconds kept_judge::wait_after(const fault& f) {
  why_ = f.why.message;
  const auto now = engine_->clock().now();
  const auto wait = policy_.after(now - std::exchange(ready_, std::nullopt).value_or(now));
  if (restart_policy::is_long(wait))
    trouble_ = "searches with a " + name() + " fail, as it fails again and again, and is loaded again " +
      restart_policy::every(wait) + ": " + why_;
  return wait;
}

std::string kept_judge::load_again() {
  start([](const load_status&) {}); // the engine is ready all the same
  ++restarts_;
  return "the " + name() + " failed and is loaded again: " + why_;
}

} // namespace troupe
