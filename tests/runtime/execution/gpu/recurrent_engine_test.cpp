// Models with recurrent layers in the engine on the emulated GPU: transformers' greedy tokens, and the same ones together
// and alone, whatever of their prefixes is found, with forks, guesses and too few blocks, on streams that run late.
#include "runtime/engine/named_precision.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/import/model_source.hpp"
#include "tests/emulation/cuda/memory.hpp"
#include "tests/runtime/execution/gpu/gpu_engine.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <numeric>

using namespace troupe;
using namespace troupe::testing;
using kernels::cuda::emulated::counted;
using kernels::cuda::emulated::deferred_work;
using kernels::cuda::emulated::limited_memory;

namespace {

engine_options recurrent_on_gpu(const std::string& model) {
  auto o = on_gpu();
  o.model = test_data() + "/families/" + model;
  o.compute.dtype = "f32";
  o.kv_cache_bytes = 1 << 20;
  o.max_sequences = 6;
  return o;
}

struct expected_tokens {
  std::vector<token_id> prompt, greedy;
};

/// Of the checkpoint's cases: one of a few tokens, and one of some blocks.
std::vector<expected_tokens> cases_of(const std::string& model, int tokens) {
  const auto document = json::document::load(test_data() + "/families/" + model + "/expected.json");
  json::array cases;
  REQUIRE(!document.root()["cases"].get(cases));
  std::vector<expected_tokens> result;
  for (const std::size_t i : {0, 3}) {
    json::value c = cases.at(i);
    auto greedy = test::list<token_id>(c["greedy"]["ids"]);
    greedy.resize(static_cast<std::size_t>(tokens));
    result.push_back({test::list<token_id>(c["ids"]), std::move(greedy)});
  }
  return result;
}

generation ignoring_eos(std::vector<token_id> prompt, int tokens) {
  auto g = ask(std::move(prompt), tokens);
  g.sampling.ignore_eos = true;
  return g;
}

/// Requests of which most have the beginning of the longer prompt.
std::vector<generation> recurrent_work(const std::vector<expected_tokens>& cases) {
  std::vector<generation> work;
  for (const auto& c : cases)
    work.push_back(ignoring_eos(c.prompt, 4));
  const auto& prompt = cases[1].prompt;
  work.push_back(ignoring_eos({prompt.begin(), prompt.begin() + 30}, 4));
  work.back().sampling.temperature = 0.9f;
  work.back().sampling.seed = 5;
  work.back().sampling.n = 2;
  work.back().sampling.logprobs = 1;
  work.push_back(ignoring_eos({prompt.begin(), prompt.begin() + 20}, 4));
  work.back().sampling.num_beams = work.back().sampling.n = 2;
  work.push_back(ignoring_eos({prompt.begin(), prompt.begin() + 30}, 7)); // guessed
  work.back().prompt.back() = 9;
  work.push_back(work.back());
  return work;
}

} // namespace

TEST_CASE(
  "models with recurrent layers on a GPU whose streams run late give transformers' tokens, together and alone") {
  std::uint64_t guessed = 0, accepted = 0, preempted = 0;
  for (const std::string model : {"lfm2", "qwen3-5"}) {
    CAPTURE(model);
    const auto cases = cases_of(model, 4);
    auto work = recurrent_work(cases);
    auto alone = recurrent_on_gpu(model);
    alone.prefix_cache = false;
    alone.compute.graphs = false;
    alone.speculate = speculation::off;
    std::vector<heard> expected;
    std::size_t block_bytes = 0;
    {
      gpu_engine reference(alone); // runs work when it is queued
      if (const auto& why = reference.status().why)
        FAIL(why->message);
      block_bytes = alone.kv_cache_bytes / reference.stats().total.blocks.total;
      for (const auto& g : work) {
        expected.push_back(reference.run(g));
        if (expected.back().failed)
          FAIL(expected.back().failed->message);
      }
    }
    CHECK(expected[0].ids[0] == cases[0].greedy);
    CHECK(expected[1].ids[0] == cases[1].greedy);
    work[4].prediction = expected[4].ids[0];
    work[5].prediction = expected[4].ids[0]; // right at first
    work[5].prediction[3] = 7;
    for (unsigned seed = 1; seed <= 2; ++seed) {
      CAPTURE(seed);
      deferred_work later(seed);
      const auto before = counted();
      auto options = recurrent_on_gpu(model);
      options.step_tokens = 24;
      options.max_context = 64;
      if (seed == 2) // so few blocks that sequences are preempted
        options.kv_cache_bytes = 6 * block_bytes;
      gpu_engine engine(options);
      if (const auto& why = engine.status().why)
        FAIL(why->message);
      for (int round = 0; round < 2; ++round) {
        std::vector<listener> listeners(work.size());
        for (std::size_t i = 0; i < work.size(); ++i)
          engine.submit(work[i], listeners[i]);
        for (std::size_t i = 0; i < work.size(); ++i) {
          CAPTURE(i);
          REQUIRE(listeners[i].wait());
          CHECK(same(listeners[i].result(), expected[i]));
        }
      }
      const auto stats = engine.stats().total;
      guessed += stats.scheduler.draft_tokens;
      accepted += stats.scheduler.accepted_tokens;
      preempted += stats.scheduler.preemptions;
      CHECK(counted().replays > before.replays);
      if (seed == 1) {
        CHECK(stats.blocks.found_tokens > 0);
        CHECK(stats.blocks.snapshots_restored > 0);
      }
    }
  }
  CHECK(accepted > 0);
  CHECK(accepted < guessed);
  CHECK(preempted > 0);
}

TEST_CASE("a growing conversation with a model with recurrent layers on a GPU goes on from snapshots") {
  auto o = recurrent_on_gpu("qwen3-5");
  auto without = o;
  without.prefix_cache = false;
  const auto cases = cases_of("qwen3-5", 1);
  auto conversation = cases[1].prompt;
  deferred_work later(3);
  gpu_engine engine(o), fresh(without);
  REQUIRE(engine.status().now == load_status::stage::ready);
  std::uint64_t found = 0;
  for (int turn = 0; turn < 3; ++turn) {
    const auto g = ignoring_eos(conversation, 6);
    auto got = engine.run(g);
    CHECK(same(got, fresh.run(g)));
    conversation.insert(conversation.end(), got.ids[0].begin(), got.ids[0].end());
    for (token_id t = 30; t < 38; ++t)
      conversation.push_back(t + turn);
    const auto now = engine.stats().total.blocks.found_tokens;
    CHECK((turn == 0) == (now == found));
    found = now;
  }
}

TEST_CASE("steady decoding of a model with recurrent layers on a GPU waits for nothing and allocates nothing") {
  deferred_work later(1);
  gpu_engine engine(recurrent_on_gpu("lfm2"));
  REQUIRE(engine.status().now == load_status::stage::ready);
  auto g = ignoring_eos({0, 54, 51}, 40);
  g.sampling.speculate = speculation::off; // steps with guesses are no recorded ones
  listener l;
  engine.submit(g, l);
  REQUIRE(l.wait_for_tokens(10));
  const auto before = counted();
  REQUIRE(l.wait_for_tokens(34));
  const auto after = counted();
  CHECK(after.waits == before.waits);
  CHECK(after.allocations == before.allocations);
  CHECK(after.replays >= before.replays + 15);
  REQUIRE(l.wait());
}

TEST_CASE(
  "a model without any attention is recorded and guessed for on a GPU, and gives the same tokens together and alone") {
  auto o = recurrent_on_gpu("");
  o.model = test_data() + "/tiny_families/mamba2";
  o.max_context = 64;
  auto alone = o;
  alone.prefix_cache = false;
  alone.compute.graphs = false;
  alone.speculate = speculation::off;
  std::vector<generation> work;
  std::vector<heard> expected;
  {
    gpu_engine reference(alone);
    if (const auto& why = reference.status().why)
      FAIL(why->message);
    for (int i = 0; i < 5; ++i) {
      std::vector<token_id> prompt(static_cast<std::size_t>(8 + 7 * i));
      std::iota(prompt.begin(), prompt.end(), 2);
      work.push_back(ignoring_eos(std::move(prompt), 8));
      work.back().sampling.temperature = i == 2 ? 0.8f : 0;
      expected.push_back(reference.run(work.back()));
      REQUIRE(expected.back().done.has_value());
      if (i > 2)
        work.back().prediction = expected.back().ids[0];
    }
  }
  deferred_work later(2);
  const auto before = counted();
  o.step_tokens = 24;
  gpu_engine engine(o);
  REQUIRE(engine.status().now == load_status::stage::ready);
  for (int round = 0; round < 2; ++round) {
    std::vector<listener> listeners(work.size());
    for (std::size_t i = 0; i < work.size(); ++i)
      engine.submit(work[i], listeners[i]);
    for (std::size_t i = 0; i < work.size(); ++i) {
      CAPTURE(i);
      REQUIRE(listeners[i].wait());
      CHECK(same(listeners[i].result(), expected[i]));
    }
  }
  CHECK(counted().replays > before.replays);
  CHECK(engine.stats().total.blocks.snapshots_restored > 0);
}

TEST_CASE("states and snapshots of recurrent layers on a GPU take what the memory plan says") {
  auto o = recurrent_on_gpu("qwen3-5");
  o.compute.dtype = "bf16";
  o.max_sequences = 3;
  o.step_tokens = 27;
  o.max_context = 64;
  o.speculate = speculation::off;
  const auto device = open_device(o.compute, o.open_gpu);
  const auto source = open_model(o.model);
  const auto need = estimate_memory(*source.tensors, source.config,
                                    precision_of(o.compute, *source.tensors, device->capabilities()), *device,
                                    *device->open(), {o.step_tokens, o.max_sequences, o.max_context});
  REQUIRE(need.state > 0);
  // A quarter of what the KV cache leaves is for snapshots.
  const auto room = 8 * need.state, blocks = (room + need.kv_block - 1) / need.kv_block;
  o.kv_cache_bytes = blocks * need.kv_block;
  auto used = need.fixed() + 3 * need.sequence_state + o.kv_cache_bytes;
  const limited_memory memory(used + room);
  {
    gpu_engine engine(o);
    if (const auto& why = engine.status().why)
      FAIL(why->message);
    std::vector<generation> work;
    for (token_id first = 20; first < 23; ++first) {
      std::vector<token_id> prompt(40);
      std::iota(prompt.begin(), prompt.end(), first);
      work.push_back(ignoring_eos(std::move(prompt), 6));
    }
    std::vector<listener> listeners(work.size());
    for (std::size_t i = 0; i < work.size(); ++i)
      engine.submit(work[i], listeners[i]);
    for (auto& l : listeners) {
      REQUIRE(l.wait());
      CHECK(l.result().done.has_value());
    }
    CHECK(engine.stats().total.blocks.snapshots == 2);
    used += 2 * need.state;
  }
  CHECK(memory.most_used() <= used);
  CHECK(memory.most_used() > used - need.steps());
}
