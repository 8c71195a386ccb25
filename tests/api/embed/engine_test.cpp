// The engine through its public interface: golden results, schedule invariance over random workloads, cancellation,
// flow control, stopping. The model is small, the worker group is real.
#include "api/embed/engine_caf.hpp"
#include "kernels/cpu/cpu_backend.hpp"
#include "tests/listener.hpp"
#include "tests/runtime/sampling/processors/random_samplers.hpp"

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/event_based_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <doctest/doctest.h>

#include <future>
#include <random>
#include <thread>

using namespace troupe;
using namespace troupe::testing;

namespace {

engine_options small(const std::string& name = "llama-gqa") {
  engine_options o;
  o.model = golden(name);
  o.kv_cache_bytes = 16 << 20;
  o.max_context = 512;
  o.compute.threads = 1;
  return o;
}

generation ask(std::vector<token_id> prompt, int max_tokens) {
  generation g;
  g.prompt = std::move(prompt);
  g.sampling.temperature = 0;
  g.sampling.max_tokens = max_tokens;
  return g;
}

heard run(const engine& e, generation g) {
  listener l;
  e.submit(std::move(g), l.sink());
  REQUIRE(l.wait());
  return l.result();
}

bool idle(const engine& e) {
  for (int i = 0; i < 1000; ++i) {
    auto s = e.stats();
    if (s.running + s.waiting + s.paused == 0 && s.blocks_in_use == 0)
      return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

std::vector<token_id> random_prompt(std::mt19937& rng, int length, int family) {
  std::vector<token_id> ids(static_cast<std::size_t>(length));
  std::mt19937 shared(static_cast<unsigned>(family));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<token_id>(5 + (i < 60 ? shared() : rng()) % 700);
  return ids;
}

generation random_generation(std::mt19937& rng) {
  auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  auto g = ask(random_prompt(rng, pick(1, 150), pick(0, 2)), pick(1, 40));
  auto& s = g.sampling;
  s.temperature = pick(0, 2) * 0.6f;
  s.seed = static_cast<std::uint64_t>(pick(0, 1000));
  s.n = pick(0, 3) == 0 ? pick(2, 3) : 1;
  s.logprobs = pick(-1, 3);
  s.ignore_eos = pick(0, 1) == 1;
  if (pick(0, 1))
    s.top_p = 0.9f;
  if (pick(0, 1))
    s.top_k = 20;
  if (pick(0, 2) == 0)
    s.repetition_penalty = 1.2f;
  if (pick(0, 2) == 0)
    s.presence_penalty = 0.5f;
  if (pick(0, 3) == 0)
    s.stop = {"e", "the"};
  if (pick(0, 3) == 0)
    s.prompt_logprobs = pick(0, 2);
  switch (pick(0, 9)) {
    case 0: { // beams, of a request that fits into few blocks
      sampling_params beams;
      beams.temperature = s.temperature == 0 ? 0 : 1;
      beams.max_tokens = std::min(s.max_tokens, 20);
      beams.num_beams = pick(1, 3);
      beams.n = pick(1, beams.num_beams);
      beams.logprobs = s.logprobs;
      beams.ignore_eos = s.ignore_eos;
      beams.length_penalty = 0.5f * static_cast<float>(pick(0, 3));
      if (pick(0, 2) == 0) {
        beams.stochastic_beams = true;
        beams.temperature = 1;
        beams.length_penalty = 1;
        beams.seed = s.seed;
      } else {
        beams.stopping = static_cast<early_stopping>(pick(0, 2));
      }
      s = beams;
      g.prompt.resize(std::min<std::size_t>(g.prompt.size(), 40));
      break;
    }
    case 1:
      s.n = pick(1, 2);
      s.best_of = s.n + pick(0, 1);
      s.rank = s.best_of > s.n && pick(0, 1) ? best_of_rank::mean : best_of_rank::cumulative;
      break;
    case 2:
    case 3: testing::add_random_samplers(s, 700, rng); break;
    default: break;
  }
  if (s.temperature == 0 && s.watermark && s.watermark->what == watermarks::kind::gumbel)
    s.watermark = nullptr;
  return g;
}

/// How it is to be run in a crowd: with guesses of any kind, and with a prediction that is partly right.
generation with_guesses(generation g, const heard& alone, std::mt19937& rng) {
  g.sampling.speculate = std::vector{speculation::automatic, speculation::off, speculation::ngram,
                                     speculation::lookahead}[rng() % 4];
  if (rng() % 2 == 0 && alone.ids.contains(0)) {
    g.prediction = alone.ids.at(0);
    for (auto& id : g.prediction)
      id = rng() % 8 == 0 ? token_id(7) : id;
  }
  return g;
}

struct numbers {
  std::string dtype, quantize, kv_dtype;
};

/// Types of activations, weights, K and V.
const numbers all_numbers[] = {{"f32", "none", "auto"},
                               {"bf16", "none", "auto"},
                               {"bf16", "none", "int8"},
                               {"bf16", "int8", "auto"},
                               {"bf16", "int4", "auto"}};

/// Instruction sets of this machine; under slow sanitizers the fastest alone.
std::vector<std::string> devices() {
  auto targets = kernels::available_isas();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  targets.erase(targets.begin(), targets.end() - 1);
#endif
  std::vector<std::string> all;
  for (auto target : targets)
    all.push_back("cpu:" + std::string(kernels::to_string(target)));
  return all;
}

/// Twelve random requests at a time: each has the same result alone and in batches of any shape.
void check_schedule_invariance(const numbers& types, const std::string& device) {
  CAPTURE(types.dtype);
  CAPTURE(types.quantize);
  CAPTURE(types.kv_dtype);
  CAPTURE(device);
  auto alone = small();
  alone.compute.dtype = types.dtype;
  alone.compute.quantize = types.quantize;
  alone.compute.kv_dtype = types.kv_dtype;
  alone.compute.device = device;
  alone.prefix_cache = false;
  alone.speculate = speculation::off;
  auto reference = engine::start(alone);
  reference.wait_until_ready();
  std::uint64_t preemptions = 0, cached_tokens = 0, accepted = 0;
  for (unsigned seed = 1; seed <= 4; ++seed) {
    CAPTURE(seed);
    std::mt19937 rng(seed);
    auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
    std::vector<generation> work;
    std::vector<heard> expected;
    for (int i = 0; i < 12; ++i) {
      work.push_back(random_generation(rng));
      expected.push_back(run(reference, work.back()));
    }
    auto options = alone;
    options.speculate = speculation::automatic;
    options.compute.threads = pick(1, 3);
    options.step_tokens = pick(0, 1) ? pick(3, 40) : 512; // three beams must fit
    options.max_sequences = pick(3, 12);
    options.prefix_cache = seed % 2 == 0;
    if (seed % 2 == 1) { // so few blocks that sequences preempt each other
      options.max_context = 256;
      options.kv_cache_bytes = 18 * reference.model()->kv_cache_bytes / reference.stats().blocks_total;
    }
    auto crowd = engine::start(options);
    crowd.wait_until_ready();
    std::vector<std::size_t> order(work.size());
    std::iota(order.begin(), order.end(), 0u);
    for (int round = 0; round < 2; ++round) { // the second finds a warm cache
      std::shuffle(order.begin(), order.end(), rng);
      std::vector<listener> listeners(work.size());
      for (auto i : order) {
        auto handle = crowd.submit(with_guesses(work[i], expected[i], rng), listeners[i].sink());
        if (pick(0, 3) == 0) {
          handle.pause();
          handle.resume();
        }
      }
      for (auto i : order) {
        CAPTURE(i);
        REQUIRE(listeners[i].wait());
        CHECK(same(listeners[i].result(), expected[i]));
      }
    }
    CHECK(idle(crowd));
    preemptions += crowd.stats().preemptions;
    accepted += crowd.stats().accepted_tokens;
    cached_tokens += crowd.stats().cached_tokens;
  }
  CHECK(preemptions > 0);
  CHECK(cached_tokens > 0);
  CHECK(accepted > 0);
}

} // namespace

TEST_CASE("random workloads give every request the same bits as alone") {
  for (const auto& device : devices())
    for (const auto& types : all_numbers)
      check_schedule_invariance(types, device);
}

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
    return {[&, self, ids](std::uint64_t id, const event_ptr& e) {
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

TEST_CASE("a cancelled request ends at once and leaves no block behind") {
  auto e = engine::start(small());
  e.wait_until_ready();
  auto g = ask({0, 54, 51}, 400);
  g.sampling.ignore_eos = true;
  g.sampling.n = 3;
  listener l;
  auto handle = e.submit(g, l.sink());
  REQUIRE(l.wait_for_tokens(3));
  handle.cancel();
  REQUIRE(l.wait());
  auto heard = l.result();
  CHECK(heard.finish[0] == finish_reason::cancelled);
  CHECK(heard.finish.size() == 3);
  CHECK(heard.done->completion_tokens < 1200);
  CHECK(idle(e));
}

TEST_CASE("a paused request gets no more tokens until it is resumed") {
  auto e = engine::start(small());
  e.wait_until_ready();
  auto g = ask({0, 54, 51}, 300);
  g.sampling.ignore_eos = true;
  listener slow;
  auto handle = e.submit(g, slow.sink());
  REQUIRE(slow.wait_for_tokens(1));
  handle.pause();
  while (e.stats().paused == 0)
    std::this_thread::yield();
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
  auto options = small();
  options.max_queue = 1;
  options.max_sequences = 1;
  auto e = engine::start(options);
  CHECK(run(e, ask({1}, 1)).failed->code == errc::unavailable);
  e.wait_until_ready();
  CHECK(run(e, ask({}, 1)).failed->param == "prompt");
  CHECK(run(e, ask({768}, 1)).failed->param == "prompt");
  CHECK(run(e, ask(std::vector<token_id>(512, 1), 1)).failed->param == "prompt");
  auto bad = ask({1}, 1);
  bad.sampling.top_p = 7;
  CHECK(run(e, bad).failed->param == "top_p");
  auto many = ask({1}, 1);
  many.sampling.n = 2;
  CHECK(run(e, many).failed->param == "n");

  auto longest = ask({1}, 500);
  longest.sampling.ignore_eos = true;
  listener runs, waits, refused;
  e.submit(longest, runs.sink());
  REQUIRE(runs.wait_for_tokens(1));
  auto second = e.submit(longest, waits.sink());
  while (e.stats().waiting == 0)
    std::this_thread::yield();
  e.submit(longest, refused.sink());
  REQUIRE(refused.wait());
  CHECK(refused.result().failed->code == errc::overloaded);
  second.cancel();
  REQUIRE(runs.wait());
  CHECK(runs.result().ids[0].size() == 500);
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
  auto g = ask(std::vector<token_id>(400, 9), 100);
  g.timeout = std::chrono::milliseconds(1);
  auto heard = run(e, g);
  REQUIRE(heard.failed.has_value());
  CHECK(heard.failed->code == errc::timeout);
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
