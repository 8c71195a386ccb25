// Families that need more than a Llama, in the engine on the emulated GPU: transformers' greedy tokens, the same tokens
// together and alone; hidden states.
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
    for (std::size_t i : {2, 1}) {
      json::value c = cases.at(i);
      if (i == 2) { // those that bf16 does not change
        const auto margins = test::list<double>(c["greedy"]["margins"]);
        greedy = test::list<token_id>(c["greedy"]["ids"]);
        greedy.resize(std::min<std::size_t>(
          2,
          static_cast<std::size_t>(std::ranges::find_if(margins, [](double m) { return m < 0.3; }) - margins.begin())));
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
  CHECK(checked >= 10);
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

TEST_CASE("on a GPU, an encoder gives transformers' hidden states of prompts, together and alone") {
  const auto document = json::document::load(test_data() + "/tiny_encoders/bert/expected.json");
  auto options = of_family("tiny_encoders/bert");
  options.compute.dtype = "f32";
  options.max_context = 40;
  gpu_engine engine(options);
  if (const auto& why = engine.status().why)
    FAIL(why->message);
  json::array states;
  REQUIRE(!document.root()["hidden"].get(states));
  generation first = ask(test::list<token_id>(document.root()["ids"]), 1), second = ask({5, 9, 7}, 1);
  first.second = static_cast<std::int32_t>(std::int64_t(document.root()["second"]));
  first.embed = pooling::cls;
  second.embed = pooling::mean;
  const auto alone = engine.run(first), other = engine.run(second);
  REQUIRE(alone.done.has_value());
  REQUIRE(other.done.has_value());
  CHECK(test::largest_difference(alone.done->embedding, test::list<float>(states.at(0))) < 2e-4);
  listener one, two;
  engine.submit(first, one);
  engine.submit(second, two);
  REQUIRE(one.wait());
  REQUIRE(two.wait());
  CHECK(same(one.result(), alone));
  CHECK(same(two.result(), other));
}

TEST_CASE("on a GPU, embeddings of a prompt in chunks, beside a request that decodes, are transformers'") {
  const auto document = json::document::load(test_data() + "/embeddings.json");
  deferred_work later(6);
  auto options = on_gpu();
  options.compute.dtype = "f32";
  options.step_tokens = 5;
  gpu_engine engine(options);
  REQUIRE(engine.status().now == load_status::stage::ready);
  json::value one = json::array(document.root()["llama-gqa"]).at(0);
  auto talk = ask({0, 54, 51}, 30), g = ask(test::list<token_id>(one["ids"]), 1);
  talk.sampling.ignore_eos = true;
  listener talking;
  engine.submit(talk, talking);
  REQUIRE(talking.wait_for_tokens(2));
  for (const auto& [field, how] :
       {std::pair("mean", pooling::mean), std::pair("last", pooling::last), std::pair("cls", pooling::cls)}) {
    g.embed = how;
    const auto heard = engine.run(g);
    REQUIRE(heard.done.has_value());
    CHECK(test::largest_difference(heard.done->embedding, test::list<float>(one[field])) < 2e-4);
  }
  REQUIRE(talking.wait());
  CHECK(!talking.result().failed.has_value());
}
