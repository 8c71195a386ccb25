// The rows that logits are contrasted with behind inner layers: what they are, and that no other row changes them.
#include "runtime/execution/device.hpp"
#include "runtime/model/measuring/last_states.hpp"
#include "runtime/techniques/dola/dola_rows.hpp"
#include "runtime/techniques/dola/technique.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

#include <map>

using namespace troupe;
using namespace troupe::test;

namespace {

const std::vector<token_id> text_of_dola{9, 200, 31, 77, 5, 640, 12, 300, 41, 8, 99, 150, 6, 71, 33, 510,
                                         2, 18,  90, 44, 7, 321, 65, 10,  58, 4, 83, 111, 3, 29, 66, 12};

/// A decoder of a model, its cache, and the rows of its steps.
struct contrasted_decoder {
  explicit contrasted_decoder(const std::string& model, dtype compute = dtype::f32, int threads = 1)
    : source(open(model)),
      backend(kernels::make_cpu_backend({.threads = threads})),
      graph(load_weights(*source.tensors, source.config, *backend, precision{compute}), *backend, 64, 128),
      cache(backend->make_kv_cache(kv_shape_of(source.config, precision{compute}, 32))),
      rows(graph, *backend) {}

  struct found_rows {
    std::vector<row_logits> logits;
    std::vector<std::vector<row_logits>> others; // of each logit row
  };

  /// `first` tokens of the text are in the cache; the next `count` are a step, all of whose rows have logits.
  found_rows step(std::size_t first, std::size_t count, const std::vector<layered_logits>& layered) {
    step_plan plan;
    plan.tokens.assign(text_of_dola.begin() + static_cast<std::ptrdiff_t>(first),
                       text_of_dola.begin() + static_cast<std::ptrdiff_t>(first + count));
    plan.sequences = {{0, static_cast<std::int32_t>(count), static_cast<std::int32_t>(first), 0}};
    plan.block_tables = {3, 1};
    plan.logit_rows.resize(count);
    std::iota(plan.logit_rows.begin(), plan.logit_rows.end(), 0);
    for (const auto& l : layered)
      plan.featured.push_back(
        {std::make_shared<const row_features>(row_features{.used = technique_uses(contrasted_with(l.layers))}), 0,
         l.logit_row, l.rows});
    const auto vocab = as_size(source.config.vocab);
    const auto memory = backend->allocate(count * vocab * sizeof(float));
    const kernels::tensor logits{memory.get(), dtype::f32, count, vocab, vocab};
    graph.forward(plan.tokens, {plan.sequences, plan.block_tables}, plan.logit_rows, *cache, logits, {}, {},
                  rows.keep(plan, nullptr));
    contrast_rows contrast{.of = decltype(contrast_rows::of)(count)};
    rows.contrast(plan, logits, contrast);
    CHECK(contrast.memory.empty() == layered.empty());
    found_rows found;
    for (std::size_t i = 0; i < count; ++i) {
      const auto* row = static_cast<const float*>(memory.get()) + i * vocab;
      found.logits.emplace_back(row, row + vocab);
      auto& others = found.others.emplace_back();
      for (const auto other : contrast.at(static_cast<std::int32_t>(i)))
        others.emplace_back(other.begin(), other.end());
    }
    return found;
  }

  model_source source;
  std::unique_ptr<kernels::backend> backend;
  decoder graph;
  std::unique_ptr<kernels::kv_cache> cache;
  dola_rows rows;
};

} // namespace

TEST_CASE("a row is contrasted with the head of the state behind a layer, without the last norm") {
  contrasted_decoder d("families/gemma2"); // whose logits are capped
  const auto count = text_of_dola.size();
  const auto states = last_states(d.graph, *d.backend, *d.cache, text_of_dola);
  for (int layer = 1; layer < d.source.config.layers; ++layer) {
    CAPTURE(layer);
    const auto found = d.step(0, count, {{static_cast<std::int32_t>(count) - 1, 1, dola_layers({layer})}});
    REQUIRE(found.others.back().size() == 1);
    CHECK(found.others.front().empty());
    auto state = states[as_size(layer - 1)];
    row_logits expected(as_size(d.source.config.vocab));
    d.graph.project({expected.data(), dtype::f32, 1, expected.size(), expected.size()},
                    {state.data(), dtype::f32, 1, state.size(), state.size()});
    CHECK(found.others.back().front() == expected);
    CHECK(std::ranges::all_of(expected, [](float x) { return std::abs(x) <= 30; }));
  }
}

TEST_CASE("of several layers each row has the farthest, with the same bits among others, in any chunks and threads") {
  for (const auto compute : {dtype::f32, dtype::bf16}) {
    CAPTURE(compute);
    contrasted_decoder d("golden/llama-gqa", compute), parallel("golden/llama-gqa", compute, 2);
    const auto count = text_of_dola.size();
    const auto last = static_cast<std::int32_t>(count);
    const auto together = d.step(0, count, {{0, last, dola_layers({0, 1, 2})}}); // more states than are taken at once
    std::map<int, contrasted_decoder::found_rows> by_layer;
    for (const int layer : {0, 1, 2})
      by_layer[layer] = d.step(0, count, {{0, last, dola_layers({layer})}});
    std::map<int, int> taken;
    for (std::size_t i = 0; i < count; ++i) {
      int farthest = 0;
      double most = -1;
      for (const auto& [layer, found] : by_layer)
        if (const double far = layer_divergence(normalised_row(together.logits[i]),
                                                normalised_row(found.others[i].front()));
            far > most)
          most = far, farthest = layer;
      ++taken[farthest];
      REQUIRE(together.others[i].size() == 1);
      CHECK(together.others[i].front() == by_layer[farthest].others[i].front());
    }
    CHECK(taken.size() > 1);
    for (auto* one : {&d, &parallel})
      for (const std::size_t chunk : {1, 7})
        for (std::size_t first = 0; first < count; first += chunk) {
          const auto size = std::min(chunk, count - first);
          std::vector<layered_logits> wanted{{static_cast<std::int32_t>(size) - 1, 1, dola_layers({0, 1, 2})}};
          if (size > 1 && first % 2 == 0) // beside another that looks at another layer
            wanted.push_back({0, 1, dola_layers({1})});
          const auto found = one->step(first, size, wanted);
          CHECK(found.others.back().front() == together.others[first + size - 1].front());
        }
  }
}

TEST_CASE("the memory of contrasted rows is bounded by the largest step, and part of a model's estimate") {
  const auto source = open("golden/llama-gqa");
  const auto& config = source.config; // 3 layers of 128, a vocabulary of 768
  const step_sizes sizes{256, 10, 1000, true};
  const std::size_t rows = 10 + 64;
  CHECK(dola_rows::memory(sizes, config, dtype::f32) == (rows + 32) * 768 * 4 + rows * 3 * 128 * 4);
  CHECK(dola_rows::memory({5, 10, 1000, true}, config, dtype::bf16) == (5 + 5) * 768 * 4 + 5 * 3 * 128 * 2);
  const auto device = open_device({.device = "cpu", .threads = 1}, nullptr);
  const auto backend = device->open();
  const auto need_of = [&](step_sizes of) {
    return estimate_memory(*source.tensors, config, {dtype::f32}, *device, *backend, of).steps();
  };
  auto without = sizes;
  without.looks_inside = false;
  CHECK(need_of(sizes) == need_of(without) + dola_rows::memory(sizes, config, dtype::f32));
}
