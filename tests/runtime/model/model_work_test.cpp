#include "runtime/model/decoder/model_work.hpp"

#include "kernels/cpu/cpu_backend.hpp"
#include "runtime/execution/cpu/cpu_device.hpp"
#include "runtime/import/model_source.hpp"
#include "tests/runtime/model/model_test_data.hpp"

#include <doctest/doctest.h>

using namespace troupe;

namespace {

model_config small() {
  model_config c;
  c.vocab = 100;
  c.hidden = 32;
  c.layers = 2;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 16; // q is wider than the residual stream
  c.ffn = 48;
  c.windows = {0, 3};
  return c;
}

} // namespace

TEST_CASE(
  "the operations of a prompt are those of its matrices, of attention's visible half, and of one row of logits") {
  const auto c = small();
  const double layer = 32 * (64 + 32 + 32) + 64 * 32 + 2 * 32 * 48 + 48 * 32, head = 32 * 100;
  CHECK(prefill_operations(c, 1) == 2 * (2 * layer + head + 2 * (2 * 64)));
  // Five tokens see 1 + 2 + 3 + 4 + 5 positions, through a window of three 1 + 2 + 3 + 3 + 3.
  CHECK(prefill_operations(c, 5) == 2 * (5 * 2 * layer + head + 2 * 64 * (15 + 12)));
}

TEST_CASE("a token reads the K and V that it attends to, in the type of the KV cache") {
  const auto c = small();
  CHECK(kv_bytes_read(c, kernels::kv_type::f32, 1) == 2 * (2 * 2 * 16 * 4));
  CHECK(kv_bytes_read(c, kernels::kv_type::bf16, 5) == (5 + 3) * (2 * 2 * 16 * 2));
  CHECK(kv_bytes_read(c, kernels::kv_type::int8, 5) == (5 + 3) * 2 * kernels::kv_bytes(kernels::kv_type::int8, 16));
}

TEST_CASE("a decode step reads all matrices once, and the K and V of every sequence") {
  const auto source = open_model((test::data() / "golden/llama-gqa").string());
  const auto& c = source.config;
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  const auto weights = load_weights(*source.tensors, c, *backend, kernels::dtype::bf16);
  const auto size = [](int n) { return static_cast<std::size_t>(n); };
  const std::size_t q = size(c.heads * c.head_dim), kv = size(c.kv_heads * c.head_dim);
  const auto once = work_per_token(*weights);
  CHECK(once.multiply_adds ==
        size(c.layers) * size(c.hidden) * (2 * q + 2 * kv + 3 * size(c.ffn)) + size(c.vocab * c.hidden));
  CHECK(once.bytes >= 2 * once.multiply_adds);
  CHECK(decode_bytes(*weights, kernels::kv_type::bf16, 3, 70) ==
        once.bytes + 3 * 70 * size(c.layers) * 2 * size(c.kv_heads * c.head_dim) * 2);
}

TEST_CASE(
  "a token of a mixture reads the experts that it chooses, and a batch those that some row is expected to choose") {
  const auto source = open_model((test::data() / "families/mixtral").string());
  const auto& c = source.config;
  const auto backend = kernels::make_cpu_backend({.threads = 1});
  const auto weights = load_weights(*source.tensors, c, *backend, kernels::dtype::bf16);
  const auto& mixture = *weights->layers.front().mixture;
  const double all = c.layers * double(mixture.experts[0].gate_up->bytes + mixture.experts[0].down->bytes) *
    c.experts.count;
  const double one = double(c.experts.chosen) / c.experts.count;
  CHECK(weight_bytes_read(*weights, 1) == work_per_token(*weights).bytes);
  const auto common = static_cast<double>(weight_bytes_read(*weights, 0));
  CHECK(common + all * one == doctest::Approx(double(weight_bytes_read(*weights, 1))));
  CHECK(common + all * (one + (1 - one) * one) == doctest::Approx(double(weight_bytes_read(*weights, 2))));
  CHECK(common + all == doctest::Approx(double(weight_bytes_read(*weights, 1000))));
}

TEST_CASE("a CPU's peak is the fastest instruction that the weights can be multiplied with") {
  kernels::machine_peaks peaks;
  peaks.f32_fma = 1;
  peaks.read = 7;
  const auto of = [&](kernels::dtype compute, bool quantised) { return peaks_of(peaks, compute, quantised); };
  CHECK(of(kernels::dtype::bf16, false).operations_of == "f32 FMA");
  CHECK(of(kernels::dtype::bf16, false).bandwidth == 7);
  CHECK(of(kernels::dtype::f32, true).operations == 0);
  peaks.bf16_dot = 2, peaks.int8_dot = 3;
  CHECK(of(kernels::dtype::bf16, false).operations == 2);
  CHECK(of(kernels::dtype::f32, false).operations == 1);
  peaks.bf16_dot = 0.5; // as on Intel's processors, which then multiply floats
  CHECK(of(kernels::dtype::bf16, false).operations_of == "f32 FMA");
  CHECK(of(kernels::dtype::f32, true).operations_of == "int8 dot");
  peaks.bf16_amx = 4, peaks.int8_amx = 5;
  CHECK(of(kernels::dtype::bf16, false).operations_of == "bf16 AMX");
  CHECK(of(kernels::dtype::bf16, true).operations == 5);
}
