#include "tests/kernels/support.hpp"

#include <bit>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

TEST_CASE("rms_norm agrees with the reference, into f32 and bf16, for gathered rows") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    for (const std::size_t cols : {1, 7, 64, 111, 989})
      for (const dtype type : {dtype::f32, dtype::bf16}) {
        generator random;
        numbers x(dtype::f32, random.normal(40 * cols, 3));
        const auto weight = random.normal(cols);
        const std::int32_t rows[] = {39, 0, 7, 7, 12};
        numbers all(type, 40 * cols), gathered(type, 5 * cols);
        device->rms_norm(all.rows(40), x.rows(40), weight.data(), 1e-5f);
        device->rms_norm(gathered.rows(5), x.rows(40), weight.data(), 1e-5f, rows);
        for (int i = 0; i < 5; ++i)
          CHECK(gathered.slice(i * cols, cols) == all.slice(rows[i] * cols, cols));
        std::vector<double> want, tolerance;
        for (std::size_t r = 0; r < 40; ++r)
          for (const double v : reference::rms_norm(x.slice(r * cols, cols).values(), weight.data(), 1e-5f)) {
            want.push_back(v);
            tolerance.push_back(std::abs(v) * (unit(type) + std::sqrt(double(cols) + 20) * unit(dtype::f32)));
          }
        check_close(all.values(), want, tolerance, std::string(to_string(target)) + " " + std::to_string(cols));
      }
  }
}

TEST_CASE("numbers are rounded to bf16 to nearest even, including NaN, infinities and subnormals") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    generator random;
    std::vector<float> tricky{0x1.01p0f, 0x1.03p0f, -0x1.01p0f, 0x1.fffffep127f, INFINITY, -INFINITY,
                              1e-40f,    -3e-39f,   -0.0f};
    for (const std::uint32_t bits : {0x7f800001u, 0xffbfffffu, 0x7fffffffu, 0x00008000u, 0x00018000u, 0x3f7fffffu})
      tricky.push_back(std::bit_cast<float>(bits));
    for (const std::size_t cols : {16, 48, 53}) {
      // The same norm in f32 gives the numbers to round.
      auto weight = random.normal(cols);
      for (std::size_t i = 0; i < tricky.size(); ++i)
        weight[(i * 7) % cols] = tricky[i];
      numbers x(dtype::f32, std::vector<float>(cols, 1)), wide(dtype::f32, cols), narrow(dtype::bf16, cols);
      device->rms_norm(wide.rows(1), x.rows(1), weight.data(), 0);
      device->rms_norm(narrow.rows(1), x.rows(1), weight.data(), 0);
      CHECK_MESSAGE(numbers(dtype::bf16, wide.wide) == narrow, to_string(target), ", ", cols, " columns");
    }
  }
}

TEST_CASE("embed gathers rows exactly from f32, f16 and bf16 tables, including subnormals and infinities") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    for (const dtype type : {dtype::f32, dtype::f16, dtype::bf16}) {
      generator random;
      const std::size_t vocabulary = 60, cols = 37;
      auto values = random.normal(vocabulary * cols);
      values[0] = 6e-8f, values[1] = -3e-6f, values[2] = INFINITY, values[3] = -0.0f, values[4] = 65504;
      const numbers table(type, values);
      const auto loaded = device->load_table({table.data(), type, vocabulary, cols});
      const std::int32_t tokens[] = {59, 0, 0, 17};
      numbers out(dtype::f32, 4 * cols);
      device->embed(out.rows(4), *loaded, tokens);
      for (int i = 0; i < 4; ++i)
        for (std::size_t c = 0; c < cols; ++c)
          CHECK(out[i * cols + c] == table[tokens[i] * cols + c]);
    }
  }
}

TEST_CASE("f16 weights are read exactly: all 63488 finite values") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    numbers all;
    all.type = dtype::f16;
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits)
      if ((bits & 0x7c00) != 0x7c00)
        all.narrow.push_back(static_cast<std::uint16_t>(bits));
    const auto loaded = device->load_table({all.data(), dtype::f16, 1, all.size()});
    const std::int32_t token = 0;
    numbers out(dtype::f32, all.size());
    device->embed(out.rows(1), *loaded, &token);
    CHECK(out.values() == all.values());
  }
}

TEST_CASE("silu of extreme gates is accurate") {
  // gate = x, up = 1 through 1 x 1 weights: out = x / (1 + e^-x), to a few units over the whole range.
  const float one = 1;
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    const stored_matrix w{&one, dtype::f32, 1, 1};
    const auto packed = device->pack_gate_up(w, w, dtype::f32);
    std::vector<double> got, want, tolerance;
    for (double x = -120; x <= 120; x += 0.0371) {
      float in = static_cast<float>(x), out = 0;
      device->linear_silu_gate({&out, dtype::f32, 1, 1, 1}, {&in, dtype::f32, 1, 1, 1}, *packed);
      got.push_back(out);
      want.push_back(reference::silu_gate(in, in));
      // Below -87 the exponential nears the limit of f32 and the result is smaller than 1e-33.
      tolerance.push_back(std::abs(want.back()) * 6 * unit(dtype::f32) + (x < -87 ? 1e-33 : 0));
    }
    check_close(got, want, tolerance, std::string(to_string(target)));
  }
}

TEST_CASE("a backend describes itself") {
  CHECK(make_backend(isa::portable, 1)->description() == "cpu, portable, 1 thread");
  CHECK(make_backend(available_isas().back(), 3)->description() ==
        "cpu, " + std::string(to_string(available_isas().back())) + ", 3 threads");
}

TEST_CASE("memory is zeroed and aligned, small or large, and the error for an impossible size names it") {
  const auto device = make_cpu_backend();
  for (const std::size_t bytes : {std::size_t(1), std::size_t(1000), std::size_t(5) << 20}) {
    const auto memory = device->allocate(bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(memory.get()) % 64 == 0);
    const auto* p = static_cast<const char*>(memory.get());
    CHECK(std::all_of(p, p + bytes, [](char c) { return c == 0; }));
  }
  CHECK_THROWS_WITH_AS(device->allocate(std::size_t(1) << 60), "cannot allocate 1152921504606846976 bytes",
                       device_error);
}

TEST_CASE("upload and download keep the numbers, also of rows with gaps between them") {
  const auto device = make_cpu_backend();
  generator random;
  const auto values = random.normal(60);
  const auto memory = device->upload(values);
  std::vector<float> back(40);
  device->download(back.data(), {memory.get(), dtype::f32, 4, 10, 15});
  for (int r = 0; r < 4; ++r)
    for (int c = 0; c < 10; ++c)
      CHECK(back[r * 10 + c] == values[r * 15 + c]);
}
