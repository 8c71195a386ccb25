// The memory plan of a GPU covers all memory that steps allocate.
#include "tests/runtime/execution/gpu/gpu_engine.hpp"

#include "kernels/cuda/cuda_backend.hpp"
#include "runtime/engine/loading/memory_plan.hpp"
#include "runtime/engine/loading/named_precision.hpp"
#include "runtime/execution/device.hpp"
#include "runtime/import/model_source.hpp"
#include "runtime/sampling/sampling_ranges.hpp"
#include "runtime/support/text/byte_size.hpp"
#include "tests/emulation/cuda/memory.hpp"
#include "tests/emulation/cuda/queues.hpp"
#include "tests/runtime/execution/sampling_starts.hpp"

#include <doctest/doctest.h>

#include <numeric>

using namespace troupe;
using namespace troupe::testing;
using kernels::cuda::emulated::limited_memory;

namespace {

constexpr std::size_t pool_blocks = 40;

/// The largest steps that the limits allow, over a cache with arbitrary contents.
struct largest_steps {
  /// `state_bytes`: of a sequence's state in recurrent layers.
  explicit largest_steps(std::shared_ptr<const loaded_model> of, std::size_t state_bytes = 0)
    : zeros(state_bytes),
      own(replica_of(of)),
      model(std::move(of)),
      runner(own.plan.last().make_runner(own.runner())),
      sampler(own.plan.last().make_sampler(own.sampler(), [] {})) {}

  /// Runs rows of `sequences` sequences that fill the context, with logits and a sample of the last row of each. States,
  /// which are of whole blocks, leave some of it.
  void run(int rows, int sequences) {
    auto plan = std::make_shared<step_plan>();
    plan->step = ++steps;
    const int each = rows / sequences, context = model->info.max_context;
    const int blocks = (context + kernels::block_tokens - 1) / kernels::block_tokens;
    for (int i = 0; i < sequences; ++i) {
      const int count = i + 1 < sequences ? each : rows - (sequences - 1) * each;
      int first = context - count;
      if (!zeros.empty()) {
        first -= first % kernels::block_tokens;
        auto image = std::make_shared<block_image>();
        image->place = first / kernels::block_tokens - 1;
        image->bytes = zeros;
        image->state = true;
        plan->moves.push_back({block_move::kind::load, 0, i, std::move(image)});
        plan->states.push_back({i});
      }
      plan->sequences.push_back({static_cast<std::int32_t>(plan->tokens.size()), count, first,
                                 static_cast<std::int32_t>(plan->block_tables.size())});
      for (int b = 0; b < blocks; ++b) // some partitions are shared, most are not
        plan->block_tables.push_back((b + i / 2) % own.plan.blocks);
      plan->tokens.resize(plan->tokens.size() + static_cast<std::size_t>(count), 7);
      plan->logit_rows.push_back(static_cast<std::int32_t>(plan->tokens.size()) - 1);
      sample_demand demand{{steps, static_cast<std::uint32_t>(i)}, i, i, start()};
      plan->samples.push_back(std::move(demand));
      plan->ended.push_back({steps, static_cast<std::uint32_t>(i)});
    }
    sampler->sample(plan, runner->run(*plan));
    sampler->collect();
  }

  /// A sequence whose samples have the largest inputs possible.
  std::shared_ptr<const sampling_start> start() const {
    sampling_params params;
    params.repetition_penalty = 1.2f;
    params.logprobs = 5;
    std::vector<token_id> all(static_cast<std::size_t>(model->info.vocab_size));
    std::iota(all.begin(), all.end(), 0);
    std::vector<logit_bias_map::entry> biases;
    for (std::size_t i = 0; i < std::min(all.size(), sampling_fields::most_biases); ++i)
      biases.emplace_back(all[i], 0.5f);
    params.logit_bias = std::move(biases);
    return testing::start_with(std::move(params), std::move(all));
  }

  std::vector<std::byte> zeros; // a state
  model_replica own;
  std::shared_ptr<const loaded_model> model;
  std::unique_ptr<step_runner> runner;
  std::unique_ptr<step_sampler> sampler;
  std::uint64_t steps = 0;
};

/// The planned memory without the KV cache.
memory_estimate memory_of(const engine_options& o) {
  const auto device = open_device(o.compute, o.open_gpu);
  const auto source = open_model(o.model);
  return estimate_memory(*source.tensors, source.config,
                         precision_of(o.compute, *source.tensors, device->capabilities()), *device, *device->open(),
                         {o.step_tokens, o.max_sequences, o.max_context});
}

} // namespace

TEST_CASE("the largest steps of every mode fit in memory when the KV cache takes all that the plan leaves") {
  struct mode {
    std::string model, dtype, quantize, kv;
    bool deterministic;
  };
  for (const auto& [model, dtype, quantize, kv, deterministic] :
       {mode{"llama-gqa", "bf16", "none", "auto", false},
        {"llama-gqa", "bf16", "int4", "int8", false},
        {"llama-gqa", "bf16", "fp8", "fp8", false},
        {"../families/gemma4", "bf16", "none", "auto", true},
        {"../families/mixtral", "bf16", "int4", "auto", true},
        {"../families/deepseek-v4", "bf16", "none", "auto", true},
        {"../families/qwen4-exp", "bf16", "none", "auto", true}}) {
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
    o.prefix_cache = false; // no snapshots
    const auto need = memory_of(o);
    limited_memory memory(need.fixed() + as_size(o.max_sequences) * need.sequence_state + pool_blocks * need.kv_block);
    o.kv_cache_bytes = pool_blocks * need.kv_block;
    const auto loaded = load_model(o, {});
    CHECK(replica_of(loaded).plan.blocks == pool_blocks);
    CHECK(loaded->stages.front().weights->bytes == need.weights);
    CHECK(loaded->info.schedule_invariant == deterministic);
    {
      largest_steps all(loaded, need.state);
      all.run(44, 1);
      if (quantize == "fp8") // the emulated library has no scales for odd rows, and no fp8 for 43
        for (const int rows : {43, 41})
          all.run(rows, 1);
      all.run(44, 11);
      for (int i = 0; i < 3; ++i) // recorded
        all.run(11, 11);
    }
    CHECK(memory.most_used() > need.weights + pool_blocks * need.kv_block);
  }
}

TEST_CASE("a KV cache that leaves too little for steps is refused with the memory available") {
  auto o = on_gpu();
  o.step_tokens = 44;
  const auto need = memory_of(o);
  limited_memory memory(need.fixed() + pool_blocks * need.kv_block);
  o.kv_cache_bytes = (pool_blocks + 1) * need.kv_block;
  try {
    load_model(o, {});
    FAIL("accepted");
  } catch (const failure& f) {
    CHECK(f.what_failed().code == errc::out_of_memory);
    CHECK(f.what_failed().param == "kv_cache");
    CHECK(f.what() ==
          "a KV cache of " + to_size(o.kv_cache_bytes) + " was asked for, but beside the weights and what " +
            "steps need only " + to_size(pool_blocks * need.kv_block) + " of memory are available");
  }
}

TEST_CASE("of GPUs that share a model, each needs room for its own part of K and V only") {
  const kernels::cuda::emulated::shown_devices two(2);
  auto o = on_gpu();
  o.compute.tensor_parallel = 2;
  o.step_tokens = 44;
  const auto need = memory_of(o);
  CHECK(need.kv_whole == 2 * need.kv_block); // two KV heads
  o.kv_cache_bytes = pool_blocks * need.kv_whole;
  const auto loaded = load_model(o, {});
  CHECK(replica_of(loaded).plan.blocks == pool_blocks);
  CHECK(loaded->info.kv_cache_bytes == o.kv_cache_bytes);
  const std::size_t before[] = {kernels::cuda::emulated::bytes_on(0), kernels::cuda::emulated::bytes_on(1)};
  const largest_steps all(loaded);
  CHECK(kernels::cuda::emulated::bytes_on(1) >= before[1] + pool_blocks * need.kv_block);
  CHECK(kernels::cuda::emulated::bytes_on(0) >= before[0] + pool_blocks * need.kv_block);

  // The plan of the first GPU's memory.
  const auto left = need.fixed() + pool_blocks * need.kv_block;
  auto alone = need;
  alone.kv_block = need.kv_whole;
  auto given = o;
  given.kv_cache_bytes = pool_blocks * need.kv_block; // its part
  CHECK(plan_memory(given, need, o.max_context, left, cache_share::of_a_device).blocks == pool_blocks);
  CHECK(plan_memory(given, alone, o.max_context, left, cache_share::of_a_device).blocks == pool_blocks / 2);
}

TEST_CASE("of GPUs that share a model whose keys cannot be divided, the first needs room for all of them") {
  const kernels::cuda::emulated::shown_devices two(2);
  auto o = on_gpu("../families/deepseek-v4");
  o.compute.tensor_parallel = 2;
  o.max_context = 300;
  o.step_tokens = 44;
  const auto need = memory_of(o);
  CHECK(need.kv_whole == need.kv_block);
  o.kv_cache_bytes = pool_blocks * need.kv_whole;
  const auto loaded = load_model(o, {});
  CHECK(replica_of(loaded).plan.blocks == pool_blocks);
  const std::size_t before[] = {kernels::cuda::emulated::bytes_on(0), kernels::cuda::emulated::bytes_on(1)};
  largest_steps all(loaded);
  CHECK(kernels::cuda::emulated::bytes_on(0) >= before[0] + pool_blocks * need.kv_whole);
  CHECK(kernels::cuda::emulated::bytes_on(1) < before[1] + pool_blocks * need.kv_whole);
  all.run(44, 2);
  CHECK(kernels::cuda::emulated::bytes_on(0) <= before[0] + need.fixed() - need.weights + pool_blocks * need.kv_whole);
}

TEST_CASE("a GPU with limited memory refuses allocations beyond it, and counts freed memory") {
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
