// The web page's files, and the key of its WebSocket.
#include "api/server/page_files.hpp"
#include "tests/api/server/websocket_client.hpp"

#include <doctest/doctest.h>

#include <algorithm>

using namespace troupe;
using namespace troupe::test;

namespace {

response get_page(std::uint16_t port, std::string_view path, std::string_view accept = "text/html,*/*;q=0.8") {
  raw_client client(port);
  client.get(path, "Accept: " + std::string(accept) + "\r\n");
  return client.read_response();
}

constexpr std::string_view greeting = "Ollama is running";

} // namespace

TEST_CASE("/ is a page for clients that accept HTML, and else Ollama's sign of life") {
  live_server live;
  const auto port = live.port();
  for (const auto* accept : {"text/html", "application/xhtml+xml, Text/HTML;q=0.9, */*", "text/html;q=0.5,*/*;q=0.1"}) {
    const auto page = get_page(port, "/", accept);
    CHECK(page.status == 200);
    CHECK(page.headers.at("content-type") == "text/html; charset=utf-8");
    CHECK(page.headers.at("vary") == "Accept");
    CHECK(page.body.starts_with("<!doctype html>"));
  }
  for (const auto* accept : {"*/*", "application/json", "text/html;q=0", "text/plain, text/html; q=0.0", ""})
    CHECK(get_page(port, "/", accept).body == greeting);
}

TEST_CASE(
  "Every file of the page is served with its type and a policy that trusts no other host and no inline script") {
  live_server live;
  REQUIRE(page_files().size() > 10);
  std::size_t all = 0;
  for (const auto& file : page_files()) {
    CAPTURE(file.name);
    const auto answer = get_page(live.port(), "/page/" + std::string(file.name));
    CHECK(answer.status == 200);
    CHECK(answer.body == file.content);
    CHECK(answer.headers.at("x-content-type-options") == "nosniff");
    CHECK(answer.headers.at("content-type") != "application/octet-stream");
    const auto& policy = answer.headers.at("content-security-policy");
    CHECK(policy.find("default-src 'none'") != policy.npos);
    CHECK(policy.find("http") == policy.npos);
    const bool sandbox = file.name == "sandbox.html";
    CHECK((policy.find("unsafe") == policy.npos) == !sandbox);
    CHECK((policy.find("sandbox allow-scripts;") == policy.npos) == !sandbox);
    all += file.content.size();
  }
  CHECK(all < 700'000); // compressed, a third
  const auto settings = get_page(live.port(), "/page/settings.json");
  CHECK(settings.headers.at("content-type") == "application/json");
  CHECK(settings.body.find(R"({"name":"top_k","whole":true,"least":-1,)") != settings.body.npos);
  CHECK(settings.body.find(R"({"name":"contrastive_beta","whole":false,"least":0,"most":100,"initial":0,)") !=
        settings.body.npos);
  CHECK(settings.body.find("max_tokens") == settings.body.npos); // not under this name in requests' table
  CHECK(get_page(live.port(), "/page/nothing.js").status == 404);
  CHECK(get_page(live.port(), "/page/../main.js").status == 404);
}

TEST_CASE("A server without the page has only Ollama's sign of life") {
  server_options options;
  options.page = false;
  live_server live(std::move(options));
  CHECK(get_page(live.port(), "/").body == greeting);
  CHECK(get_page(live.port(), "/page/main.js").status == 404);
  CHECK(get_page(live.port(), "/page/settings.json").status == 404);
}

TEST_CASE("A page's WebSocket brings its key as a subprotocol") {
  server_options options;
  options.api_keys = {"s?cr/et ü"}; // in base64: cz9jci9ldCDDvA==
  live_server live(std::move(options));
  const auto status = [&](std::string_view protocols) {
    return ws_client(live.port(), "Sec-WebSocket-Protocol: " + std::string(protocols) + "\r\n").upgrade.status;
  };
  CHECK(get_page(live.port(), "/").status == 200); // it asks for the key itself
  ws_client with(live.port(), "Sec-WebSocket-Protocol: troupe, troupe.key.cz9jci9ldCDDvA\r\n");
  CHECK(with.upgrade.status == 101);
  CHECK(with.upgrade.headers.at("sec-websocket-protocol") == "troupe");
  CHECK(status("troupe.key.cz9jci9ldCDDvA , troupe") == 101);
  for (const auto* wrong : {"troupe", "troupe, troupe.key.", "troupe, troupe.key.c2VjcmV0", "troupe, troupe.key.%%%",
                            "troupe, key.cz9jci9ldCDDvA"})
    CHECK(status(wrong) == 401);
  // Elsewhere it opens nothing.
  raw_client client(live.port());
  client.get("/v1/models", "Sec-WebSocket-Protocol: troupe, troupe.key.cz9jci9ldCDDvA\r\n");
  CHECK(client.read_response().status == 401);
}

TEST_CASE("Without a subprotocol of the page, none is confirmed") {
  live_server live;
  ws_client plain(live.port());
  CHECK(plain.upgrade.status == 101);
  CHECK(!plain.upgrade.headers.contains("sec-websocket-protocol"));
  ws_client other(live.port(), "Sec-WebSocket-Protocol: chat\r\n");
  CHECK(other.upgrade.status == 101);
  CHECK(!other.upgrade.headers.contains("sec-websocket-protocol"));
}
