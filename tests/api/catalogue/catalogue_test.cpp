#include "api/catalogue/server.hpp"
#include "tests/test_data.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

catalogue_model named(const std::string& name, const std::string& folder, std::size_t kv_cache = 16 << 20) {
  return {{.model = golden(folder), .model_name = name, .kv_cache_bytes = kv_cache, .max_context = 128}};
}

/// Waits until it is over; why it did not come.
std::string reason(model_wait& wish) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  for (;;) {
    const auto now = wish.look();
    if (now.over)
      return now.why_not ? now.why_not->message : "";
    if (std::chrono::steady_clock::now() > end)
      return "it took too long";
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
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

TEST_CASE("a catalogue loads several models, finds each by its names, and has requests answered by the one they name") {
  catalogue models({named("a", "llama-gqa"), named("b", "qwen3")}, {});
  CHECK_THROWS_AS(models.load("c", true), failure);
  models.wait_until_started();
  CHECK(models.is_plural());
  CHECK(models.status().ready);
  REQUIRE(models.models().size() == 2);
  CHECK(models.find("")->id == "a");
  CHECK(models.find("b:latest")->vocab_size == models.use("b")->vocab_size);
  for (const auto* name : {"a", "b"}) {
    CHECK(std::holds_alternative<done_event>(last_of(models, short_request(name))));
    CHECK(models.stats_of(name).replicas.size() == 1);
  }
  CHECK(std::holds_alternative<error>(last_of(models, short_request("c"))));
  models.stop();
  CHECK(models.status().state == "stopped");
  CHECK(std::holds_alternative<error>(last_of(models, short_request("a"))));
}

TEST_CASE("a client that wants its model to leave is not heard where no request could load it again") {
  catalogue models({named("a", "llama-gqa"), named("b", "qwen3")}, {});
  models.wait_until_started();
  models.keep("a", std::chrono::milliseconds(0));
  CHECK(reason(*models.unload("b")).empty()); // who unloads has looked at both
  CHECK(std::holds_alternative<done_event>(last_of(models, short_request("a"))));
  CHECK(models.models().size() == 1);
  CHECK_FALSE(models.models().front()->leaves);
}

// CAF's end of an actor system waits for threads that remember its logger (embed/engine.cpp): this thread has used the
// engine, and lives on.
TEST_CASE("a model is unloaded once nobody holds it, though threads that have used it live on, and comes back") {
  catalogue models({named("a", "llama-gqa"), named("b", "qwen3")}, {.on_demand = true});
  CHECK_FALSE(models.use("a"));
  for (int i = 0; i < 2; ++i) {
    auto wish = models.load("a", false);
    CHECK(reason(*wish).empty());
    auto model = models.use("a");
    REQUIRE(model);
    CHECK(model->leaves);
    wish.reset();
    CHECK(std::holds_alternative<done_event>(last_of(models, short_request("a"))));
    models.stats_of("a");
    models.look_at("a");
    const auto watching = models.watch_model("a", [](const std::shared_ptr<const step_record>&) {});
    const auto gone = models.unload("a");
    CHECK_FALSE(gone->look().over);
    CHECK_FALSE(models.use("a")); // nobody new
    model.reset();
    CHECK(reason(*gone).empty());
    CHECK(models.models().empty());
  }
}

TEST_CASE("a model that cannot be served is refused to all who wait, and leaves others alone") {
  catalogue models({named("a", "llama-gqa"), named("b", "nowhere")}, {.on_demand = true});
  CHECK(reason(*models.load("a", false)).empty());
  CHECK(reason(*models.load("b", false)).starts_with("the model `b` could not be loaded: "));
  CHECK(models.status().ready);
  CHECK(models.status().degraded.starts_with("`b`: "));
  CHECK(std::holds_alternative<done_event>(last_of(models, short_request("a"))));

  catalogue picky({named("a", "llama-gqa")}, {},
                  {.accept = [](const served_model&) { throw failure(errc::bad_request, "it has no such token"); }});
  CHECK_THROWS_WITH_AS(picky.wait_until_started(), "it has no such token", failure);
}

TEST_CASE(
  "a catalogue's list changes while it serves: what has begun is answered, and others come and are called otherwise") {
  catalogue models({named("a", "llama-gqa"), named("b", "qwen3")}, {});
  models.wait_until_started();
  auto held = models.use("a");
  REQUIRE(held);
  auto b = named("b", "qwen3");
  b.aliases = {"second"};
  auto changes = models.list({b, named("c", "llama-gqa")});
  CHECK(changes.added == std::vector<std::string>{"c"});
  CHECK(changes.removed == std::vector<std::string>{"a"});
  CHECK(changes.renamed == std::vector<std::string>{"b"});
  CHECK_FALSE(changes.takes_a_restart);
  CHECK_FALSE(models.use("a"));
  CHECK_THROWS_AS(models.load("a", true), failure);
  CHECK(models.status().ready); // while the new one is loaded
  CHECK(std::holds_alternative<done_event>(last_of(models, short_request("a"))));
  held.reset();
  CHECK(reason(*models.load("c", true)).empty());
  for (const auto* name : {"second", "c"})
    CHECK(std::holds_alternative<done_event>(last_of(models, short_request(name))));
  REQUIRE(models.known().size() == 2);
  CHECK(models.known().front().name == "b");
  CHECK(models.find("")->aliases == b.aliases);
  changes = models.list({b, named("c", "llama-gqa")});
  CHECK((changes.added.empty() && changes.removed.empty() && changes.renamed.empty()));
  CHECK_THROWS_AS(models.list({b, named("second", "qwen3")}), failure);
  CHECK(models.known().size() == 2);
}

TEST_CASE("a model whose settings are others is loaded anew, once the requests that began with it have ended") {
  catalogue models({named("a", "llama-gqa"), named("b", "llama-gqa")}, {.on_demand = true});
  CHECK(reason(*models.load("a", false)).empty());
  auto held = models.use("a");
  REQUIRE(held);
  auto other = named("a", "llama-gqa");
  other.options.max_context = 64;
  other.asked = "max-context = 64";
  const auto changes = models.list({other, named("b", "llama-gqa")});
  CHECK(changes.added == changes.removed);
  const auto wish = models.load("a", false);
  CHECK(reason(*models.load("b", false)).empty()); // which need not wait behind it
  CHECK_FALSE(wish->look().over);
  CHECK(std::holds_alternative<done_event>(last_of(models, short_request("a"))));
  held.reset();
  CHECK(reason(*wish).empty());
  CHECK(models.use("a")->max_context == 64);
}

TEST_CASE("a list that changes during the first loads does not end the start") {
  catalogue models({named("a", "llama-gqa"), named("b", "qwen3"), named("c", "nowhere")}, {});
  models.list({named("a", "llama-gqa")});
  models.wait_until_started();
  CHECK(models.use("a"));
}

TEST_CASE("a request that began with a model goes to it, also if another one is called so by now") {
  catalogue models({named("a", "llama-gqa"), named("b", "qwen3")}, {});
  models.wait_until_started();
  const auto tokens_of = [&](const std::string& name) {
    const auto ended = std::make_shared<std::promise<std::vector<token_id>>>();
    const auto tokens = std::make_shared<std::vector<token_id>>();
    models.submit(short_request(name), [ended, tokens](event e) {
      if (const auto* token = std::get_if<token_event>(&e))
        tokens->insert(tokens->end(), token->token_ids.begin(), token->token_ids.end());
      else
        ended->set_value(*tokens);
    });
    return ended->get_future().get();
  };
  const auto of_a = tokens_of("a"), of_b = tokens_of("b");
  REQUIRE(of_a != of_b);
  auto held = models.use("a");
  auto b = named("b", "qwen3");
  b.aliases = {"a"};
  models.list({b});
  CHECK(tokens_of("a") == of_a);
  held.reset();
}

TEST_CASE("a request that has ended keeps no model, whoever still holds it and reads what it said") {
  catalogue models({named("a", "llama-gqa"), named("b", "qwen3")}, {.on_demand = true});
  CHECK(reason(*models.load("a", false)).empty());
  const auto ended = std::make_shared<std::promise<void>>();
  const auto request = models.submit(short_request("a"), [ended](event e) {
    if (!std::holds_alternative<token_event>(e))
      ended->set_value();
  });
  ended->get_future().get();
  CHECK(reason(*models.unload("a")).empty());
  request.cancel(); // of an engine that is no more
  request.pause();
  request.finish();
  CHECK(request.ledger());
  CHECK(reason(*models.load("a", false)).empty());
}

TEST_CASE("an answer that nobody reads ends with a sentence when another model of that name has waited for it") {
  catalogue models({named("a", "llama-gqa"), named("b", "llama-gqa")}, {.on_demand = true});
  CHECK(reason(*models.load("a", false)).empty());
  std::future<event> ended;
  request_handle request;
  const auto is_paused = [&] {
    return request.ledger()->seen(std::chrono::steady_clock::now()).state.what == wait_cause::paused;
  };
  do { // it may be over before it is paused
    const auto last = std::make_shared<std::promise<event>>();
    ended = last->get_future();
    auto one = short_request("a");
    one.sampling.max_tokens = 100;
    one.sampling.ignore_eos = true;
    request = models.submit(std::move(one), [last](event e) {
      if (!std::holds_alternative<token_event>(e))
        last->set_value(std::move(e));
    });
    request.pause();
    while (!is_paused() && ended.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    }
  } while (!is_paused());
  auto other = named("a", "llama-gqa");
  other.options.max_wait = std::chrono::milliseconds(50);
  other.asked = "max-wait = \"50ms\"";
  models.list({other, named("b", "llama-gqa")});
  CHECK(reason(*models.load("a", false)).empty());
  const auto end = ended.get();
  REQUIRE(std::holds_alternative<error>(end));
  CHECK(std::get<error>(end).code == errc::unavailable);
  CHECK(
    std::get<error>(end).message ==
    "the answer was ended: it was not read, and another model `a`, whose requests waited for it, takes the place of "
    "its own");
}

TEST_CASE("who watches a model sees the steps of the loaded one that takes its name") {
  catalogue models({named("a", "llama-gqa"), named("b", "qwen3")}, {});
  models.wait_until_started();
  const auto seen = std::make_shared<std::promise<void>>();
  const auto watching = models.watch_model("a", [seen, told = std::make_shared<std::once_flag>()](const auto&) {
    std::call_once(*told, [&] { seen->set_value(); });
  });
  auto b = named("b", "qwen3");
  b.aliases = {"a"};
  models.list({b});
  CHECK(std::holds_alternative<done_event>(last_of(models, short_request("b"))));
  CHECK(seen->get_future().wait_for(std::chrono::minutes(1)) == std::future_status::ready);
}

TEST_CASE("a catalogue of one model alone stays that") {
  catalogue models({named("a", "llama-gqa")}, {});
  models.wait_until_started();
  CHECK_FALSE(models.list({named("a", "llama-gqa")}).takes_a_restart);
  CHECK(models.list({named("a", "llama-gqa"), named("b", "qwen3")}).takes_a_restart);
  CHECK(models.known().size() == 1);
}
