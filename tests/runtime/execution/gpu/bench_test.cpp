// `bench model` on the emulated GPU: its counts and measurements besides rates.
#include "tests/runtime/execution/gpu/gpu_engine.hpp"

#include "api/cli/commands/model_bench.hpp"
#include "runtime/import/model_source.hpp"
#include "tests/emulation/cuda/memory.hpp"

#include <doctest/doctest.h>

using namespace troupe;
using namespace troupe::testing;

TEST_CASE("bench model on a GPU measures peaks, shares of them, and the time between steps") {
  cli::model_bench_options o;
  o.model = golden("llama-gqa");
  o.device = "cuda:0";
  o.deterministic = true;
  o.dtype = "f32";
  o.prompt = 4;
  o.generate = 3;
  o.repeat = 1;
  o.peaks = true;
  std::vector<std::string> logged;
  cli::model_bench bench(o, open_gpu, {}, [&](std::string line) { logged.push_back(std::move(line)); });
  REQUIRE(logged.size() == 1);
  CHECK(logged[0].starts_with("measuring what cuda:0, emulated GPU"));
  CHECK(bench.peaks().bandwidth > 0);
  CHECK(bench.peaks().bandwidth_of == "device copy");
  CHECK(bench.peaks().operations > 0);
  CHECK(bench.peaks().operations_of == "cuBLASLt bf16");
  CHECK(bench.times_steps());

  const auto r = bench.measure(2);
  const auto c = open_model(o.model).config;
  // Contexts of 5, 6 and 7 tokens, K and V in f32.
  const double kv = 2.0 * c.layers * c.kv_heads * c.head_dim * 4;
  CHECK(r.decode_bytes_per_step == static_cast<double>(bench.work_per_token().bytes) + 2 * 6 * kv);
  CHECK(r.prefill_operations == 2 * prefill_operations(c, 4));
  const double seconds = 2 * 3 / r.decode_tps; // three steps
  CHECK(r.decode_bandwidth_share == doctest::Approx(3 * r.decode_bytes_per_step / seconds / bench.peaks().bandwidth));
  CHECK(r.prefill_peak_share ==
        doctest::Approx(r.prefill_operations / (r.prefill_ms / 1000) / bench.peaks().operations));
  CHECK(r.device_ms_per_step > 0);
  CHECK(r.step_overhead_share > 0);
  CHECK(r.step_overhead_share < 1);
}

TEST_CASE("bench model refuses a batch that exceeds the memory of a GPU, including that of its steps") {
  cli::model_bench_options o;
  o.model = golden("llama-gqa");
  o.device = "cuda:0";
  o.deterministic = true;
  o.prompt = 0;
  o.generate = 16;
  o.repeat = 1;
  cli::model_bench bench(o, open_gpu, {}, [](const std::string&) {});
  CHECK_FALSE(bench.times_steps());
  kernels::cuda::emulated::limited_memory memory(4 << 20);
  const auto r = bench.measure(1);
  CHECK(r.decode_tps > 0);
  CHECK(r.step_overhead_share == 0);
  CHECK(r.prefill_operations == 0);
  CHECK_THROWS_AS(bench.measure(400), failure);
}
