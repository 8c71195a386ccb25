// Schedule invariance of the whole engine: random requests have the same bits in any crowd as alone.
#include "api/embed/engine_internals.hpp"
#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/engine/loading/replica_roles.hpp"
#include "runtime/techniques/adapters/technique.hpp"
#include "runtime/techniques/amateur/technique.hpp"
#include "runtime/techniques/beams/technique.hpp"
#include "runtime/techniques/dola/technique.hpp"
#include "runtime/techniques/guidance/technique.hpp"
#include "runtime/techniques/speculation/technique.hpp"
#include "runtime/techniques/stochastic_beams/technique.hpp"
#include "runtime/techniques/tree_search/technique.hpp"
#include "runtime/techniques/watermark/technique.hpp"
#include "tests/api/embed/branching_drafter.hpp"
#include "tests/api/embed/small_adapters.hpp"
#include "tests/api/embed/small_engine.hpp"
#include "tests/api/embed/steering_vectors.hpp"
#include "tests/rounds.hpp"
#include "tests/runtime/model/model_test_data.hpp"
#include "tests/runtime/sampling/processors/random_samplers.hpp"
#include "tests/sanitized.hpp"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>

using namespace troupe;
using namespace troupe::testing;

namespace {

/// Ids of prompts are below it; of all models at hand.
int crowd_vocabulary = 695;

std::vector<token_id> random_prompt(std::mt19937& rng, int length, int family) {
  std::vector<token_id> ids(static_cast<std::size_t>(length));
  std::mt19937 shared(static_cast<unsigned>(family));
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids[i] = static_cast<token_id>(5 + (i < 60 ? shared() : rng()) % static_cast<unsigned>(crowd_vocabulary - 5));
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
  switch (pick(0, 10)) {
    case 0:
    case 2: { // beams, of a request that fits into few blocks
      sampling_params beams;
      beams.temperature = s.temperature == 0 ? 0 : 1;
      beams.max_tokens = std::min(s.max_tokens, 20);
      beam_options how{.width = pick(1, 4)};
      beams.n = pick(1, how.width);
      beams.logprobs = s.logprobs;
      beams.ignore_eos = s.ignore_eos;
      how.length_penalty = 0.5f * static_cast<float>(pick(0, 3));
      const bool stochastic = pick(0, 2) == 0;
      if (stochastic) {
        beams.techniques.set(stochastic_beams(how.width));
        beams.temperature = 1;
        beams.seed = s.seed;
      } else {
        how.stopping = static_cast<early_stopping>(pick(0, 2));
        if (how.width > 1 && pick(0, 1)) {
          how.groups = how.width == 4 ? 2 : how.width;
          how.diversity_penalty = 0.5f * static_cast<float>(pick(1, 3));
        }
      }
      beams.repetition_penalty = s.repetition_penalty;
      beams.presence_penalty = s.presence_penalty;
      beams.stop = s.stop;
      if (s.temperature > 0 && s.top_p < 1 && !stochastic && how.groups == 1) {
        how.sampled = true;
        beams.temperature = s.temperature;
        beams.top_k = s.top_k;
        beams.top_p = s.top_p;
        beams.seed = s.seed;
      }
      if (!stochastic)
        beams.techniques.set(troupe::beams(how));
      if (s.seed % 3 == 0) { // a tree search instead
        s.techniques.set(
          searched_by({.simulations = 4 + static_cast<int>(s.seed % 5), .branching = 3, .parallel = how.width}));
        s.n = std::min(s.n, 2);
        s.max_tokens = beams.max_tokens;
      } else {
        s = beams;
      }
      g.prompt.resize(std::min<std::size_t>(g.prompt.size(), 40));
      break;
    }
    case 1:
      s.n = pick(1, 2);
      s.best_of = s.n + pick(0, 1);
      s.rank = s.best_of > s.n && pick(0, 1) ? best_of_rank::mean : best_of_rank::cumulative;
      break;
    case 3: // an embedding of the prompt
      s = {};
      s.max_tokens = 1;
      g.embed = std::vector{pooling::mean, pooling::last, pooling::cls}[rng() % 3];
      break;
    case 4:
    case 5: add_random_samplers(s, crowd_vocabulary - 5, rng); break;
    case 6: // a pair, which fits into few blocks
      s.n = 1;
      s.techniques.set(guided_by(0.5f * static_cast<float>(pick(0, 6))));
      g.prompt.resize(std::min<std::size_t>(g.prompt.size(), 60));
      if (pick(0, 2))
        g.negative_prompt = random_prompt(rng, pick(1, 60), pick(0, 2));
      break;
    case 7: { // of models with at least two layers
      const std::vector<dola_layers> asked{dola_layers("low"), dola_layers("high"), dola_layers({0, 1}),
                                           dola_layers({1})};
      s.techniques.set(contrasted_with(asked[s.seed % asked.size()]));
      break;
    }
    default: break;
  }
  if (const auto* mark = watermarks::mark_of(s.techniques.find(watermark_technique));
      mark && s.temperature == 0 && mark->what == watermarks::kind::gumbel)
    s.techniques = {};
  std::vector<steering_choice> steering;
  if (pick(0, 2) == 0)
    steering.push_back({pick(0, 1) ? "one" : "other", pick(0, 1) ? 0.5f : -1.0f});
  if (steering.size() == 1 && pick(0, 2) == 0)
    steering.push_back({"one", 0.25f, 1, 1});
  s.techniques.set(troupe::steered_by(std::move(steering)));
  return g;
}

/// How it is to be run in a crowd: with guesses of any kind, and with a prediction that is partly right.
generation with_guesses(generation g, const heard& alone, const engine_options& options, std::mt19937& rng) {
  g.sampling.techniques.set(speculated_by(
    std::vector{speculation::automatic, speculation::off, speculation::ngram, speculation::lookahead}[rng() % 4]));
  if (options.techniques.contains("draft") && rng() % 2 == 0)
    g.sampling.techniques.set(speculated_by(speculation::draft));
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
                               {"bf16", "int4", "fp8"}};

/// Instruction sets of this machine, or those emulated; under slow sanitizers the fastest alone.
std::vector<std::string> devices() {
  auto targets = kernels::available_isas();
  if (targets.size() > 1 && targets[1] > kernels::isa::avx2) // emulated: other programs test `portable`
    targets.erase(targets.begin());
  if (sanitized())
    targets.erase(targets.begin(), targets.end() - 1);
  std::vector<std::string> all;
  for (auto target : targets)
    all.push_back("cpu:" + std::string(kernels::to_string(target)));
  return all;
}

/// Which of the paths that may change a schedule were taken.
struct paths {
  std::uint64_t preemptions = 0, cached_tokens = 0, drafts = 0, ahead = 0, trees = 0, accepted = 0;
  int diverse = 0; // requests of diverse beams
  int pairs = 0;
  int contrasts = 0;
  int adapted = 0;
  int layered = 0; // contrasted with inner layers
  std::uint64_t kept = 0, adopted = 0, swapped_in = 0;
  std::uint64_t states_adopted = 0;
  std::uint64_t moved = 0, incomplete = 0;
};

/// Twelve random requests at a time: each has the same result alone, without guesses, and in batches of any shape.
/// `crowded`: as `alone`, but for what only the crowd has. `few_blocks`: memory of so many blocks of the model alone,
/// which hold one sequence of 256 tokens and little more; other models have their part of it. `branched`: guesses are
/// trees, of which it counts those that were right in a branch.
paths check_crowds(const engine_options& alone, const engine_options& crowded, unsigned seeds, unsigned few_blocks = 18,
                   std::shared_ptr<std::atomic<int>> branched = nullptr) {
  paths taken;
  auto reference = engine::start(alone);
  reference.wait_until_ready();
  for (unsigned seed = 1; seed <= seeds; ++seed) {
    CAPTURE(seed);
    std::mt19937 rng(seed);
    auto pick = [&](int lo, int hi) { return std::uniform_int_distribution<int>(lo, hi)(rng); };
    std::vector<generation> work;
    std::vector<heard> expected;
    for (int i = 0; i < 12; ++i) {
      work.push_back(random_generation(rng));
      if (auto& s = work.back().sampling;
          alone.techniques.contains("amateur") && !s.grouped() && !s.techniques.contrast() && pick(0, 2) > 0) {
        const auto beta = 0.5f * static_cast<float>(pick(1, 4));
        s.techniques.set(contrasted_by({.beta = beta, .alpha = 0.1f * static_cast<float>(pick(0, 5))}));
        ++taken.contrasts;
      }
      const auto* beams = beams_of(work.back().sampling);
      taken.diverse += beams && beams->groups > 1;
      taken.pairs += work.back().sampling.paired();
      if (const auto lora = texts_of(alone.techniques, "lora"); !lora.empty() && pick(0, 3) > 0) {
        const auto& file = lora[static_cast<std::size_t>(pick(0, 100)) % lora.size()];
        work.back().sampling.techniques.set(adapted_by(parse_named_file(file).first));
        ++taken.adapted;
      }
      taken.layered += work.back().sampling.techniques.find(dola_technique) != nullptr;
      expected.push_back(run(reference, work.back()));
      if (const auto& failed = expected.back().failed; failed && failed->param == "search") { // recurrent layers
        work.back().sampling.techniques = {};
        expected.back() = run(reference, work.back());
      }
      if (const auto& failed = expected.back().failed)
        FAIL(failed->message);
      REQUIRE(expected.back().done.has_value());
      CHECK(expected.back().done->embedding.empty() == (work.back().embed == pooling::none));
    }
    auto options = crowded;
    options.techniques["speculate"] = {"auto"};
    options.prefix_cache = seed % 2 == 0 || crowded.swap_bytes > 0 || !crowded.kv_disk.empty() ||
      !crowded.roles.empty();
    // In one of four, how many is left to measured times.
    options.techniques["draft_tokens"] = {std::to_string(seed % 4)};
    engine_internals internals{.strict_roles = seed % 4 != 0};
    if (branched) {
      internals.techniques.set(speculation_technique,
                               std::make_shared<const guessing_internals>(
                                 guessing_internals{branching_drafters(answers_of(work, expected), branched)}));
      options.techniques["draft_tokens"] = {std::to_string(3 + seed % 4 * 5)};
    }
    if (options.techniques.contains("draft") && seed % 2 == 1 && options.compute.device.starts_with("cpu"))
      options.techniques["draft_threads"] = {"1"};
    options.role_idle = std::chrono::milliseconds(seed % 3);
    const int stages = options.layers.empty() ? options.stages : 2;
    const int replicas = replica_count(options);
    options.compute.threads = replicas * stages * pick(1, 3) * options.compute.tensor_parallel;
    if (stages > 1)
      options.microbatches = pick(0, 3);
    options.step_tokens = pick(0, 1) ? pick(4, 40) : 512; // four beams must fit
    options.max_sequences = pick(4, 12);
    if (seed % 2 == 1) { // so few blocks, and so many sequences, that they preempt each other
      options.max_context = 256;
      options.max_sequences = 12;
      const auto block = reference.model()->kv_cache_bytes / reference.stats().total.blocks.total;
      options.kv_cache_bytes = static_cast<std::size_t>(replicas) * few_blocks * block;
    }
    auto crowd = start_with(internals, options);
    crowd.wait_until_ready();
    std::vector<std::size_t> order(work.size());
    std::iota(order.begin(), order.end(), 0u);
    for (int round = 0; round < 2; ++round) { // the second finds a warm cache
      std::shuffle(order.begin(), order.end(), rng);
      std::vector<listener> listeners(work.size());
      for (auto i : order) {
        auto handle = crowd.submit(with_guesses(work[i], expected[i], options, rng), listeners[i].sink());
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
    const auto s = crowd.stats().total;
    taken.preemptions += s.scheduler.preemptions;
    taken.drafts += s.scheduler.guess_runs;
    taken.trees += s.scheduler.guess_trees;
    taken.ahead += s.scheduler.guess_runs_ahead;
    taken.accepted += s.scheduler.accepted_tokens;
    taken.cached_tokens += s.blocks.found_tokens;
    taken.kept += s.blocks.kept;
    taken.adopted += s.blocks.adopted;
    taken.states_adopted += s.blocks.states_adopted;
    taken.swapped_in += s.blocks.swapped_in;
    taken.moved += s.moves.moved;
    taken.incomplete += s.blocks.incomplete;
  }
  return taken;
}

engine_options without_guesses(const std::string& model, const numbers& types, const std::string& device) {
  auto o = small();
  o.model = model;
  o.compute.dtype = types.dtype;
  o.compute.quantize = types.quantize;
  o.compute.kv_dtype = types.kv_dtype;
  o.compute.device = device;
  o.prefix_cache = false;
  o.techniques["speculate"] = {"off"};
  o.techniques["steer"] = vectors_for(model);
  return o;
}

} // namespace

TEST_CASE("random workloads give every request the same bits as alone") {
  for (const auto& device : devices())
    for (const auto& types : all_numbers) {
      CAPTURE(types.dtype);
      CAPTURE(types.quantize);
      CAPTURE(types.kv_dtype);
      CAPTURE(device);
      const auto options = without_guesses(golden("llama-gqa"), types, device);
      const auto taken = check_crowds(options, options, static_cast<unsigned>(std::max(2, rounds(4))));
      CHECK(taken.preemptions > 0);
      CHECK(taken.cached_tokens > 0);
      CHECK(taken.accepted > 0);
      CHECK(taken.diverse > 0);
      CHECK(taken.pairs > 0);
      CHECK(taken.layered > 0);
    }
}

TEST_CASE("crowds of requests with and without adapters give every request the same bits as alone") {
  const test::temp_folder folder;
  const auto lora = adapters_for(golden("llama-gqa"), folder.path(), {"one", "two", "three"});
  for (const auto& types : {numbers{"f32", "none", "auto"}, numbers{"bf16", "int8", "auto"}}) {
    CAPTURE(types.quantize);
    auto options = without_guesses(golden("llama-gqa"), types, devices().back());
    options.techniques["lora"] = lora;
    const auto taken = check_crowds(options, options, 2);
    CHECK(taken.adapted > 6);
    CHECK(taken.preemptions > 0);
    CHECK(taken.cached_tokens > 0);
    CHECK(taken.accepted > 0);
  }
}

TEST_CASE("crowds on two ranks give every request the bits that it has alone on one") {
  const test::temp_folder folder;
  const auto lora = adapters_for(golden("llama-gqa"), folder.path(), {"one", "two", "three"});
  for (const std::string model : {"golden/llama-gqa", "families/mixtral", "families/gpt-oss"})
    for (const auto& types : {numbers{"f32", "none", "auto"}, numbers{"bf16", "int8", "int8"}}) {
      CAPTURE(model);
      CAPTURE(types.quantize);
      auto alone = without_guesses(test_data() + "/" + model, types, devices().back());
      if (model == "golden/llama-gqa")
        alone.techniques["lora"] = lora;
      auto crowded = alone;
      crowded.compute.tensor_parallel = 2;
      const auto taken = check_crowds(alone, crowded, 2);
      CHECK(taken.adapted > (alone.techniques.contains("lora") ? 6 : -1));
      CHECK(taken.preemptions > 0);
      CHECK(taken.cached_tokens > 0);
      CHECK(taken.accepted > 0);
    }
}

TEST_CASE("crowds in stages give every request the bits that it has alone in one") {
  const test::temp_folder folder;
  auto alone = without_guesses(golden("llama-gqa"), {"bf16", "int8", "int8"}, devices().back());
  alone.techniques["lora"] = adapters_for(golden("llama-gqa"), folder.path(), {"one", "two", "three"});
  auto crowded = alone;
  crowded.stages = 2;
  unsigned blocks = 18;
  SUBCASE("two of them") {}
  SUBCASE("one for each layer, with a draft model, and K and V in fp8") {
    alone.compute.kv_dtype = crowded.compute.kv_dtype = "fp8";
    crowded.stages = 3;
    crowded.techniques["draft"] = {golden("llama-gqa")};
    blocks = 36;
  }
  SUBCASE("of two ranks each") { crowded.compute.tensor_parallel = 2; }
  SUBCASE("of two replicas each") { crowded.replicas = 2; }
  SUBCASE("in f32") {
    alone.compute.dtype = crowded.compute.dtype = "f32";
    alone.compute.quantize = crowded.compute.quantize = "none";
    alone.compute.kv_dtype = crowded.compute.kv_dtype = "auto";
  }
  const auto taken = check_crowds(alone, crowded, 2, blocks);
  CHECK(taken.adapted > 6);
  CHECK(taken.layered + taken.pairs > 0);
  CHECK(taken.cached_tokens > 0);
  CHECK(taken.drafts > 0);
}

TEST_CASE("crowds in stages with an amateur give every request the bits that it has alone in one") {
  auto alone = without_guesses(golden("qwen3"), {"bf16", "int8", "int8"}, devices().back());
  alone.techniques["amateur"] = {golden("qwen2")};
  auto crowded = alone;
  crowded.stages = 2;
  const auto taken = check_crowds(alone, crowded, 2, 28);
  CHECK(taken.contrasts > 6);
  CHECK(taken.cached_tokens > 0);
}

TEST_CASE("crowds whose layers are on different devices give every request the bits that it has alone on them") {
  const auto all = kernels::available_isas();
  const auto portable = "cpu:" + std::string(kernels::to_string(all.front())) + "=0,";
  const auto fastest = "cpu:" + std::string(kernels::to_string(all.back())) + "=1-2";
  auto options = without_guesses(golden("llama-gqa"), {"f32", "none", "auto"}, "auto");
  options.layers = portable + fastest;
  options.compute.threads = 2;
  const auto taken = check_crowds(options, options, 2);
  CHECK(taken.preemptions > 0);
  CHECK(taken.cached_tokens > 0);
}

TEST_CASE("crowds of a mixture of experts give every request the same bits as alone") {
  for (const auto& types : {numbers{"f32", "none", "auto"}, numbers{"bf16", "int8", "auto"}}) {
    CAPTURE(types.quantize);
    const auto options = without_guesses(test_data() + "/families/mixtral", types, devices().back());
    const auto taken = check_crowds(options, options, 2);
    CHECK(taken.preemptions > 0);
    CHECK(taken.cached_tokens > 0);
    CHECK(taken.accepted > 0);
  }
}

TEST_CASE("crowds of layers that see chunks, or read K and V of others, give every request the same bits as alone") {
  for (const auto& [model, types] : {std::pair("/families/llama4", numbers{"bf16", "int8", "auto"}),
                                     std::pair("/families/gemma4", numbers{"f32", "none", "auto"})}) {
    CAPTURE(std::string(model));
    const auto options = without_guesses(test_data() + model, types, devices().back());
    const auto taken = check_crowds(options, options, 2);
    CHECK(taken.cached_tokens > 0);
  }
}

TEST_CASE("crowds of further families give every request the bits that it has alone, in every layout") {
  struct layout {
    const char* name;
    void (*change)(engine_options&);
    unsigned seeds;
  };
  const layout layouts[] = {{"one", [](engine_options&) {}, 2}, // with and without the prefix cache
                            {"ranks", [](engine_options& o) { o.compute.tensor_parallel = 2; }, 1},
                            {"stages", [](engine_options& o) { o.stages = 2; }, 1},
                            {"replicas", [](engine_options& o) { o.replicas = 2; }, 1}};
  crowd_vocabulary = 640;
  unsigned turn = 0; // each family has one of the types
  for (const std::string model :
       {"afmoe", "bloom", "cohere2-moe", "deepseek-v32", "exaone-moe", "glm4-moe-lite", "hy-v3", "mellum",
        "mimo-v2-flash", "minicpm3", "muse-glimmer", "nanochat", "olmoe", "youtu"}) {
    const test::temp_folder folder;
    const auto& types = all_numbers[turn++ % std::size(all_numbers)];
    auto alone = without_guesses(test_data() + "/families/" + model, types, devices().back());
    alone.techniques["lora"] = adapters_for(alone.model, folder.path(), {"one", "two", "three"});
    paths taken;
    for (const auto& layout : layouts) {
      CAPTURE(model);
      CAPTURE(types.quantize);
      CAPTURE(std::string(layout.name));
      auto crowded = alone;
      layout.change(crowded);
      const auto some = check_crowds(alone, crowded, layout.seeds, 36);
      taken.cached_tokens += some.cached_tokens;
      taken.accepted += some.accepted;
      taken.adapted += some.adapted;
    }
    CHECK(taken.cached_tokens > 0);
    CHECK(taken.accepted > 0);
    CHECK(taken.adapted > 6);
  }
  crowd_vocabulary = 695;
}

TEST_CASE("crowds over compressed keys have the same bits on ranks, in stages, in replicas, with roles, a disk and "
          "other memory") {
  const test::temp_folder folder;
  crowd_vocabulary = 640;
  auto alone = without_guesses(test_data() + "/families/deepseek-v4", {"f32", "none", "auto"}, devices().back());
  auto crowded = alone;
  SUBCASE("on two ranks") { crowded.compute.tensor_parallel = 2; }
  SUBCASE("in two stages") { crowded.stages = 2; }
  SUBCASE("in replicas") { crowded.replicas = 2; }
  SUBCASE("with roles, a disk and other memory") {
    crowded.roles = "prefill:1,decode:1";
    crowded.kv_disk = (std::filesystem::path(folder.path()) / "kv").string();
    crowded.swap_bytes = 256 << 10;
  }
  const auto taken = check_crowds(alone, crowded, 2, 36);
  CHECK(taken.cached_tokens > 0);
  CHECK(taken.accepted > 0);
  crowd_vocabulary = 695;
}

TEST_CASE("crowds whose attention sees chosen positions have the same bits with roles, a disk, and other memory") {
  const test::temp_folder folder;
  crowd_vocabulary = 640;
  const auto alone = without_guesses(test_data() + "/families/glm-moe-dsa", {"bf16", "int8", "int8"}, devices().back());
  auto crowded = alone;
  crowded.roles = "prefill:1,decode:1";
  crowded.kv_disk = (std::filesystem::path(folder.path()) / "kv").string();
  crowded.swap_bytes = 256 << 10;
  const auto taken = check_crowds(alone, crowded, 2, 36);
  CHECK(taken.moved > 0);
  CHECK(taken.adopted > 0);
  CHECK(taken.cached_tokens > 0);
  crowd_vocabulary = 695;
}

TEST_CASE("crowds of models with recurrent layers give every request the same bits as alone") {
  crowd_vocabulary = 640;
  std::uint64_t swapped_in = 0;
  for (const std::string model :
       {"families/qwen3-5", "families/qwen4-exp", "families/lfm2", "families/lfm3", "families/inkling",
        "families/granite-hybrid", "families/nemotron-h", "families/zamba2"})
    for (const auto& types : {numbers{"f32", "none", "auto"}, numbers{"bf16", "int8", "int8"}}) {
      CAPTURE(model);
      CAPTURE(types.quantize);
      const auto alone = without_guesses(test_data() + "/" + model, types, devices().back());
      auto crowded = alone;
      if (types.quantize == "int8")
        crowded.swap_bytes = 256 << 10;
      const auto taken = check_crowds(alone, crowded, 2);
      CHECK(taken.preemptions > 0);
      CHECK(taken.cached_tokens > 0);
      CHECK(taken.accepted > 0);
      CHECK(taken.pairs > 0);
      swapped_in += taken.swapped_in;
    }
  CHECK(swapped_in > 0);
  for (const std::string model : {"lfm2", "inkling", "zamba2"}) { // stages of the latter pass embeddings on
    CAPTURE(model);
    const auto alone = without_guesses(test_data() + "/families/" + model, {"bf16", "int8", "auto"}, devices().back());
    for (const auto change : {+[](engine_options& o) { o.stages = 2; }, +[](engine_options& o) { o.replicas = 2; },
                              +[](engine_options& o) { o.compute.tensor_parallel = 2; }}) {
      auto crowded = alone;
      change(crowded);
      CAPTURE(crowded.stages);
      CAPTURE(crowded.replicas);
      const unsigned blocks = crowded.stages == 1 ? 18 : 36; // a stage without attention has a layer of blocks to count
      CHECK(check_crowds(alone, crowded, 2, blocks).cached_tokens > 0);
    }
  }
  crowd_vocabulary = 695;
}

TEST_CASE("crowds of models with recurrent layers have the same bits with roles and a disk, also after restarts") {
  crowd_vocabulary = 640;
  for (const auto& [model, disk] : {std::pair("lfm2", false), std::pair("qwen4-exp", true), std::pair("inkling", false),
                                    std::pair("inkling", true)}) {
    CAPTURE(std::string(model));
    CAPTURE(disk);
    const test::temp_folder folder;
    const auto alone = without_guesses(test_data() + "/families/" + model, {"bf16", "int8", "int8"}, devices().back());
    auto crowded = alone;
    if (disk) {
      crowded.kv_disk = (std::filesystem::path(folder.path()) / "kv").string();
      crowded.stages = 2; // each with a part of the states
    } else {
      crowded.roles = "prefill:1,decode:1";
    }
    const auto first = check_crowds(alone, crowded, 2, 36);
    const auto again = check_crowds(alone, crowded, 2, 36);
    CHECK((disk || first.moved > 0));
    CHECK(first.adopted + again.adopted > 0);
    CHECK(first.states_adopted + again.states_adopted > 0);
  }
  crowd_vocabulary = 695;
}

TEST_CASE("crowds of sequences that cross borders of LongRoPE give every request the same bits as alone") {
  const auto model = [](const char* name) { return test_data() + "/families/" + name; };
  for (const auto& types : {numbers{"f32", "none", "auto"}, numbers{"bf16", "int8", "int8"}}) {
    CAPTURE(types.quantize);
    auto alone = without_guesses(model("phi3-longrope"), types, devices().back());
    alone.techniques["amateur"] = {model("phi4-longrope")}; // which has another border
    auto crowded = alone;
    crowded.techniques["draft"] = {model("phi4-longrope")};
    const auto taken = check_crowds(alone, crowded, 4, 36);
    CHECK(taken.preemptions > 0);
    CHECK(taken.cached_tokens > 0);
    CHECK(taken.drafts > 0);
    CHECK(taken.pairs > 0);
    CHECK(taken.contrasts > 0);
  }
}

TEST_CASE("crowds of a model whose MLPs' small inputs count as zero give every request the same bits as alone") {
  for (const char* dtype : {"f32", "bf16"}) {
    CAPTURE(dtype);
    auto options = without_guesses(golden("llama-gqa"), {dtype, "none", "auto"}, devices().back());
    options.compute.sparsity = "0.9:0.5";
    options.compute.attention_threshold = 0.02f;
    const auto taken = check_crowds(options, options, 2);
    CHECK(taken.preemptions > 0);
    CHECK(taken.accepted > 0);
  }
}

TEST_CASE("crowds whose guesses a draft model draws give every request the same bits as alone") {
  // A draft that is its target, and one that never agrees.
  for (const auto& [model, draft] : {std::pair{"llama-gqa", "llama-gqa"}, {"qwen3", "qwen2"}}) {
    CAPTURE(model);
    const auto alone = without_guesses(golden(model), {"bf16", "int8", "auto"}, devices().back());
    auto crowded = alone;
    crowded.techniques["draft"] = {golden(draft)};
    const auto taken = check_crowds(alone, crowded, 2, 36);
    CHECK(taken.drafts > 0);
    if (std::string(model) == draft)
      CHECK(taken.ahead > 0);
    CHECK(taken.trees > 0);
    CHECK(taken.preemptions > 0);
  }
}

TEST_CASE("crowds whose guesses branch give every request the same bits as alone") {
  struct layout {
    std::string model, dtype, kv_dtype;
    int ranks = 1, stages = 1;
    std::string amateur = {};
  };
  const auto family = [](const char* name) { return test_data() + "/families/" + name; };
  layout in{golden("llama-gqa"), "bf16", "auto"};
  SUBCASE("in bf16") {}
  SUBCASE("in f32") { in.dtype = "f32"; }
  SUBCASE("with K and V in int8, on two ranks") { in = {in.model, "bf16", "int8", 2, 1}; }
  SUBCASE("with K and V in fp8, in two stages") { in = {in.model, "bf16", "fp8", 1, 2}; }
  SUBCASE("of a model that chooses positions") { in = {family("deepseek-v32"), "bf16", "int8"}; }
  SUBCASE("of a model whose keys are compressed") { in = {family("deepseek-v4"), "bf16", "int8"}; }
  SUBCASE("of a model with short convolutions") { in.model = family("lfm2"); }
  SUBCASE("of a model with delta rules and n-grams, on two ranks") { in = {family("qwen4-exp"), "bf16", "auto", 2, 1}; }
  SUBCASE("of a model with convolutions beside attention, on two ranks") {
    in = {family("inkling"), "bf16", "int8", 2, 1};
  }
  SUBCASE("of a model with Mamba layers, in two stages") { in = {family("granite-hybrid"), "f32", "auto", 1, 2}; }
  SUBCASE("with an amateur") { in = {golden("qwen3"), "bf16", "auto", 1, 1, golden("qwen2")}; }
  const bool small = !in.model.starts_with(golden(""));
  crowd_vocabulary = small ? 640 : crowd_vocabulary;
  const auto branched = std::make_shared<std::atomic<int>>(0);
  auto alone = without_guesses(in.model, {in.dtype, "int8", in.kv_dtype}, devices().back());
  const test::temp_folder folder;
  if (in.model == golden("llama-gqa"))
    alone.techniques["lora"] = adapters_for(in.model, folder.path(), {"one", "two"});
  if (!in.amateur.empty())
    alone.techniques["amateur"] = {in.amateur};
  auto crowded = alone;
  crowded.compute.tensor_parallel = in.ranks;
  crowded.stages = in.stages;
  const auto taken = check_crowds(alone, crowded, 4, in.stages > 1 || !in.amateur.empty() ? 36 : 24, branched);
  crowd_vocabulary = 695;
  CHECK(taken.accepted > 0);
  CHECK(branched->load() > 0);
  CHECK((taken.adapted > 6) == alone.techniques.contains("lora"));
  CHECK((taken.contrasts > 6) == alone.techniques.contains("amateur"));
}

TEST_CASE("crowds of requests with and without a contrast give every request the same bits as alone") {
  for (const auto& types : {numbers{"f32", "none", "auto"}, numbers{"bf16", "int8", "int8"}}) {
    CAPTURE(types.quantize);
    auto alone = without_guesses(golden("qwen3"), types, devices().back());
    alone.techniques["amateur"] = {golden("qwen2")};
    auto crowded = alone;
    crowded.techniques["draft"] = {golden("qwen2")};
    const auto taken = check_crowds(alone, crowded, 2, 28);
    CHECK(taken.contrasts > 6);
    CHECK(taken.preemptions > 0);
    CHECK(taken.cached_tokens > 0);
    CHECK(taken.drafts > 0);
  }
}

TEST_CASE("crowds on two replicas give every request the same bits as alone on one") {
  const test::temp_folder folder;
  auto alone = without_guesses(golden("llama-gqa"), {"bf16", "int8", "auto"}, devices().back());
  alone.techniques["lora"] = adapters_for(golden("llama-gqa"), folder.path(), {"one", "two"});
  auto crowded = alone;
  crowded.replicas = 2;
  SUBCASE("with guesses of its own") {}
  SUBCASE("with a draft model") { crowded.techniques["draft"] = {golden("llama-gqa")}; }
  const auto taken = check_crowds(alone, crowded, 2, crowded.techniques.contains("draft") ? 36 : 18);
  CHECK(taken.adapted > 6);
  CHECK(taken.cached_tokens > 0);
  CHECK(taken.drafts > 0);
}

TEST_CASE("crowds whose prompts and answers are computed by different replicas have the bits of one alone") {
  const test::temp_folder folder;
  auto alone = without_guesses(golden("llama-gqa"), {"bf16", "int8", "auto"}, devices().back());
  alone.techniques["lora"] = adapters_for(golden("llama-gqa"), folder.path(), {"one", "two"});
  auto crowded = alone;
  crowded.roles = "prefill:1,decode:1";
  unsigned few_blocks = 18;
  SUBCASE("with guesses of their own") {}
  SUBCASE("with a draft model, and two replicas that decode") {
    crowded.techniques["draft"] = {golden("llama-gqa")};
    crowded.roles = "prefill:1,decode:2";
    few_blocks = 36;
  }
  SUBCASE("on two ranks each, with K and V in fp8") {
    alone.compute.kv_dtype = crowded.compute.kv_dtype = "fp8";
    crowded.compute.tensor_parallel = 2;
  }
  SUBCASE("in two stages each") { crowded.stages = 2; }
  SUBCASE("whose prefixes are kept on a disk, and in other memory, in fp8") {
    alone.compute.kv_dtype = crowded.compute.kv_dtype = "fp8";
    crowded.kv_disk = (std::filesystem::path(folder.path()) / "kv").string();
    crowded.swap_bytes = 256 << 10;
  }
  const auto taken = check_crowds(alone, crowded, 3, few_blocks);
  CHECK(taken.moved > 0);
  CHECK(taken.adopted > 0);
  CHECK(taken.adapted > 6);
  CHECK(taken.cached_tokens > 0);
}

TEST_CASE("crowds whose sequences cross borders of LongRoPE, or are contrasted, have the same bits with roles") {
  for (const bool crosses : {true, false}) {
    CAPTURE(crosses);
    const auto model = [](const char* name) { return test_data() + "/families/" + name; };
    auto alone = crosses ? without_guesses(model("phi3-longrope"), {"bf16", "int8", "int8"}, devices().back())
                         : without_guesses(golden("qwen3"), {"f32", "none", "auto"}, devices().back());
    alone.techniques["amateur"] = {crosses ? model("phi4-longrope") : golden("qwen2")};
    auto crowded = alone;
    crowded.roles = "prefill:1,decode:1";
    const auto taken = check_crowds(alone, crowded, 2, 36);
    CHECK(taken.moved > 0);
    CHECK(taken.contrasts > 0);
  }
}

TEST_CASE("crowds on two replicas of two ranks give every request the same bits as alone on one") {
  const auto alone = without_guesses(golden("llama-gqa"), {"bf16", "int8", "auto"}, devices().back());
  auto crowded = alone;
  crowded.replicas = crowded.compute.tensor_parallel = 2;
  const auto taken = check_crowds(alone, crowded, 2);
  CHECK(taken.cached_tokens > 0);
}

TEST_CASE("crowds whose prefixes are kept on a disk give every request the same bits as alone, also after restarts") {
  std::uint64_t swapped_in = 0;
  for (const bool contrasted : {false, true}) {
    CAPTURE(contrasted);
    auto name = (std::filesystem::temp_directory_path() / "troupe-crowds-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    auto alone = without_guesses(golden(contrasted ? "qwen3" : "llama-gqa"), {"bf16", "int8", "int8"},
                                 devices().back());
    if (contrasted)
      alone.techniques["amateur"] = {golden("qwen2")};
    auto crowded = alone;
    crowded.kv_disk = name;
    crowded.swap_bytes = 256 << 10;
    const unsigned blocks = contrasted ? 24 : 18;
    const auto first = check_crowds(alone, crowded, 2, blocks);
    crowded.stages = 2; // whose parts of blocks together are the same files
    const auto again = check_crowds(alone, crowded, 2, blocks);
    CHECK(first.kept > 0);
    CHECK(again.adopted > 0);
    swapped_in += first.swapped_in + again.swapped_in;
    std::filesystem::remove_all(name);
  }
  CHECK(swapped_in > 0);
}
