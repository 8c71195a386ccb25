// GPUs that share a model: two in the emulation give the bits of one. Nothing of this has run on real GPUs.
#include "runtime/import/model_source.hpp"
#include "runtime/model/decoder/decoder.hpp"
#include "runtime/model/decoder/memory_estimate.hpp"
#include "tests/emulation/cuda/queues.hpp"
#include "tests/kernels/cuda/support.hpp"
#include "tests/rounds.hpp"
#include "tests/test_data.hpp"

#include <cstring>
#include <numeric>

namespace cuda = troupe::kernels::cuda;
namespace emulated = cuda::emulated;
using namespace troupe;
using kernels::dtype;

namespace {

struct ranked_model {
  std::unique_ptr<cuda::cuda_backend> backend;
  std::shared_ptr<const model_weights> weights;
  decoder graph;
  std::unique_ptr<kernels::kv_cache> cache;
  kernels::buffer memory;

  ranked_model(const model_source& source, precision as, std::unique_ptr<cuda::cuda_backend> made)
    : backend(std::move(made)),
      weights(load_weights(*source.tensors, source.config, *backend, as)),
      graph(weights, *backend, 64, 256),
      cache(backend->make_kv_cache(kv_shape_of(source.config, as, 20))),
      memory(backend->allocate(64 * vocab() * sizeof(float))) {}

  std::size_t vocab() const { return static_cast<std::size_t>(weights->config.vocab); }

  /// The logits of all rows.
  std::vector<float> step(std::vector<token_id> tokens, std::span<const kernels::sequence_rows> who,
                          std::span<const std::int32_t> table) {
    for (auto& t : tokens)
      t %= weights->config.vocab;
    std::vector<std::int32_t> wanted(tokens.size());
    std::iota(wanted.begin(), wanted.end(), 0);
    const kernels::tensor out{memory.get(), dtype::f32, wanted.size(), vocab(), vocab()};
    graph.forward(tokens, {who, table}, wanted, *cache, out);
    std::vector<float> result(wanted.size() * vocab());
    backend->download(result.data(), out);
    return result;
  }

  /// Of a prompt, a decode row beside a second prompt, and a row behind a block that was copied, saved and restored.
  std::vector<float> run() {
    std::vector<std::int32_t> table(10);
    std::iota(table.begin(), table.end(), 0);
    std::vector<token_id> prompt(21), second{5, 9, 300};
    for (std::size_t i = 0; i < prompt.size(); ++i)
      prompt[i] = static_cast<token_id>(7 + 31 * i % 500);
    const kernels::sequence_rows first{0, 21, 0, 0, 21};
    auto all = step(prompt, {&first, 1}, table);
    const kernels::sequence_rows mixed[] = {{0, 1, 21, 0, 22}, {1, 3, 0, 5, 3}};
    second.insert(second.begin(), 11);
    const auto more = step(second, mixed, table);
    all.insert(all.end(), more.begin(), more.end());

    const kernels::block_copy copies[] = {{0, 12}};
    backend->copy_blocks(*cache, copies);
    const auto bytes = cache->shape.block_bytes();
    const auto host = cuda::allocate_pinned(bytes);
    backend->save_block(backend->queue(), *cache, 1, host.get());
    backend->restore_block(backend->queue(), *cache, 13, host.get());
    table[0] = 12;
    table[1] = 13;
    const kernels::sequence_rows last{0, 1, 22, 0, 23};
    const auto moved = step({8}, {&last, 1}, table);
    all.insert(all.end(), moved.begin(), moved.end());
    backend->queue().synchronise();
    return all;
  }
};

std::unique_ptr<cuda::cuda_backend> ranks(int count) {
  return cuda::make_device_ranks({.device = 0, .deterministic = true}, count);
}

} // namespace

TEST_SUITE_BEGIN("cuda");

TEST_CASE("CUDA: two emulated GPUs that share a model give the bits of one, and each has its part of the weights") {
  for (const std::string model : {"golden/llama-gqa", "golden/llama-mha-tied", "golden/qwen3", "tiny/llama-bias"})
    for (const precision& as :
         {precision{dtype::f32}, precision{dtype::bf16}, precision{dtype::bf16, kernels::quantization::int8}}) {
      if (rounds(4) == 1 && model != "golden/llama-gqa")
        continue; // sanitizers: a minute of fibers otherwise
      CAPTURE(model);
      CAPTURE(size_of(as.compute));
      const auto source = open_model(test_data() + "/" + model);
      const auto alone = ranked_model(source, as, cuda::testing::make_device(true)).run();
      const emulated::shown_devices two(2);
      const auto before = emulated::bytes_on(1);
      ranked_model shared(source, as, ranks(2));
      CHECK(emulated::bytes_on(1) > before);
      CHECK(emulated::bytes_on(1) < emulated::bytes_on(0));
      const auto got = shared.run();
      REQUIRE(got.size() == alone.size());
      CHECK(std::memcmp(got.data(), alone.data(), got.size() * sizeof(float)) == 0);
    }
  emulated::check_memory();
}

TEST_CASE(
  "CUDA: two emulated GPUs give the bits of one for further families: mixtures, caps, sinks, slopes, own shapes") {
  for (const std::string model :
       {"tiny_families/qwen2-moe", "families/gpt-oss", "tiny_families/falcon-alibi", "tiny_families/nemotron",
        "tiny_families/gemma4", "families/gpt2", "tiny_families/falcon-h1", "families/qwen3-5", "tiny_families/laguna",
        "tiny_families/zamba2", "families/inkling", "tiny_families/falcon-mamba"}) {
    CAPTURE(model);
    auto source = open_model(test_data() + "/" + model);
    if (auto& growth = source.config.growth; growth)
      growth.period = 3; // texts are short
    const auto alone = ranked_model(source, dtype::bf16, cuda::testing::make_device(true)).run();
    const emulated::shown_devices two(2);
    const auto got = ranked_model(source, dtype::bf16, ranks(2)).run();
    REQUIRE(got.size() == alone.size());
    CHECK(std::memcmp(got.data(), alone.data(), got.size() * sizeof(float)) == 0);
  }
  emulated::check_memory();
}

TEST_CASE("CUDA: GPUs that share a model wait for each other, however late their streams run") {
  const auto source = open_model(golden("llama-gqa"));
  const auto alone = ranked_model(source, dtype::bf16, cuda::testing::make_device(true)).run();
  const emulated::shown_devices two(2);
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    CAPTURE(seed);
    const emulated::deferred_work late(seed);
    const auto got = ranked_model(source, dtype::bf16, ranks(2)).run();
    CHECK(std::memcmp(got.data(), alone.data(), got.size() * sizeof(float)) == 0);
  }
}

TEST_CASE("CUDA: GPUs that share a model divide norms and residuals by rows, and less leaves the first one") {
  for (const auto& [model, count] :
       {std::pair("golden/llama-gqa", 2), {"golden/llama-mha-tied", 4}, {"families/gpt2", 2}}) {
    CAPTURE(model);
    const auto source = open_model(test_data() + "/" + model);
    const auto alone = ranked_model(source, dtype::bf16, cuda::testing::make_device(true)).run();
    const emulated::shown_devices all(count);
    double sent[2] = {};
    for (const bool divided : {false, true}) {
      const emulated::divided_from rows(divided ? 16 : 1000);
      ranked_model shared(source, dtype::bf16, ranks(count));
      const auto before = emulated::sent_by(0);
      const auto got = shared.run();
      sent[divided] = double(emulated::sent_by(0) - before);
      CHECK(std::memcmp(got.data(), alone.data(), got.size() * sizeof(float)) == 0);
    }
    CAPTURE(sent[0]);
    CAPTURE(sent[1]);
    CHECK(sent[1] < 0.9 * sent[0]);
  }
  emulated::check_memory();
}

TEST_CASE("CUDA: residual rows that are divided come back when something else than a norm or a product uses them") {
  const emulated::shown_devices two(2);
  const emulated::deferred_work late(5);
  const auto device = ranks(2);
  const std::size_t rows = 33, width = 96;
  cuda::testing::generator random(3);
  const auto weights = random.normal(width * width), inputs = random.normal(rows * width),
             scales = random.normal(width);
  const kernels::stored_matrix stored{weights.data(), dtype::f32, width, width};
  const auto w = device->pack({&stored, 1}, dtype::f32, kernels::quantization::none);
  const auto alone = cuda::testing::make_device(true);
  const auto whole = alone->pack({&stored, 1}, dtype::f32, kernels::quantization::none);
  const auto run = [&](cuda::cuda_backend& on, const kernels::matrix& by) {
    const auto weight = on.upload(scales);
    const auto memory = on.upload(inputs), normed = on.upload(std::vector<float>(rows * width));
    const kernels::tensor x{memory.get(), dtype::f32, rows, width, width},
      y{normed.get(), dtype::f32, rows, width, width};
    const auto layer = [&] {
      on.rms_norm(y, x, static_cast<const float*>(weight.get()), 1e-5f);
      on.linear(x, y, by, nullptr, kernels::store::add);
    };
    layer(); // shows which rows are the residual
    layer();
    on.scale(x, 0.5f);
    layer();
    on.scale(y, 0.5f); // no longer what the norm has left with each GPU
    on.linear(x, y, by, nullptr, kernels::store::add);
    on.add_rows(x, y, 2);
    layer();
    on.layer_norm(y, x, static_cast<const float*>(weight.get()), nullptr, 1e-5f);
    on.linear(x, y, by, nullptr, kernels::store::add);
    std::vector<float> result(rows * width), settled(rows * width);
    on.settle(x);
    const auto host = cuda::allocate_pinned(result.size() * sizeof(float));
    cuda::copy_to_host(on.queue(), host.get(), x.data, result.size() * sizeof(float));
    on.queue().synchronise();
    std::memcpy(settled.data(), host.get(), result.size() * sizeof(float));
    on.download(result.data(), x);
    CHECK(settled == result);
    return result;
  };
  CHECK(run(*device, *w) == run(*alone, *whole));
}

TEST_CASE(
  "CUDA: a cache that cannot be divided by KV heads is the first GPU's, which attends alone, with the same bits") {
  // Fewer KV heads than GPUs; latents; choices of positions, blocks and groups; entries. Few are chosen, as texts are short.
  for (const std::string model : {"tiny_families/falcon", "tiny_families/deepseek-v3", "families/glm-moe-dsa",
                                  "tiny_families/minimax-m3", "families/qwen4-exp", "families/deepseek-v4"}) {
    CAPTURE(model);
    auto source = open_model(test_data() + "/" + model);
    if (auto& indexer = source.config.indexer; indexer)
      indexer.top = 3 * std::max({1, indexer.group, indexer.block}) - (indexer.group > 1 ? 1 : 0);
    const auto alone = ranked_model(source, dtype::bf16, cuda::testing::make_device(true)).run();
    const emulated::shown_devices two(2);
    const auto before = emulated::bytes_on(1);
    const emulated::deferred_work late(7);
    ranked_model shared(source, dtype::bf16, ranks(2));
    CHECK(emulated::bytes_on(1) > before);
    const auto got = shared.run();
    REQUIRE(got.size() == alone.size());
    CHECK(std::memcmp(got.data(), alone.data(), got.size() * sizeof(float)) == 0);
  }
  emulated::check_memory();
}

TEST_CASE("CUDA: devices that are not there are refused") {
  CHECK_THROWS_WITH(ranks(2), "there is no CUDA device 1: there are 1");
  const emulated::shown_devices two(2);
  CHECK(ranks(2)->description().ends_with(", 2 ranks on cuda:0 to cuda:1"));
}

TEST_SUITE_END();
