// Adapters in the decoder against the same model with its matrices merged, and their schedule invariance.
#include "runtime/checkpoint/weight_values.hpp"
#include "runtime/model/measuring/forwarding_backend.hpp"
#include "runtime/model/model_products.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/techniques/adapters/adapter_library.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

#include <map>

using namespace troupe;
using namespace troupe::test;

namespace {

/// Of rank `rank` for those projections of the target that `which` has.
adapter_weights random_adapter(const model_products& target, unsigned seed, std::size_t rank, unsigned which = 0x7f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> values(0, 0.15f);
  adapter_weights result;
  result.layers.resize(target.layers.size());
  for (std::size_t i = 0; i < target.layers.size(); ++i)
    for (std::size_t p = 0; p < projection_count; ++p) {
      const auto& [outputs, inputs] = target.layers[i][p];
      if (outputs == 0 || (which >> p & 1) == 0)
        continue;
      auto& to = result.layers[i][p];
      to.rank = rank + p % 3;
      to.a.resize(to.rank * inputs);
      to.b.resize(outputs * to.rank);
      std::ranges::generate(to.a, [&] { return values(random); });
      std::ranges::generate(to.b, [&] { return values(random); });
    }
  return result;
}

/// A checkpoint with an adapter's products added to its matrices, in f32.
class merged_checkpoint final : public checkpoint {
public:
  merged_checkpoint(const checkpoint& base, const model_config& config, const adapter_weights& adapter) : base_(base) {
    const tensor_names names(config);
    for (int i = 0; i < config.layers; ++i) {
      const auto& layer = adapter.layers[as_size(i)];
      auto all = names.qkv(i);
      if (config.latent)
        all = {{"", {}}, {"", {}}, {"", {}}};
      all.push_back(names.o(i).front());
      if (config.gated)
        all.push_back(names.gate_up(i).front());
      else
        all.push_back({"", {}});
      all.push_back(names.gate_up(i).back());
      all.push_back(names.down(i).front());
      for (std::size_t p = 0; p < projection_count; ++p)
        if (layer[p].rank > 0)
          merge(all[p], layer[p]);
    }
  }

  std::string name() const override { return base_.name(); }
  std::vector<std::string> tensors() const override { return base_.tensors(); }
  const tensor_info* find(std::string_view tensor) const override {
    const auto found = merged_.find(tensor);
    return found == merged_.end() ? base_.find(tensor) : &found->second.info;
  }
  tensor_data read(std::string_view tensor) const override {
    const auto found = merged_.find(tensor);
    return found == merged_.end() ? base_.read(tensor) : found->second.data;
  }
  std::string where(std::string_view tensor) const override { return base_.where(tensor); }

private:
  struct merged {
    tensor_info info;
    tensor_data data;
  };

  void merge(const wanted_tensor& w, const low_rank& by) {
    const auto& info = *base_.find(w.name);
    const auto stored = base_.read(w.name);
    const auto rows = w.shape[0], cols = w.shape[1];
    auto values = std::make_shared<std::vector<float>>(rows * cols);
    for (std::size_t r = 0; r < rows; ++r) {
      to_floats(*weight_format_of(info.type), static_cast<const char*>(stored.get()) + r * (info.bytes / rows), cols,
                &(*values)[r * cols]);
      for (std::size_t c = 0; c < cols; ++c) {
        double sum = 0;
        for (std::size_t k = 0; k < by.rank; ++k)
          sum += double(by.b[r * by.rank + k]) * by.a[k * cols + c];
        (*values)[r * cols + c] += static_cast<float>(sum);
      }
    }
    merged_[w.name] = {{tensor_type::f32, w.shape, rows * cols * sizeof(float)}, {values, values->data()}};
  }

  const checkpoint& base_;
  std::map<std::string, merged, std::less<>> merged_;
};

/// A decoder with a cache, whose rows may have adapters.
struct adapted_decoder {
  explicit adapted_decoder(const checkpoint& tensors, const model_config& config, int threads = 1,
                           precision how = precision{dtype::f32})
    : backend(kernels::make_cpu_backend({.threads = threads})),
      graph(load_weights(tensors, config, *backend, how), *backend, 256, std::min(256, config.max_context)),
      cache(backend->make_kv_cache(kv_shape_of(config, precision{how.compute}, 64))),
      vocab(as_size(config.vocab)) {}

  /// The logits of all rows.
  std::vector<row_logits> step(const std::vector<chunk>& chunks,
                               const std::vector<std::shared_ptr<const packed_adapter>>& by) {
    std::vector<token_id> tokens;
    std::vector<std::int32_t> tables, wanted;
    std::vector<kernels::sequence_rows> sequences;
    std::vector<added_rows> adapted;
    for (std::size_t i = 0; i < chunks.size(); ++i) {
      const auto& c = chunks[i];
      const auto first = static_cast<std::int32_t>(tokens.size()), rows = static_cast<std::int32_t>(c.tokens.size());
      sequences.push_back({first, rows, c.first_position, static_cast<std::int32_t>(tables.size())});
      if (by[i])
        adapted.push_back({by[i].get(), first, rows});
      tokens.insert(tokens.end(), c.tokens.begin(), c.tokens.end());
      tables.insert(tables.end(), c.blocks.begin(), c.blocks.end());
    }
    wanted.resize(tokens.size());
    std::iota(wanted.begin(), wanted.end(), 0);
    const auto memory = backend->allocate(wanted.size() * vocab * sizeof(float));
    added_products added(adapted);
    graph.forward(tokens, {sequences, tables}, wanted, *cache, {memory.get(), dtype::f32, wanted.size(), vocab, vocab},
                  {}, {}, {}, added.empty() ? nullptr : &added);
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

std::shared_ptr<const packed_adapter> packed_for(const adapter_weights& weights, const model_products& target,
                                                 dtype compute) {
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  return std::make_shared<const packed_adapter>(pack_adapter(weights, target, *backend, compute));
}

} // namespace

TEST_CASE("The order of q and k in files of adapters is that of their own format, wherever the model comes from") {
  auto config = open("tiny_families/glm").config;
  const auto glm = products_of(config);
  CHECK(glm.family_pairs);
  CHECK(glm.pair_order == rotated_order(config.rope, config.head_dim));
  config = open("golden/llama-gqa").config;
  config.family = "granite";
  for (const bool from_gguf : {false, true}) { // whose files pair neighbours, as GGUF adapters do
    config.rope.interleaved = from_gguf;
    const auto granite = products_of(config);
    CHECK(!granite.family_pairs);
    CHECK(granite.half_order.empty());
    REQUIRE(granite.pair_order.size() == as_size(config.head_dim));
    CHECK(granite.pair_order[1] == 2);
  }
}

TEST_CASE("Models with latent attention take adapters of its output and of dense MLPs") {
  for (const auto* model : {"deepseek-v2", "deepseek-v2-lite", "deepseek-v3"}) {
    CAPTURE(model);
    const auto source = open(std::string("tiny_families/") + model);
    const auto& config = source.config;
    const auto target = products_of(config);
    const auto shape = [&](projection which) { return target.layers[0][static_cast<std::size_t>(which)]; };
    for (const auto which : {projection::q, projection::k, projection::v})
      CHECK(shape(which).outputs == 0);
    CHECK(shape(projection::o).inputs == as_size(config.heads) * as_size(config.latent.value));
    CHECK(shape(projection::o).outputs == as_size(config.hidden));
  }
}

TEST_CASE("Logits of adapted rows are those of a model with merged matrices; rows without adapters are the base's") {
  for (const auto* model : {"golden/llama-gqa", "golden/qwen3", "families/gemma2", "families/opt", "families/granite",
                            "tiny_families/glm", "tiny_families/deepseek-v2"}) {
    CAPTURE(model);
    const auto source = open(model);
    const auto target = products_of(source.config);
    std::mt19937 random(5);
    const auto prompt = random_tokens(random, 21, source.config.vocab);
    const auto blocks = first_blocks(prompt.size());
    adapted_decoder d(*source.tensors, source.config);
    const auto base = d.step({{prompt, 0, blocks}}, {nullptr});
    // All projections; q and down; only up (and half of gate and up); two adapters that differ in parts, and the base.
    std::vector<std::shared_ptr<const packed_adapter>> packed;
    std::vector<std::vector<row_logits>> expected;
    for (const unsigned which : {0x7fu, 0x41u, 0x20u, 0x7fu}) {
      const auto seed = static_cast<unsigned>(packed.size());
      const auto adapter = random_adapter(target, seed + 1, 3 + 7 * seed, which);
      packed.push_back(packed_for(adapter, target, dtype::f32));
      const merged_checkpoint merged(*source.tensors, source.config, adapter);
      adapted_decoder reference(merged, source.config);
      expected.push_back(reference.step({{prompt, 0, blocks}}, {nullptr}));
    }
    packed.push_back(nullptr);
    expected.push_back(base);
    std::vector<chunk> chunks;
    for (std::size_t i = 0; i < packed.size(); ++i)
      chunks.push_back({prompt, 0, first_blocks(prompt.size(), static_cast<std::int32_t>(i * blocks.size()))});
    const auto together = d.step(chunks, packed);
    for (std::size_t i = 0; i < packed.size(); ++i) {
      CAPTURE(i);
      const auto& row = together[(i + 1) * prompt.size() - 1];
      const auto size = root_mean_square(expected[i].back());
      CHECK(largest_difference(row, expected[i].back()) < 1e-4 * std::max(size, 1.0));
      if (packed[i] && packed[i]->bytes > 0) // latent attention and experts take no adapters
        CHECK(largest_difference(row, base.back()) > 1e-2 * size);
      else
        CHECK(row == base.back());
    }
  }
}

TEST_CASE("Rows of different adapters do not change each other's bits, in any chunks and on any threads") {
  const auto source = open("golden/llama-gqa");
  const auto target = products_of(source.config);
  std::mt19937 random(11);
  for (const auto how :
       {precision{dtype::f32}, precision{dtype::bf16}, precision{dtype::f32, kernels::quantization::int8},
        precision{dtype::bf16, kernels::quantization::int4}, precision{dtype::bf16, kernels::quantization::fp8}}) {
    const auto one = packed_for(random_adapter(target, 1, 4), target, how.compute);
    const std::vector<std::shared_ptr<const packed_adapter>> by{
      one, nullptr, packed_for(random_adapter(target, 2, 17, 0x35), target, how.compute), one,
      packed_for(random_adapter(target, 3, 5), target, how.compute)};
    std::vector<std::vector<token_id>> prompts;
    std::vector<std::vector<row_logits>> alone;
    for (std::size_t i = 0; i < by.size(); ++i) {
      prompts.push_back(random_tokens(random, 13 + 9 * i, source.config.vocab));
      adapted_decoder d(*source.tensors, source.config, 1, how);
      alone.push_back(d.step({{prompts.back(), 0, first_blocks(prompts.back().size())}}, {by[i]}));
    }
    for (int threads = 1; threads <= 3; ++threads) {
      adapted_decoder d(*source.tensors, source.config, threads, how);
      std::vector<std::size_t> done(by.size());
      bool equal = true;
      for (;;) {
        std::vector<chunk> chunks;
        std::vector<std::shared_ptr<const packed_adapter>> whose;
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
        if (chunks.empty())
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

TEST_CASE("A decoder whose backend cannot add to products refuses rows that ask for it") {
  const auto source = open("golden/llama-gqa");
  const auto inner = kernels::make_cpu_backend({.threads = 1});
  forwarding_backend backend(*inner);
  decoder graph(load_weights(*source.tensors, source.config, backend, precision{dtype::f32}), backend, 8, 8);
  const auto cache = backend.make_kv_cache(kv_shape_of(source.config, precision{dtype::f32}, 1));
  const auto target = products_of(source.config);
  const auto adapter = packed_for(random_adapter(target, 1, 4), target, dtype::f32);
  const std::vector<token_id> tokens{5};
  const std::vector<kernels::sequence_rows> sequences{{0, 1, 0, 0}};
  const std::vector<std::int32_t> tables{0};
  const std::vector<added_rows> rows{{adapter.get(), 0, 1}};
  added_products added(rows);
  CHECK(failure_of([&] {
          graph.forward(tokens, {sequences, tables}, {}, *cache, {}, {}, {}, {}, &added);
        }).find("products that nothing can be added to") != std::string::npos);
  CHECK(failure_of([&] { graph.forward(tokens, {sequences, tables}, {}, *cache, {}); }).empty());
}
