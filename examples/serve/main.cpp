// Serves a model over HTTP from a program's own caf::actor_system. Beside the server, an actor of the program asks the
// engine for stories, and its requests share the engine's steps with those of HTTP clients. Ends with its input.
//   troupe_embedded_server MODEL [PORT]
#include <troupe/engine_caf.hpp>
#include <troupe/server.hpp>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <future>
#include <iostream>
#include <limits>
#include <thread>

namespace {

/// Counts the tokens of one answer, which arrive as messages.
troupe::client_actor::behavior_type count_tokens(troupe::client_actor::pointer self, std::promise<std::string>* ended) {
  return {[=](troupe::event_atom, std::uint64_t, const troupe::event_ptr& e) {
    if (std::holds_alternative<troupe::token_event>(*e))
      return;
    const auto* done = std::get_if<troupe::done_event>(e.get());
    ended->set_value(done ? std::to_string(done->completion_tokens) + " tokens" : std::get<troupe::error>(*e).message);
    self->quit();
  }};
}

} // namespace

int main(int count, char** arguments) try {
  if (count < 2) {
    std::cerr << "usage: troupe_embedded_server MODEL [PORT]\n";
    return 2;
  }
  caf::actor_system_config config;
  troupe::engine::configure(config);
  caf::actor_system system(config);
  const auto engine = troupe::engine::start(system, {.model = arguments[1]});

  // The server: it listens at once, and answers /health while the model loads.
  troupe::catalogue models(engine);
  troupe::server server(models, {.port = static_cast<std::uint16_t>(count > 2 ? std::stoi(arguments[2]) : 8080)});
  std::jthread serving([&] { server.run_until_stopped(); });
  struct stop_at_end {
    troupe::server& server;
    ~stop_at_end() { server.stop(); }
  } const ends{server};
  std::cout << "Listening on http://127.0.0.1:" << server.port() << std::endl;

  // The program's own actors use the same engine.
  const auto model = engine.wait_until_ready();
  std::promise<std::string> ended;
  const auto counter = system.spawn(count_tokens, &ended);
  submit(engine, prepare(*model, {.text = "Once upon a time", .max_tokens = 24}).request, 1, counter);
  std::cout << "An actor heard " << ended.get_future().get() << std::endl;

  std::cin.ignore(std::numeric_limits<std::streamsize>::max());
} catch (const std::exception& e) {
  std::cerr << "troupe_embedded_server: " << e.what() << "\n";
  return 1;
}
