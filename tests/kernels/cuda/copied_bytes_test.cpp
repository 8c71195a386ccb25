// What kernels load through shared memory, counted by the emulation.
#include "tests/emulation/cuda/fibers.hpp"
#include "tests/kernels/cuda/prompt_tiles.hpp"
#include "tests/kernels/cuda/support.hpp"

#include <numeric>

using namespace troupe::kernels;
using namespace troupe::kernels::cuda::testing;

TEST_SUITE_BEGIN("cuda");

TEST_CASE("CUDA: long chunks load the bytes of K and V that their plan counts, and no block more") {
  const troupe::kernels::testing::prompt_shape shape{256, 64, 2};
  constexpr int heads = 2;
  const auto device = make_device(false);
  const auto cache = device->make_kv_cache(
    {1, heads, shape.dim, kv_type::bf16, std::size_t(shape.tokens) / block_tokens});
  std::vector<std::int32_t> table(std::size_t(shape.tokens) / block_tokens);
  std::iota(table.begin(), table.end(), 0);
  generator random(4);
  const std::size_t columns = 3 * heads * std::size_t(shape.dim), rows = std::size_t(shape.tokens);
  const device_tensor qkv(*device, wide(random.normal(rows * columns)), rows);
  const device_tensor out(*device, dtype::bf16, rows, heads * std::size_t(shape.dim));
  const sequence_rows prompt{0, shape.tokens, 0, 0};
  const device_tensor rope(*device, wide(std::vector<float>(rows * std::size_t(shape.dim), 0.7f)), 1);
  device->rope_write_kv(qkv.view, heads, {}, rope.floats(), *cache, 0, {{&prompt, 1}, table});
  const auto before = cuda::emulated::copied_bytes();
  device->attention(out.view, qkv.view, heads, 0.125f, 0, *cache, 0, {{&prompt, 1}, table});
  device->queue().synchronise();
  const auto plan = troupe::kernels::testing::on_gpu(shape);
  CHECK(plan.kv == 128 + 256);
  CHECK(double(cuda::emulated::copied_bytes() - before) == shape.heads * 2 * plan.kv * shape.dim * 2);
}

TEST_SUITE_END();
