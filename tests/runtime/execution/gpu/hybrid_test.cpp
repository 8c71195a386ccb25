// Layers divided between the emulated GPU and the CPU: requests have the same bits together and alone, and what does
// not fit or go together is told in one sentence. On a real GPU, serve_hybrid of tests/cuda/first_light.sh.
#include "runtime/techniques/beams/technique.hpp"
#include "tests/emulation/cuda/memory.hpp"
#include "tests/runtime/execution/gpu/tiny_engine.hpp"

#include <doctest/doctest.h>

#include <numeric>
#include <set>

using namespace troupe;
using namespace troupe::testing;
using kernels::cuda::emulated::deferred_work;
using kernels::cuda::emulated::limited_memory;

namespace {

engine_options hybrid(const std::string& layers) {
  auto o = on_gpu();
  o.compute.device = "auto";
  o.compute.dtype = "bf16";
  o.compute.threads = 1;
  o.layers = layers;
  return o;
}

std::vector<generation> hybrid_work() {
  std::vector<generation> work;
  for (int i = 0; i < 5; ++i) {
    std::vector<token_id> prompt(static_cast<std::size_t>(3 + 11 * i));
    std::iota(prompt.begin(), prompt.end(), static_cast<token_id>(i < 3 ? 50 : 90));
    auto g = ask(std::move(prompt), 4 + i);
    g.sampling.ignore_eos = true;
    g.sampling.logprobs = 2;
    work.push_back(std::move(g));
  }
  work[1].sampling.temperature = 0.8f;
  work[1].sampling.n = 2;
  work[2].sampling.prompt_logprobs = 1;
  work[3].sampling.n = 2, work[3].sampling.techniques.set(troupe::beams({.width = 2}));
  return work;
}

std::string refused_hybrid(const std::string& layers, const std::function<void(engine_options&)>& change = {}) {
  auto o = hybrid(layers);
  if (change)
    change(o);
  try {
    load_model(o, {});
  } catch (const failure& f) {
    return f.what_failed().message;
  }
  return {};
}

} // namespace

TEST_CASE("with layers on the GPU and on the CPU, requests get the same tokens together and alone") {
  const kernels::cuda::emulated::shown_devices two(2);
  for (const std::string layers : {"cuda:0=0-1,cpu=2", "cuda:0=0,cpu=1,cpu=2", "cuda:0=0-1,cuda:1=2"}) {
    CAPTURE(layers);
    const auto work = hybrid_work();
    std::vector<heard> expected;
    auto alone = hybrid(layers);
    alone.compute.kv_dtype = layers.ends_with("cpu=2") ? "fp8" : "auto"; // each device has codes and scales of its own
    alone.compute.graphs = false;
    alone.compute.threads = 2;
    alone.prefix_cache = false;
    alone.techniques["speculate"] = {"off"};
    std::size_t block_bytes = 0;
    {
      gpu_engine reference(alone);
      if (const auto& why = reference.status().why)
        FAIL(why->message);
      block_bytes = alone.kv_cache_bytes / reference.stats().total.blocks.total;
      for (const auto& g : work)
        REQUIRE(expected.emplace_back(reference.run(g)).done.has_value());
    }
    deferred_work later(3);
    auto options = hybrid(layers);
    options.compute.kv_dtype = alone.compute.kv_dtype;
    options.compute.threads = 2;
    options.step_tokens = 24;
    options.max_context = 64;
    options.kv_cache_bytes = 8 * block_bytes; // so few that some are swapped
    options.swap_bytes = 1 << 20;
    gpu_engine engine(options);
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
    CHECK(engine.stats().total.blocks.found_tokens > 0);
  }
}

TEST_CASE("automatic layers fill the GPU as far as weights and KV cache fit, and the rest is on the CPU") {
  const auto counted_layers = [](std::size_t memory, const std::string& of = {}) {
    const limited_memory limited(memory);
    auto o = hybrid("auto");
    if (!of.empty())
      o.model = of;
    o.kv_cache_bytes = 1 << 20;
    std::vector<int> ends;
    const auto model = load_model(o, {});
    for (const auto& stage : model->stages)
      ends.push_back(stage.weights->config.part().end);
    return ends;
  };
  CHECK(counted_layers(std::size_t(1) << 30) == std::vector<int>{3});
  bool divided = false;
  for (std::size_t memory = std::size_t(1) << 20; memory < (std::size_t(1) << 28); memory += memory / 4) {
    const auto ends = counted_layers(memory);
    CHECK(ends.back() == 3);
    divided = divided || ends.size() == 2;
  }
  CHECK(divided);
  // Where the layers behind cannot be by themselves, fewer are on the GPU, or none.
  const tiny_model glm("families/glm-moe-dsa");
  std::set<std::vector<int>> all; // layers 1 and 3 take the choice of those before
  for (std::size_t memory = std::size_t(1) << 20; memory < (std::size_t(1) << 28); memory += memory / 8)
    all.insert(counted_layers(memory, glm.options().model));
  CHECK(all == std::set<std::vector<int>>{{2, 4}, {4}});
}

TEST_CASE("what layers on a GPU and a CPU cannot be combined with is told in one sentence") {
  CHECK(refused_hybrid("cpu=0,cuda:0=1-2") == "`layers` must have those on a GPU first, not behind cpu");
  CHECK(refused_hybrid("cuda:0=0-1,cpu=2", [](auto& o) { o.replicas = 2; }).starts_with("`replicas` "));
  CHECK(refused_hybrid("cuda:0=0-1,cpu=2", [](auto& o) {
          o.compute.tensor_parallel = 2;
        }).starts_with("`tensor_parallel` "));
  CHECK(refused_hybrid("cuda:0=0-1,cpu=2", [](auto& o) {
          o.techniques["amateur"] = {golden("llama-gqa")};
        }).starts_with("an amateur model runs on the CPU"));
  CHECK(refused_hybrid("cuda:7=0-1,cpu=2").starts_with("there is no device `cuda:7`"));
  {
    const limited_memory little(1 << 16);
    CHECK(refused_hybrid("cuda:0=0-1,cpu=2").find("of memory are available") != std::string::npos);
  }
}
