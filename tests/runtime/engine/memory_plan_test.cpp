#include "runtime/engine/loading/memory_plan.hpp"

#include <doctest/doctest.h>

using namespace troupe;

namespace {

constexpr std::size_t mib = 1 << 20;
constexpr memory_estimate need{100 * mib, 8 * mib, 2 * mib, 1 * mib}; // a block of 16 tokens takes 1 MiB

std::string plan_refusal(const engine_options& o, int context, std::size_t available) {
  try {
    plan_memory(o, need, context, available, cache_share::of_a_device);
  } catch (const failure& f) {
    return f.what();
  }
  return {};
}

} // namespace

TEST_CASE("the cache is as large as the sequences can use, if there is room") {
  engine_options o;
  o.max_sequences = 4;
  auto plan = plan_memory(o, need, 160, 10000 * mib, cache_share::of_a_machine);
  CHECK(plan.blocks == 40);
  CHECK(plan.max_context == 160);
  CHECK(plan.line ==
        "weights 100 MiB, activations 10.0 MiB, KV cache 40.0 MiB (640 tokens); up to 160 tokens per sequence");
}

TEST_CASE("without enough room it takes its share of what is left, and the context shrinks to fit") {
  engine_options o;
  auto plan = plan_memory(o, need, 4096, 210 * mib, cache_share::of_a_device);
  CHECK(plan.blocks == 80);
  CHECK(plan.max_context == 80 * 16);
  CHECK(plan.line.find("less than the model's 4096") != std::string::npos);
}

TEST_CASE("on a shared machine it leaves a second engine as much as it takes") {
  engine_options o;
  const auto first = plan_memory(o, need, 4096, 1110 * mib, cache_share::of_a_machine);
  CHECK(first.blocks == 500);
  const auto taken = (110 + 500) * mib;
  CHECK_NOTHROW(plan_memory(o, need, 4096, 1110 * mib - taken, cache_share::of_a_machine));
  o.kv_cache_bytes = 1000 * mib; // an explicit size gets it all
  CHECK(plan_memory(o, need, 4096, 1110 * mib, cache_share::of_a_machine).blocks == 1000);
}

TEST_CASE("an explicit cache size is used as it is") {
  engine_options o;
  o.kv_cache_bytes = 25 * mib + 1;
  CHECK(plan_memory(o, need, 160, 1000 * mib, cache_share::of_a_machine).blocks == 25);
  o.kv_cache_bytes = 2000 * mib;
  CHECK(plan_refusal(o, 160, 1000 * mib).find("KV cache of 2.0 GiB was asked for") != std::string::npos);
}

TEST_CASE("a context beyond the model's limit is cut to it, and the line says so") {
  engine_options o;
  o.max_context = 4096;
  const auto plan = plan_memory(o, need, 160, 1000 * mib, cache_share::of_a_machine);
  CHECK(plan.max_context == 160);
  CHECK(plan.line.ends_with("up to 160 tokens per sequence, the model's limit, although 4096 were asked for"));
  o.max_context = 128;
  CHECK(
    plan_memory(o, need, 160, 1000 * mib, cache_share::of_a_machine).line.ends_with("up to 128 tokens per sequence"));
}

TEST_CASE("needs beyond the available memory are refused with both figures") {
  engine_options o;
  CHECK(plan_refusal(o, 160, 100 * mib) ==
        "the weights need 100 MiB and the activations 10.0 MiB, but only 100 MiB of memory are available");
  o.max_context = 4096;
  CHECK(plan_refusal(o, 8192, 210 * mib).find("needs 256 MiB of KV cache") != std::string::npos);
  o.max_context = 0;
  CHECK(plan_refusal(o, 8192, 110 * mib + 100).find("room for 0 tokens") != std::string::npos);
}

TEST_CASE("host memory to swap to is counted in blocks, and refused where it is useless") {
  engine_options o;
  CHECK(plan_swap(o, mib, 0) == 0);
  o.swap_bytes = 25 * mib + 1;
  CHECK(plan_swap(o, mib, 100 * mib) == 25);
  const auto refused = [&](std::size_t block, std::size_t available) -> std::string {
    try {
      plan_swap(o, block, available);
    } catch (const failure& f) {
      CHECK(f.what_failed().param == "swap");
      return f.what();
    }
    return {};
  };
  CHECK(refused(mib, 20 * mib) == "25.0 MiB of host memory are wanted for swapping, but only 20.0 MiB are available");
  CHECK(refused(26 * mib, 100 * mib) ==
        "`swap` must hold at least one block of the KV cache, which takes 26.0 MiB, not 25.0 MiB");
  o.prefix_cache = false;
  CHECK(refused(mib, 100 * mib) == "`swap` keeps what the prefix cache evicts, but the prefix cache is off");
}

TEST_CASE(
  "where weights do not fit, they leave room for the cache that was asked for, or for an eighth of the memory") {
  engine_options o;
  o.max_sequences = 64;
  CHECK(room_beside_weights(o, need, 4096, 800 * mib) == 200 * mib); // half of which the cache gets
  CHECK(room_beside_weights(o, need, 16, 800 * mib) == 128 * mib);   // two of 64 sequences of a block
  o.max_context = 3200;
  CHECK(room_beside_weights(o, need, 4096, 800 * mib) == 400 * mib); // one such sequence, whatever the memory
  o.kv_cache_bytes = 300 * mib;
  CHECK(room_beside_weights(o, need, 4096, 800 * mib) == 300 * mib);
  auto recurrent = need;
  recurrent.sequence_state = mib;
  CHECK(room_beside_weights(o, recurrent, 4096, 800 * mib) == 364 * mib);
  // What is left beside them is enough for the plan.
  o = {};
  auto rest = need;
  rest.weights = 800 * mib - need.steps() - room_beside_weights(o, need, 4096, 800 * mib);
  CHECK(plan_memory(o, rest, 4096, 800 * mib, cache_share::of_a_machine).blocks == 100);
}

TEST_CASE("memory that is not there is refused in one sentence") {
  CHECK_NOTHROW(require_memory("a model", mib, mib));
  try {
    require_memory("a batch of 3", 2 * mib, mib, " for its steps");
    FAIL("accepted");
  } catch (const failure& f) {
    CHECK(f.what_failed().code == errc::out_of_memory);
    CHECK(f.what_failed().message == "a batch of 3 needs 2.0 MiB for its steps, but only 1.0 MiB are available");
  }
}

TEST_CASE(
  "steps have as many rows as take an eighth of what weights leave, and as the cache that was asked for allows") {
  engine_options o;
  o.max_sequences = 64;
  const auto need_of = [](int rows) { return memory_estimate{100 * mib, rows * mib, 0, 1 * mib}; };
  const auto rows = [&](int most, std::size_t available) { return plan_step_rows(most, o, need_of, available); };
  CHECK(rows(8192 + 64, (100 + 8 * 8256) * mib) == 8192 + 64);
  CHECK(rows(8192 + 64, (100 + 8 * 8256) * mib - 1) == 4096 + 64);
  CHECK(rows(8192 + 64, 50 * mib) == 1024 + 64); // not even the weights fit: plan_memory says so
  CHECK(rows(256 + 64, 50 * mib) == 256 + 64);
  o.kv_cache_bytes = 8 * 8256 * mib - 4200 * mib;
  CHECK(rows(8192 + 64, (100 + 8 * 8256) * mib) == 4096 + 64);
  o.kv_cache_bytes = 100000 * mib; // plan_memory refuses it
  CHECK(rows(8192 + 64, (100 + 8 * 8256) * mib) == 1024 + 64);
}

TEST_CASE("states of all sequences are planned ahead of the cache, and snapshots of it take a quarter at most") {
  auto states = need;
  states.state = 2 * mib;
  states.sequence_state = 3 * mib;
  engine_options o;
  o.max_sequences = 4;
  auto plan = plan_memory(o, states, 160, 10000 * mib, cache_share::of_a_machine);
  CHECK(plan.snapshots == 16); // four for each sequence
  CHECK(plan.blocks == 40);
  CHECK(plan.line.find("states 44.0 MiB (4 sequences, 16 snapshots), KV cache 40.0 MiB") != std::string::npos);
  plan = plan_memory(o, states, 160, 222 * mib, cache_share::of_a_device); // 100 are left, of which 80 are taken
  CHECK(plan.snapshots == 10);
  CHECK(plan.blocks == 40);
  o.prefix_cache = false;
  CHECK(plan_memory(o, states, 160, 10000 * mib, cache_share::of_a_machine).snapshots == 0);
  o.prefix_cache = true;
  o.kv_cache_bytes = 40 * mib; // an explicit cache is not cut
  plan = plan_memory(o, states, 160, 200 * mib, cache_share::of_a_device);
  CHECK(plan.blocks == 40);
  CHECK(plan.snapshots == 4); // of the 38 MiB beside it
  states.state = 15 * mib;
  CHECK(plan_memory(o, states, 160, 200 * mib, cache_share::of_a_device).snapshots == 1); // more than a quarter
  states.state = 20 * mib;
  CHECK(plan_memory(o, states, 160, 200 * mib, cache_share::of_a_device).snapshots == 0); // more than half
  states.state = 2 * mib;
  o.max_sequences = 64;
  o.kv_cache_bytes = 0;
  const auto line = [&] {
    try {
      plan_memory(o, states, 160, 222 * mib, cache_share::of_a_device);
    } catch (const failure& f) {
      return std::string(f.what());
    }
    return std::string();
  }();
  CHECK(line ==
        "the states of 64 sequences need 192 MiB, but beside weights and activations only 112 MiB of memory are "
        "available: fewer sequences need less (--max-sequences)");
}
