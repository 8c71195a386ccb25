// Replicas that have an emulated GPU each, with its own copy of the weights: blocks go from one to the other through the
// host's memory.
#include "runtime/engine/loading/engine_internals.hpp"
#include "tests/runtime/execution/gpu/tiny_engine.hpp"

#include <algorithm>

using namespace troupe;
using namespace troupe::testing;
using kernels::cuda::emulated::bytes_on;
using kernels::cuda::emulated::shown_devices;

namespace {

engine_options on_two(const tiny_model& tiny) {
  auto o = tiny.options();
  o.compute.device = "cuda:0,cuda:1";
  o.roles = "prefill:1,decode:1";
  return o;
}

std::string refused_replicas(engine_options o, const std::function<void(engine_options&)>& change) {
  change(o);
  try {
    load_model(o, {});
  } catch (const failure& f) {
    return f.what();
  }
  return {};
}

} // namespace

TEST_CASE("with a GPU for each role, requests have the bits of one GPU, also while roles change") {
  const shown_devices two(2);
  const tiny_model tiny("tiny_families/arcee");
  std::vector<generation> work;
  for (token_id i = 0; i < 6; ++i) {
    work.push_back(ignoring_eos(tiny_prompt(20 + 3 * static_cast<std::size_t>(i), i), i % 3 == 0 ? 3 : 20));
    work.back().sampling.logprobs = 1;
    work.back().sampling.temperature = i > 2 ? 0.8f : 0;
  }
  const auto expected = alone(tiny.options(), work);
  std::uint64_t moved = 0;
  for (const int idle : {0, 1}) {
    CAPTURE(idle);
    const kernels::cuda::emulated::deferred_work later(9);
    auto o = on_two(tiny);
    o.role_idle = std::chrono::milliseconds(idle);
    o.max_sequences = 2;
    gpu_engine engine(o, {.strict_roles = true});
    if (const auto& why = engine.status().why)
      FAIL(why->message);
    for (int round = 0; round < 2; ++round)
      run_together(engine, work, expected);
    const auto stats = engine.stats();
    CHECK(std::ranges::all_of(stats.replicas, [](auto& each) { return each.scheduler.generated_tokens > 0; }));
    moved += stats.total.moves.moved;
    CHECK((idle > 0 || stats.replicas[1].blocks.adopted > 0));
  }
  CHECK(moved > 0);
}

TEST_CASE("each replica's GPU has the weights once, and half of the KV cache") {
  const shown_devices two(2);
  const tiny_model tiny("tiny_families/arcee");
  const std::size_t before[] = {bytes_on(0), bytes_on(1)};
  const auto one = load_model(tiny.options(), {});
  const auto weights = bytes_on(0) - before[0];
  const auto both = load_model(on_two(tiny), {});
  CHECK(bytes_on(0) == before[0] + 2 * weights);
  CHECK(bytes_on(1) == before[1] + weights);
  REQUIRE(both->replicas.size() == 2);
  CHECK(both->replicas[0].blocks == one->replicas[0].blocks / 2);
  CHECK(both->replicas[1].blocks == both->replicas[0].blocks);
  CHECK(replica_of(both, 0).runner().weights == both->stages.front().weights);
  CHECK(replica_of(both, 1).runner().weights == both->copies.at(0).weights);
  CHECK(both->info.device.find("; cuda:1, emulated GPU") != std::string::npos);
}

TEST_CASE("GPUs that replicas cannot have are refused with a sentence") {
  const shown_devices two(2);
  const tiny_model tiny("tiny_families/arcee");
  const auto o = on_two(tiny);
  CHECK(refused_replicas(o, [](auto& x) { x.compute.device = "cuda:0,cuda:2"; }) ==
        "there is no device `cuda:2`: the last is cuda:1");
  CHECK(refused_replicas(o, [](auto& x) { x.compute.device = "cuda:0,cuda:0"; }) == "`device` names cuda:0 twice");
  CHECK(refused_replicas(o, [](auto& x) { x.compute.device = "cuda:0,cpu"; }).find("not `cpu`") != std::string::npos);
  CHECK(refused_replicas(o, [](auto& x) { x.roles = "prefill:1,decode:2"; }) ==
        "`device` names 2 GPUs, but there are 3 replicas, of which each needs one");
  CHECK(refused_replicas(o, [](auto& x) { x.compute.tensor_parallel = 2; }).find("cannot be combined with") !=
        std::string::npos);
  CHECK(refused_replicas(o, [](auto& x) {
          x.techniques["draft"] = {x.model};
        }).starts_with("`draft_device` must name another device"));
}
