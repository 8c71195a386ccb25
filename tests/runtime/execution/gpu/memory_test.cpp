// The memory plan of a GPU: what it counts is all that steps take.
#include "tests/runtime/execution/gpu/company.hpp"

#include "kernels/cuda/cuda_backend.hpp"
#include "runtime/engine/memory_plan.hpp"
#include "runtime/sampling/sampling_ranges.hpp"
#include "tests/emulation/cuda/memory.hpp"

#include <doctest/doctest.h>

#include <numeric>

using namespace troupe;
using namespace troupe::testing;
using kernels::cuda::emulated::limited_memory;

namespace {

constexpr std::size_t pool_blocks = 40;

/// Steps that are as large as the limits allow, over a cache with anything in it.
struct largest_steps {
  explicit largest_steps(std::shared_ptr<const loaded_model> of)
    : model(std::move(of)),
      runner(model->device->make_runner(model)),
      sampler(model->device->make_sampler(*model, [] {})) {}

  /// Rows of `sequences` sequences that end where the context does, each with logits of its last and a sample.
  void run(int rows, int sequences) {
    auto plan = std::make_shared<step_plan>();
    plan->step = ++steps;
    const int each = rows / sequences, context = model->info.max_context;
    const int blocks = (context + kernels::block_tokens - 1) / kernels::block_tokens;
    for (int i = 0; i < sequences; ++i) {
      const int count = i + 1 < sequences ? each : rows - (sequences - 1) * each;
      plan->sequences.push_back({static_cast<std::int32_t>(plan->tokens.size()), count, context - count,
                                 static_cast<std::int32_t>(plan->block_tables.size())});
      for (int b = 0; b < blocks; ++b) // some partitions are shared, most are not
        plan->block_tables.push_back((b + i / 2) % model->blocks);
      plan->tokens.resize(plan->tokens.size() + static_cast<std::size_t>(count), 7);
      plan->logit_rows.push_back(static_cast<std::int32_t>(plan->tokens.size()) - 1);
      sample_demand demand{{steps, static_cast<std::uint32_t>(i)}, i, i, start()};
      plan->samples.push_back(std::move(demand));
      plan->ended.push_back({steps, static_cast<std::uint32_t>(i)});
    }
    sampler->sample(plan, runner->run(*plan));
    sampler->collect();
  }

  /// Of a sequence whose samples have as many inputs as there can be.
  std::shared_ptr<const sampling_start> start() const {
    auto params = std::make_shared<sampling_params>();
    params->repetition_penalty = 1.2f;
    params->logprobs = 5;
    std::vector<token_id> all(static_cast<std::size_t>(model->info.vocab_size));
    std::iota(all.begin(), all.end(), 0);
    std::vector<logit_bias_map::entry> biases;
    for (std::size_t i = 0; i < std::min(all.size(), sampling_fields::most_biases); ++i)
      biases.emplace_back(all[i], 0.5f);
    params->logit_bias = std::move(biases);
    return std::make_shared<const sampling_start>(
      sampling_start{params, std::make_shared<const std::vector<token_id>>(all), {}});
  }

  std::shared_ptr<const loaded_model> model;
  std::unique_ptr<step_runner> runner;
  std::unique_ptr<step_sampler> sampler;
  std::uint64_t steps = 0;
};

/// What the plan counts beside the blocks of the KV cache.
memory_need need_of(const engine_options& o) {
  const auto device = open_device(o.compute, o.open_gpu);
  const auto source = open_model(o.model);
  const auto numbers = precision_of(o.compute, *source.tensors, true);
  const int decodes = device->decode_rows(o.max_sequences);
  auto need = memory_needed(*source.tensors, source.config, numbers, *device->open(), std::max(o.step_tokens, decodes),
                            o.max_context, decodes);
  need.activations += device->step_memory({source.config.vocab, o.max_sequences, o.max_context, need.kv_block});
  return need;
}

} // namespace

TEST_CASE("where the KV cache takes all that a plan leaves to it, the largest steps of every mode find their memory") {
  struct mode {
    std::string model, dtype, quantize, kv;
    bool deterministic;
  };
  for (const auto& [model, dtype, quantize, kv, deterministic] : {mode{"llama-gqa", "bf16", "none", "auto", false},
                                                                  {"llama-gqa", "bf16", "int4", "int8", false},
                                                                  {"llama-gqa", "bf16", "fp8", "fp8", false},
                                                                  {"mistral-swa", "bf16", "int8", "auto", true},
                                                                  {"qwen3", "f32", "none", "auto", false}}) {
    CAPTURE(model);
    CAPTURE(quantize);
    auto o = on_gpu(model);
    o.compute.dtype = dtype;
    o.compute.quantize = quantize;
    o.compute.kv_dtype = kv;
    o.compute.deterministic = deterministic;
    o.max_context = 300;
    o.max_sequences = 11; // padded to 16
    o.step_tokens = 44;
    const auto need = need_of(o);
    limited_memory memory(need.weights + need.activations + pool_blocks * need.kv_block);
    o.kv_cache_bytes = pool_blocks * need.kv_block;
    const auto loaded = load_model(o, {});
    CHECK(loaded->blocks == pool_blocks);
    CHECK(loaded->weights->bytes == need.weights);
    CHECK(loaded->info.schedule_invariant == deterministic);
    {
      largest_steps all(loaded);
      for (const int rows : {44, 43, 41}) // the emulated library's fp8 has no scales in odd ones, and none in 43
        all.run(rows, 1);
      all.run(44, 11);
      for (int i = 0; i < 3; ++i) // recorded
        all.run(11, 11);
    }
    CHECK(memory.most_used() > need.weights + pool_blocks * need.kv_block);
  }
}

TEST_CASE("a KV cache that leaves too little for steps is refused with what there is") {
  auto o = on_gpu();
  o.step_tokens = 44;
  const auto need = need_of(o);
  limited_memory memory(need.weights + need.activations + pool_blocks * need.kv_block);
  o.kv_cache_bytes = (pool_blocks + 1) * need.kv_block;
  try {
    load_model(o, {});
    FAIL("it was accepted");
  } catch (const failure& f) {
    CHECK(f.what_failed().code == errc::out_of_memory);
    CHECK(f.what_failed().param == "kv_cache");
    CHECK(f.what() ==
          "a KV cache of " + to_size(o.kv_cache_bytes) + " was asked for, but beside the weights and what " +
            "steps need only " + to_size(pool_blocks * need.kv_block) + " of memory are available");
  }
}

TEST_CASE("a GPU whose memory is limited refuses what exceeds it, and counts what was given back") {
  limited_memory memory(1 << 20);
  {
    const auto half = kernels::cuda::allocate(1 << 19);
    CHECK(kernels::cuda::select_device(0).available == 1 << 19);
    CHECK_THROWS_AS(kernels::cuda::allocate((1 << 19) + 1), kernels::device_error);
    CHECK_NOTHROW(kernels::cuda::allocate_pinned(1 << 21)); // memory of the host
  }
  CHECK_NOTHROW(kernels::cuda::allocate(1 << 20));
  CHECK(memory.most_used() == 1 << 20);
}
