#include "tests/api/server/live_server.hpp"

#include <doctest/doctest.h>

#include <condition_variable>
#include <mutex>
#include <optional>

using namespace troupe;
using namespace troupe::test;

namespace {

/// A model that is loaded when the test says so.
class loading_service final : public fake_service {
public:
  bool is_plural() const override { return true; }
  std::shared_ptr<const served_model> use(std::string_view name) override {
    const std::lock_guard lock(load_->mutex);
    return load_->over && !load_->why_not && is_name_of(*served, name) ? served : nullptr;
  }
  std::shared_ptr<model_wait> load(std::string_view name, bool) override {
    if (!is_name_of(*served, name))
      throw failure(errc::not_found, "there is no such model", "model");
    return std::make_shared<one_wait>(load_);
  }

  /// Waits until so many requests wait.
  bool wait_for(int waiting) {
    std::unique_lock lock(load_->mutex);
    return load_->changed.wait_for(lock, patience, [&] { return load_->waiting == waiting; });
  }
  void end_load(std::optional<error> why_not = {}) {
    const std::lock_guard lock(load_->mutex);
    load_->over = true;
    load_->why_not = std::move(why_not);
  }

private:
  struct load_of_model {
    std::mutex mutex;
    std::condition_variable changed;
    int waiting = 0;
    bool over = false;
    std::optional<error> why_not;
  };
  class one_wait final : public model_wait {
  public:
    explicit one_wait(std::shared_ptr<load_of_model> of) : of_(std::move(of)) { count(1); }
    ~one_wait() override { count(-1); }
    progress look() override {
      const std::lock_guard lock(of_->mutex);
      return {of_->over, of_->why_not, "loading `org/bytes`, 34 %"};
    }

  private:
    void count(int more) {
      const std::lock_guard lock(of_->mutex);
      of_->waiting += more;
      of_->changed.notify_all();
    }
    const std::shared_ptr<load_of_model> of_;
  };

  const std::shared_ptr<load_of_model> load_ = std::make_shared<load_of_model>();
};

struct loading_server {
  explicit loading_server(const std::string& admin_key = {}) : listening(fake, {.port = 0, .admin_key = admin_key}) {}
  ~loading_server() { listening.stop(); }
  std::uint16_t port() const { return listening.port(); }

  loading_service fake;
  server listening;
  std::jthread thread{[this] { listening.run_until_stopped(); }};
};

constexpr auto asks = R"({"model":"org/bytes","prompt":"ab","max_tokens":5})";
constexpr auto asks_stream = R"({"model":"org/bytes","prompt":"ab","max_tokens":5,"stream":true})";
const error no_room{errc::unavailable, "the model could not be loaded: it needs 4 GiB, and there is 1", "model"};

} // namespace

TEST_CASE("A request waits for its model, and its answer tells for how long") {
  loading_server live;
  raw_client client(live.port());
  client.post("/v1/completions", asks);
  REQUIRE(live.fake.wait_for(1));
  CHECK(live.fake.nothing_submitted());
  live.fake.end_load();
  const auto request = live.fake.next();
  CHECK(live.fake.wait_for(0));
  request->text("Hi");
  request->finish();
  request->done();
  const auto answer = client.read_response();
  CHECK(answer.status == 200);
  CHECK(std::stod(answer.headers.at("x-troupe-load-seconds")) >= 0);
}

TEST_CASE("A stream that waits for its model tells how far that is, in comments, and then goes on") {
  loading_server live;
  raw_client client(live.port());
  client.post("/v1/completions", asks_stream);
  CHECK(client.read_head().status == 200);
  CHECK(client.read_chunk() == ": loading `org/bytes`, 34 %\n\n");
  live.fake.end_load();
  const auto request = live.fake.next();
  request->text("Hi");
  auto chunk = client.read_chunk();
  while (chunk.starts_with(':'))
    chunk = client.read_chunk();
  CHECK(chunk.find(R"("text":"Hi")") != std::string::npos);
  request->finish();
  request->done();
  CHECK(client.read_chunk().ends_with("data: [DONE]\n\n"));
  CHECK(client.read_chunk().empty());
}

TEST_CASE("A stream whose model cannot be loaded ends with that, as an event of its API") {
  for (const std::string path : {"/v1/completions", "/v1/messages"}) {
    loading_server live;
    raw_client client(live.port());
    client.post(path, asks_stream);
    CHECK(client.read_head().status == 200);
    CHECK(client.read_chunk().starts_with(": loading"));
    live.fake.end_load(no_room);
    auto chunk = client.read_chunk();
    while (chunk.starts_with(':'))
      chunk = client.read_chunk();
    CHECK(chunk.starts_with(path == "/v1/messages" ? "event: error\ndata: {\"type\":\"error\"" : "data: {\"error\":{"));
    CHECK(chunk.find(no_room.message) != std::string::npos);
    CHECK(client.read_chunk().empty());
  }
}

TEST_CASE("What cannot be loaded is refused with the reason, and what nobody has with a 404") {
  loading_server live;
  raw_client client(live.port());
  client.post("/v1/completions", asks);
  raw_client counting(live.port());
  counting.post("/tokenize", R"({"model":"org/bytes","prompt":"ab"})");
  REQUIRE(live.fake.wait_for(2)); // what generates nothing waits as well
  live.fake.end_load(no_room);
  for (auto* each : {&client, &counting}) {
    const auto answer = each->read_response();
    CHECK(answer.status == 503);
    CHECK(answer.body.find(no_room.message) != std::string::npos);
  }
  client.post("/v1/completions", R"({"model":"another","prompt":"ab"})");
  CHECK(client.read_response().status == 404);
}

TEST_CASE("A client that leaves while its model is loaded waits no more") {
  loading_server live;
  {
    raw_client client(live.port()), counting(live.port());
    client.post("/v1/completions", asks);
    counting.post("/tokenize", R"({"model":"org/bytes","prompt":"ab"})");
    REQUIRE(live.fake.wait_for(2));
  }
  CHECK(live.fake.wait_for(0));
  live.fake.end_load();
  CHECK(live.fake.nothing_submitted());
}

TEST_CASE("Only the operator's key loads and unloads models, and it opens nothing else") {
  constexpr auto body = R"({"model":"org/bytes"})";
  const auto ask = [&](std::uint16_t port, std::string_view headers) {
    raw_client client(port);
    client.post("/v1/models/load", body, headers);
    return client.read_response();
  };
  loading_server nobody;
  CHECK(ask(nobody.port(), "Authorization: Bearer operator\r\n").status == 403);
  loading_server live("operator");
  live.fake.end_load();
  CHECK(ask(live.port(), {}).status == 401);
  CHECK(ask(live.port(), "Authorization: Bearer operato\r\n").status == 401);
  CHECK(ask(live.port(), "Authorization: Bearer operator\r\n").body == R"({"success":true})");
  CHECK(ask(live.port(), "x-api-key: operator\r\n").status == 200);
  live_server guarded({.api_keys = {"client"}, .admin_key = "operator"});
  CHECK(get(guarded.port(), "/v1/models", "Authorization: Bearer operator\r\n").status == 401);
  CHECK(ask(guarded.port(), "Authorization: Bearer client\r\n").status == 401);
}
