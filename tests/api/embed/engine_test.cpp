// The engine through its public interface: cancellation, flow control, stopping, news. The model is small, the worker
// group is real.
#include "actors/unwoken.hpp"
#include "api/embed/engine_caf.hpp"
#include "tests/api/embed/small_engine.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <utility>

using namespace troupe;
using namespace troupe::testing;

TEST_CASE("two engines live in one process, one of them in a foreign actor system") {
  caf::actor_system_config config;
  engine::configure(config);
  caf::actor_system system{config};
  auto one = engine::start(system, small("llama-gqa"));
  auto two = engine::start(small("qwen2"));
  one.wait_until_ready();
  two.wait_until_ready();
  listener a, b;
  one.submit(ask({0, 54, 51}, 20), a.sink());
  two.submit(ask({52, 49, 47}, 20), b.sink());
  REQUIRE(a.wait());
  REQUIRE(b.wait());
  CHECK(a.result().done.has_value());
  CHECK(b.result().done.has_value());
  one.stop();
  CHECK(run(two, ask({52, 49, 47}, 20)).ids == b.result().ids);
}

TEST_CASE("an actor gets tokens as messages") {
  caf::actor_system_config config;
  engine::configure(config);
  caf::actor_system system{config};
  auto e = engine::start(system, small());
  e.wait_until_ready();
  std::promise<std::pair<std::uint64_t, std::vector<token_id>>> heard_all;
  auto client = system.spawn([&](client_actor::pointer self) -> client_actor::behavior_type {
    auto ids = std::make_shared<std::vector<token_id>>();
    return {[&, self, ids](event_atom, std::uint64_t id, const event_ptr& e) {
      if (auto* t = std::get_if<token_event>(e.get()))
        ids->insert(ids->end(), t->token_ids.begin(), t->token_ids.end());
      else {
        heard_all.set_value({id, *ids});
        self->quit();
      }
    }};
  });
  auto handle = handle_of(e);
  caf::anon_send(handle, submit_atom::value, std::uint64_t(77),
                 std::make_shared<const generation>(ask({0, 54, 51}, 10)), client);
  auto [id, ids] = heard_all.get_future().get();
  CHECK(id == 77);
  CHECK(ids == run(e, ask({0, 54, 51}, 10)).ids[0]);
}

TEST_CASE("who watches an engine gets a record of each step, until it says otherwise") {
  struct seen {
    std::mutex mutex;
    std::vector<step_record> records;
  } seen;
  caf::actor_system_config config;
  engine::configure(config);
  caf::actor_system system{config};
  auto e = engine::start(system, small());
  const auto watcher = system.spawn([&seen](step_watcher_actor::pointer) -> step_watcher_actor::behavior_type {
    return {[&seen](record_atom, const step_record_ptr& record) {
      const std::lock_guard lock(seen.mutex);
      seen.records.push_back(*record);
    }};
  });
  // Nothing is on its way to the watcher once it has answered behind the engine.
  const auto heard = [&] {
    CHECK(soon([&] {
      const auto steps = e.stats().total.scheduler.steps;
      const std::lock_guard lock(seen.mutex);
      return !seen.records.empty() && seen.records.back().step == steps;
    }));
    const std::lock_guard lock(seen.mutex);
    return seen.records;
  };
  caf::anon_send(handle_of(e), watch_atom::value, watcher); // the model may be loading
  e.wait_until_ready();
  run(e, ask({0, 54, 51}, 10));
  REQUIRE(idle(e));
  const auto records = heard();
  const auto counted = e.stats().total.scheduler;
  CHECK(records.size() == counted.steps);
  step_rows rows;
  std::uint64_t granted = 0;
  for (const auto& record : records) {
    rows.decode += record.rows.decode, rows.prefill += record.rows.prefill;
    granted += record.blocks.granted;
    CHECK(record.replica == 0);
    CHECK(record.ms > 0);
    CHECK(record.stage_ms.size() == 1);
  }
  CHECK(rows.decode + counted.guessed_tokens == counted.decode_rows);
  CHECK(rows.prefill == counted.prefill_rows);
  CHECK(granted == 1);
  CHECK(records.back().sequences.running == 0);
  caf::anon_send(handle_of(e), unwatch_atom::value, watcher);
  run(e, ask({0, 54, 51}, 10));
  REQUIRE(idle(e));
  const std::lock_guard lock(seen.mutex);
  CHECK(seen.records.size() == records.size());
}

TEST_CASE("a program watches an engine's steps and looks at its blocks and actors while it keeps the watch") {
  auto e = engine::start(small());
  e.wait_until_ready();
  std::mutex mutex;
  std::vector<std::shared_ptr<const step_record>> records;
  const auto seen = [&] {
    const std::lock_guard lock(mutex);
    return records.size();
  };
  run(e, ask({0, 54, 51}, 10));
  REQUIRE(idle(e));
  const auto before = e.stats().total.scheduler.steps;
  auto watch = e.watch([&](const std::shared_ptr<const step_record>& record) {
    const std::lock_guard lock(mutex);
    records.push_back(record);
  });
  e.look(); // the engine has heard of the watch
  run(e, ask({0, 54, 51}, 10));
  REQUIRE(idle(e));
  const auto steps = e.stats().total.scheduler.steps - before;
  CHECK(soon([&] { return seen() >= steps; }));
  CHECK(seen() == steps);
  const auto now = e.look();
  REQUIRE(now.replicas.size() == 1);
  const auto counted = e.stats().total.blocks;
  CHECK(now.replicas[0].blocks == counted.total);
  CHECK(now.replicas[0].map.size() == counted.total);
  CHECK(static_cast<std::uint64_t>(std::ranges::count(now.replicas[0].map, 'c')) == counted.cached);
  const auto scheduler = std::ranges::find(now.actors, "scheduler", &actor_load::kind);
  REQUIRE(scheduler != now.actors.end());
  CHECK(scheduler->alive >= 1);
  CHECK(scheduler->handled >= steps);
  watch.reset();
  e.look();
  run(e, ask({0, 54, 51}, 10));
  REQUIRE(idle(e));
  CHECK(seen() == steps);
}

TEST_CASE("a cancelled request ends at once and leaves no block behind") {
  auto e = engine::start(roomy());
  e.wait_until_ready();
  listener l;
  auto handle = e.submit(long_request(), l.sink());
  REQUIRE(l.wait_for_tokens(3));
  handle.cancel();
  REQUIRE(l.wait());
  auto heard = l.result();
  CHECK(heard.finish[0] == finish_reason::cancelled);
  CHECK(heard.finish.size() == 8);
  CHECK(heard.done->completion_tokens < 16'000);
  CHECK(idle(e));
}

TEST_CASE("a paused request gets no more tokens until it is resumed") {
  auto e = engine::start(small());
  e.wait_until_ready();
  auto g = ask({0, 54, 51}, 300);
  g.sampling.ignore_eos = true;
  listener slow;
  request_handle handle;
  do { // on a busy machine it may be over before it is paused
    slow = {};
    handle = e.submit(g, slow.sink());
    REQUIRE(slow.wait_for_tokens(1));
    handle.pause();
    while (e.stats().total.scheduler.paused == 0 && !slow.result().done)
      std::this_thread::yield();
  } while (slow.result().done);
  auto other = run(e, g); // not delayed
  auto seen = slow.result().ids[0].size();
  run(e, g);
  CHECK(slow.result().ids[0].size() <= seen + 2);
  CHECK_FALSE(slow.result().done.has_value());
  handle.resume();
  REQUIRE(slow.wait());
  CHECK(slow.result().ids == other.ids);
}

TEST_CASE("a request that cannot be served ends with an error and a sentence") {
  auto options = roomy();
  options.max_queue = 1;
  options.max_sequences = 1;
  std::promise<void> asked;
  auto e = engine::start(options, [go_on = asked.get_future().share()](const load_status& s) {
    if (s.now == load_status::stage::loading)
      go_on.wait(); // the loader waits for its listener
  });
  listener early;
  e.submit(ask({1}, 1), early.sink());
  const bool is_over = early.wait();
  asked.set_value(); // before anything may end the test: the engine's end waits for the loader
  REQUIRE(is_over);
  REQUIRE(early.result().failed);
  CHECK(early.result().failed->code == errc::unavailable);
  e.wait_until_ready();
  CHECK(run(e, ask({}, 1)).failed->param == "prompt");
  CHECK(run(e, ask({768}, 1)).failed->param == "prompt");
  CHECK(run(e, ask(std::vector<token_id>(2048, 1), 1)).failed->param == "prompt");
  auto bad = ask({1}, 1);
  bad.sampling.top_p = 7;
  CHECK(run(e, bad).failed->param == "top_p");
  auto many = ask({1}, 1);
  many.sampling.n = 2;
  CHECK(run(e, many).failed->param == "n");

  auto longest = ask({1}, 2000);
  longest.sampling.ignore_eos = true;
  listener runs, waits, refused;
  for (int tries = 0; !refused.result().failed && tries < 20; ++tries) { // the first may be over too soon
    REQUIRE(idle(e));
    runs = {}, waits = {}, refused = {};
    e.submit(longest, runs.sink());
    REQUIRE(runs.wait_for_tokens(1));
    auto second = e.submit(longest, waits.sink());
    REQUIRE(soon([&] { return e.stats().total.scheduler.waiting > 0 || waits.result().ids.size() > 0; }));
    auto third = e.submit(longest, refused.sink());
    REQUIRE(refused.wait_for_tokens(1));
    second.cancel(), third.cancel();
  }
  REQUIRE(refused.result().failed);
  CHECK(refused.result().failed->code == errc::overloaded);
  REQUIRE(runs.wait());
  CHECK(runs.result().ids[0].size() == 2000);
}

TEST_CASE("a sink without memory for the last event hears it when the engine stops at the latest, and is not called "
          "after that") {
  auto e = engine::start(small());
  e.wait_until_ready();
  const auto here = std::this_thread::get_id();
  std::atomic<int> heard = 0, refused = 0;
  const auto sink_of = [&](bool has_some) {
    return [&, has_some](const event& what) {
      if (std::holds_alternative<token_event>(what))
        return;
      if (has_some && std::this_thread::get_id() == here) {
        ++heard;
        return;
      }
      ++refused;
      throw std::bad_alloc();
    };
  };
  e.submit(ask({0, 54, 51}, 2), sink_of(true));
  e.submit(ask({0, 54, 51}, 2), sink_of(false));
  REQUIRE(soon([&] { return refused >= 2; }));
  const int usual = std::exchange(unwoken::tries, 3);
  e.stop();
  unwoken::tries = usual;
  CHECK(heard == 1);
  const int before = refused;
  unwoken::wake();
  CHECK(heard == 1);
  CHECK(refused == before);
}

TEST_CASE("a sink of a request behind the stop, without memory for its error, hears it when the engine goes") {
  std::optional<engine> e = engine::start(small());
  e->stop();
  const auto here = std::this_thread::get_id();
  std::atomic<int> heard = 0;
  std::atomic<bool> waits = true;
  e->submit(ask({0, 54, 51}, 2), [&](const event&) {
    if (std::this_thread::get_id() == here) {
      ++heard;
      return;
    }
    if (waits.exchange(false)) // until the engine has nothing to do but to wait for the request
      std::this_thread::sleep_for(std::chrono::milliseconds(90));
    throw std::bad_alloc();
  });
  e.reset();
  CHECK(heard == 1);
}

TEST_CASE("max_tokens is cut to what the context holds, and zero is refused") {
  auto e = engine::start(small());
  e.wait_until_ready();
  auto g = ask(std::vector<token_id>(500, 9), 100);
  g.sampling.ignore_eos = true;
  auto heard = run(e, g);
  CHECK(heard.ids[0].size() == 12);
  CHECK(heard.finish[0] == finish_reason::length);
  g.sampling.max_tokens = 0;
  heard = run(e, g);
  REQUIRE(heard.failed.has_value());
  CHECK(heard.failed->param == "max_tokens");
}

TEST_CASE("a request that exceeds its timeout ends") {
  auto options = small();
  options.step_tokens = 1;
  auto e = engine::start(options);
  e.wait_until_ready();
  heard heard;
  REQUIRE(soon([&, token = token_id(8)]() mutable { // on a busy machine all may be over before the time is looked at
    auto g = ask(std::vector<token_id>(400, ++token), 100);
    g.timeout = std::chrono::milliseconds(1);
    heard = run(e, g);
    return heard.failed.has_value();
  }));
  CHECK((heard.failed->code == errc::timeout || heard.failed->code == errc::overloaded)); // it was not expected in time
  CHECK(idle(e));
}

TEST_CASE("stopping ends the request of every client, in any state") {
  auto e = engine::start(small());
  e.wait_until_ready();
  std::vector<listener> clients(20);
  auto g = ask({0, 54, 51}, 400);
  g.sampling.ignore_eos = true;
  for (auto& c : clients)
    e.submit(g, c.sink());
  REQUIRE(clients[0].wait_for_tokens(2));
  e.stop();
  for (auto& c : clients) {
    REQUIRE(c.wait());
    auto heard = c.result();
    CHECK((heard.done || heard.failed->code == errc::unavailable));
  }
  CHECK(e.status().now == load_status::stage::stopped);
  CHECK(run(e, g).failed->code == errc::unavailable);
  CHECK_THROWS_AS(e.stats(), failure);
}

TEST_CASE("an engine stopped while loading reports nothing afterwards") {
  std::promise<void> loading;
  std::atomic<bool> first = true, telling = false;
  auto e = engine::start(small(), [&](const load_status& s) {
    if (s.now != load_status::stage::loading)
      return;
    if (first.exchange(false))
      loading.set_value();
    telling = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    telling = false;
  });
  loading.get_future().wait();
  e.stop();
  CHECK_FALSE(telling);
  CHECK_THROWS_AS(e.wait_until_ready(), failure);
  CHECK(e.status().now == load_status::stage::stopped);
}

TEST_CASE("an engine may be stopped by several threads, and handles outlive it") {
  request_handle left;
  listener l;
  {
    auto e = engine::start(small());
    e.wait_until_ready();
    left = e.submit(ask({0, 54, 51}, 400), l.sink());
    std::thread other([e] { e.stop(); });
    e.stop();
    other.join();
  }
  REQUIRE(l.wait());
  left.pause();
  left.cancel();
}

TEST_CASE("an engine actor that dies takes its worker group with it") {
  auto e = engine::start(small(), [](const load_status& s) {
    if (s.now == load_status::stage::ready)
      throw std::runtime_error("no");
  });
  try {
    e.wait_until_ready();
  } catch (const failure&) { // the engine may end before this thread looks
  }
  CHECK(run(e, ask({1}, 1)).failed->code == errc::unavailable);
  CHECK_THROWS_AS(e.stats(), failure);
} // its actor system waits here until all actors have ended

TEST_CASE("a sink that throws ends its own request alone") {
  auto e = engine::start(small());
  e.wait_until_ready();
  auto g = ask({0, 54, 51}, 100);
  e.submit(g, [](event) { throw std::runtime_error("no"); });
  CHECK(run(e, g).done.has_value());
  CHECK(idle(e));
}

TEST_CASE("a model that cannot be loaded is reported in a sentence") {
  auto options = small();
  options.model = golden("no-such-model");
  auto e = engine::start(options);
  CHECK_THROWS_AS(e.wait_until_ready(), failure);
  CHECK(run(e, ask({1}, 1)).failed->code == errc::not_found);
}

TEST_CASE("a busy engine tells what its steps cost, and a fixed budget has nothing to tell") {
  for (const int step_tokens : {0, 64}) {
    std::promise<std::string> told;
    std::atomic<int> lines = 0;
    auto options = small();
    options.step_tokens = step_tokens;
    auto e = engine::start(options, [&](const load_status& s) {
      if (s.news.starts_with("steps") && ++lines == 1) // a busy machine may also make a sink slow
        told.set_value(s.news);
    });
    e.wait_until_ready();
    auto g = ask({0, 54, 51}, 100);
    g.sampling.ignore_eos = true;
    run(e, g);
    if (step_tokens == 0) {
      auto line = told.get_future();
      REQUIRE(line.wait_for(std::chrono::minutes(1)) == std::future_status::ready);
      const auto text = line.get();
      CHECK(text.starts_with("steps of up to "));
      CHECK(text.find(" ms for 1,") != std::string::npos);
      CHECK(text.find(" us for each position attended") != std::string::npos);
      CHECK(e.status().line.find("steps of") == std::string::npos); // the status stays that of the load
    }
    e.stop();
    CHECK((lines > 0) == (step_tokens == 0));
  }
}

namespace {

/// A request that runs until it is cancelled.
generation endless() {
  auto g = ask({0, 54, 51}, 400);
  g.sampling.ignore_eos = true;
  return g;
}

bool comes(std::future<void> what) { return what.wait_for(std::chrono::minutes(1)) == std::future_status::ready; }

} // namespace

TEST_CASE("a request ends with the actor that submitted it") {
  caf::actor_system_config config;
  engine::configure(config);
  caf::actor_system system{config};
  auto e = engine::start(system, small());
  e.wait_until_ready();
  auto client = system.spawn([](client_actor::pointer self) -> client_actor::behavior_type {
    return {[self](event_atom, std::uint64_t, const event_ptr&) { self->quit(); }}; // at its first token
  });
  SUBCASE("by a call") { submit(e, endless(), 1, client); }
  SUBCASE("by a message") {
    caf::anon_send(handle_of(e), submit_atom::value, std::uint64_t(1), std::make_shared<const generation>(endless()),
                   client);
  }
  CHECK(idle(e));
  client = nullptr;
}

TEST_CASE("an engine may be stopped within its own sink and progress function") {
  std::promise<void> returned;
  SUBCASE("a sink") {
    auto e = engine::start(small());
    e.wait_until_ready();
    listener other;
    e.submit(endless(), other.sink());
    e.submit(endless(), [&, first = true](event) mutable {
      if (!std::exchange(first, false))
        return;
      e.stop();
      CHECK_THROWS_AS(e.generate({.text = "x"}), failure);
      returned.set_value();
    });
    REQUIRE(comes(returned.get_future()));
    REQUIRE(other.wait());
    e.stop(); // waits
    CHECK(e.status().now == load_status::stage::stopped);
  }
  SUBCASE("a progress function") {
    std::promise<engine> made;
    auto started = made.get_future().share();
    auto e = engine::start(small(), [&, started, first = std::make_shared<bool>(true)](const load_status& s) {
      if (s.now != load_status::stage::loading || !std::exchange(*first, false))
        return;
      const auto itself = started.get();
      CHECK_THROWS_AS(itself.wait_until_ready(), failure);
      itself.stop();
      returned.set_value();
    });
    made.set_value(e);
    REQUIRE(comes(returned.get_future()));
    CHECK_THROWS_AS(e.wait_until_ready(), failure);
    e.stop();
    made = {};
  }
}

TEST_CASE("the last copy of an engine may be destroyed within its own sink, or with it") {
  caf::actor_system_config config;
  engine::configure(config);
  caf::actor_system system{config};
  for (const bool own_system : {false, true})
    for (const bool by_sink : {true, false}) {
      CAPTURE(own_system);
      CAPTURE(by_sink);
      std::promise<void> stopped;
      const auto tell = [&](const load_status& s) {
        if (s.now == load_status::stage::stopped)
          stopped.set_value();
      };
      auto last = std::make_shared<std::optional<engine>>(own_system ? engine::start(small(), tell)
                                                                     : engine::start(system, small(), tell));
      (*last)->wait_until_ready();
      auto g = by_sink ? endless() : ask({0, 54, 51}, 4);
      const auto& e = **last;
      std::promise<void> submitted;
      e.submit(g, [last, by_sink, may_go = submitted.get_future().share()](event) {
        may_go.wait();
        if (by_sink)
          last->reset();
      });
      if (!by_sink)
        last = nullptr; // the sink holds it until the request has ended
      submitted.set_value();
      CHECK(comes(stopped.get_future()));
    }
}

TEST_CASE("a sink that blocks is told of") {
  std::promise<std::string> told;
  std::atomic<bool> first = true;
  auto e = engine::start(small(), [&](const load_status& s) {
    if (s.news.find("sink") != std::string::npos && first.exchange(false))
      told.set_value(s.news);
  });
  e.wait_until_ready();
  listener l;
  e.submit(ask({0, 54, 51}, 3), [sink = l.sink()](event what) {
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    sink(std::move(what));
  });
  REQUIRE(l.wait());
  auto line = told.get_future();
  REQUIRE(line.wait_for(std::chrono::minutes(1)) == std::future_status::ready);
  CHECK(line.get().find(" ms: sinks run on the engine's threads, where other requests waited for it") !=
        std::string::npos);
}

TEST_CASE("configure leaves the number of the application's workers alone") {
  caf::actor_system_config before, after, unset, untouched;
  before.set("scheduler.max-threads", std::size_t(8));
  engine::configure(before);
  engine::configure(after);
  after.set("scheduler.max-threads", std::size_t(8));
  engine::configure(unset);
  const auto workers = [](const caf::actor_system_config& of) {
    return caf::get_or(of, "scheduler.max-threads", std::size_t(0));
  };
  CHECK(workers(before) == 8);
  CHECK(workers(after) == 8);
  CHECK(workers(unset) == workers(untouched));
}
