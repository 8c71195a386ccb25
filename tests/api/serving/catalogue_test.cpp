#include "api/serving/server.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <future>
#include <thread>

using namespace troupe;

namespace {

engine small_engine() {
  return engine::start({.model = golden("llama-gqa"), .kv_cache_bytes = 16 << 20, .max_context = 128});
}

generation short_request(const std::string& model) {
  generation g;
  g.prompt = {1, 2, 3};
  g.sampling.max_tokens = 3;
  g.sampling.temperature = 0;
  g.model = model;
  return g;
}

/// The last event of a request.
event last_of(catalogue& models, generation request) {
  const auto ended = std::make_shared<std::promise<event>>();
  models.submit(std::move(request), [ended](event e) {
    if (!std::holds_alternative<token_event>(e))
      ended->set_value(std::move(e));
  });
  return ended->get_future().get();
}

} // namespace

TEST_CASE("a catalogue serves an engine's model under its name, once it is loaded") {
  const auto engine = small_engine();
  catalogue models(engine);
  const auto info = engine.wait_until_ready();
  CHECK(models.status().ready);
  CHECK(models.status().state == "ready");
  REQUIRE(models.models().size() == 1);
  const auto model = models.models().front();
  CHECK(models.models().front() == model); // made once
  CHECK(model->id == info->id);
  CHECK(model->max_context == 128);
  CHECK(model->vocab_size == info->vocab_size);
  CHECK(models.find("") == model);
  CHECK(models.find(info->id) == model);
  CHECK_FALSE(models.find("another"));
  for (const auto& name : {std::string(), info->id}) {
    const auto end = last_of(models, short_request(name));
    REQUIRE(std::holds_alternative<done_event>(end));
    CHECK(std::get<done_event>(end).prompt_tokens == 3);
  }
  const auto end = last_of(models, short_request("another"));
  REQUIRE(std::holds_alternative<error>(end));
  CHECK(std::get<error>(end).code == errc::not_found);
  engine.stop();
  CHECK(models.status().state == "stopped");
}

TEST_CASE("a server serves a catalogue, and ends when it is told to") {
  const auto engine = small_engine();
  catalogue models(engine);
  server serving(models, {.port = 0});
  CHECK(serving.port() != 0);
  std::jthread thread([&] { serving.run_until_stopped(); });
  serving.stop();
}
