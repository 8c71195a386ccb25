// Models with recurrent layers in the engine on the emulated GPU: the same tokens together and alone, whatever of their
// prefixes is found, with forks, guesses and too few blocks, on streams that run late.
#include "runtime/engine/loading/named_precision.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/techniques/beams/technique.hpp"
#include "runtime/techniques/speculation/technique.hpp"
#include "tests/api/embed/branching_drafter.hpp"
#include "tests/emulation/cuda/memory.hpp"
#include "tests/runtime/execution/gpu/steady_decoding.hpp"
#include "tests/runtime/execution/gpu/tiny_engine.hpp"

using namespace troupe;
using namespace troupe::testing;
using kernels::cuda::emulated::counted;
using kernels::cuda::emulated::deferred_work;
using kernels::cuda::emulated::limited_memory;

namespace {

std::vector<generation> recurrent_work() {
  std::vector<generation> work;
  for (int i = 0; i < 6; ++i)
    work.push_back(ignoring_eos(tiny_prompt(static_cast<std::size_t>(9 + 5 * i), i), 12));
  work[1].sampling.temperature = 0.9f;
  work[1].sampling.seed = 5;
  work[1].sampling.n = 2;
  work[1].sampling.logprobs = 1;
  work[2].sampling.n = 2, work[2].sampling.techniques.set(troupe::beams({.width = 2}));
  work[2].sampling.max_tokens = 5;
  work[3].sampling.temperature = 0.6f;
  return work;
}

} // namespace

TEST_CASE("models with recurrent layers on a GPU whose streams run late give the same tokens together and alone") {
  std::uint64_t guessed = 0, accepted = 0, preempted = 0;
  const auto branched = std::make_shared<std::atomic<int>>(0);
  for (const std::string model : {"lfm2-adjusted", "zamba2", "mamba"}) { // the last one without any attention
    CAPTURE(model);
    const tiny_model tiny("tiny_families/" + model);
    const auto options = tiny.options();
    auto work = recurrent_work();
    auto expected = alone(options, work);
    for (const std::size_t i : {0, 3, 4, 5})
      work[i].prediction = expected[i].ids[0];
    for (const std::size_t i : {4, 5}) // right for two tokens at a time
      for (std::size_t t = 2; t < work[i].prediction.size(); t += 3)
        work[i].prediction[t] = (work[i].prediction[t] + 1) % 48;
    for (unsigned seed = 1; seed <= 2; ++seed) {
      CAPTURE(seed);
      deferred_work later(seed);
      const auto before = counted();
      auto o = options;
      if (seed == 2) { // so few blocks that sequences are preempted
        gpu_engine first(o);
        o.kv_cache_bytes = 5 * (o.kv_cache_bytes / first.stats().total.blocks.total);
      }
      engine_internals internals;
      if (seed == 2) { // guesses branch
        internals.techniques.set(speculation_technique,
                                 std::make_shared<const guessing_internals>(
                                   guessing_internals{branching_drafters(answers_of(work, expected), branched)}));
        o.techniques["draft_tokens"] = {"8"};
      }
      gpu_engine engine(o, internals);
      if (const auto& why = engine.status().why)
        FAIL(why->message);
      for (int round = 0; round < 2; ++round)
        run_together(engine, work, expected);
      const auto stats = engine.stats().total;
      guessed += stats.scheduler.guessed_tokens;
      accepted += stats.scheduler.accepted_tokens;
      preempted += stats.scheduler.preemptions;
      if (seed == 1) {
        CHECK(counted().replays > before.replays);
        CHECK(stats.blocks.found_tokens > 0);
        CHECK(stats.blocks.snapshots_restored > 0);
      }
    }
  }
  CAPTURE(guessed);
  CHECK(branched->load() > 0); // eleven on an idle machine; fewer steps have room for a tree on a busy one
  CHECK(accepted > 0);
  CHECK(accepted < guessed);
  CHECK(preempted > 0);
}

TEST_CASE("a gated DeltaNet on a GPU gives transformers' tokens") {
  const auto document = json::document::load(test_data() + "/families/qwen3-5/expected.json");
  json::array cases;
  REQUIRE(!document.root()["cases"].get(cases));
  deferred_work later(4);
  gpu_engine engine(tiny_on_gpu("families/qwen3-5"));
  REQUIRE(engine.status().now == load_status::stage::ready);
  for (const std::size_t i : {0, 1}) {
    json::value c = cases.at(i);
    auto greedy = test::list<token_id>(c["greedy"]["ids"]);
    greedy.resize(4);
    const auto got = engine.run(ignoring_eos(test::list<token_id>(c["ids"]), 4));
    REQUIRE(got.done.has_value());
    CHECK(got.ids.at(0) == greedy);
  }
}

TEST_CASE("a growing conversation with a model with recurrent layers on a GPU goes on from snapshots") {
  const tiny_model tiny("tiny_families/falcon-h1");
  const auto o = tiny.options();
  auto conversation = tiny_prompt(20, 1);
  std::uint64_t found = 0;
  deferred_work later(3);
  gpu_engine engine(o);
  REQUIRE(engine.status().now == load_status::stage::ready);
  for (int turn = 0; turn < 3; ++turn) {
    const auto g = ignoring_eos(conversation, 6);
    auto got = engine.run(g);
    CHECK(same(got, alone(o, {g})[0]));
    conversation.insert(conversation.end(), got.ids[0].begin(), got.ids[0].end());
    for (token_id t = 30; t < 36; ++t)
      conversation.push_back(t + turn);
    const auto now = engine.stats().total.blocks.found_tokens;
    CHECK((turn == 0) == (now == found));
    found = now;
  }
}

TEST_CASE("steady decoding of a model with recurrent layers on a GPU waits for nothing and allocates nothing") {
  const tiny_model tiny("tiny_families/lfm2-adjusted");
  deferred_work later(1);
  gpu_engine engine(tiny.options());
  REQUIRE(engine.status().now == load_status::stage::ready);
  auto g = ignoring_eos({3, 14, 21}, 40);
  g.sampling.techniques.set(speculated_by(speculation::off)); // steps with guesses are no recorded ones
  const auto [before, after] = steady_decoding(engine, g, 34, 15);
  CHECK(after.waits == before.waits);
  CHECK(after.allocations == before.allocations);
}

TEST_CASE("states and snapshots of recurrent layers on a GPU take what the memory plan says") {
  for (const std::string model : {"falcon-h1", "zamba2"}) {
    CAPTURE(model);
    const tiny_model tiny("tiny_families/" + model);
    auto o = tiny.options();
    o.compute.dtype = "bf16";
    o.max_sequences = 3;
    o.step_tokens = 27;
    o.techniques["speculate"] = {"off"};
    const auto device = open_device(o.compute, o.open_gpu);
    const auto source = open_model(o.model);
    const auto need = estimate_memory(*source.tensors, source.config,
                                      precision_of(o.compute, *source.tensors, device->capabilities()), *device,
                                      *device->open(), {o.step_tokens, o.max_sequences, o.max_context});
    REQUIRE(need.state > 0);
    // A quarter of what the KV cache leaves is for snapshots.
    const auto room = 8 * need.state;
    const auto blocks = std::max<std::size_t>(16, (room + need.kv_block - 1) / need.kv_block);
    o.kv_cache_bytes = blocks * need.kv_block;
    auto used = need.fixed() + 3 * need.sequence_state + o.kv_cache_bytes;
    const limited_memory memory(used + room);
    {
      gpu_engine engine(o);
      if (const auto& why = engine.status().why)
        FAIL(why->message);
      std::vector<generation> work;
      for (token_id seed = 1; seed < 4; ++seed)
        work.push_back(ignoring_eos(tiny_prompt(40, seed), 6));
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
}
