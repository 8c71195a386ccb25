// Foundations of an executor on a GPU besides the ops: streams and events, inputs staged ahead, uploads through pinned
// memory, recorded steps.
#include "kernels/cuda/graph.hpp"
#include "kernels/cuda/pinned_staging.hpp"
#include "kernels/cuda/uploader.hpp"
#include "tests/kernels/cuda/skips.hpp"
#include "tests/kernels/cuda/support.hpp"

#include <atomic>
#include <bit>

using namespace troupe::kernels;
using namespace troupe::kernels::cuda::testing;
namespace cuda = troupe::kernels::cuda;

TEST_SUITE_BEGIN("cuda");

TEST_CASE("CUDA: an event happens when earlier work is done, and other streams wait for it") {
  const auto device = make_device();
  const cuda::stream first, second;
  const std::size_t count = 1 << 16;
  const auto from = cuda::allocate_pinned(count * sizeof(int)), to = cuda::allocate_pinned(count * sizeof(int));
  const auto memory = cuda::allocate(count * sizeof(int));
  auto* numbers = static_cast<int*>(from.get());
  std::iota(numbers, numbers + count, 1);
  cuda::event uploaded, downloaded;
  std::atomic<int> calls = 0;
  cuda::copy_to_device(first, memory.get(), from.get(), count * sizeof(int));
  uploaded.record(first);
  cuda::wait_for(second, uploaded);
  cuda::copy_to_host(second, to.get(), memory.get(), count * sizeof(int));
  cuda::call_on_host(second, [&] { ++calls; });
  downloaded.record(second);
  downloaded.synchronise();
  CHECK(downloaded.happened());
  CHECK(uploaded.happened());
  CHECK(calls == 1);
  CHECK(std::equal(numbers, numbers + count, static_cast<const int*>(to.get())));
  CHECK(cuda::event().happened()); // never recorded
}

TEST_CASE("CUDA: uploads of host memory that changes at once arrive as they were, also more than can be in flight") {
  const auto device = make_device();
  const cuda::stream on;
  constexpr std::size_t rounds = 9, count = 5000;
  cuda::pinned_staging staging;
  const auto memory = cuda::allocate(rounds * count * sizeof(int));
  std::vector<int> values(count);
  for (std::size_t i = 0; i < rounds; ++i) {
    std::iota(values.begin(), values.end(), static_cast<int>(i * count));
    staging.copy(on, static_cast<int*>(memory.get()) + i * count, values.data(), count * sizeof(int));
  }
  std::vector<int> got(rounds * count), want(rounds * count);
  cuda::copy_to_host(on, got.data(), memory.get(), got.size() * sizeof(int));
  on.synchronise();
  std::iota(want.begin(), want.end(), 0);
  CHECK(got == want);
}

TEST_CASE("CUDA: an upload of host memory is refused in a recording") {
  const auto device = make_device();
  const cuda::stream on;
  cuda::pinned_staging staging;
  const auto memory = cuda::allocate(sizeof(int));
  const int value = 7;
  CHECK_FALSE(cuda::is_recorded(on));
  const auto upload = [&] {
    CHECK(cuda::is_recorded(on));
    staging.copy(on, memory.get(), &value, sizeof value);
  };
  CHECK_THROWS_WITH_AS(cuda::graph(on, upload), "an upload of host memory must not be part of a recording",
                       std::logic_error);
  staging.copy(on, memory.get(), &value, sizeof value);
  on.synchronise();
}

TEST_CASE("CUDA: an upload filled in by several threads arrives complete, with zeros where nothing was written") {
  const auto device = make_device();
  const cuda::stream on;
  cuda::uploader up(on);
  for (const std::size_t units : {0, 1, 7, 1000, 70000}) {
    CAPTURE(units);
    const std::size_t first_bytes = 523, second_bytes = 4; // more than two pieces of the largest
    const auto a = cuda::allocate(units * first_bytes), b = cuda::allocate(units * second_bytes);
    const cuda::uploader::target targets[] = {{a.get(), first_bytes}, {b.get(), second_bytes}};
    up.upload(targets, units, [&](std::size_t first, std::size_t n, std::span<std::uint8_t* const> to) {
      for (std::size_t i = 0; i < n; ++i) {
        to[0][i * first_bytes + (first + i) % first_bytes] = static_cast<std::uint8_t>((first + i) % 251 + 1);
        const auto index = static_cast<std::uint32_t>(first + i);
        std::memcpy(to[1] + i * second_bytes, &index, sizeof index);
      }
    });
    std::vector<std::uint8_t> got_a(units * first_bytes);
    std::vector<std::uint32_t> got_b(units);
    cuda::copy_to_host(on, got_a.data(), a.get(), got_a.size());
    cuda::copy_to_host(on, got_b.data(), b.get(), units * second_bytes);
    on.synchronise();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < units; ++i) {
      wrong += got_b[i] != i;
      for (std::size_t k = 0; k < first_bytes; ++k)
        wrong += got_a[i * first_bytes + k] != (k == i % first_bytes ? i % 251 + 1 : 0);
    }
    CHECK(wrong == 0);
  }
}

TEST_CASE("CUDA: blocks of a cache whose layer distance exceeds the largest pitch are saved and restored") {
  const kv_shape shape{2, 8, 256, kv_type::bf16, 16400}; // 2.1 GB each
  const auto device = make_device();
  if (!is_emulated() && cuda::select_device(0).available < shape.block_bytes() * (shape.blocks + 8000))
    return skip_this_test("the GPU has too little memory");
  const auto cache = device->make_kv_cache(shape);
  REQUIRE(shape.block_bytes() / 2 * shape.blocks > cuda::most_pitch);
  const auto bytes = shape.block_bytes();
  const auto host = cuda::allocate_pinned(4 * bytes);
  auto* at = static_cast<unsigned char*>(host.get());
  for (std::size_t i = 0; i < 2 * bytes; ++i)
    at[i] = static_cast<unsigned char>(i * 7 / 5);
  const std::int32_t last = static_cast<std::int32_t>(shape.blocks) - 1;
  device->restore_block(device->queue(), *cache, 0, at);
  device->restore_block(device->queue(), *cache, last, at + bytes);
  device->save_block(device->queue(), *cache, 0, at + 2 * bytes);
  device->save_block(device->queue(), *cache, last, at + 3 * bytes);
  device->queue().synchronise();
  CHECK(std::equal(at, at + 2 * bytes, at + 2 * bytes));
}

TEST_CASE("CUDA: a step staged ahead equals one whose inputs the ops upload, and replays") {
  generator random(3);
  const int dim = 64, heads = 4, kv_heads = 2, blocks = 40, hidden = 64;
  const std::size_t columns = std::size_t(heads + 2 * kv_heads) * dim;
  const auto device = make_device(true), plain = make_device(true);
  const kv_shape shape{1, kv_heads, dim, kv_type::bf16, blocks};
  const auto cache = device->make_kv_cache(shape), plain_cache = plain->make_kv_cache(shape);
  const auto table_values = random.normal(50 * hidden);
  const stored_matrix stored{table_values.data(), dtype::f32, 50, hidden};
  const auto table = device->load_table(stored), plain_table = plain->load_table(stored);
  const device_tensor rope(*device, wide(std::vector<float>(640 * dim, 0.5f)), 1);
  const device_tensor slots(*device, wide({std::bit_cast<float>(7), std::bit_cast<float>(9), std::bit_cast<float>(11)}),
                            1);
  const device_tensor weight(*device, wide(std::vector<float>(hidden, 1.f)), 1);

  std::unique_ptr<cuda::graph> recorded;
  std::vector<std::uint64_t> recorded_shape;
  int replays = 0;
  const device_tensor embedded(*device, dtype::f32, 3, hidden), out(*device, dtype::f32, 3, heads * dim),
    normed(*device, dtype::f32, 3, hidden);
  const device_tensor qkv_memory(*device, dtype::f32, 3, columns);
  for (int step = 0; step < 6; ++step) {
    CAPTURE(step);
    std::vector<sequence_rows> who;
    std::vector<std::int32_t> tables;
    for (int s = 0; s < 3; ++s) {
      const int position = step * 20 + s * 7;
      who.push_back({s, 1, position, static_cast<std::int32_t>(tables.size())});
      for (int b = 0; b <= position / block_tokens; ++b)
        tables.push_back(s * 12 + b);
    }
    const batch rows{who, tables};
    const std::vector<std::int32_t> asked{-1 - step % 3, 5, -1 - 2}, known{7 + 2 * (step % 3), 5, 11}, zeros{0, 5, 0};
    const std::vector<std::int32_t> gathered{2, 0, 1};
    const auto qkv = random.normal(3 * columns);

    const device_tensor plain_qkv(*plain, wide(qkv), 3), plain_embedded(*plain, dtype::f32, 3, hidden),
      plain_out(*plain, dtype::f32, 3, heads * dim), plain_normed(*plain, dtype::f32, 3, hidden);
    plain->embed(plain_embedded.view, *plain_table, known.data());
    plain->rms_norm(plain_normed.view, plain_embedded.view, weight.floats(), 1e-5f, gathered.data());
    plain->rope_write_kv(plain_qkv.view, heads, {}, rope.floats(), *plain_cache, 0, rows);
    plain->attention(plain_out.view, plain_qkv.view, heads, 0.125f, 0, *plain_cache, 0, rows);

    device->stage({asked, rows, gathered, true});
    cuda::copy_to_device(device->queue(), qkv_memory.memory.get(), qkv.data(), qkv.size() * sizeof(float));
    device->begin_step(static_cast<const std::int32_t*>(slots.memory.get()));
    const auto ops = [&] {
      device->embed(embedded.view, *table, zeros.data());
      device->rms_norm(normed.view, embedded.view, weight.floats(), 1e-5f, gathered.data());
      device->rope_write_kv(qkv_memory.view, heads, {}, rope.floats(), *cache, 0, rows);
      device->attention(out.view, qkv_memory.view, heads, 0.125f, 0, *cache, 0, rows);
    };
    const auto launches = device->launch_shape();
    CHECK(launches.empty() == (step == 0)); // attention options are not known before the first step
    if (recorded && launches == recorded_shape) {
      recorded->replay(device->queue());
      ++replays;
    } else if (step == 2) {
      recorded = std::make_unique<cuda::graph>(device->queue(), ops);
      recorded_shape = launches;
      recorded->replay(device->queue());
    } else {
      ops();
    }
    CHECK(embedded.read() == plain_embedded.read());
    CHECK(normed.read() == plain_normed.read());
    CHECK(out.read() == plain_out.read());
  }
  CHECK(replays == 3);
}

TEST_CASE("CUDA: ids that are uploaded take the place of those staged, also if the staged ones follow again") {
  const auto device = make_device();
  constexpr std::size_t hidden = 64, table_rows = 10;
  const auto values = generator(5).normal(table_rows * hidden);
  const auto table = device->load_table({values.data(), dtype::f32, table_rows, hidden});
  const device_tensor slots(*device, wide({std::bit_cast<float>(9)}), 1), out(*device, dtype::f32, 1, hidden),
    all(*device, wide(values), table_rows), ones(*device, wide(std::vector<float>(hidden, 1.f)), 1);
  const auto embedded = [&](std::int32_t id) {
    device->embed(out.view, *table, &id);
    return out.read();
  };
  const auto gathered = [&](std::int32_t row) {
    device->rms_norm(out.view, all.view, ones.floats(), 1e-5f, &row);
    return out.read();
  };
  std::vector<numbers> rows, normed;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(table_rows); ++i) {
    rows.push_back(embedded(i));
    normed.push_back(gathered(i));
  }
  const sequence_rows who{0, 1, 0, 0, 1};
  const std::vector<std::int32_t> blocks{0}, logit_rows{6};
  const auto stage = [&](std::int32_t token) {
    device->stage({{&token, 1}, {{&who, 1}, blocks}, logit_rows, false});
    device->begin_step(static_cast<const std::int32_t*>(slots.memory.get()));
  };
  stage(-1);
  CHECK(embedded(0) == rows[9]); // the placeholder's
  CHECK(embedded(3) == rows[3]);
  CHECK(embedded(0) == rows[0]);
  stage(-1); // the host has read the token
  CHECK(embedded(9) == rows[9]);
  CHECK(embedded(0) == rows[0]);
  stage(4);
  for (const std::int32_t id : {4, 3, 4})
    CHECK(embedded(id) == rows[static_cast<std::size_t>(id)]);
  for (const std::int32_t row : {6, 2, 6})
    CHECK(gathered(row) == normed[static_cast<std::size_t>(row)]);
}

TEST_SUITE_END();
