// Steering against transformers with hooks (make_steering.py), and its schedule invariance in the decoder.
#include "runtime/model/measuring/last_states.hpp"
#include "runtime/techniques/steering/contrast.hpp"
#include "runtime/techniques/steering/steering_library.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

using namespace troupe;
using namespace troupe::test;

namespace {

const std::vector<std::string> steered_models{"golden/llama-gqa", "golden/qwen3", "families/opt"};

/// As in make_steering.py.
std::vector<float> test_direction(int layer, int hidden) {
  std::vector<float> values(as_size(hidden));
  for (int i = 0; i < hidden; ++i)
    values[as_size(i)] = static_cast<float>((layer * 7 + i * 13) % 11 - 5) / 8;
  return values;
}

std::shared_ptr<const steering> test_steering(const model_config& config, float strength, int first, int last) {
  auto result = std::make_shared<steering>();
  result->layers.resize(as_size(config.layers));
  result->checksum = 1;
  for (int layer = first; layer <= last; ++layer) {
    result->layers[as_size(layer)] = test_direction(layer, config.hidden);
    for (auto& value : result->layers[as_size(layer)])
      value *= strength;
  }
  return result;
}

/// A decoder with a cache, whose steps may be steered.
struct steered_decoder {
  explicit steered_decoder(const model_source& source, int threads = 1, dtype compute = dtype::f32, int most_rows = 64)
    : backend(kernels::make_cpu_backend({.threads = threads})),
      graph(load_weights(*source.tensors, source.config, *backend, precision{compute}), *backend, most_rows,
            std::min(256, source.config.max_context)),
      cache(backend->make_kv_cache(kv_shape_of(source.config, precision{compute}, 32))),
      vocab(as_size(source.config.vocab)) {}

  /// The logits of all rows.
  std::vector<row_logits> step(const std::vector<chunk>& chunks,
                               const std::vector<std::shared_ptr<const steering>>& by) {
    std::vector<token_id> tokens;
    std::vector<std::int32_t> tables, wanted;
    std::vector<kernels::sequence_rows> sequences;
    std::vector<steered_rows> steered;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const auto& c = chunks[i];
      const auto first = static_cast<std::int32_t>(tokens.size()), rows = static_cast<std::int32_t>(c.tokens.size());
      sequences.push_back({first, rows, c.first_position, static_cast<std::int32_t>(tables.size())});
      if (by[i])
        steered.push_back({by[i], first, rows});
      tokens.insert(tokens.end(), c.tokens.begin(), c.tokens.end());
      tables.insert(tables.end(), c.blocks.begin(), c.blocks.end());
    }
    wanted.resize(tokens.size());
    std::iota(wanted.begin(), wanted.end(), 0);
    const auto memory = backend->allocate(wanted.size() * vocab * sizeof(float));
    graph.forward(tokens, {sequences, tables}, wanted, *cache, {memory.get(), dtype::f32, wanted.size(), vocab, vocab},
                  {}, {}, steer(*backend, steered));
    std::vector<row_logits> result;
    for (std::size_t r = 0; r < wanted.size(); ++r) {
      const auto* row = static_cast<const float*>(memory.get()) + r * vocab;
      result.emplace_back(row, row + vocab);
    }
    return result;
  }

  std::unique_ptr<kernels::backend> backend;
  decoder graph;
  std::unique_ptr<kernels::kv_cache> cache;
  std::size_t vocab;
};

} // namespace

TEST_CASE("Logits of steered prompts are transformers' with the same hooks") {
  const auto document = json::document::load(data() / "steering.json");
  for (const auto& model : steered_models) {
    CAPTURE(model);
    const auto source = open(model);
    steered_decoder d(source);
    json::array cases;
    REQUIRE(!document.root()[model]["steered"].get(cases));
    for (json::value c : cases) {
      const auto ids = list<token_id>(c["ids"]);
      const auto strength = static_cast<float>(double(c["strength"]));
      const auto first = static_cast<int>(std::int64_t(c["first"])), last = static_cast<int>(std::int64_t(c["last"]));
      CAPTURE(strength);
      const auto by = test_steering(source.config, strength, first, last);
      const auto expected = list<float>(c["last_logits"]);
      CHECK(largest_difference(d.step({{ids, 0, first_blocks(ids.size())}}, {by}).back(), expected) < 2e-4);
      CHECK(largest_difference(d.step({{ids, 0, first_blocks(ids.size())}}, {nullptr}).back(), expected) > 1e-2);
    }
  }
}

TEST_CASE("Hidden states behind layers, and what sets two lists of prompts apart, are transformers' and numpy's") {
  const auto document = json::document::load(data() / "steering.json");
  for (const auto& model : steered_models) {
    CAPTURE(model);
    const auto source = open(model);
    steered_decoder d(source);
    const json::value about = document.root()[model]["contrast"];
    std::vector<layer_states> sides[2];
    for (int side = 0; side < 2; ++side) {
      sides[side].resize(as_size(source.config.layers));
      json::array prompts;
      REQUIRE(!about[side == 0 ? "positive" : "negative"].get(prompts));
      for (json::value prompt : prompts) {
        auto states = last_states(d.graph, *d.backend, *d.cache, list<token_id>(prompt));
        for (std::size_t layer = 0; layer < states.size(); ++layer)
          sides[side][layer].push_back(std::move(states[layer]));
      }
    }
    for (const auto method : {contrast_method::mean, contrast_method::pca}) {
      std::size_t layer = 0;
      json::array layers;
      REQUIRE(!about[method == contrast_method::mean ? "mean" : "pca"].get(layers));
      for (json::value expected : layers) {
        CAPTURE(layer);
        const auto found = contrast(method, sides[0][layer], sides[1][layer]);
        CHECK(largest_difference(found, list<float>(expected)) < 1e-4);
        ++layer;
      }
      CHECK(layer == as_size(source.config.layers));
    }
  }
}

TEST_CASE("A prompt in chunks has the same last states") {
  const auto source = open("golden/llama-gqa");
  steered_decoder whole(source);
  std::mt19937 random(3);
  const auto prompt = random_tokens(random, 150, source.config.vocab); // three chunks of at most 64 rows
  const auto states = last_states(whole.graph, *whole.backend, *whole.cache, prompt);
  steered_decoder once(source, 1, dtype::f32, 256);
  CHECK(states == last_states(once.graph, *once.backend, *once.cache, prompt));
  CHECK(failure_of([&] { last_states(once.graph, *once.backend, *once.cache, {}); }) ==
        "a prompt has 0 tokens, not 1 to 256");
}

TEST_CASE("Steered rows and others do not change each other's bits, in any chunks and on any threads") {
  const auto source = open("golden/llama-gqa");
  std::mt19937 random(11);
  const std::vector<std::shared_ptr<const steering>> by{test_steering(source.config, 0.5f, 0, 2), nullptr,
                                                        test_steering(source.config, -2, 1, 1),
                                                        test_steering(source.config, 0.5f, 0, 2)};
  for (const auto compute : {dtype::f32, dtype::bf16}) {
    std::vector<std::vector<token_id>> prompts;
    std::vector<std::vector<row_logits>> alone;
    for (std::size_t i = 0; i < by.size(); ++i) {
      prompts.push_back(random_tokens(random, 13 + 9 * i, source.config.vocab));
      steered_decoder d(source, 1, compute);
      alone.push_back(d.step({{prompts.back(), 0, first_blocks(prompts.back().size())}}, {by[i]}));
    }
    for (int threads = 1; threads <= 3; ++threads) {
      steered_decoder d(source, threads, compute);
      std::vector<std::size_t> done(by.size());
      bool equal = true;
      for (bool working = true; working;) {
        std::vector<chunk> chunks;
        std::vector<std::shared_ptr<const steering>> whose;
        std::vector<std::size_t> which;
        for (std::size_t i = 0; i < by.size(); ++i) {
          const auto rows = std::min<std::size_t>(1 + random() % 6, prompts[i].size() - done[i]);
          if (rows == 0)
            continue;
          const auto from = prompts[i].begin() + static_cast<std::ptrdiff_t>(done[i]);
          chunks.push_back({{from, from + static_cast<std::ptrdiff_t>(rows)},
                            static_cast<int>(done[i]),
                            first_blocks(prompts[i].size(), static_cast<std::int32_t>(8 * i))});
          whose.push_back(by[i]);
          which.push_back(i);
        }
        working = !chunks.empty();
        if (!working)
          break;
        const auto got = d.step(chunks, whose);
        std::size_t row = 0;
        for (std::size_t k = 0; k < chunks.size(); ++k)
          for (std::size_t r = 0; r < chunks[k].tokens.size(); ++r, ++row)
            equal = equal && got[row] == alone[which[k]][done[which[k]]++];
      }
      CHECK(equal);
    }
  }
}
