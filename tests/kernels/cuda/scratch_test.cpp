// Memory that the backend plans besides weights and K/V, compared with what it allocates.
#include "kernels/cuda/scratch_plan.hpp"
#include "kernels/planned_steps.hpp"
#include "tests/kernels/cuda/support.hpp"

using namespace troupe::kernels;
using namespace troupe::kernels::cuda::testing;

namespace {

constexpr std::size_t mib = 1 << 20;

/// One matrix of an 8-billion-parameter model.
planned_steps one_matrix(weight_format format, std::size_t outputs, std::size_t rows, bool gated = false) {
  planned_steps steps;
  steps.compute = dtype::bf16;
  steps.rows = 512;
  steps.logit_rows = steps.sequences = 64;
  steps.context = 8192;
  steps.heads = 32;
  steps.cache = {32, 8, 128, kv_type::bf16, 0};
  steps.windows = {0};
  const stored_matrix m{nullptr, format, outputs, 4096};
  auto& planned = steps.matrices.emplace_back();
  planned.stacked.assign(gated ? 2 : 1, m);
  planned.gated = gated;
  planned.rows = rows;
  return steps;
}

/// Scratch of linear layers alone.
std::size_t of_linear(const planned_steps& steps, std::size_t expanded_memory = 128 * mib) {
  return cuda::scratch_bytes(steps, true, expanded_memory) - cuda::scratch_bytes(steps, false, expanded_memory);
}

} // namespace

TEST_CASE("CUDA: the library's products have scratch for trials, expanded weights and gating, in powers of two") {
  using enum weight_format;
  // Trials of 64 x 128256 floats take 32 MiB; of 1002 MiB of weights, 126 are expanded at a time.
  CHECK(of_linear(one_matrix(q8_0, 128256, 64)) == 32 * mib + 128 * mib);
  CHECK(of_linear(one_matrix(q8_0, 128256, 64), 2048 * mib) == 32 * mib + 1024 * mib);
  CHECK(of_linear(one_matrix(bf16, 128256, 64)) == 32 * mib);
  CHECK(of_linear(one_matrix(q8_0, 128256, 8)) == 0); // never through the library
  // 512 rows or more need no trial, but steps may have fewer: up to 511. Gated products go through scratch memory 1024
  // rows at a time.
  CHECK(of_linear(one_matrix(bf16, 14336, 4096)) == 32 * mib);
  CHECK(of_linear(one_matrix(bf16, 14336, 4096, true)) == 32 * mib + 128 * mib);
  CHECK(of_linear(one_matrix(q4_k, 14336, 4096, true)) == 32 * mib + 128 * mib + 128 * mib);
  // fp8 products need codes of the activations, too.
  CHECK(of_linear(one_matrix(fp8, 4096, 4096)) == 8 * mib + 32 * mib + 16 * mib + 16 * mib + mib / 16);
  auto wide = one_matrix(bf16, 14336, 4096, true);
  wide.compute = dtype::f32;
  CHECK(of_linear(wide) == 0);
}

TEST_CASE("CUDA: attention states take memory per row and partition, up to a limit that one row may exceed") {
  const auto scratch = [](int heads, std::size_t rows, std::size_t context) {
    auto steps = one_matrix(weight_format::bf16, 16, 1);
    steps.heads = heads;
    steps.rows = rows;
    steps.context = context;
    return cuda::scratch_bytes(steps, false, mib);
  };
  // A state of one row, head and partition of 256 tokens is 132 floats: 32 heads x 8 partitions x 64 rows, 8.25 MiB.
  CHECK(scratch(32, 64, 2048) >= 16 * mib);
  CHECK(scratch(32, 64, 2048) < 24 * mib);
  CHECK(scratch(32, 512, 131072) >= 256 * mib);
  CHECK(scratch(32, 512, 131072) < 300 * mib);
  CHECK(scratch(128, 1, 2 << 20) >= 512 * mib); // one row, 8192 partitions
}

TEST_CASE("CUDA: scores of an indexer take memory per row and position, up to a limit that one row may exceed") {
  const auto scores = [](std::size_t rows, std::size_t context, std::size_t choosers) {
    auto steps = one_matrix(weight_format::bf16, 16, 1);
    steps.rows = rows;
    steps.context = context;
    const auto plain = cuda::scratch_bytes(steps, false, mib);
    steps.choice.seen = 2048;
    const auto without = cuda::scratch_bytes(steps, false, mib);
    CHECK(without > plain); // rows that choose have a plan of their own
    steps.choice.dim = 128;
    steps.choice.choosers = choosers;
    return cuda::scratch_bytes(steps, false, mib) - without;
  };
  CHECK(scores(64, 8192, 1) == 2 * mib);
  CHECK(scores(64, 8192, 4) == 8 * mib);
  CHECK(scores(512, 131072, 1) == 64 * mib);
  CHECK(scores(1, std::size_t(32) << 20, 1) == 128 * mib);
}

TEST_CASE("CUDA: means of groups, tokens before a row, rows looked up and pairs of low rank take memory per row; "
          "entries have no "
          "second plan") {
  auto steps = one_matrix(weight_format::bf16, 16, 1);
  steps.rows = 4096;
  steps.context = 8192;
  const auto plain = cuda::scratch_bytes(steps, false, mib);
  steps.choice.seen = 2048;
  const auto chosen = cuda::scratch_bytes(steps, false, mib);
  steps.choice.entry_tokens = 8;
  CHECK(cuda::scratch_bytes(steps, false, mib) == plain + 2 * mib); // a head of 128
  CHECK(chosen > plain);
  steps.choice.seen = 3 * 8192; // entries behind tokens: more partitions
  CHECK(cuda::scratch_bytes(steps, false, mib) > plain + 2 * mib);
  steps.choice = {};
  steps.recalled = 32;
  CHECK(cuda::scratch_bytes(steps, false, mib) == plain + mib / 2);
  steps.recalled = 0;
  steps.looked_up = 16; // a quarter of a MiB in place of 64 KiB, twice: to embed, and to gather
  CHECK(cuda::scratch_bytes(steps, false, mib) == plain + 2 * (mib / 4 - mib / 16));
  steps.looked_up = 0;
  steps.added_ranks = 384; // in f32, and rounded; and biases of rows
  steps.added_outputs = 8192;
  CHECK(cuda::scratch_bytes(steps, false, mib) == plain + 8 * mib + 4 * mib + 128 * mib);
}

TEST_SUITE_BEGIN("cuda");

TEST_CASE("CUDA: quantised weights expanded in pieces give the same products as expanded at once") {
  const auto at_once = cuda::make_cuda_backend({.expanded_memory = 64 * mib}),
             in_pieces = cuda::make_cuda_backend({.expanded_memory = 1});
  const std::size_t outputs = 53, inputs = 160, rows = 520;
  generator random;
  const auto values = random.normal(2 * outputs * inputs), bias = random.normal(2 * outputs);
  const stored_matrix w{values.data(), weight_format::f32, outputs, inputs},
    up{values.data() + outputs * inputs, weight_format::f32, outputs, inputs};
  const auto product = [&](cuda::cuda_backend& device, quantization how, bool gated) {
    const numbers in(dtype::bf16, generator().normal(rows * inputs));
    const device_tensor x(device, in, rows), bias_memory(device, wide(bias), 1),
      out(device, gated ? dtype::bf16 : dtype::f32, rows, outputs);
    if (gated)
      device.linear_silu_gate(out.view, x.view, *device.pack_gate_up(w, up, dtype::bf16, how), bias_memory.floats());
    else
      device.linear(out.view, x.view, *device.pack({&w, 1}, dtype::bf16, how), bias_memory.floats());
    device.queue().synchronise();
    return out.read().values();
  };
  for (const auto how : {quantization::int8, quantization::int4})
    for (const bool gated : {false, true}) {
      const auto want = product(*at_once, how, gated), got = product(*in_pieces, how, gated);
      double worst = 0, largest = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        worst = std::max(worst, std::abs(want[i] - got[i]));
        largest = std::max(largest, std::abs(want[i]));
      }
      CAPTURE(gated);
      CHECK(largest > 1);
      CHECK(worst <= (is_emulated() ? 0 : 1e-2 * largest)); // a real library may sum in another order
    }
}

TEST_CASE("CUDA: table_bytes predicts the size of a table in every format") {
  const auto device = make_device();
  const std::size_t rows = 3, cols = 512;
  for (const auto& traits : weight_formats) {
    const auto format = traits.format;
    if (is_fp8(format))
      continue; // not a format of tables
    const std::vector<char> data(rows * row_bytes(format, cols));
    const auto table = device->load_table({data.data(), format, rows, cols});
    CAPTURE(traits.name);
    CHECK(device->table_bytes({nullptr, format, rows, cols}) == table->bytes);
    CHECK(table->bytes >= data.size());
  }
  CHECK(device->table_bytes({nullptr, weight_format::q4_k, rows, cols}) == rows * cols / 32 * 44); // stored: 18 bytes
}

TEST_SUITE_END();
