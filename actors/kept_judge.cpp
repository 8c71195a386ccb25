#include "actors/kept_judge.hpp"

#include "actors/judge.hpp"

#include <caf/send.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <exception>
#include <utility>

namespace troupe {

kept_judge::kept_judge(engine_actor::pointer engine, engine_options options, model_loader loader)
  : engine_(engine), options_(std::move(options)), loader_(std::move(loader)) {}

void kept_judge::start(std::function<void(const load_status&)> progress) {
  now_ = spawn_judge(engine_actor(engine_), options_, std::move(progress), loader_);
  engine_->monitor(now_);
}

void kept_judge::end() {
  if (now_)
    caf::anon_send_exit(now_, caf::exit_reason::user_shutdown);
}

bool kept_judge::lose(const caf::actor_addr& actor) {
  if (!now_ || now_.address() != actor)
    return false;
  now_ = judge_actor();
  return true;
}

std::string kept_judge::replace(const fault& f) {
  auto why = f.why.message;
  if (policy_.restart(engine_->clock().now())) {
    try {
      start([](const load_status&) {}); // the engine is ready all the same
      ++restarts_;
      return "the reward model failed and is loaded again: " + why;
    } catch (...) {
      why = error_of(std::current_exception()).message;
    }
  }
  given_up_ = "searches with a reward model fail, as it has failed for good: " + why;
  return given_up_;
}

} // namespace troupe
