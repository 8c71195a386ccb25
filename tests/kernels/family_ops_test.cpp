// The ops of further families: layer norm, activations, shaped attention, sums and copies of rows.
#include "kernels/block_transfer.hpp"
#include "tests/kernels/support.hpp"

#include <numeric>

using namespace troupe::kernels;
using namespace troupe::kernels::testing;

TEST_CASE("layer_norm agrees with the reference, with and without bias, into f32 and bf16, for gathered rows") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    for (const std::size_t cols : {2, 7, 64, 111, 989})
      for (const dtype type : compute_types)
        for (const bool biased : {false, true}) {
          generator random;
          auto values = random.normal(40 * cols, 3);
          for (auto& v : values)
            v += 2; // a mean that matters
          numbers x(dtype::f32, values);
          const auto weight = random.normal(cols), bias = random.normal(cols);
          const float* b = biased ? bias.data() : nullptr;
          const std::int32_t rows[] = {39, 0, 7, 7, 12};
          numbers all(type, 40 * cols), gathered(type, 5 * cols);
          device->layer_norm(all.rows(40), x.rows(40), weight.data(), b, 1e-5f);
          device->layer_norm(gathered.rows(5), x.rows(40), weight.data(), b, 1e-5f, rows);
          for (int i = 0; i < 5; ++i)
            CHECK(gathered.slice(i * cols, cols) == all.slice(rows[i] * cols, cols));
          std::vector<double> want, tolerance;
          for (std::size_t r = 0; r < 40; ++r)
            for (const double v : reference::layer_norm(x.slice(r * cols, cols).values(), weight.data(), b, 1e-5f)) {
              want.push_back(v);
              // Errors of the mean and of each difference from it are absolute, in units of the inputs' deviation; with
              // few columns, that may be small.
              const double absolute = cols < 8 ? 1e-3 : 8 * (std::sqrt(double(cols)) + 20) * unit(dtype::f32);
              tolerance.push_back((std::abs(v) + 1) * unit(type) + 4 * absolute);
            }
          check_close(all.values(), want, tolerance, std::string(to_string(target)) + " " + std::to_string(cols));
        }
  }
}

TEST_CASE("activations are accurate over the whole range, alone and as gates") {
  // x and 1 through 1 x 1 weights.
  using enum activation_type;
  const float one = 1;
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    const stored_matrix w{&one, dtype::f32, 1, 1};
    const auto plain = device->pack(std::span(&w, 1), dtype::f32), pair = device->pack_gate_up(w, w, dtype::f32);
    for (const activation_type type : {none, silu, gelu, gelu_tanh, relu, relu_squared}) {
      std::vector<double> got, want, tolerance, got_gated, want_gated, tolerance_gated;
      for (double x = -60; x <= 60; x += 0.0371) {
        float in = static_cast<float>(x), out = 0;
        const tensor from{&in, dtype::f32, 1, 1, 1}, to{&out, dtype::f32, 1, 1, 1};
        device->linear_activated(to, from, *plain, {type}, false);
        got.push_back(out);
        want.push_back(reference::activated(type, in));
        tolerance.push_back(std::abs(want.back()) * 8 * unit(dtype::f32) + 4e-7 * (type == gelu || type == gelu_tanh));
        device->linear_activated(to, from, *pair, {type}, true);
        got_gated.push_back(out);
        want_gated.push_back(reference::gated({type}, in, in));
        tolerance_gated.push_back(tolerance.back() * std::abs(x) + std::abs(want_gated.back()) * unit(dtype::f32));
      }
      const auto what = std::string(to_string(target)) + " activation " + std::to_string(static_cast<int>(type));
      check_close(got, want, tolerance, what);
      check_close(got_gated, want_gated, tolerance_gated, what + " gated");
    }
  }
}

TEST_CASE("clamped SwiGLU clamps gate from above and up on both sides") {
  const std::size_t width = 37;
  for (const isa target : tested_isas())
    for (const activation act :
         {activation{activation_type::clamped_swiglu, 1.702f, 7}, activation{activation_type::cut_swiglu, 1, 3},
          activation{activation_type::cut_swiglu, 0.95f, 3}}) {
      const auto device = make_backend(target);
      generator random;
      const auto gate = random.normal(width, 6), up = random.normal(width, 6), bias = random.normal(2 * width);
      const auto packed = device->pack_gate_up({gate.data(), dtype::f32, width, 1}, {up.data(), dtype::f32, width, 1},
                                               dtype::f32);
      float in = 1;
      numbers out(dtype::f32, width);
      device->linear_activated(out.rows(1), {&in, dtype::f32, 1, 1, 1}, *packed, act, true, bias.data());
      std::vector<double> want, tolerance;
      for (std::size_t i = 0; i < width; ++i) {
        want.push_back(reference::gated(act, double(gate[i]) + bias[i], double(up[i]) + bias[width + i]));
        tolerance.push_back(std::abs(want.back()) * 20 * unit(dtype::f32) + 1e-6);
      }
      check_close(out.values(), want, tolerance, std::string(to_string(target)));
    }
}

TEST_CASE("a layer without a gate has the bits of its activation in any number of rows, of every kind of weights") {
  const std::size_t inputs = 96, outputs = 70, rows = 33;
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    generator random;
    for (const dtype compute : compute_types)
      for (const quantization how : {quantization::none, quantization::int8, quantization::int4}) {
        const numbers w(compute, random.normal(outputs * inputs, 0.1f));
        numbers x(compute, random.normal(rows * inputs));
        const auto bias = random.normal(outputs);
        const stored_matrix stored{w.data(), compute, outputs, inputs};
        const auto packed = device->pack(std::span(&stored, 1), compute, how);
        numbers sums(dtype::f32, rows * outputs), all(compute, rows * outputs), one(compute, outputs);
        device->linear(sums.rows(rows), x.rows(rows), *packed, bias.data());
        device->linear_activated(all.rows(rows), x.rows(rows), *packed, {activation_type::gelu_tanh}, false,
                                 bias.data());
        std::vector<double> want, tolerance;
        for (const double s : sums.values()) {
          want.push_back(reference::activated(activation_type::gelu_tanh, s));
          tolerance.push_back(std::abs(want.back()) * unit(compute) + 1e-6);
        }
        check_close(all.values(), want, tolerance, std::string(to_string(target)));
        for (std::size_t r = 0; r < rows; ++r) {
          auto row = x.slice(r * inputs, inputs);
          device->linear_activated(one.rows(1), row.rows(1), *packed, {activation_type::gelu_tanh}, false, bias.data());
          CHECK(one == all.slice(r * outputs, outputs));
        }
      }
  }
}

TEST_CASE("attention with capped scores, slopes and sinks agrees with the reference, and keeps its bits row by row") {
  const int heads = 6, kv_heads = 2, dim = 20, tokens = 270, columns = (heads + 2 * kv_heads) * dim;
  const std::size_t width = heads * dim;
  for (const isa target : tested_isas())
    for (int variant = 1; variant < 8; ++variant)
      for (const int window : {0, 37}) {
        const auto device = make_backend(target);
        generator random(variant);
        auto qkv = random.normal(std::size_t(tokens) * columns);
        const auto original = qkv;
        const auto sinks = random.normal(heads, 2);
        std::vector<float> slopes(heads), table(std::size_t(tokens) * dim);
        for (int h = 0; h < heads; ++h)
          slopes[h] = 0.3f / static_cast<float>(h + 1);
        for (int t = 0; t < tokens; ++t)
          std::fill_n(table.begin() + t * dim, dim / 2, 1.0f);
        attention_scores how{0.7f, window};
        how.soft_cap = variant & 1 ? 3.0f : 0.0f;
        how.slopes = variant & 2 ? slopes.data() : nullptr;
        how.sinks = variant & 4 ? sinks.data() : nullptr;
        const auto cache = device->make_kv_cache({1, kv_heads, dim, kv_type::f32, 17});
        std::vector<std::int32_t> blocks(17);
        std::iota(blocks.begin(), blocks.end(), 0);
        const sequence_rows all{0, tokens, 0, 0};
        const tensor from{qkv.data(), dtype::f32, std::size_t(tokens), std::size_t(columns), std::size_t(columns)};
        device->rope_write_kv(from, heads, {}, table.data(), *cache, 0, {{&all, 1}, blocks});
        numbers out(dtype::f32, tokens * width), row(dtype::f32, width);
        device->shaped_attention(out.rows(tokens), from, heads, how, *cache, 0, {{&all, 1}, blocks});
        const auto head_at = [&](int token, int head) {
          const auto first = original.begin() + token * columns + head * dim;
          return std::vector<double>(first, first + dim);
        };
        std::vector<double> want, got, tolerance;
        for (const int t : {0, 1, 36, 255, 256, 269}) {
          for (int h = 0; h < heads; ++h) {
            std::vector<std::vector<double>> keys, values;
            for (int i = 0; i <= t; ++i) {
              keys.push_back(head_at(i, heads + h / 3));
              values.push_back(head_at(i, heads + kv_heads + h / 3));
            }
            const std::size_t first = window > 0 ? std::max(0, t + 1 - window) : 0;
            for (const double v : reference::shaped_attention(head_at(t, h), keys, values, first, t + 1, how, h)) {
              want.push_back(v);
              tolerance.push_back(2e-5);
            }
          }
          const auto part = out.slice(t * width, width).values();
          got.insert(got.end(), part.begin(), part.end());
          const sequence_rows who{0, 1, t, 0};
          device->shaped_attention(
            row.rows(1), {qkv.data() + t * columns, dtype::f32, 1, std::size_t(columns), std::size_t(columns)}, heads,
            how, *cache, 0, {{&who, 1}, blocks});
          CHECK(row == out.slice(t * width, width));
        }
        check_close(got, want, tolerance, std::string(to_string(target)) + " variant " + std::to_string(variant));
      }
}

TEST_CASE("attention within chunks, and to what follows, agrees with the reference, and keeps its bits in any plan") {
  const int heads = 4, kv_heads = 2, dim = 20, tokens = 290, columns = (heads + 2 * kv_heads) * dim;
  const std::size_t width = heads * dim;
  struct reach {
    int window, chunk, ahead;
  };
  for (const isa target : tested_isas())
    for (const auto& seen : {reach{0, 37, 0}, reach{0, 256, 0}, reach{20, 64, 0}, reach{0, 0, all_ahead},
                             reach{9, 0, 8}, reach{300, 0, 299}}) {
      const int window = seen.window, chunk = seen.chunk, ahead = seen.ahead;
      CAPTURE(window);
      CAPTURE(chunk);
      CAPTURE(ahead);
      generator random(7);
      const auto qkv = random.normal(std::size_t(tokens) * columns);
      std::vector<float> table(std::size_t(tokens) * dim);
      for (int t = 0; t < tokens; ++t)
        std::fill_n(table.begin() + t * dim, dim / 2, 1.0f);
      attention_scores how{0.7f, window};
      how.chunk = chunk;
      how.ahead = ahead;
      std::vector<std::int32_t> blocks(19);
      std::iota(blocks.begin(), blocks.end(), 0);
      std::vector<numbers> results;
      for (const int threads : {1, 3}) {
        const auto device = make_backend(target, threads);
        auto rows = qkv;
        const auto cache = device->make_kv_cache({1, kv_heads, dim, kv_type::f32, 19});
        const sequence_rows all{0, tokens, 0, 0, tokens};
        const tensor from{rows.data(), dtype::f32, std::size_t(tokens), std::size_t(columns), std::size_t(columns)};
        device->rope_write_kv(from, heads, {}, table.data(), *cache, 0, {{&all, 1}, blocks});
        auto& out = results.emplace_back(dtype::f32, tokens * width);
        device->shaped_attention(out.rows(tokens), from, heads, how, *cache, 0, {{&all, 1}, blocks});
        numbers row(dtype::f32, width);
        for (const int t : {0, 36, 37, 255, 256, 289}) { // a row alone, of the same sequence
          const sequence_rows who{0, 1, t, 0, tokens};
          device->shaped_attention(
            row.rows(1), {rows.data() + t * columns, dtype::f32, 1, std::size_t(columns), std::size_t(columns)}, heads,
            how, *cache, 0, {{&who, 1}, blocks});
          CHECK(row == out.slice(t * width, width));
        }
      }
      CHECK(results[0] == results[1]);
      const auto head_at = [&](int token, int head) {
        const auto first = qkv.begin() + token * columns + head * dim;
        return std::vector<double>(first, first + dim);
      };
      std::vector<double> want, got, tolerance;
      for (const int t : {0, 1, 36, 37, 63, 64, 255, 256, 289}) {
        int first = window > 0 ? std::max(0, t + 1 - window) : 0;
        if (chunk > 0)
          first = std::max(first, t / chunk * chunk);
        const int end = std::min(tokens, ahead > tokens ? tokens : t + 1 + ahead);
        for (int h = 0; h < heads; ++h) {
          std::vector<std::vector<double>> keys, values;
          for (int i = 0; i < end; ++i) {
            keys.push_back(head_at(i, heads + h / 2));
            values.push_back(head_at(i, heads + kv_heads + h / 2));
          }
          for (const double v : reference::shaped_attention(
                 head_at(t, h), keys, values, static_cast<std::size_t>(first), static_cast<std::size_t>(end), how, h)) {
            want.push_back(v);
            tolerance.push_back(2e-5);
          }
        }
        const auto part = results[0].slice(t * width, width).values();
        got.insert(got.end(), part.begin(), part.end());
      }
      check_close(got, want, tolerance, std::string(to_string(target)));
    }
}

TEST_CASE("q and k may be normed behind the rotation, q alone leaves the cache as it is, and layers have caches of "
          "their own shapes") {
  const int heads = 2, dim = 8;
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    generator random(5);
    kv_shape shape{2, 2, dim, kv_type::f32, 2};
    shape.own = {{2, dim}, {1, 4}};
    CHECK(shape.block_bytes() == 16 * (2 * 2 * 8 + 1 * 2 * 4) * sizeof(float));
    const auto cache = device->make_kv_cache(shape);
    const std::int32_t blocks[] = {1};
    const sequence_rows one{0, 1, 3, 0, 4};
    std::vector<float> table(4 * dim, 0.6f);
    std::fill_n(table.begin() + 3 * dim + dim / 2, dim / 2, 0.8f);
    const auto weights = random.normal(dim);
    const auto original = random.normal((heads + 4) * dim);
    const auto rotated = [&](std::vector<float> x) {
      for (int i = 0; i < dim / 2; ++i) {
        const float a = x[i], b = x[i + dim / 2];
        x[i] = 0.6f * a - 0.8f * b;
        x[i + dim / 2] = 0.6f * b + 0.8f * a;
      }
      return x;
    };
    auto row = original;
    const std::size_t columns = row.size();
    device->rope_write_kv({row.data(), dtype::f32, 1, columns, columns}, heads,
                          {weights.data(), weights.data(), 1e-6f, true}, table.data(), *cache, 0, {{&one, 1}, blocks});
    auto want = rotated({original.begin(), original.begin() + dim});
    double squares = 0;
    for (const float x : want)
      squares += double(x) * x / dim;
    for (int i = 0; i < dim; ++i)
      CHECK(row[i] == doctest::Approx(want[i] / std::sqrt(squares + 1e-6) * weights[i]).epsilon(1e-5));
    std::vector<float> before(shape.block_bytes() / sizeof(float)), after(before.size());
    auto& transfer = dynamic_cast<block_transfer&>(*device);
    const block_export first[] = {{1, before.data()}}, second[] = {{1, after.data()}};
    transfer.export_blocks(*cache, first);
    auto queries = original;
    device->rope_write_kv({queries.data(), dtype::f32, 1, heads * dim, heads * dim}, heads, {}, table.data(), *cache, 0,
                          {{&one, 1}, blocks});
    transfer.export_blocks(*cache, second);
    CHECK(before == after);
    want = rotated({original.begin(), original.begin() + dim});
    for (int i = 0; i < dim; ++i)
      CHECK(queries[i] == doctest::Approx(want[i]).epsilon(1e-6));
    // The other layer: one narrow head.
    std::vector<float> narrow = random.normal(4 * 4);
    device->rope_write_kv({narrow.data(), dtype::f32, 1, 16, 16}, heads, {}, {}, *cache, 1, {{&one, 1}, blocks});
    transfer.export_blocks(*cache, second);
    const auto offset = 16 * 2 * 2 * 8;
    CHECK(std::equal(before.begin(), before.begin() + offset, after.begin()));
    CHECK(after[static_cast<std::size_t>(offset) + 16 * 4 + 3 * 4] == narrow[12]); // V of position 3
  }
}

TEST_CASE("xIELU agrees with its definition, and rows are multiplied element by element") {
  const activation act{activation_type::xielu, 0.9f, -1e-6f, 0.5f, 1.3f};
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    generator random(3);
    const std::size_t inputs = 24, outputs = 37, rows = 5;
    const auto w = random.normal(inputs * outputs), in = random.normal(rows * inputs);
    const stored_matrix stored{w.data(), dtype::f32, outputs, inputs};
    const auto packed = device->pack({&stored, 1}, dtype::f32, quantization::none);
    numbers x(dtype::f32, in), sums(dtype::f32, rows * outputs), all(dtype::f32, rows * outputs);
    device->linear(sums.rows(rows), x.rows(rows), *packed);
    device->linear_activated(all.rows(rows), x.rows(rows), *packed, act, false);
    std::vector<double> want, tolerance;
    for (const double s : sums.values()) {
      want.push_back(s > 0 ? 0.9 * s * s + 0.5 * s : (std::expm1(std::min(s, -1e-6)) - s) * 1.3 + 0.5 * s);
      tolerance.push_back(2e-6 + std::abs(want.back()) * 1e-6);
    }
    check_close(all.values(), want, tolerance, std::string(to_string(target)));

    const auto factors = random.normal(rows * outputs);
    numbers by(dtype::f32, factors), narrow(dtype::bf16, all.wide), wide(dtype::f32, all.wide);
    device->multiply_rows(wide.rows(rows), by.rows(rows));
    device->multiply_rows(narrow.rows(rows), by.rows(rows));
    for (std::size_t i = 0; i < wide.wide.size(); ++i)
      CHECK(wide.wide[i] == all.wide[i] * factors[i]);
    check_close(
      narrow.values(), wide.values(),
      [&] {
        std::vector<double> most;
        for (const double v : wide.values())
          most.push_back(std::abs(v) * 0x1p-7);
        return most;
      }(),
      "bf16");
  }
}

TEST_CASE("rows are clipped; NaN stays") {
  const auto device = make_backend(tested_isas().back());
  numbers x(dtype::f32, {-3, -1.5f, -0.5f, 0, 1, 1.75f, NAN, INFINITY, 0.25f, -INFINITY});
  device->clamp({x.data(), dtype::f32, 2, 4, 5}, 1.5f); // the last column is another's
  CHECK(x.values()[0] == -1.5);
  CHECK(std::isnan(x.values()[6]));
  x.wide[6] = 2;
  CHECK(x.values() == std::vector<double>{-1.5, -1.5, -0.5, 0, 1, 1.5, 2, 1.5, 0.25, -INFINITY});
}

TEST_CASE("rows are scaled, capped, added and copied; a factor of 0 clears even NaN") {
  for (const isa target : tested_isas()) {
    const auto device = make_backend(target);
    generator random;
    const std::size_t rows = 11, cols = 53;
    const auto values = random.normal(rows * cols, 4), others = random.normal(3 * cols);
    numbers x(dtype::f32, values);
    device->scale(x.rows(rows), 0.5f, 2);
    std::vector<double> want, tolerance(rows * cols, 1e-6);
    for (const float v : values)
      want.push_back(2 * std::tanh(0.5 * v / 2));
    check_close(x.values(), want, tolerance, std::string(to_string(target)));

    numbers sums(dtype::f32, values), added(dtype::f32, others);
    const std::int32_t to[] = {10, 0, 4};
    const float factors[] = {1, -2, 0.25f};
    device->add_rows(sums.rows(rows), added.rows(3), 0.5f, to, factors);
    for (std::size_t r = 0; r < rows; ++r)
      for (std::size_t c = 0; c < cols; ++c) {
        float expected = values[r * cols + c];
        for (int i = 0; i < 3; ++i)
          if (to[i] == static_cast<std::int32_t>(r))
            expected += others[i * cols + c] * (0.5f * factors[i]);
        CHECK(sums.wide[r * cols + c] == doctest::Approx(expected).epsilon(1e-6));
      }

    numbers copied(dtype::bf16, 3 * cols);
    device->gather_rows(copied.rows(3), sums.rows(rows), to);
    CHECK(copied.slice(cols, cols) == numbers(dtype::bf16, sums.slice(0, cols).wide));

    numbers bad(dtype::f32, cols);
    device->scale(bad.rows(1), 0);
    CHECK(bad.values() == std::vector<double>(cols, 0));

    const numbers table(dtype::f16, random.normal(5 * cols));
    const auto loaded = device->load_table({table.data(), dtype::f16, 5, cols});
    numbers positioned(dtype::f32, others);
    const std::int32_t positions[] = {4, 4, 1};
    device->embed_add(positioned.rows(3), *loaded, positions);
    for (std::size_t i = 0; i < 3 * cols; ++i)
      CHECK(positioned[i] == doctest::Approx(others[i] + table[positions[i / cols] * cols + i % cols]).epsilon(1e-6));
  }
}
