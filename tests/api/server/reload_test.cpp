// What changes while a server runs.
#include "runtime/support/error.hpp"
#include "tests/api/server/live_server.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

/// The status of a request for the models, with a key if there is one.
int status_of(const live_server& live, const std::string& key = {}, const std::string& host = "localhost") {
  raw_client client(live.port());
  client.send("GET /v1/models HTTP/1.1\r\nHost: " + host + "\r\n" +
              (key.empty() ? "" : "Authorization: Bearer " + key + "\r\n") + "\r\n");
  return client.read_response().status;
}

} // namespace

TEST_CASE("Keys, hosts and the policy change while a server runs") {
  live_server live;
  CHECK(status_of(live) == 200);
  CHECK(status_of(live, "", "llm.example") == 403);
  server_options next;
  next.allowed_hosts = {"llm.example"};
  live.reload(next);
  CHECK(status_of(live, "", "llm.example") == 200);
  CHECK(status_of(live, "", "other.example") == 403);
  next.api_keys = {"secret"};
  live.reload(next);
  CHECK(status_of(live) == 401);
  CHECK(status_of(live, "secret", "other.example") == 200); // with keys, Host needs no check
  const temp_folder folder;
  next.api_keys.clear();
  next.key_file = folder.path() / "keys";
  write(next.key_file, "alice=a1\n");
  live.reload(next);
  CHECK(status_of(live, "secret") == 401);
  CHECK(status_of(live, "a1") == 200);
  next.policy.of_all.max_temperature = 0.5F;
  live.reload(next);
  raw_client client(live.port());
  const std::string body = R"({"prompt":"x","temperature":1.5})";
  client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer a1\r\nContent-Type: "
              "application/json\r\nContent-Length: " +
              std::to_string(body.size()) + "\r\n\r\n" + body);
  const auto refused = client.read_response();
  CHECK(refused.status == 400);
  CHECK(refused.body.find("temperature") != std::string::npos);
}

TEST_CASE("What is wrong with new settings changes nothing") {
  server_options first;
  first.api_keys = {"secret"};
  live_server live(first);
  server_options next;
  next.key_file = "/nowhere/keys";
  CHECK_THROWS_AS(live.reload(next), failure);
  CHECK(status_of(live) == 401);
  CHECK(status_of(live, "secret") == 200);
  next.key_file.clear();
  next.allowed_hosts = {"no host"};
  CHECK_THROWS_AS(live.reload(next), failure);
  CHECK(status_of(live) == 401);
}
