#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/engine/loading/weight_loading.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/decoder.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "runtime/model/tensor_names.hpp"
#include "runtime/support/json/json.hpp"
#include "tests/runtime/model/decoder_checks.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>

using namespace troupe;
using namespace troupe::test;
using kernels::dtype;
using kernels::isa;

TEST_CASE("Golden checkpoints: logits, greedy tokens and log-probabilities are transformers', in f32 on every target") {
  for (const auto& model : golden_models)
    for (const isa target : targets()) {
      check_golden("golden/" + model, target);
    }
}

TEST_CASE("Golden checkpoints: computed in bf16, logits stay within what rounding explains") {
  for (const auto& model : golden_models)
    for (const isa target : targets())
      check_bf16(open("golden/" + model), "golden/" + model, target);
}

TEST_CASE(
  "Tiny checkpoints: biases, windows by layer, odd head sizes, rope scaling and shards give transformers' logits") {
  for (const auto& model : tiny_models)
    for (const isa target : targets()) {
      const auto source = open("tiny/" + model);
      CHECK(check_tensors(*source.tensors, source.config).empty());
      check_tiny(source, "tiny/" + model, target);
    }
}

TEST_CASE("Logits do not depend on chunks, neighbours, block tables, shared prefixes, rejected rows or threads") {
  std::mt19937 random(7);
  for (const auto& model : golden_models)
    for (const isa target : targets())
      for (const dtype compute : {dtype::f32, dtype::bf16})
        check_schedules("golden/" + model, target, compute, random);
}

namespace {

precision with_sparsity(dtype compute, mlp_sparsity shares) {
  precision result{compute};
  result.sparsity = shares;
  return result;
}

} // namespace

TEST_CASE("Logits where small inputs of MLPs count as zero do not depend on the schedule") {
  std::mt19937 random(8);
  for (const isa target : targets())
    for (const dtype compute : {dtype::f32, dtype::bf16})
      for (const mlp_sparsity shares : {mlp_sparsity{0.9f, 0}, mlp_sparsity{0.8f, 0.5f}})
        check_schedules("golden/llama-gqa", target, with_sparsity(compute, shares), random);
  for (const std::string model :
       {"families/opt", "golden/qwen3", "tiny_families/phi"}) // phi's MLPs share their norm with attention
    check_schedules(model, targets().back(), with_sparsity(dtype::bf16, {0.7f, 0.7f}), random);
  auto in_fp8 = with_sparsity(dtype::bf16, {0.8f, 0.5f});
  in_fp8.weights = kernels::quantization::fp8;
  check_schedules("golden/llama-gqa", targets().back(), in_fp8, random);
}

TEST_CASE("Logits of quantised models with ReLU do not depend on the schedule") {
  std::mt19937 random(10);
  for (const isa target : targets())
    for (const auto how : {kernels::quantization::int8, kernels::quantization::int4, kernels::quantization::fp8})
      check_schedules("families/opt", target, precision{dtype::bf16, how}, random);
}

TEST_CASE("Logits where small weights of attention count as zero do not depend on the schedule") {
  std::mt19937 random(12);
  for (const isa target : targets())
    for (const auto& model : {"golden/llama-gqa", "golden/mistral-swa", "tiny_families/falcon-alibi"}) {
      precision as{target == targets().back() ? dtype::bf16 : dtype::f32};
      as.attention_threshold = 0.02f;
      check_schedules(model, target, as, random);
    }
}

TEST_CASE("The more inputs of MLPs count as zero, the further logits are from the exact ones") {
  const auto source = open("golden/llama-gqa");
  std::mt19937 random(9);
  const auto tokens = random_tokens(random, 40, source.config.vocab);
  for (const dtype compute : {dtype::f32, dtype::bf16}) {
    const auto logits = [&](float down, float up) {
      return engine(source, targets().back(), 1, with_sparsity(compute, {down, up}))
        .step({{tokens, 0, first_blocks(tokens.size())}}, true)
        .front();
    };
    const auto exact = logits(0, 0);
    double only_down = 0, only_up = 0;
    for (const float share : {0.1f, 0.5f, 0.9f}) {
      const double down = largest_difference(logits(share, 0), exact), up = largest_difference(logits(0, share), exact);
      CHECK(down > only_down);
      CHECK(up > only_up);
      only_down = down;
      only_up = up;
    }
  }
}

TEST_CASE("Sparsity is refused where it would skip nothing") {
  const auto told = [](const model_source& source, precision as) {
    return failure_of([&] { engine(source, targets().back(), 1, as); });
  };
  auto quantised = with_sparsity(dtype::bf16, {0.5f, 0});
  quantised.weights = kernels::quantization::int8;
  CHECK(told(open("golden/llama-gqa"), quantised) ==
        "`sparsity` skips nothing in weights that are quantised to int8: their inputs are rounded in groups");
  CHECK(told(open("families/mixtral"), with_sparsity(dtype::f32, {0, 0.5f}))
          .starts_with("`sparsity` is not for mixtures of experts, of which this model has "));
  const auto blocks = open("gguf/llama3-q8_0.gguf");
  CHECK(told(blocks, with_sparsity(dtype::bf16, {0.5f, 0})) ==
        "`sparsity` skips nothing in weights in blocks, as model.layers.0.mlp.gate_proj.weight is in Q8_0: their "
        "inputs are rounded in groups");
  CHECK_NOTHROW(engine(blocks, targets().back(), 1, with_sparsity(dtype::bf16, {})));
}

namespace {

/// A checkpoint with one tensor changed or hidden.
class altered final : public checkpoint {
public:
  altered(const checkpoint& base, std::string name, std::optional<tensor_info> info)
    : base_(base), name_(std::move(name)), info_(std::move(info)) {}

  std::string name() const override { return base_.name(); }
  std::vector<std::string> tensors() const override {
    auto names = base_.tensors();
    std::erase(names, name_);
    if (info_)
      names.push_back(name_);
    return names;
  }
  const tensor_info* find(std::string_view tensor) const override {
    if (tensor == name_)
      return info_ ? &*info_ : nullptr;
    return base_.find(tensor);
  }
  tensor_data read(std::string_view tensor) const override { return base_.read(tensor); }
  std::string where(std::string_view) const override { return "m.safetensors"; }

private:
  const checkpoint& base_;
  std::string name_;
  std::optional<tensor_info> info_;
};

} // namespace

TEST_CASE("Tensors that are missing, misshaped or of an unsupported type are refused by name before any is read") {
  const auto source = open("golden/qwen2");
  const auto said = [&](const std::string& tensor, std::optional<tensor_info> info) {
    const altered changed(*source.tensors, tensor, std::move(info));
    const auto checked = failure_of([&] { check_tensors(changed, source.config); });
    const auto backend = kernels::make_cpu_backend({.threads = 1});
    bool read = false;
    CHECK(failure_of([&] {
            load_weights(changed, source.config, *backend, dtype::f32, [&](auto, auto) { read = true; });
          }) == checked);
    CHECK(!read);
    return checked;
  };
  CHECK(said("model.layers.1.mlp.down_proj.weight", {}) ==
        "m.safetensors: tensor `model.layers.1.mlp.down_proj.weight` is missing, expected with the shape [112, 304]");
  CHECK(said("model.layers.0.self_attn.k_proj.bias", {}) ==
        "m.safetensors: tensor `model.layers.0.self_attn.k_proj.bias` is missing, expected with the shape [16]");
  CHECK(said("model.norm.weight", tensor_info{tensor_type::f32, {111}, 444}) ==
        "m.safetensors: tensor `model.norm.weight` has the shape [111], expected [112]");
  CHECK(said("model.embed_tokens.weight", tensor_info{tensor_type::f32, {112, 720}, 0}) ==
        "m.safetensors: tensor `model.embed_tokens.weight` has the shape [112, 720], expected [720, 112]");
  CHECK(said("model.norm.weight", tensor_info{tensor_type::f8_e4m3, {112}, 112}) ==
        "m.safetensors: tensor `model.norm.weight` is stored as F8_E4M3, supported are F32, F16 and BF16");
}

TEST_CASE("A load reports its progress to the end, can be cancelled, and needs the estimated memory") {
  using kernels::quantization;
  const precision all[] = {dtype::f32,
                           dtype::bf16,
                           {dtype::f32, quantization::int8},
                           {dtype::bf16, quantization::int4},
                           {dtype::bf16, quantization::fp8}};
  for (const auto& model : golden_models)
    for (const auto& compute : all) {
      CAPTURE(model);
      const auto source = open("golden/" + model);
      const auto backend = kernels::make_cpu_backend({.threads = 1});
      std::size_t last = 0, total = 0;
      const auto weights = load_weights(*source.tensors, source.config, *backend, compute, [&](auto done, auto all) {
        CHECK(done > last);
        CHECK((total == 0 || all == total));
        last = done;
        total = all;
      });
      CHECK(last == total);
      const auto need = estimate_memory(*source.tensors, source.config, compute, *backend, {64, 1, 256});
      CHECK(weights->bytes == need.weights);
      CHECK(need.kv_block == kv_shape_of(source.config, compute.compute, 1).block_bytes());
      struct stop {};
      CHECK_THROWS_AS(load_weights(*source.tensors, source.config, *backend, compute, [](auto, auto) { throw stop{}; }),
                      stop);
    }
}

TEST_CASE("Weights are computed in their stored type, f16 in f32, quantised ones in bf16") {
  CHECK(natural_compute(*open("golden/llama-gqa").tensors) == dtype::f32);
  CHECK(natural_compute(*open("golden/qwen2").tensors) == dtype::bf16);
  CHECK(natural_compute(*open("golden/llama-mqa-rope3").tensors) == dtype::f32);
  CHECK(natural_compute(*open("golden/llama-gqa").tensors, kernels::quantization::int4) == dtype::bf16);
  for (const auto* model : {"golden/llama-gqa", "golden/qwen2", "golden/llama-mqa-rope3", "golden/mistral-swa"}) {
    const auto source = open(model);
    const auto* table = source.tensors->find("model.embed_tokens.weight");
    REQUIRE(table);
    CHECK(natural_compute(*source.tensors, kernels::quantization::none, true) ==
          (table->type == tensor_type::f32 ? dtype::f32 : dtype::bf16));
  }
}

TEST_CASE("Floats quantised at load give nearly the logits of the floats: int8 nearer than int4") {
  using kernels::quantization;
  for (const auto& model : golden_models) {
    CAPTURE(model);
    const auto source = open("golden/" + model);
    std::vector<token_id> ids(40);
    for (std::size_t i = 0; i < ids.size(); ++i)
      ids[i] = static_cast<token_id>(i * 37) % source.config.vocab;
    const auto logits = [&](precision precision) {
      engine e(source, targets().back(), 1, precision);
      return e.step({{ids, 0, first_blocks(ids.size())}});
    };
    const auto exact = logits(dtype::f32), int8 = logits({dtype::f32, quantization::int8}),
               int4 = logits({dtype::f32, quantization::int4});
    const auto error = [&](const std::vector<row_logits>& got) {
      double sum = 0, all = 0;
      for (std::size_t r = 0; r < exact.size(); ++r)
        for (std::size_t i = 0; i < exact[r].size(); ++i) {
          sum += std::pow(got[r][i] - exact[r][i], 2);
          all += std::pow(exact[r][i], 2);
        }
      return std::sqrt(sum / all);
    };
    CHECK(error(int8) > 0);
    CHECK(error(int8) < 0.02);
    CHECK(error(int4) > 2 * error(int8));
    CHECK(error(int4) < 0.2);
  }
}

TEST_CASE("Several decoders share the weights of one load") {
  const auto source = open("golden/llama-gqa");
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  const auto weights = load_weights(*source.tensors, source.config, *backend, dtype::f32);
  const auto cache = backend->make_kv_cache(kv_shape_of(source.config, dtype::f32, 4));
  const std::vector<token_id> tokens{5, 6, 7};
  const std::vector<kernels::sequence_rows> sequences{{0, 3, 0, 0}};
  const std::vector<std::int32_t> table{2}, last{2};
  const auto vocab = static_cast<std::size_t>(source.config.vocab);
  std::vector<row_logits> results;
  for (int restart = 0; restart < 2; ++restart) { // an executor that was restarted
    const auto other = kernels::make_cpu_backend({.threads = 1});
    decoder d(weights, *other, 8, 64);
    row_logits logits(vocab);
    d.forward(tokens, {sequences, table}, last, *cache, {logits.data(), dtype::f32, 1, vocab, vocab});
    results.push_back(logits);
  }
  CHECK(results[0] == results[1]);
  CHECK(root_mean_square(results[0]) > 0.1);
}

TEST_CASE("A step that contradicts itself or the cache is refused before it is computed") {
  const auto source = open("golden/llama-gqa");
  engine e(source, targets().back(), 1, dtype::f32);
  const std::vector<std::int32_t> table{0, 1};
  const auto said = [&](std::vector<token_id> tokens, kernels::sequence_rows s, std::vector<std::int32_t> wanted,
                        std::vector<std::int32_t> blocks) {
    const std::vector<kernels::sequence_rows> sequences{s};
    return failure_of([&] {
      e.graph().forward(tokens, {sequences, blocks}, wanted, e.cache(), e.logits(wanted.size()));
    });
  };
  CHECK(said({1, 2}, {0, 2, 0, 0}, {0, 1}, table) == "");
  CHECK(said({1, 2}, {0, 2, 0, 0}, {}, table) == "");
  CHECK(said({1, 768}, {0, 2, 0, 0}, {0}, table) == "decoder: a token outside the vocabulary");
  CHECK(said({1, -1}, {0, 2, 0, 0}, {0}, table) == "decoder: a token outside the vocabulary");
  CHECK(said({1, 2}, {0, 1, 0, 0}, {0}, table) == "decoder: sequences that do not cover the rows in order");
  CHECK(said({1, 2}, {1, 2, 0, 0}, {0}, table) == "decoder: sequences that do not cover the rows in order");
  CHECK(said({1, 2}, {0, 2, 31, 0}, {0}, table) == "decoder: a block table that does not cover its sequence");
  CHECK(said({1, 2}, {0, 2, 0, 2}, {0}, table) == "decoder: a block table that does not cover its sequence");
  CHECK(said({1, 2}, {0, 2, 0, 0}, {0}, {pool_blocks}) == "decoder: a block outside the KV cache");
  CHECK(said({1, 2}, {0, 2, max_context - 1, 0}, {0}, table) == "decoder: a position beyond the context");
  CHECK(said({1, 2}, {0, 2, 0, 0}, {2}, table) == "decoder: logits of rows that are not there");
  CHECK(said(std::vector<token_id>(max_rows + 1, 1), {0, max_rows + 1, 0, 0}, {0}, table) ==
        "decoder: more rows than it was made for");
}
