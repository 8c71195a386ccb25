// Families that need more than a Llama, in the engine on the emulated GPU: transformers' greedy tokens, the same tokens
// together and alone; hidden states.
#include "runtime/techniques/beams/technique.hpp"
#include "runtime/techniques/speculation/technique.hpp"
#include "tests/runtime/execution/gpu/tiny_engine.hpp"

#include <algorithm>
#include <array>
#include <random>

using namespace troupe;
using namespace troupe::testing;
using kernels::cuda::emulated::counted;
using kernels::cuda::emulated::deferred_work;

namespace {

/// Those in which a step differs: by ops that others lack, or by what the host does. Logits of all families are compared
/// in tests/kernels/cuda/decoder_test.cpp.
const std::vector<std::string> engine_families{"cohere2", "gemma2", "gemma4", "gpt-oss", "gpt2", "llama4", "mixtral"};

engine_options of_family(const std::string& model) {
  auto o = on_gpu();
  o.model = test_data() + "/" + model;
  o.compute.dtype = "bf16";
  return o;
}

generation random_request(std::mt19937& rng) {
  const auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
  auto g = ignoring_eos(tiny_prompt(static_cast<std::size_t>(pick(1, 30)), pick(0, 2)), pick(1, 6));
  auto& s = g.sampling;
  s.temperature = static_cast<float>(pick(0, 2)) * 0.6f;
  s.seed = static_cast<std::uint64_t>(pick(0, 1000));
  s.logprobs = pick(-1, 2);
  switch (pick(0, 4)) {
    case 0: s.n = 2; break;
    case 1: s.prompt_logprobs = 1; break;
    case 2:
      s = {};
      s.temperature = 0;
      s.max_tokens = 4;
      s.n = 2, s.techniques.set(troupe::beams({.width = 2}));
      break;
    default: break;
  }
  return g;
}

struct crowd_counts {
  std::uint64_t found = 0, accepted = 0; // tokens in the prefix cache, and guesses
};

/// Random requests in random crowds must give what they give alone.
crowd_counts check_crowds(const tiny_model& tiny, std::mt19937& rng) {
  crowd_counts counts;
  std::vector<generation> work;
  for (int i = 0; i < 4; ++i)
    work.push_back(random_request(rng));
  const auto expected = alone(tiny.options(), work);
  std::size_t block_bytes = 0;
  for (unsigned schedule = 1; schedule <= 3; ++schedule) {
    CAPTURE(schedule);
    deferred_work later(schedule);
    auto o = tiny.options();
    o.step_tokens = std::array{24, 5, 9}[schedule - 1];
    o.max_sequences = schedule == 2 ? 3 : 6;
    o.techniques["draft_tokens"] = {schedule == 1 ? "2"
                                                  : "0"}; // else only where guesses pay, which a busy machine may deny
    if (schedule == 3)                                    // few blocks
      o.kv_cache_bytes = 5 * block_bytes;
    auto crowd = work;
    auto wanted = expected;
    for (std::size_t i = 0; i < crowd.size(); ++i) {
      if (expected[i].ids.contains(0)) // guesses, of which most are right
        for (const auto id : expected[i].ids.at(0))
          crowd[i].prediction.push_back(rng() % 6 == 0 ? token_id(7) : id);
      const auto other = rng() % (i + 1);
      std::swap(crowd[i], crowd[other]);
      std::swap(wanted[i], wanted[other]);
    }
    gpu_engine engine(o);
    if (const auto& why = engine.status().why)
      FAIL(why->message);
    run_together(engine, crowd, wanted);
    const auto stats = engine.stats().total;
    block_bytes = o.kv_cache_bytes / stats.blocks.total;
    counts.found += stats.blocks.found_tokens;
    counts.accepted += stats.scheduler.accepted_tokens;
  }
  return counts;
}

} // namespace

TEST_CASE("mixtures of experts on a GPU: random requests give the same tokens in random crowds as alone") {
  std::mt19937 rng(17);
  std::uint64_t found = 0, accepted = 0;
  // Groups and a shared expert; a router ahead of attention; attention over chosen positions.
  for (const std::string model : {"dots1", "smallthinker", "hy-v4"}) {
    CAPTURE(model);
    const auto counts = check_crowds(tiny_model("tiny_families/" + model), rng);
    found += counts.found;
    accepted += counts.accepted;
  }
  CHECK(found > 0);
  CHECK(accepted > 0);
}

TEST_CASE(
  "compressed keys, groups and n-grams with states, and numbers for distances, on a GPU: random requests give the same "
  "tokens in random crowds as alone") {
  std::mt19937 rng(18);
  std::uint64_t accepted = 0;
  // Fewer entries and positions are chosen, so that short texts have to choose.
  for (const auto& tiny : {tiny_model("families/deepseek-v4", {{"index_topk", 3}, {"sliding_window", 7}}),
                           tiny_model("families/qwen4-exp", {{"indexer_budget", 12}}),
                           tiny_model("families/inkling", {{"log_scaling_n_floor", 3}})}) {
    CAPTURE(tiny.options().model);
    accepted += check_crowds(tiny, rng).accepted;
  }
  CHECK(accepted > 0);
}

TEST_CASE("n-grams of layers in two and three stages on GPUs give the same tokens as on one") {
  const kernels::cuda::emulated::shown_devices three(3);
  const tiny_model tiny("families/qwen4-exp", {{"indexer_budget", 12}}); // layers 0 and 2 have n-grams
  std::vector<generation> work;
  for (int i = 0; i < 3; ++i) {
    work.push_back(ignoring_eos(tiny_prompt(static_cast<std::size_t>(4 + 9 * i), i), 5));
    work.back().sampling.logprobs = 2;
  }
  const auto expected = alone(tiny.options(), work);
  for (const std::string layers : {"cuda:0=0-1,cuda:1=2-3", "cuda:0=0,cuda:1=1,cuda:2=2-3"}) {
    CAPTURE(layers);
    deferred_work later(2);
    auto o = tiny.options();
    o.compute.device = "auto";
    o.layers = layers;
    gpu_engine engine(o);
    if (const auto& why = engine.status().why)
      FAIL(why->message);
    run_together(engine, work, expected);
  }
}

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
      work.back().sampling.techniques.set(speculated_by(speculation::off));
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
  CHECK(checked >= 4);
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
    g.sampling.techniques.set(speculated_by(speculation::off));
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
