// A server that speaks TLS, over real sockets. Public clients: tests/e2e/test_tls.py.
#include "runtime/support/error.hpp"
#include "tests/api/server/replaced_server.hpp"
#include "tests/api/server/tls_client.hpp"
#include "tests/api/server/websocket_client.hpp"
#include "tests/rounds.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <random>
#include <stdexcept>

using namespace troupe;
using namespace troupe::test;

namespace {

constexpr auto streamed = R"({"prompt":"a","stream":true})";

/// The answer to one request on a connection of its own.
response get_over_tls(std::uint16_t port, std::string_view path) {
  tls_client client(port);
  client.get(path);
  return client.read_response();
}

/// Whether nobody is connected but who asks, on one connection: the server sees the end of each a moment late.
bool all_gone_over_tls(std::uint16_t port) {
  tls_client client(port);
  const auto until = std::chrono::steady_clock::now() + patience;
  while (std::chrono::steady_clock::now() < until) {
    client.get("/metrics");
    if (client.read_response().body.find("\ntroupe_connections 1\n") != std::string::npos)
      return true;
  }
  return false;
}

} // namespace

TEST_CASE("Over TLS answers, streams and WebSockets are what they are without it") {
  const certificate_files own;
  live_server live(with_tls(own));
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    tls_client client(live.port(), version);
    client.get("/v1/models");
    CHECK(client.read_response().status == 200);
    client.post("/v1/completions", streamed);
    const auto request = live.fake.next();
    request->text("one");
    CHECK(client.read_head().status == 200);
    CHECK(client.read_chunk().find("\"one\"") != std::string::npos);
    if (version == TLS1_3_VERSION)
      client.tls->change_keys();
    request->text("two");
    CHECK(client.read_chunk().find("\"two\"") != std::string::npos);
    request->finish();
    request->done();
    client.read_until("[DONE]\n\n\r\n0\r\n\r\n");
    client.get("/v1/models"); // on the same connection
    CHECK(client.read_response().status == 200);
  }
  ws_client socket(live.port(), {}, 0, {}, over_tls);
  CHECK(socket.upgrade.status == 101);
  socket.say(R"({"type":"generate","prompt":"x","id":"a"})");
  const auto request = live.fake.next();
  request->text(std::string(100'000, 'x')); // several records
  CHECK(socket.hear().size() > 100'000);
  request->done();
  CHECK(socket.hear().find("\"done\"") != std::string::npos);
  socket.send_frame(8, std::string("\x03\xe8", 2));
  CHECK(socket.read_frame().close_code() == 1000);
  CHECK(socket.read_all().empty());
}

TEST_CASE("A request without TLS is told that it is spoken here, and a client of TLS where it is not gets a refusal") {
  const certificate_files own;
  live_server live(with_tls(own)), plain;
  const auto told = get(live.port(), "/v1/models");
  CHECK(told.status == 400);
  CHECK(told.body.find("https://") != std::string::npos);
  CHECK(told.headers.at("connection") == "close");
  CHECK_THROWS(tls_client(plain.port()));
  CHECK(get(plain.port(), "/v1/models").status == 200);
}

TEST_CASE("Handshakes that break off at any byte leave nothing") {
  const certificate_files own;
  live_server live(with_tls(own));
  // A client's first words, and more of the same.
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), SSL_free);
  auto* said = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), said);
  SSL_connect(ssl.get());
  char* begin = nullptr;
  const auto size = BIO_get_mem_data(said, &begin);
  const std::string hello(begin, static_cast<std::size_t>(size));
  std::mt19937 random(7);
  for (int i = 0, last = rounds(300); i < last; ++i) {
    auto bytes = hello.substr(0, random() % (hello.size() + 1));
    for (auto changes = random() % 4; changes > 0 && bytes.size() > 1; --changes)
      bytes[1 + random() % (bytes.size() - 1)] = static_cast<char>(random());
    raw_client client(live.port());
    client.send(bytes);
    if (random() % 2) {
      client.shutdown_send();
      client.read_all();
    }
  }
  CHECK(all_gone_over_tls(live.port()));
}

TEST_CASE("When too many handshakes are under way, the oldest of the address that has most is ended") {
  const certificate_files own;
  server_options options;
  options.max_connections = 8;                       // 2 handshakes
  options.header_timeout = std::chrono::minutes(10); // none of them ends by itself
  live_server live(with_tls(own, options));
  raw_client first(live.port()), second(live.port()), other(live.port(), 0, INADDR_LOOPBACK + 1);
  CHECK(first.read_all().empty());
  CHECK(get_over_tls(live.port(), "/v1/models").status == 200);
  CHECK(second.read_all().empty());
  other.speak(over_tls);
  other.get("/v1/models");
  CHECK(other.read_response().status == 200);
}

TEST_CASE("A connection above the limit gets 503 over TLS, too, and one that says nothing is closed") {
  const certificate_files own;
  server_options options;
  options.max_connections = 1;
  live_server live(with_tls(own, options));
  tls_client first(live.port());
  first.post("/v1/completions", streamed); // so that it is not idle
  const auto request = live.fake.next();
  raw_client silent(live.port());
  const auto until = std::chrono::steady_clock::now() + patience;
  std::optional<response> refused;
  while (!refused && std::chrono::steady_clock::now() < until)
    try {
      tls_client second(live.port());
      const auto heard = second.read_response();
      const auto behind = second.read_all(); // TLS says that this is the end
      CHECK(behind.empty());
      refused = heard;
    } catch (const std::runtime_error&) { // it has two seconds, which may be over on a busy machine
    }
  REQUIRE(refused);
  CHECK(refused->status == 503);
  CHECK(refused->headers.contains("retry-after"));
  CHECK(silent.read_all().empty());
  request->done();
  first.read_until("[DONE]");
}

TEST_CASE("A handshake that takes too long is ended") {
  const certificate_files own;
  server_options options;
  options.header_timeout = std::chrono::milliseconds(50);
  live_server live(with_tls(own, options));
  raw_client silent(live.port()), half(live.port());
  half.send("\x16\x03\x01");
  CHECK(silent.read_all().empty());
  CHECK(half.read_all().empty());
}

TEST_CASE("A client over TLS that leaves ends its request, and one that has only ended its input gets its answer") {
  const certificate_files own;
  live_server live(with_tls(own));
  {
    tls_client client(live.port());
    client.post("/v1/completions", streamed);
    const auto request = live.fake.next();
    request->text("one");
    client.read_until("one");
    client.close();
    CHECK(request->wait_cancelled());
  }
  for (const bool says_so : {true, false}) {
    tls_client client(live.port());
    client.post("/v1/completions", streamed);
    const auto request = live.fake.next();
    if (says_so)
      client.tls->say_end();
    client.shutdown_send();
    request->text("one");
    request->finish();
    request->done();
    CHECK(client.read_until("[DONE]").find("\"one\"") != std::string::npos);
    client.read_all(); // and TLS says that this is the end
  }
  CHECK(all_gone_over_tls(live.port()));
}

TEST_CASE("New certificates are for new connections, and wrong ones for none") {
  const certificate_files own(make_certificate({.name = "first"}));
  live_server live(with_tls(own));
  tls_client before(live.port());
  CHECK(before.tls->name() == "first");
  own.replace(make_certificate({.name = "second"}));
  live.reload(with_tls(own));
  CHECK(tls_client(live.port()).tls->name() == "second");
  before.get("/v1/models");
  CHECK(before.read_response().status == 200);
  own.replace({make_certificate({.name = "third"}).certificate, make_certificate().key});
  CHECK_THROWS_AS(live.reload(with_tls(own)), failure);
  CHECK_THROWS_AS(live.reload({}), failure); // as if there had been no TLS
  CHECK(tls_client(live.port()).tls->name() == "second");
}

TEST_CASE("A stop waits for no handshake, and ends idle connections and WebSockets in TLS's own way") {
  const certificate_files own;
  server_options options;
  options.stop_grace = std::chrono::minutes(10);
  options.header_timeout = std::chrono::minutes(10);
  live_server live(with_tls(own, options));
  raw_client silent(live.port());
  tls_client idle(live.port()), busy(live.port());
  idle.get("/v1/models");
  CHECK(idle.read_response().status == 200);
  ws_client socket(live.port(), {}, 0, {}, over_tls);
  busy.post("/v1/completions", streamed);
  const auto request = live.fake.next();
  request->text("one");
  busy.read_until("one");
  live.begin_stop();
  CHECK(idle.read_all().empty());
  CHECK(socket.read_frame().close_code() == 1001);
  socket.send_frame(8, std::string("\x03\xe9", 2));
  CHECK(socket.read_all().empty());
  request->finish();
  request->done();
  busy.read_until("[DONE]");
  busy.read_all();
  const auto begun = std::chrono::steady_clock::now();
  live.stop();
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::minutes(5));
}

TEST_CASE("A server that is replaced gives no connection away that speaks TLS") {
  line_to_successor line;
  const certificate_files own;
  live_server old(with_tls(own));
  tls_client idle(old.port()), busy(old.port());
  idle.get("/v1/models");
  CHECK(idle.read_response().status == 200);
  begun_stream stream(old, busy);
  old.give_to(line.here, R"({"version":"another"})", std::chrono::minutes(1));
  CHECK(idle.read_all().empty());
  stream.finish();
  busy.read_all();
  old.wait(); // it ends by itself
  line.here->shut_down();
  CHECK_FALSE(line.there.receive());
}
