// Tokens inside a CAF application that has actors and a network of its own: it listens for lines of text, and each
// connection is an actor (CAF's broker), which asks the engine and writes tokens as they come.
//   troupe_embed_network MODEL [PORT]
//   nc 127.0.0.1 PORT
// One question at a time and connection; a client that leaves cancels its own. Ends with its input.
#include <troupe/engine_caf.hpp>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/io/broker.hpp>
#include <caf/io/middleman.hpp>
#include <caf/typed_event_based_actor.hpp>

#include <algorithm>
#include <iostream>
#include <limits>
#include <optional>

using text_atom = caf::atom_constant<caf::atom("text")>;
using end_atom = caf::atom_constant<caf::atom("end")>;

namespace {

constexpr std::size_t longest_line = 4096;

/// Hears the engine's events of one request, and tells the connection, which takes other messages, too.
troupe::client_actor::behavior_type translate(troupe::client_actor::pointer self, caf::actor connection) {
  return {[=](troupe::event_atom, std::uint64_t, const troupe::event_ptr& e) {
    if (const auto* tokens = std::get_if<troupe::token_event>(e.get())) {
      caf::anon_send(connection, text_atom::value, tokens->text);
      return;
    }
    const auto* failed = std::get_if<troupe::error>(e.get());
    caf::anon_send(connection, end_atom::value, failed ? failed->message : std::string());
    self->quit();
  }};
}

struct connection_state {
  static inline const char* name = "connection";
  std::string line;                              // what came of the next question
  std::optional<troupe::request_handle> running; // the question that is being answered
};

/// Reads questions and writes answers. Bytes and events are messages like any other, so that nothing blocks.
caf::behavior serve_connection(caf::io::stateful_broker<connection_state>* self, caf::io::connection_handle socket,
                               const troupe::engine& engine) {
  self->configure_read(socket, caf::io::receive_policy::at_most(longest_line));
  const auto say = [=](const std::string& text) {
    self->write(socket, text.size(), text.data());
    self->flush(socket);
  };
  const auto ask = [=, &engine] {
    auto& state = self->state;
    const auto end = state.line.find('\n');
    if (state.running || end == std::string::npos)
      return;
    auto question = state.line.substr(0, end);
    state.line.erase(0, end + 1);
    const auto listener = self->system().spawn(translate, caf::actor_cast<caf::actor>(self));
    auto request = prepare(*engine.model(), {.text = std::move(question), .max_tokens = 64}).request;
    state.running = submit(engine, std::move(request), 1, listener);
  };
  return {[=](const caf::io::new_data_msg& came) {
            auto& line = self->state.line;
            line.append(reinterpret_cast<const char*>(came.buf.data()), came.buf.size());
            if (line.size() > longest_line) { // a client that does not wait for answers
              say("too long\n");
              self->quit();
              return;
            }
            ask();
          },
          [=](text_atom, std::string text) {
            std::ranges::replace(text, '\n', ' '); // an answer is a line, too
            say(text);
          },
          [=](end_atom, const std::string& failure) {
            say(failure.empty() ? "\n" : "[" + failure + "]\n");
            self->state.running.reset();
            ask();
          },
          [=](const caf::io::connection_closed_msg&) {
            if (self->state.running)
              self->state.running->cancel();
            self->quit();
          }};
}

/// Forks an actor for each connection.
caf::behavior listen_for(caf::io::broker* self, const troupe::engine& engine) {
  return {[=, &engine](const caf::io::new_connection_msg& came) {
            self->fork(serve_connection, came.handle, std::cref(engine));
          },
          [](const caf::io::acceptor_closed_msg&) {}};
}

} // namespace

int main(int count, char** arguments) try {
  if (count < 2) {
    std::cerr << "usage: troupe_embed_network MODEL [PORT]\n";
    return 2;
  }
  caf::actor_system_config config;
  config.load<caf::io::middleman>();
  troupe::engine::configure(config);
  caf::actor_system system(config);
  const auto engine = troupe::engine::start(system, {.model = arguments[1]});
  engine.wait_until_ready();

  auto& network = system.middleman();
  auto port = static_cast<std::uint16_t>(count > 2 ? std::stoi(arguments[2]) : 0);
  const auto listener = network.spawn_server(listen_for, port, std::cref(engine));
  if (!listener) {
    std::cerr << "troupe_embed_network: " << system.render(listener.error()) << "\n";
    return 1;
  }
  std::cout << "Listening on port " << port << std::endl;
  std::cin.ignore(std::numeric_limits<std::streamsize>::max(), std::char_traits<char>::eof());
  caf::anon_send_exit(*listener, caf::exit_reason::user_shutdown);
  engine.stop();
} catch (const std::exception& e) {
  std::cerr << "troupe_embed_network: " << e.what() << "\n";
  return 1;
}
