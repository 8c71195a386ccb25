// Embeds two engines in a program's own caf::actor_system. One question is answered, one request delivers its tokens to
// a callback, one sends them as messages to an actor, and one is cancelled.
//   troupe_embed MODEL [OTHER_MODEL]
#include <troupe/engine_caf.hpp>
#include <troupe/version.hpp>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <future>
#include <iostream>

namespace {

/// The ordinary case: asks, and waits for the answer.
void ask(const troupe::engine& engine) {
  troupe::question asked{.text = "Once upon a time", .max_tokens = 24};
  if (engine.model()->chat)
    asked.messages = {{"user", "Tell me a story about a fox"}};
  const auto answer = engine.generate(asked, [](std::string_view text) { std::cout << text << std::flush; });
  std::cout << "\n[question: " << answer.done.completion_tokens << " tokens]\n";
}

/// A request whose events the program takes itself. Greedy, so that every run is the same.
troupe::generation make_request(const troupe::engine& engine, const std::string& text, int max_tokens) {
  auto request = prepare(*engine.model(), {.text = text, .max_tokens = max_tokens}).request;
  request.sampling.temperature = 0;
  return request;
}

/// Describes a request's last event.
std::string summary(const troupe::event& last) {
  if (const auto* done = std::get_if<troupe::done_event>(&last)) {
    const bool cancelled = done->choices.at(0).reason == troupe::finish_reason::cancelled;
    return std::to_string(done->completion_tokens) + " tokens" + (cancelled ? ", cancelled" : "");
  }
  return "failed: " + std::get<troupe::error>(last).message;
}

/// Prints tokens from a callback, which runs on the engine's threads and should not block, and waits for the last
/// event.
void generate_with_callback(const troupe::engine& engine) {
  std::promise<std::string> ended;
  engine.submit(make_request(engine, "Once upon a time", 24), [&](troupe::event e) {
    if (const auto* tokens = std::get_if<troupe::token_event>(&e))
      std::cout << tokens->text << std::flush;
    else
      ended.set_value(summary(e));
  });
  const auto end = ended.get_future().get();
  std::cout << "\n[callback: " << end << "]\n";
}

/// Receives tokens as messages. One actor can serve any number of requests; a number tells them apart.
void generate_with_messages(const troupe::engine& engine, caf::actor_system& system) {
  std::promise<std::string> ended;
  const auto listener = system.spawn([&](troupe::client_actor::pointer self) -> troupe::client_actor::behavior_type {
    return {[&, self](troupe::event_atom, std::uint64_t, const troupe::event_ptr& e) {
      if (const auto* tokens = std::get_if<troupe::token_event>(e.get())) {
        std::cout << tokens->text << std::flush;
        return;
      }
      ended.set_value(summary(*e));
      self->quit();
    }};
  });
  submit(engine, make_request(engine, "There was a", 24), 1, listener);
  const auto end = ended.get_future().get();
  std::cout << "\n[messages: " << end << "]\n";
}

/// Cancels a long request after its first token.
void cancel_request(const troupe::engine& engine) {
  std::promise<void> started;
  std::promise<std::string> ended;
  auto endless = make_request(engine, "Once", 100000);
  endless.sampling.ignore_eos = true;
  const auto request = engine.submit(std::move(endless), [&, first = true](troupe::event e) mutable {
    if (!std::holds_alternative<troupe::token_event>(e))
      ended.set_value(summary(e));
    else if (std::exchange(first, false))
      started.set_value();
  });
  started.get_future().wait();
  request.cancel();
  std::cout << "[long request: " << ended.get_future().get() << "]\n";
}

} // namespace

int main(int count, char** arguments) try {
  if (count < 2) {
    std::cerr << "usage: troupe_embed MODEL [OTHER_MODEL]\n";
    return 2;
  }
  caf::actor_system_config config;
  troupe::engine::configure(config);
  caf::actor_system system(config);

  const auto engine = troupe::engine::start(system, {.model = arguments[1]});
  const auto other = troupe::engine::start(system, {.model = arguments[count > 2 ? 2 : 1], .max_sequences = 4});
  engine.wait_until_ready();
  other.wait_until_ready();

  std::cout << "[Troupe " TROUPE_VERSION_STRING "]\n";
  ask(engine);
  generate_with_callback(engine);
  generate_with_messages(other, system);
  cancel_request(engine);

  engine.stop();
  other.stop();
} catch (const std::exception& e) {
  std::cerr << "troupe_embed: " << e.what() << "\n";
  return 1;
}
