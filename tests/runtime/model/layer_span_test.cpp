// Models in parts: spans of layers run one after another give the bits of the whole.
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/model/tensor_names.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

#include <deque>
#include <set>

using namespace troupe;
using namespace troupe::test;

namespace {

/// The configurations of a model cut behind the given layers.
std::vector<model_config> cut(const model_config& whole, const std::vector<int>& behind) {
  std::vector<model_config> parts;
  int first = 0;
  for (std::size_t i = 0; i <= behind.size(); ++i) {
    const bool last = i == behind.size();
    const int end = last ? whole.layers : behind[i];
    parts.emplace_back(whole).span = layer_span{first, end, i == 0, last};
    first = end;
  }
  return parts;
}

/// One span with weights, cache and backend of its own.
struct stage {
  stage(const model_source& source, const model_config& config, precision as)
    : backend(kernels::make_cpu_backend({1})),
      weights(load_weights(*source.tensors, config, *backend, as)),
      graph(weights, *backend, 64, positions_of(config)),
      cache(backend->make_kv_cache(kv_shape_of(config, as, 8))) {}

  std::unique_ptr<kernels::backend> backend;
  std::shared_ptr<const model_weights> weights;
  decoder graph;
  std::unique_ptr<kernels::kv_cache> cache;
};

/// Logits of all rows, of a prompt in two chunks.
std::vector<row_logits> run(std::deque<stage>& stages, std::span<const token_id> tokens) {
  const auto vocab = static_cast<std::size_t>(stages.front().weights->config.vocab);
  const auto blocks = first_blocks(tokens.size());
  std::vector<row_logits> result;
  std::vector<float> logits(tokens.size() * vocab);
  for (std::size_t at = 0, rows = tokens.size() / 3; at < tokens.size(); at += rows, rows = tokens.size() - at) {
    const std::vector<kernels::sequence_rows> sequences{
      {0, static_cast<std::int32_t>(rows), static_cast<std::int32_t>(at), 0}};
    const kernels::batch who{sequences, blocks};
    for (std::size_t i = 0; i < stages.size(); ++i) {
      auto& s = stages[i];
      if (i == 0)
        s.graph.embed(tokens.subspan(at, rows), who);
      else
        s.graph.receive(stages[i - 1].graph.residual());
      s.graph.run(who, *s.cache);
    }
    std::vector<std::int32_t> wanted(rows);
    std::iota(wanted.begin(), wanted.end(), 0);
    stages.back().graph.conclude(wanted, {logits.data(), dtype::f32, rows, vocab, vocab});
    for (std::size_t r = 0; r < rows; ++r)
      result.emplace_back(logits.begin() + static_cast<std::ptrdiff_t>(r * vocab),
                          logits.begin() + static_cast<std::ptrdiff_t>((r + 1) * vocab));
  }
  return result;
}

const std::vector<std::string> models{"golden/llama-gqa",     "golden/llama-mha-tied", "golden/mistral-swa",
                                      "families/gpt2",        "families/gemma3",       "families/gpt-oss",
                                      "families/smollm3",     "tiny_families/phi",     "tiny_families/deepseek-v3",
                                      "tiny_families/glm4",   "families/qwen3-moe",    "families/zamba2",
                                      "tiny_families/zamba2", "families/inkling"};

} // namespace

TEST_CASE("a model in spans of layers gives the bits of the whole") {
  std::mt19937 random(1);
  for (const auto& name : models) {
    CAPTURE(name);
    const auto source = open(name);
    const auto tokens = random_tokens(random, 40, source.config.vocab);
    for (const precision as : {precision{dtype::f32}, precision{dtype::bf16, kernels::quantization::int8}}) {
      std::deque<stage> whole;
      whole.emplace_back(source, source.config, as);
      const auto expected = run(whole, tokens);
      std::vector<std::vector<int>> cuts{{1}};
      if (source.config.layers > 2)
        cuts.push_back({1, source.config.layers - 1});
      for (const auto& behind : cuts) {
        CAPTURE(behind.size());
        std::deque<stage> stages;
        for (const auto& part : cut(source.config, behind))
          stages.emplace_back(source, part, as);
        CHECK(run(stages, tokens) == expected);
      }
    }
  }
}

TEST_CASE("spans divide a model's tensors, KV cache and estimated memory among them") {
  for (const auto& name : models) {
    CAPTURE(name);
    const auto source = open(name);
    if (source.config.shared_blocks)
      continue; // each part that uses a block has it
    const auto backend = kernels::make_cpu_backend({1});
    const precision as{dtype::f32};
    std::multiset<std::string> found, all;
    std::size_t block = 0;
    for (const auto& part : cut(source.config, {1})) {
      for (const auto& w : tensor_names(part).all())
        found.insert(w.name);
      const auto estimate = estimate_memory(*source.tensors, part, as, *backend, {});
      CHECK(load_weights(*source.tensors, part, *backend, as)->bytes == estimate.weights);
      block += estimate.kv_block;
    }
    for (const auto& w : tensor_names(source.config).all())
      all.insert(w.name);
    if (source.config.tied) // the table embeds at one end and is the head at the other
      all.insert(tensor_names(source.config).embedding().name);
    CHECK(found == all);
    CHECK(block == estimate_memory(*source.tensors, source.config, as, *backend, {}).kv_block);
  }
}

TEST_CASE("a span refuses what belongs to another") {
  const auto source = open("golden/llama-gqa");
  std::deque<stage> stages;
  for (const auto& part : cut(source.config, {1}))
    stages.emplace_back(source, part, precision{dtype::f32});
  const std::vector<token_id> tokens{1, 2};
  const std::vector<kernels::sequence_rows> sequences{{0, 2, 0, 0}};
  const std::vector<std::int32_t> blocks{0};
  CHECK_THROWS_AS(stages[1].graph.embed(tokens, {sequences, blocks}), failure);
  stages[0].graph.embed(tokens, {sequences, blocks});
  CHECK_THROWS_AS(stages[0].graph.run({sequences, blocks}, *stages[1].cache), failure);
  const std::vector<std::int32_t> wanted{0};
  CHECK_THROWS_AS(stages[0].graph.conclude(wanted, {}), failure);
}
