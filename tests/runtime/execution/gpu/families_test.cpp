// Families that need more than a Llama, in the engine on the emulated GPU: transformers' greedy tokens, the same tokens
// together and alone, and what is refused.
#include "runtime/engine/loader.hpp"
#include "runtime/support/error.hpp"
#include "tests/runtime/execution/gpu/gpu_engine.hpp"
#include "tests/runtime/model/model_test_data.hpp"

using namespace troupe;
using namespace troupe::testing;
using kernels::cuda::emulated::counted;
using kernels::cuda::emulated::deferred_work;

namespace {

const std::vector<std::string> engine_families{"cohere2",  "exaone4",  "gemma2",  "gemma3", "gemma4",
                                               "glm4-moe", "gpt-neox", "gpt-oss", "gpt2",   "granite",
                                               "llama4",   "mixtral",  "olmo2",   "opt",    "qwen3-moe"};

engine_options of_family(const std::string& model) {
  auto o = on_gpu();
  o.model = test_data() + "/" + model;
  o.compute.dtype = "bf16";
  return o;
}

} // namespace

TEST_CASE("families on a GPU whose streams run late give transformers' tokens, together and alone") {
  std::size_t checked = 0;
  for (const auto& model : engine_families) {
    CAPTURE(model);
    const auto document = json::document::load(test_data() + "/families/" + model + "/expected.json");
    json::array cases;
    REQUIRE(!document.root()["cases"].get(cases));
    std::vector<generation> work;
    std::vector<token_id> greedy;
    for (std::size_t i : {0, 1}) {
      json::value c = cases.at(i);
      if (i == 0) { // those that bf16 does not change
        const auto margins = test::list<double>(c["greedy"]["margins"]);
        greedy = test::list<token_id>(c["greedy"]["ids"]);
        greedy.resize(std::min<std::size_t>(
          2,
          static_cast<std::size_t>(std::ranges::find_if(margins, [](double m) { return m < 1; }) - margins.begin())));
      }
      work.push_back(ask(test::list<token_id>(c["ids"]), 2));
      work.back().sampling.ignore_eos = true;
      work.back().sampling.logprobs = 2;
      work.back().sampling.speculate = speculation::off;
    }
    work.back().sampling.temperature = 0.9f;
    work.back().sampling.seed = 3;
    work.back().sampling.n = 2; // blocks are copied
    deferred_work later(4);
    auto options = of_family("families/" + model);
    options.prefix_cache = false;
    options.step_tokens = 9;
    gpu_engine engine(options);
    if (const auto& why = engine.status().why)
      FAIL(why->message);
    std::vector<heard> alone;
    for (const auto& g : work) {
      alone.push_back(engine.run(g));
      if (alone.back().failed)
        FAIL(alone.back().failed->message);
    }
    checked += greedy.size();
    CHECK(std::equal(greedy.begin(), greedy.end(), alone[0].ids[0].begin()));
    std::vector<listener> listeners(work.size());
    for (std::size_t i = 0; i < work.size(); ++i)
      engine.submit(work[i], listeners[i]);
    for (std::size_t i = 0; i < work.size(); ++i) {
      REQUIRE(listeners[i].wait());
      CHECK(same(listeners[i].result(), alone[i]));
    }
  }
  CHECK(checked > engine_families.size());
}

TEST_CASE("decode steps are recorded for families in which the host takes no part, and for no others") {
  for (const auto& [model, recorded] :
       {std::pair("families/gemma2", true), {"families/mixtral", false}, {"families/gpt2", false}}) {
    CAPTURE(model);
    deferred_work later(2);
    gpu_engine engine(of_family(model));
    REQUIRE(engine.status().now == load_status::stage::ready);
    auto g = ask({5, 54, 51}, 8);
    g.sampling.ignore_eos = true;
    g.sampling.speculate = speculation::off;
    const auto before = counted();
    CHECK(engine.run(g).done.has_value());
    CHECK((counted().replays > before.replays) == recorded);
  }
}

TEST_CASE("what a GPU lacks for a model is told in one sentence") {
  const auto refused = [](const std::string& model) {
    return test::failure_of([&] { load_model(of_family(model), {}); });
  };
  CHECK(refused("tiny_encoders/bert") ==
        "models of the family `bert` make embeddings or scores of hidden states, which a GPU does not give so far: use "
        "the CPU (--device cpu)");
}
