// The whole engine on the emulated GPU: tokens do not depend on the order in which streams progress.
#include "runtime/techniques/beams/technique.hpp"
#include "runtime/techniques/speculation/technique.hpp"
#include "tests/actors/faulty_device.hpp"
#include "tests/api/embed/branching_drafter.hpp"
#include "tests/runtime/execution/gpu/steady_decoding.hpp"
#include "tests/runtime/sampling/processors/random_samplers.hpp"

#include <doctest/doctest.h>

#include <numeric>
#include <random>

using namespace troupe;
using namespace troupe::testing;
using kernels::cuda::emulated::counted;
using kernels::cuda::emulated::deferred_work;

namespace {

generation random_generation(std::mt19937& rng) {
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  std::vector<token_id> prompt(static_cast<std::size_t>(pick(1, 30)));
  std::mt19937 shared(static_cast<unsigned>(pick(0, 1)));
  for (std::size_t i = 0; i < prompt.size(); ++i)
    prompt[i] = static_cast<token_id>(5 + (i < 20 ? shared() : rng()) % 700);
  auto g = ask(std::move(prompt), pick(1, 6));
  auto& s = g.sampling;
  s.temperature = static_cast<float>(pick(0, 2)) * 0.6f;
  s.seed = static_cast<std::uint64_t>(pick(0, 1000));
  s.n = pick(0, 3) == 0 ? 2 : 1;
  s.logprobs = pick(-1, 2);
  s.min_tokens = pick(0, std::min(4, s.max_tokens));
  s.ignore_eos = pick(0, 1) == 1;
  if (pick(0, 1) == 1)
    s.top_p = 0.9f;
  if (pick(0, 2) == 0)
    s.repetition_penalty = 1.3f;
  if (pick(0, 2) == 0)
    s.frequency_penalty = 0.5f;
  if (pick(0, 2) == 0 && s.temperature > 0) // sampled on the host
    add_random_samplers(s, 700, rng);
  return g;
}

} // namespace

TEST_CASE("on a GPU whose streams run late and in any order, requests get the same tokens together and alone") {
  std::uint64_t copied = 0;
  const auto branched = std::make_shared<std::atomic<int>>(0);
  auto alone = on_gpu();
  alone.compute.dtype = "bf16"; // crowds of tiny models are in f32
  alone.prefix_cache = false;
  alone.compute.graphs = false;
  std::mt19937 rng(7);
  std::vector<generation> work;
  std::vector<heard> expected;
  std::vector<generation> turns;
  std::vector<heard> expected_of_turns;
  std::size_t block_bytes = 0;
  {
    gpu_engine reference(alone); // runs work when it is queued
    REQUIRE(reference.status().now == load_status::stage::ready);
    block_bytes = alone.kv_cache_bytes / reference.stats().total.blocks.total;
    for (int i = 0; i < 5; ++i) {
      work.push_back(random_generation(rng));
      if (i == 0)
        work.back().sampling.n = 2;
      if (i == 1)
        work.back().sampling.prompt_logprobs = 1;
      if (i == 2) {
        sampling_params beams;
        beams.temperature = 0;
        beams.max_tokens = 5;
        beams.n = 2;
        beams.techniques.set(troupe::beams({.width = 2}));
        work.back().sampling = beams;
        work.back().prompt.resize(std::min<std::size_t>(work.back().prompt.size(), 20));
      }
      expected.push_back(reference.run(work.back()));
      if (i > 2) // guesses, some of them right
        work.back().prediction = expected.back().ids[0];
      if (expected.back().failed)
        FAIL(expected.back().failed->message);
    }
    for (token_id first = 100; first < 400; first += 100) { // three blocks each
      std::vector<token_id> prompt(40);
      std::iota(prompt.begin(), prompt.end(), first);
      turns.push_back(ask(std::move(prompt), 3));
      expected_of_turns.push_back(reference.run(turns.back()));
    }
  }
  for (unsigned seed = 1; seed <= 3; ++seed) {
    CAPTURE(seed);
    deferred_work later(seed);
    const auto before = counted();
    auto options = on_gpu();
    options.compute.dtype = "bf16";
    options.step_tokens = seed == 1 ? 512 : 24;
    options.max_sequences = seed == 2 ? 4 : 8;
    if (seed == 3) { // so few blocks that evicted ones are swapped out and in
      options.max_context = 64;
      options.kv_cache_bytes = 5 * block_bytes;
      options.swap_bytes = 1 << 20;
    }
    engine_internals internals;
    if (seed == 1) { // guesses branch
      internals.techniques.set(speculation_technique,
                               std::make_shared<const guessing_internals>(
                                 guessing_internals{branching_drafters(answers_of(work, expected), branched)}));
      options.techniques["draft_tokens"] = {"8"};
    }
    gpu_engine engine(options, internals);
    REQUIRE(engine.status().now == load_status::stage::ready);
    std::vector<listener> listeners(work.size());
    for (std::size_t i = 0; i < work.size(); ++i)
      engine.submit(work[i], listeners[i]);
    for (std::size_t i = 0; i < work.size(); ++i) {
      CAPTURE(i);
      REQUIRE(listeners[i].wait());
      CHECK(same(listeners[i].result(), expected[i]));
    }
    if (seed > 1) // each decodes steadily, and where blocks are few, evicts those of the one before
      for (const std::size_t i : {0, 1, 2, 0})
        CHECK(same(engine.run(turns[i]), expected_of_turns[i]));
    if (seed != 1) // rows of guesses are no steady decoding
      CHECK(counted().replays > before.replays);
    const auto blocks = engine.stats().total.blocks;
    copied += blocks.copied;
    if (seed == 1)
      CHECK(engine.stats().total.scheduler.guess_trees > 0);
    if (seed == 3) {
      CHECK(blocks.swapped_out > 0);
      CHECK(blocks.swapped_in > 0);
    }
  }
  CHECK(copied > 0);
}

TEST_CASE("steady decoding on a GPU waits for nothing, allocates nothing and launches whole steps") {
  deferred_work later(1);
  gpu_engine engine(on_gpu());
  REQUIRE(engine.status().now == load_status::stage::ready);
  auto g = ask({0, 54, 51}, 56);
  g.sampling.ignore_eos = true;
  g.sampling.techniques.set(speculated_by(speculation::off)); // steps with guesses are no recorded ones
  const auto [before, after] = steady_decoding(engine, g, 50, 20);
  CHECK(after.waits == before.waits);
  CHECK(after.allocations == before.allocations);
  CHECK(after.launches - before.launches <= 3 * (after.replays - before.replays + 3)); // inputs, samples
}

TEST_CASE("requests on a GPU that fails end with an error that names the call") {
  deferred_work later(3);
  gpu_engine engine(on_gpu());
  REQUIRE(engine.status().now == load_status::stage::ready);
  auto g = ask({0, 54, 51}, 200);
  g.sampling.ignore_eos = true;
  listener running, waiting, late;
  engine.submit(g, running);
  REQUIRE(running.wait_for_tokens(5));
  engine.submit(g, waiting);
  later.fail_after(20);
  REQUIRE(running.wait());
  REQUIRE(waiting.wait());
  REQUIRE(running.result().failed.has_value());
  CHECK(running.result().failed->message.find("illegal memory access") != std::string::npos);
  CHECK(running.result().failed->message.find("cuda") != std::string::npos);
  CHECK(waiting.result().failed.has_value());
  engine.submit(g, late);
  REQUIRE(late.wait());
  REQUIRE(late.result().failed.has_value());
  CHECK(late.result().failed->message.find("illegal memory access") != std::string::npos);
}

TEST_CASE("a failed call that leaves the context intact only pauses requests") {
  auto g = ask({0, 54, 51}, 24);
  g.sampling.ignore_eos = true;
  g.sampling.temperature = 0.8f;
  g.sampling.repetition_penalty = 1.2f;
  heard expected;
  {
    gpu_engine undisturbed(on_gpu());
    expected = undisturbed.run(g);
    REQUIRE(expected.done.has_value());
  }
  deferred_work later(5);
  const auto script = std::make_shared<faults>();
  script->on_step = [](int n) {
    if (n == 3 || n == 14)
      throw kernels::device_error("cudaMalloc (1 bytes): out of memory");
  };
  auto options = on_gpu();
  options.open_gpu = [&](const gpu_options& gpu) { return std::make_shared<faulty_device>(open_gpu(gpu), script); };
  gpu_engine restarted(options);
  REQUIRE(restarted.status().now == load_status::stage::ready);
  CHECK(same(restarted.run(g), expected));
  CHECK(script->runners == 3);
  CHECK(script->most_alive == 1);
}

TEST_CASE("a missing GPU and a lack of memory are reported in one sentence") {
  auto options = on_gpu();
  options.compute.device = "cuda:3";
  gpu_engine elsewhere(options);
  REQUIRE(elsewhere.status().now == load_status::stage::failed);
  CHECK(elsewhere.status().why->message == "there is no device `cuda:3`: the last is cuda:0");
  options = on_gpu();
  options.kv_cache_bytes = std::size_t(1) << 40;
  gpu_engine large(options);
  REQUIRE(large.status().now == load_status::stage::failed);
  CHECK(large.status().why->code == errc::out_of_memory);
}

TEST_CASE("sums that a unified maximum does not suit are counted, over steps of any kind and over replays") {
  for (const float maximum : {0.0f, 1000.0f}) {
    CAPTURE(maximum);
    auto options = on_gpu("qwen3"); // whose heads are as tensor cores take them
    options.compute.dtype = "bf16";
    options.compute.unified_maximum = maximum;
    options.techniques["speculate"] = {"off"};
    gpu_engine engine(options);
    REQUIRE(engine.status().now == load_status::stage::ready);
    const auto layers = 2u, heads = 4u;
    for (int i = 0; i < 3; ++i)
      REQUIRE(engine.run(ask({5, 6, 7, 8}, 4)).done.has_value());
    const auto seen = engine.stats().total.model;
    // The last step's may be missing. Rows that are the first of a sequence are not counted.
    CHECK(seen.softmax_sums > 0);
    CHECK(seen.softmax_sums % heads == 0);
    CHECK(seen.softmax_sums <= 3 * 6 * layers * heads);
    CHECK(seen.recomputed_sums == (maximum > 100 ? seen.softmax_sums : 0));
  }
}
