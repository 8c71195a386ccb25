#include "api/server/endpoint.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

using namespace troupe;

namespace {

std::string with_id(std::string_view path, const std::string& id) {
  std::string result(path);
  if (const auto at = result.find("{id}"); at != result.npos)
    result.replace(at, 4, id);
  return result;
}

const found_endpoint& row_at(const std::variant<found_endpoint, reply>& found) {
  REQUIRE(std::holds_alternative<found_endpoint>(found));
  return std::get<found_endpoint>(found);
}

std::string path_of_row(std::string_view method, std::string_view target) {
  return std::string(row_at(find_endpoint(method, target)).row->path);
}

} // namespace

TEST_CASE("every row of the table of endpoints is found by its method and path") {
  for (const auto& row : endpoints()) {
    INFO(row.path);
    const auto found = find_endpoint(row.method, with_id(row.path, "a1") + "?x=y");
    CHECK(row_at(found).row == &row);
    CHECK(row_at(found).id == (row.path.find("{id}") == row.path.npos ? "" : "a1"));
    CHECK(row_at(found).query == "?x=y");
    if (row.method == "GET")
      CHECK(row_at(find_endpoint("HEAD", with_id(row.path, "a1"))).row == &row);
  }
}

TEST_CASE("of paths that fit several rows the first decides, and an id may have slashes and be encoded") {
  CHECK(path_of_row("POST", "/v1/responses/input_tokens") == "/v1/responses/input_tokens");
  CHECK(path_of_row("GET", "/v1/responses/resp_1") == "/v1/responses/{id}");
  CHECK(path_of_row("GET", "/v1/responses/resp_1/input_items") == "/v1/responses/{id}/input_items");
  CHECK(row_at(find_endpoint("GET", "/v1/models/org/name")).id == "org/name");
  CHECK(row_at(find_endpoint("GET", "/v1/models/org%2Fn%c3%a9")).id == "org/n\xc3\xa9");
  CHECK(row_at(find_endpoint("GET", "/v1/models/50%")).id == "50%");
  for (const auto* path : {"/v1/models/", "/v1", "/nowhere", "", "v1/models"})
    CHECK(std::get<reply>(find_endpoint("GET", path)).status == 404);
}

TEST_CASE("a path beside one that there is names that one") {
  const auto told = [](std::string_view path) { return std::get<reply>(find_endpoint("POST", path)).complaint; };
  CHECK(told("/chat/completions?x=y") ==
        "there is nothing at /chat/completions; /v1/chat/completions is probably meant");
  for (const auto* path : {"/v1/v1/messages", "/v1/messages/", "//v1/messages", "/messages", "/api/v1/messages",
                           "/v1/chat/completions/messages"}) {
    INFO(path);
    CHECK(told(path).ends_with("; /v1/messages is probably meant"));
  }
  CHECK(told("/v1/api/chat").ends_with("; /api/chat is probably meant"));
  CHECK(told("/models/org/name").ends_with("; /v1/models/org/name is probably meant"));
  for (const auto* path : {"", "/v1", "/v1/files", "/v1/", "//", "/nowhere/"})
    CHECK(told(path) == "there is nothing at " + std::string(path));
  const auto long_one = "/" + std::string(200, 'x') + "/v1/messages";
  CHECK(told(long_one) == "there is nothing at " + long_one);
}

TEST_CASE("another method than the row's is told which ones there are") {
  const auto refused = std::get<reply>(find_endpoint("PUT", "/v1/responses/resp_1"));
  CHECK(refused.status == 405);
  CHECK(refused.complaint == "/v1/responses/resp_1 takes GET or DELETE, not PUT");
  CHECK(refused.headers.back() == std::pair<std::string, std::string>("Allow", "GET, HEAD, DELETE, OPTIONS"));
  CHECK(allowed_methods("/v1/completions") == "POST, OPTIONS");
  CHECK(allowed_methods("/nowhere").empty());
  CHECK(allowed_methods("*") == "POST, GET, HEAD, DELETE, OPTIONS");
}

TEST_CASE("errors have the format of the API whose endpoints begin alike") {
  const auto why = reply::of({errc::not_found, "no", {}});
  for (const auto* path : {"/api/chat", "/api/none", "/api/chat?x"}) {
    INFO(path);
    REQUIRE(bool(error_format_at(path)));
    CHECK(error_format_at(path)(why, "r1") == R"({"error":"no"})");
  }
  for (const auto* path :
       {"/v1/messages", "/v1/messages?beta=true", "/v1/messages/count_tokens", "/v1/messages/batches"}) {
    INFO(path);
    REQUIRE(bool(error_format_at(path)));
    CHECK(error_format_at(path)(why, "r1") ==
          R"({"type":"error","error":{"type":"not_found_error","message":"no"},"request_id":"r1"})");
  }
  for (const auto* path : {"/v1/chat/completions", "/v1/completions/none", "/v1/none", "/none", "/", ""})
    CHECK_FALSE(bool(error_format_at(path)));
}

TEST_CASE("only signs of life need no key, and only probes are answered while draining") {
  std::vector<std::string_view> open, probes;
  for (const auto& row : endpoints()) {
    if (row.needs == access::open)
      open.push_back(row.path);
    if (row.probe)
      probes.push_back(row.path);
  }
  CHECK(open == std::vector<std::string_view>{"/health", "/", "/page/{id}"});
  CHECK(probes == std::vector<std::string_view>{"/health", "/metrics"});
}

TEST_CASE("--help and the reference name every endpoint") {
  const auto help = list_endpoints(100);
  std::istringstream lines(help);
  for (std::string line; std::getline(lines, line);)
    CHECK(line.size() <= 100);
  std::ifstream file(test_data() + "/../../api/server/REFERENCE.md");
  const std::string readme{std::istreambuf_iterator<char>(file), {}};
  REQUIRE(readme.size() > 1000);
  for (const auto& row : endpoints()) {
    INFO(row.path);
    CHECK(help.find(' ' + std::string(row.path)) != std::string::npos);
    CHECK((readme.find('`' + std::string(row.path)) != std::string::npos ||
           readme.find(' ' + std::string(row.path)) != std::string::npos));
  }
}
