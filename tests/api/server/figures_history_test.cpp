// What the server keeps of its metrics for the page's figures.
#include "api/server/figures/figures_history.hpp"
#include "runtime/support/json/json.hpp"
#include "tests/api/server/live_server.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::test;

namespace {

std::chrono::system_clock::time_point second(int n) {
  return std::chrono::system_clock::time_point(std::chrono::seconds(n));
}

} // namespace

TEST_CASE("The history keeps what figures draw, summed over replicas, and no other metric") {
  figures_history history(std::chrono::seconds(10));
  CHECK(history.json(second(20000)) == R"({"now":20000,"names":[],"samples":[]})");
  history.add("# HELP troupe_kv_blocks Blocks\ntroupe_kv_blocks 7\ntroupe_steps_total 99\n\nnonsense\n", second(5));
  history.add(
    "troupe_kv_blocks{replica=\"0\"} 3\ntroupe_kv_blocks{replica=\"1\"} 4\n"
    "troupe_queue_seconds_bucket{le=\"0.5\"} 2\ntroupe_queue_seconds_bucket{le=\"+Inf\"} 3\n"
    "troupe_kv_blocks_in_use{replica=\"1\",kind=\"x\"} 5\ntroupe_sequences_running{kind=\"x\",replica=\"2\"} nan\n",
    second(15));
  CHECK(history.json(second(20000)) ==
        R"({"now":20000,"names":["troupe_kv_blocks","troupe_queue_seconds_bucket{le=\"0.5\"}",)"
        R"("troupe_queue_seconds_bucket{le=\"+Inf\"}","troupe_kv_blocks_in_use{kind=\"x\"}",)"
        R"("troupe_sequences_running{kind=\"x\"}"],"samples":[[5,7],[15,7,2,3,5,null]]})");
}

TEST_CASE("The history is an hour long, and does not grow with names") {
  figures_history history(std::chrono::minutes(10));
  for (int i = 0; i < 20; ++i)
    history.add("troupe_kv_blocks " + std::to_string(i) + "\n", second(600 * i));
  CHECK(history.json(second(20000)) ==
        R"({"now":20000,"names":["troupe_kv_blocks"],"samples":[[7800,13],[8400,14],[9000,15],[9600,16],[10200,17],)"
        R"([10800,18],[11400,19]]})");
  std::string many;
  for (int i = 0; i < 5000; ++i)
    many += "troupe_queue_seconds_bucket{le=\"" + std::to_string(i) + "\"} 1\n";
  history.add(many, second(12000));
  CHECK(history.json(second(20000)).size() < 20'000);
}

TEST_CASE("A server with a page keeps figures while it runs, for those who may read its metrics") {
  server_options options;
  options.figures_interval = std::chrono::milliseconds(20);
  options.api_keys = {"secret"};
  live_server live(options);
  const auto get = [&](std::string_view headers = "Authorization: Bearer secret\r\n") {
    raw_client client(live.port());
    client.get("/debug/figures", headers);
    return client.read_response();
  };
  CHECK(get("").status == 401);
  std::string kept;
  const auto began = std::chrono::steady_clock::now();
  do {
    kept = get().body;
    REQUIRE(std::chrono::steady_clock::now() - began < patience);
  } while (kept.find("],[") == kept.npos); // two samples
  CHECK(kept.find(R"("troupe_queue_seconds_bucket{le=\"+Inf\"}")") != kept.npos);
  CHECK_NOTHROW(json::document::parse(kept, "the figures"));
  options.page = false;
  live_server bare(options);
  raw_client client(bare.port());
  client.get("/debug/figures", "Authorization: Bearer secret\r\n");
  CHECK(client.read_response().status == 404);
}
