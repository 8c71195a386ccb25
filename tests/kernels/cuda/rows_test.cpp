#include "tests/kernels/cuda/support.hpp"

using namespace troupe::kernels;
using namespace troupe::kernels::cuda::testing;

TEST_SUITE_BEGIN("cuda");

TEST_CASE("CUDA: rms_norm agrees with the reference, into f32 and bf16, for gathered rows") {
  const auto device = make_device();
  for (const std::size_t cols : {1, 7, 64, 111, 989})
    for (const dtype type : {dtype::f32, dtype::bf16}) {
      generator random;
      const numbers x(dtype::f32, random.normal(40 * cols, 3));
      const auto weight = random.normal(cols);
      const device_tensor in(*device, x, 40), weights(*device, wide(weight), 1);
      const std::int32_t rows[] = {39, 0, 7, 7, 12};
      const device_tensor all(*device, type, 40, cols), gathered(*device, type, 5, cols);
      device->rms_norm(all.view, in.view, weights.floats(), 1e-5f);
      device->rms_norm(gathered.view, in.view, weights.floats(), 1e-5f, rows);
      const auto got = all.read();
      for (int i = 0; i < 5; ++i)
        CHECK(gathered.read().slice(i * cols, cols) == got.slice(rows[i] * cols, cols));
      std::vector<double> want, tolerance;
      for (std::size_t r = 0; r < 40; ++r)
        for (const double v : reference::rms_norm(x.slice(r * cols, cols).values(), weight.data(), 1e-5f)) {
          want.push_back(v);
          tolerance.push_back(std::abs(v) * (unit(type) + std::sqrt(double(cols) + 20) * unit(dtype::f32)));
        }
      check_close(got.values(), want, tolerance, std::to_string(cols));
    }
}

TEST_CASE("CUDA: embed gathers rows exactly from float tables and from every block format") {
  const auto device = make_device();
  generator random;
  const std::int32_t tokens[] = {19, 0, 0, 7};
  for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
    const std::size_t vocabulary = 20, cols = 37;
    auto values = random.normal(vocabulary * cols);
    values[0] = 6e-8f, values[1] = -3e-6f, values[2] = INFINITY, values[3] = -0.0f, values[4] = 65504;
    const numbers table(type, values);
    const auto loaded = device->load_table({table.data(), type, vocabulary, cols});
    const device_tensor out(*device, dtype::f32, 4, cols);
    device->embed(out.view, *loaded, tokens);
    for (int i = 0; i < 4; ++i)
      for (std::size_t c = 0; c < cols; ++c)
        CHECK(out.read()[i * cols + c] == table[tokens[i] * cols + c]);
  }
  for (const auto& traits : weight_formats) {
    const auto format = traits.format;
    if (is_float(format))
      continue;
    const std::size_t cols = 512;
    std::vector<std::uint8_t> bytes(20 * row_bytes(format, cols));
    for (auto& b : bytes)
      b = static_cast<std::uint8_t>(random.below(0x7c)); // no scale is NaN
    const stored_matrix table{bytes.data(), format, 20, cols};
    const auto loaded = device->load_table(table);
    const device_tensor out(*device, dtype::f32, 4, cols);
    device->embed(out.view, *loaded, tokens);
    const auto got = out.read();
    for (int i = 0; i < 4; ++i) {
      std::vector<float> want(cols);
      expand(format, table.row(tokens[i]), 0, cols, want.data());
      for (std::size_t k = 0; k < cols; ++k)
        CHECK(got[i * cols + k] == want[k]);
    }
  }
}

TEST_CASE("CUDA: blocks are copied in order over all layers, and moved to host memory and back") {
  for (const kv_type type : {kv_type::f32, kv_type::bf16, kv_type::int8, kv_type::fp8}) {
    CAPTURE(to_string(type));
    const auto device = make_device();
    const int layers = 3, kv_heads = 2, dim = 16, blocks = 6;
    const std::size_t columns = (1 + 2 * kv_heads) * dim;
    const auto cache = device->make_kv_cache({layers, kv_heads, dim, type, blocks});
    const std::vector<float> rope(blocks * block_tokens * dim, 0.5f);
    const device_tensor rope_memory(*device, wide(rope), 1);
    generator random;
    std::vector<std::int32_t> table(blocks);
    std::iota(table.begin(), table.end(), 0);
    for (int layer = 0; layer < layers; ++layer) {
      const device_tensor qkv(*device, wide(random.normal(blocks * block_tokens * columns)), blocks * block_tokens);
      const sequence_rows who{0, blocks * block_tokens, 0, 0};
      device->rope_write_kv(qkv.view, 1, {}, rope_memory.floats(), *cache, layer, {{&who, 1}, table});
    }
    const auto bytes = cache->shape.block_bytes();
    const auto content = [&](std::int32_t block) {
      std::vector<unsigned char> host(bytes);
      device->save_block(device->queue(), *cache, block, host.data());
      device->queue().synchronise();
      return host;
    };
    std::vector<std::vector<unsigned char>> before;
    for (int b = 0; b < blocks; ++b)
      before.push_back(content(b));
    CHECK(before[0] != before[1]);
    const block_copy copies[] = {{0, 1}, {1, 2}, {4, 3}, {5, 4}}; // 2 receives the new contents of 1
    device->copy_blocks(*cache, copies);
    CHECK(content(1) == before[0]);
    CHECK(content(2) == before[0]);
    CHECK(content(3) == before[4]);
    CHECK(content(4) == before[5]);
    device->restore_block(device->queue(), *cache, 5, before[2].data());
    CHECK(content(5) == before[2]);
    CHECK(content(0) == before[0]);
    CHECK_THROWS_AS(device->save_block(device->queue(), *cache, blocks, before[0].data()), std::invalid_argument);

    // Canonical form: the same bytes, whatever the size of the cache that they come from.
    std::vector<unsigned char> image(bytes), again(bytes);
    const block_export out[] = {{3, image.data()}, {2, again.data()}};
    device->export_blocks(*cache, out);
    CHECK(image == content(3));
    const auto other = device->make_kv_cache({layers, kv_heads, dim, type, blocks + 5});
    const block_import in[] = {{image.data(), 10}, {again.data(), 0}};
    device->import_blocks(*other, in);
    std::vector<unsigned char> back(bytes);
    const block_export back_out[] = {{10, back.data()}};
    device->export_blocks(*other, back_out);
    CHECK(back == image);
    CHECK_THROWS_AS(device->import_blocks(*cache, in), std::invalid_argument);
  }
}

TEST_CASE("CUDA: memory is zeroed and aligned, and the error for an impossible size names the call and the size") {
  const auto device = make_device();
  for (const std::size_t bytes : {std::size_t(1), std::size_t(1000), std::size_t(5) << 20}) {
    const auto memory = device->allocate(bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(memory.get()) % 64 == 0);
    std::vector<char> host(bytes, 1);
    copy_to_host(device->queue(), host.data(), memory.get(), bytes);
    device->queue().synchronise();
    CHECK(std::all_of(host.begin(), host.end(), [](char c) { return c == 0; }));
  }
  CHECK_THROWS_WITH_AS(device->allocate(std::size_t(1) << 60), "cudaMalloc (1152921504606846976 bytes): out of memory",
                       device_error);
}

TEST_CASE("CUDA: upload and download keep values, also with strides") {
  const auto device = make_device();
  generator random;
  const auto values = random.normal(60);
  const auto memory = device->upload(values);
  std::vector<float> back(40);
  device->download(back.data(), {memory.get(), dtype::f32, 4, 10, 15});
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < 10; ++c)
      CHECK(back[r * 10 + c] == values[r * 15 + c]);
}

TEST_CASE("CUDA: the error for a missing device names its number") {
  CHECK_THROWS_AS(troupe::kernels::cuda::make_cuda_backend({.device = 99}), device_error);
}

TEST_CASE(
  "CUDA: the rows of a sequence are rotated by its length, also between those of others, and not without angles") {
  const auto device = make_device();
  const int dim = 16, rows = 6, border = 8;
  const std::size_t columns = 3 * dim;
  generator random;
  const auto shorter = random.normal(rows * dim), longer = random.normal(rows * dim),
             values = random.normal(rows * columns);
  const device_tensor short_table(*device, wide(shorter), 1), long_table(*device, wide(longer), 1);
  const auto rotated = [&](const rope_rows& rope, std::int32_t first_length, std::int32_t last_length) {
    const auto cache = device->make_kv_cache({1, 1, dim, kv_type::f32, 2});
    const device_tensor qkv(*device, wide(values), rows);
    const sequence_rows who[] = {{0, 4, 0, 0, first_length}, {4, 2, 1, 1, last_length}};
    const std::int32_t table[] = {0, 1};
    device->rope_write_kv(qkv.view, 1, {}, rope, *cache, 0, {who, table});
    return qkv.read().wide;
  };
  const auto of_short = rotated(short_table.floats(), 0, 0), of_long = rotated(long_table.floats(), 0, 0);
  const rope_rows both(short_table.floats(), long_table.floats(), border);
  CHECK(of_short != of_long);
  CHECK(rotated(both, 8, 3) == of_short);
  CHECK(rotated(both, 9, 40) == of_long);
  auto mixed = of_short;
  std::copy(of_long.begin() + 4 * columns, of_long.end(), mixed.begin() + 4 * columns);
  CHECK(rotated(both, 8, 9) == mixed);
  CHECK(rotated({}, 8, 9) == values);
}

TEST_SUITE_END();
