// The whole decoder over the CUDA backend, against the golden checkpoints.
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/decoder.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/support/json/json.hpp"
#include "tests/kernels/cuda/support.hpp"
#include "tests/runtime/checkpoint/fp8_test_data.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <cstdlib>
#include <filesystem>

using namespace troupe;
using namespace troupe::test;
using kernels::dtype;
namespace cuda = kernels::cuda;

namespace {

constexpr int max_rows = 512, max_context = 512, pool_blocks = 64;

struct engine {
  std::unique_ptr<cuda::cuda_backend> backend;
  std::shared_ptr<const model_weights> weights;
  decoder graph;
  std::unique_ptr<kernels::kv_cache> cache;
  kernels::buffer logits;

  engine(const model_source& source, precision precision, bool deterministic)
    : engine(*source.tensors, source.config, precision, deterministic) {}
  engine(const checkpoint& tensors, const model_config& config, precision precision, bool deterministic)
    : backend(cuda::make_cuda_backend({.deterministic = deterministic})),
      weights(load_weights(tensors, config, *backend, precision)),
      graph(weights, *backend, max_rows, positions_of(config)),
      cache(backend->make_kv_cache(kv_shape_of(config, precision, pool_blocks))),
      logits(backend->allocate(vocab() * max_rows * sizeof(float))) {}

  std::size_t vocab() const { return static_cast<std::size_t>(weights->config.vocab); }

  /// Learned positions end; others go on for ever.
  static int positions_of(const model_config& config) {
    return config.positions == position_type::learned ? std::min(max_context, config.max_context) : max_context;
  }

  /// The logits of some rows of the tokens, which start at position `first`, over blocks 0, 1, ...
  std::vector<float> step(const std::vector<token_id>& tokens, int first, const std::vector<std::int32_t>& wanted) {
    std::vector<std::int32_t> table((static_cast<std::size_t>(first) + tokens.size()) / kernels::block_tokens + 1);
    std::iota(table.begin(), table.end(), 0);
    const auto rows = static_cast<std::int32_t>(tokens.size());
    const kernels::sequence_rows who{0, rows, first, 0, first + rows};
    const kernels::tensor out{logits.get(), dtype::f32, wanted.size(), vocab(), vocab()};
    graph.forward(tokens, {{&who, 1}, table}, wanted, *cache, out);
    std::vector<float> result(wanted.size() * vocab());
    backend->download(result.data(), out);
    return result;
  }

  /// Of the last.
  std::vector<float> step(const std::vector<token_id>& tokens, int first) {
    return step(tokens, first, {static_cast<std::int32_t>(tokens.size()) - 1});
  }
};

/// tests/data: where the program was built, or where the environment says.
std::filesystem::path data_folder() {
  const char* elsewhere = std::getenv("TROUPE_TEST_DATA");
  return elsewhere ? elsewhere : test_data();
}

double root_mean_square(const std::vector<float>& v) {
  double sum = 0;
  for (const float x : v)
    sum += double(x) * x;
  return std::sqrt(sum / double(v.size()));
}

/// The bound of the CPU's decoder test: eight roundings a layer and two at the head, each of 2^-9 / sqrt(3), 3.5
/// deviations.
double bf16_rounding(const model_config& config) {
  return 0x1p-9 / std::sqrt(3.0) * std::sqrt(8.0 * config.layers + 2) * 3.5;
}

/// Checks the cases of a checkpoint, or only the first ones in the slow emulation.
void check(const std::string& model, dtype compute, bool deterministic, std::size_t emulated_cases = 2,
           std::size_t emulated_steps = 3, double more = 1) {
  CAPTURE(model);
  CAPTURE(deterministic);
  const auto folder = data_folder() / model;
  const auto source = open_model(folder.string());
  engine e(source, compute, deterministic);
  const auto document = json::document::load(folder / "expected.json");
  json::array cases;
  REQUIRE(!document.root()["cases"].get(cases));
  std::size_t left = cuda::testing::is_emulated() ? emulated_cases : 1000;
  for (json::value c : cases) {
    if (left-- == 0)
      break;
    const auto ids = list<token_id>(c["ids"]), greedy = list<token_id>(c["greedy"]["ids"]);
    const auto margins = list<double>(c["greedy"]["margins"]);
    const auto expected = list<float>(c["last_logits"]);
    auto logits = e.step(ids, 0);
    const double bound = compute == dtype::f32 ? 2e-4
                                               : more * bf16_rounding(source.config) * root_mean_square(expected);
    CHECK(largest_difference(logits, expected) < bound);
    const std::size_t steps = std::min(greedy.size(), cuda::testing::is_emulated() ? emulated_steps : 1000);
    for (std::size_t i = 0; i < steps; ++i) {
      const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
      CHECK((best == greedy[i] || margins[i] <= 5 * bound));
      logits = e.step({greedy[i]}, static_cast<int>(ids.size() + i));
    }
  }
}

/// Of families that need more than a Llama.
const std::vector<std::string> further_families{
  "afmoe",  "bloom",    "cohere2",       "cohere2-moe", "exaone-moe", "exaone4", "gemma2",       "gemma3",
  "gemma4", "glm4-moe", "glm4-moe-lite", "gpt-neox",    "gpt-oss",    "gpt2",    "granite",      "hy-v3",
  "llama4", "mellum",   "mimo-v2-flash", "step3p7",     "minicpm3",   "mixtral", "muse-glimmer", "nanochat",
  "olmo2",  "olmoe",    "opt",           "qwen3-moe",   "youtu"};
/// With recurrent layers.
const std::vector<std::string> recurrent_families{"granite-hybrid", "inkling", "lfm2",       "lfm3",
                                                  "nemotron-h",     "qwen3-5", "qwen3-next", "zamba2"};
const std::vector<std::string> tiny_recurrent_families{"bamba",
                                                       "falcon-h1",
                                                       "falcon-h1-normed",
                                                       "granite-hybrid-dense",
                                                       "kimi-linear",
                                                       "lfm2-adjusted",
                                                       "lfm2-moe",
                                                       "mamba2",
                                                       "nemotron-h-moe",
                                                       "qwen3-5-moe",
                                                       "olmo-hybrid",
                                                       "bailing-hybrid",
                                                       "mamba",
                                                       "falcon-mamba",
                                                       "jamba",
                                                       "zamba2"};
const std::vector<std::string> tiny_families{"apertus",
                                             "axk1",
                                             "arcee",
                                             "cohere",
                                             "cohere-normed",
                                             "deepseek-v2",
                                             "deepseek-v2-lite",
                                             "deepseek-v3",
                                             "deepseek-wide",
                                             "dots1",
                                             "ernie4.5-moe",
                                             "exaone4-full",
                                             "falcon",
                                             "falcon-alibi",
                                             "falcon-new",
                                             "gemma",
                                             "gemma3-scaled",
                                             "gemma3n",
                                             "gemma4",
                                             "gemma4-experts",
                                             "gemma4-keys",
                                             "glm4",
                                             "glm4-moe-grouped",
                                             "gpt-bigcode",
                                             "gpt-bigcode-heads",
                                             "gpt-neox-sequential",
                                             "gpt2-wide",
                                             "gptj",
                                             "granite-swa",
                                             "granitemoe",
                                             "hunyuan",
                                             "hunyuan-moe",
                                             "hy-v4",
                                             "internlm3",
                                             "laguna",
                                             "laguna-elements",
                                             "llama4",
                                             "longcat-flash",
                                             "minimax-m2",
                                             "minimax-m3",
                                             "ministral3",
                                             "mistral4",
                                             "mpt",
                                             "nemotron",
                                             "olmo3",
                                             "phi",
                                             "phimoe",
                                             "qwen2-moe",
                                             "stablelm",
                                             "stablelm-parallel",
                                             "starcoder2",
                                             "qwen3-vl-moe",
                                             "smallthinker",
                                             "solar-open"};

} // namespace

TEST_SUITE_BEGIN("cuda");

TEST_CASE("CUDA: golden checkpoints give transformers' logits and greedy tokens in f32") {
  for (const auto& model : golden_models)
    check("golden/" + model, dtype::f32, false);
}

TEST_CASE("CUDA: golden checkpoints in bf16 stay within the bounds of rounding, in both modes") {
  for (const auto& model : golden_models)
    for (const bool deterministic : {false, true})
      check("golden/" + model, dtype::bf16, deterministic);
}

TEST_CASE("CUDA: families give transformers' logits and greedy tokens in f32, and in bf16 within what rounding "
          "explains") {
  for (const auto& model : further_families) {
    check("families/" + model, dtype::f32, true, 1, 0);
    // Where two experts are nearly as good, rounding may swap them.
    const bool mixture = read_config(data_folder() / "families" / model).model.experts.count > 0;
    check("families/" + model, dtype::bf16, model != "gemma2", 1, 1, mixture ? 4 : 1);
  }
}

TEST_CASE("CUDA: families with recurrent layers give transformers' logits and greedy tokens in f32, and in bf16 within "
          "what rounding explains") {
  for (const auto& model : recurrent_families) {
    check("families/" + model, dtype::f32, true, 1, 2);
    // A state adds up the roundings of all positions before; where two experts are nearly as good, they may be swapped.
    check("families/" + model, dtype::bf16, true, 1, 1, model.starts_with("lfm") || model == "qwen3-5" ? 3 : 6);
  }
}

TEST_CASE("CUDA: families whose attention sees chosen positions, entries, or numbers for distances, give transformers' "
          "logits, with the same bits in chunks") {
  for (const std::string model :
       {"deepseek-v32", "glm-moe-dsa", "mistral-large4", "deepseek-v4", "qwen4-exp", "inkling"}) {
    CAPTURE(model);
    const auto source = open_model((data_folder() / "families" / model).string());
    const auto document = json::document::load(data_folder() / "families" / model / "expected.json");
    json::array cases;
    REQUIRE(!document.root()["cases"].get(cases));
    for (json::value c : cases) {
      const auto ids = list<token_id>(c["ids"]);
      if (ids.size() != 150 && (cuda::testing::is_emulated() || ids.size() < 150))
        continue;
      CAPTURE(ids.size());
      const auto expected = list<float>(c["last_logits"]);
      for (const auto compute : {dtype::f32, dtype::bf16}) {
        if (cuda::testing::is_emulated() && (compute == dtype::f32) == (model == "glm-moe-dsa"))
          continue; // slow
        engine e(source, compute, true);
        const bool in_parts = cuda::testing::is_emulated() &&
          (model == "qwen4-exp" || model == "inkling"); // alone, as their states do not go back
        std::vector<float> logits, last;
        if (!in_parts)
          logits = e.step(ids, 0);
        const int rows = static_cast<int>(ids.size());
        const bool few = cuda::testing::is_emulated() && model != "deepseek-v32";
        int first = few && !in_parts ? rows - 5 : 0; // or only the last ones
        for (const int end : {60, 61, 62, rows - 1, rows}) {
          if (end <= first)
            continue;
          last = e.step({ids.begin() + first, ids.begin() + end}, first);
          first = end;
        }
        const double bound = compute == dtype::f32 ? 2e-4
                                                   : 4 * bf16_rounding(source.config) * root_mean_square(expected);
        CHECK(largest_difference(last, expected) < bound);
        CHECK((in_parts || last == logits));
      }
    }
  }
}

TEST_CASE("CUDA: tiny families give transformers' logits at several positions in f32, at once and in chunks") {
  const bool few = cuda::testing::is_emulated();
  auto models = tiny_families;
  models.insert(models.end(), tiny_recurrent_families.begin(), tiny_recurrent_families.end());
  for (const auto& model : models) {
    CAPTURE(model);
    const auto folder = data_folder() / "tiny_families" / model;
    const auto source = open_model(folder.string());
    engine e(source, dtype::f32, true);
    const auto document = json::document::load(folder / "expected.json");
    auto ids = list<token_id>(document.root()["ids"]);
    auto positions = list<std::int32_t>(document.root()["positions"]);
    std::erase_if(positions, [&](int p) { return p >= (few ? 17 : source.config.max_context); });
    json::array expected;
    REQUIRE(!document.root()["logits"].get(expected));
    REQUIRE(positions.size() > 2);
    ids.resize(static_cast<std::size_t>(positions.back()) + 1);
    const auto half = ids.begin() + 11;
    const auto before = std::find_if(positions.begin(), positions.end(), [](int p) { return p >= 11; });
    auto got = e.step({ids.begin(), half}, 0, {positions.begin(), before});
    std::vector<std::int32_t> behind(before, positions.end());
    for (auto& p : behind)
      p -= 11;
    const auto rest = e.step({half, ids.end()}, 11, behind);
    got.insert(got.end(), rest.begin(), rest.end());
    std::vector<float> last;
    for (std::size_t i = 0; i < positions.size(); ++i) {
      CAPTURE(positions[i]);
      const auto first = got.begin() + static_cast<std::ptrdiff_t>(i * e.vocab());
      last.assign(first, first + static_cast<std::ptrdiff_t>(e.vocab()));
      CHECK(largest_difference(last, list<float>(expected.at(i))) < 2e-4);
    }
    const bool chooses = static_cast<bool>(source.config.indexer);
    if (!few || chooses || model == "gemma4" || model == "mistral4" || model == "qwen2-moe" || model == "falcon-alibi")
      CHECK(e.step(ids, 0) == last);
  }
}

TEST_CASE("CUDA: encoders, and a model that scores, give transformers' hidden states in f32") {
  for (const std::string model :
       {"bert", "xlm-roberta", "modernbert", "nomic", "jina-v3", "embedding-gemma", "qwen3-ranker"}) {
    CAPTURE(model);
    const auto folder = data_folder() / "tiny_encoders" / model;
    const auto source = open_model(folder.string());
    engine e(source, dtype::f32, true);
    const auto document = json::document::load(folder / "expected.json");
    const auto ids = list<token_id>(document.root()["ids"]);
    const auto positions = list<std::int32_t>(document.root()["positions"]);
    json::array expected;
    REQUIRE(!document.root()["hidden"].get(expected));
    const auto rows = static_cast<std::int32_t>(ids.size()),
               second = static_cast<std::int32_t>(std::int64_t(document.root()["second"]));
    const kernels::sequence_rows who{0, rows, 0, 0, rows, second};
    const auto width = static_cast<std::size_t>(source.config.hidden);
    const auto memory = e.backend->allocate(positions.size() * width * sizeof(float));
    const kernels::tensor states{memory.get(), dtype::f32, positions.size(), width, width};
    const std::int32_t table[] = {0, 1, 2, 3};
    e.graph.forward(ids, {{&who, 1}, table}, {}, *e.cache, {}, positions, states);
    std::vector<float> got(positions.size() * width);
    e.backend->download(got.data(), states);
    for (std::size_t i = 0; i < positions.size(); ++i) {
      CAPTURE(positions[i]);
      const auto first = got.begin() + static_cast<std::ptrdiff_t>(i * width);
      CHECK(largest_difference({first, first + static_cast<std::ptrdiff_t>(width)}, list<float>(expected.at(i))) <
            2e-4);
    }
  }
}

TEST_CASE("CUDA: an FP8 checkpoint stays within the bounds of rounding of its dequantised weights") {
  const auto source = open_model((data_folder() / "golden/llama-gqa").string());
  const troupe::test::fp8_view codes(*source.tensors);
  const troupe::test::expanded_view expanded(codes);
  const std::vector<token_id> prompt{1, 5, 9, 200, 3, 77};
  engine exact(expanded, source.config, dtype::f32, true);
  for (const auto kv : {kernels::kv_type::bf16, kernels::kv_type::int8, kernels::kv_type::fp8}) {
    CAPTURE(to_string(kv));
    engine e(codes, source.config, {dtype::bf16, kernels::quantization::none, kv}, true);
    CHECK(e.weights->bytes == estimate_memory(codes, source.config, dtype::bf16, *e.backend, {}).weights);
    for (const auto& [tokens, first] : {std::pair{prompt, 0}, {std::vector<token_id>{12}, int(prompt.size())}}) {
      const auto want = exact.step(tokens, first), got = e.step(tokens, first);
      // K and V in fp8 err by at most 2^-4, 16 times as much as in bf16, but in only two of the eight roundings.
      const double more = kv == kernels::kv_type::fp8 ? 8 : kv == kernels::kv_type::int8 ? 2 : 1;
      CHECK(largest_difference(got, want) < more * bf16_rounding(source.config) * root_mean_square(want));
    }
  }
}

TEST_SUITE_END();
